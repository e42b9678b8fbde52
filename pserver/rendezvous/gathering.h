// Collects the greetings of the processes that come to a rendezvous and checks that they fit together: the part of
// trainer 0, without any network.
#ifndef WEIR_PSERVER_RENDEZVOUS_GATHERING_H_
#define WEIR_PSERVER_RENDEZVOUS_GATHERING_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/rendezvous.pb.h"

namespace weir {

inline constexpr int kRendezvousVersion = 1;

// Returns "trainer 1 (host:42)", with nothing from the greeting that could break a line.
std::string NameOf(const v1::RendezvousGreeting& greeting);

// Returns "trainers 1 and 3, server 0" of two lists of ids: at most ten of each, and how many more.
std::string ListOf(const std::vector<int>& trainers, const std::vector<int>& servers);

// Returns the answer that tells a process of an error.
v1::RendezvousAnswer AnswerOf(v1::RendezvousAnswer::State state, const absl::Status& error);
// Returns the error in an answer, safe to show, and names `place` in front: "refused at tcp://host:6170: ...". Unknown
// if the answer has no error.
absl::Status ErrorIn(const v1::RendezvousAnswer& answer, const std::string& place);

// Not thread-safe.
class Gathering {
 public:
  // `own`: the greeting of trainer 0, which is there from the beginning and says what the others must say, too.
  explicit Gathering(v1::RendezvousGreeting own);

  // Returns FailedPrecondition, naming both, if the greeting is of another version, job or run. An empty name of a run
  // on a server fits every run, and so does kAnyRun (init_method.h).
  absl::Status CheckRun(const v1::RendezvousGreeting& greeting) const;
  // Returns what a process may hear of such a `refusal`: all of it if it knows the job's name, else only what it has
  // said itself. Any process that reaches the meeting point may ask.
  absl::Status ToldOf(const absl::Status& refusal, const v1::RendezvousGreeting& greeting) const;
  // Takes a greeting. A repeated one of the same process replaces the former. Requires: CheckRun has accepted it.
  // FailedPrecondition, naming both: another number of trainers or servers, an id that another process has.
  // InvalidArgument: an id out of range, no address or one where nobody can connect.
  absl::Status Add(const v1::RendezvousGreeting& greeting);
  // Forgets a process that has left.
  void Remove(const v1::RendezvousGreeting& greeting);

  bool complete() const;
  // Returns "trainers 1 and 3, server 0", the missing ones; "" if none are.
  std::string Missing() const;
  // Returns the number of processes that are there, and of all.
  std::pair<int, int> Counts() const;
  // Returns the answer to all. Requires: complete(). FailedPrecondition, naming two processes: they give the same
  // address, or one an address of its own machine alone and the other not.
  absl::StatusOr<v1::RendezvousAnswer> Answer() const;

 private:
  using Key = std::pair<bool, int>;  // server?, id

  absl::Status CheckNumbers(const v1::RendezvousGreeting& greeting) const;
  absl::Status CheckEndpoint(const v1::RendezvousGreeting& greeting) const;
  bool Serves(bool server) const { return server || own_.servers() == 0; }

  const v1::RendezvousGreeting own_;
  std::map<Key, v1::RendezvousGreeting> there_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_RENDEZVOUS_GATHERING_H_
