// Pulls as the server's lock guards them: which may be answered, which wait, and for whom. Not thread-safe; ServerCore
// locks around it, and answers without the lock (pull_answers.h).
#ifndef WEIR_PSERVER_SERVER_PULL_DESK_H_
#define WEIR_PSERVER_SERVER_PULL_DESK_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "framework/membership/roster.h"
#include "framework/membership/waiting_calls.h"
#include "proto/parameter_server.pb.h"
#include "pserver/consistency/consistency.h"
#include "pserver/server/control_queue.h"
#include "pserver/server/pull_answers.h"

namespace weir {

class PullDesk {
 public:
  struct Options {
    std::string self;  // the server, for messages
    // ServerOptions.
    size_t unread_bytes = 0;
    size_t reader_bytes = 0;
    // Borrowed.
    const StepCounts* counts = nullptr;
    PullRules* rules = nullptr;
    Roster* roster = nullptr;
    const ControlQueue* controls = nullptr;
    const PullAnswers* answers = nullptr;
  };
  explicit PullDesk(Options options) : options_(std::move(options)) {}

  // Returns the credit for the answer of a pull that is ready, and records that its step has begun, or for a reader's
  // that a read has, which EndRead ends. Null: the pull is not ready, or the caller has to read earlier answers first.
  std::shared_ptr<const void> TakeReady(const v1::PullRequest& request, absl::Time now);
  // Returns true if the read that ends was one that an update or a load waits for.
  bool EndRead(const v1::PullRequest& request);
  // Returns true if values are being copied for readers. Loads wait for them.
  bool reading() const { return reads_ > 0; }

  // Keeps a pull that is not ready until its deadline. ResourceExhausted: too many bytes of pulls wait.
  absl::Status Keep(WaitingPull pull);
  // Remove kept pulls and return them: those that have become ready, with their credit; all.
  std::vector<WaitingPull> TakeReadyPulls(absl::Time now);
  std::list<WaitingPull> TakeAll() { return pulls_.TakeAll(); }
  // Answers the kept pulls whose wait is over.
  void AnswerExpired(absl::Time now, Actions* actions);
  // Answers the kept pulls of a reader that leaves.
  void AnswerLeaving(uint64_t session, Actions* actions);

  // Returns the time at which TakeReadyPulls or AnswerExpired has something to do although nothing else happens: at
  // once while a kept pull waits for nothing but answers to be read.
  absl::Time NextDue() const;
  // Returns the steps that kept pulls of a trainer ask for.
  std::vector<int64_t> StepsOf(int trainer) const;
  // Returns, by the trainer that is waited for, the trainers whose pulls are kept.
  std::map<int, std::set<int>> WaitsByTrainer() const;
  // Names, for messages, the processes that a pull waits for.
  std::string WaitingFor(const v1::PullRequest& request) const;

 private:
  // Returns true if the values that a reader pulls may be copied now.
  bool MayRead(const v1::PullRequest& request) const;
  std::shared_ptr<const void> TakeReadable(const v1::PullRequest& request);
  // Returns OK if a reader's pull may wait. `of_all`: bytes of the waiting pulls of all readers, with this one.
  absl::Status CheckReadersPulls(const WaitingPull& pull, size_t of_all) const;
  // Returns the trainers that a pull which is not ready waits for.
  std::vector<PullRules::Blocker> BlockersOf(const v1::PullRequest& request) const;
  std::string ReaderWaitsFor(const v1::PullRequest& request) const;
  // Names the processes in a few words that are equal in every step, for the profiler: "trainer 1", "the update".
  std::string WhoKeepsWaiting(const v1::PullRequest& request) const;

  const Options options_;
  WaitingCalls<WaitingPull> pulls_;
  int reads_ = 0;  // pulls of readers whose values are being copied
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_PULL_DESK_H_
