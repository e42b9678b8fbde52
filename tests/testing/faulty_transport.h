// A network that misbehaves on purpose: drops, repeats, delays and thereby reorders messages by a seed, and kills
// processes at moments that a test names. Wraps any Transport. Thread-safe.
#ifndef WEIR_TESTS_TESTING_FAULTY_TRANSPORT_H_
#define WEIR_TESTS_TESTING_FAULTY_TRANSPORT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "pserver/protocol/transport.h"

namespace weir {

struct FaultOptions {
  uint64_t seed = 1;
  // Probability of each, independently, for every message.
  double drop_request = 0, drop_reply = 0, duplicate = 0, delay = 0;
  // Upper bound of delays, which are uniform.
  absl::Duration max_delay = absl::Milliseconds(20);
};

// Outcome of one call, chosen by a test's OnCall function.
enum class Fate { kPass, kDropRequest, kDropReply, kDuplicate, kKillServer, kKillTrainer };
struct CallInfo {
  int trainer = 0;
  int server = 0;
  Method method = Method::kPush;
  // Set for Push and Norms only.
  int64_t step = -1;
  // Set for Push only.
  int part = -1;
  bool last = false;
  // Number of earlier calls with this very request.
  int tries = 0;
};

struct FaultCounters {
  std::atomic<int64_t> calls{0}, dropped_requests{0}, dropped_replies{0}, duplicates{0}, delays{0}, reordered{0};
};

class FaultyTransport : public Transport {
 public:
  // Borrowed: inner, clock (delays and timeouts run by it) and counters.
  FaultyTransport(Transport* inner, Clock* clock, int trainer, FaultOptions options, FaultCounters* counters);
  ~FaultyTransport() override;

  // Sets a function that is called for every call that begins from now on, before the random faults are drawn; on
  // several threads.
  void OnCall(std::function<Fate(const CallInfo&)> fate) {
    MutexLock lock(&mu_);
    fate_ = std::make_shared<const std::function<Fate(const CallInfo&)>>(std::move(fate));
  }
  // From now on nothing reaches the server (and nothing comes back), or nothing leaves this trainer.
  void KillServer(int server);
  void KillTrainer();
  // Undoes both: a process that was stopped goes on.
  void Revive();

  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override;
  std::string Describe(int server) const override { return inner_->Describe(server); }
  int servers() const override { return inner_->servers(); }

 private:
  struct Pending;
  void At(absl::Time when, std::function<void()> action);
  void Run();
  void Deliver(std::shared_ptr<Pending> pending, bool drop_reply, absl::Duration reply_delay);
  bool Reachable(int server);

  Transport* const inner_;
  Clock* const clock_;
  const int trainer_;
  const FaultOptions options_;
  FaultCounters* const counters_;

  Mutex mu_;
  CondVar changed_;
  std::shared_ptr<const std::function<Fate(const CallInfo&)>> fate_ ABSL_GUARDED_BY(mu_);
  std::multimap<absl::Time, std::function<void()>> due_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<int, int>, uint64_t> sequence_
      ABSL_GUARDED_BY(mu_);                                        // number of calls so far, by server and method
  std::map<int, uint64_t> newest_delivered_ ABSL_GUARDED_BY(mu_);  // by server
  std::map<uint64_t, int> tries_ ABSL_GUARDED_BY(mu_);             // by hash of the request
  uint64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<bool> dead_servers_ ABSL_GUARDED_BY(mu_);
  bool dead_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Returns faults of a bad network: some messages in a hundred are lost, repeated or late.
FaultOptions BadNetwork(uint64_t seed);
// Returns faults of one that repeats every other message at once, while the step that it belongs to is still open.
FaultOptions RepeatingNetwork();
// Returns a function that makes a network with these faults for each trainer, by the machine's clock. Borrows
// `counters` for the life of the networks.
std::function<std::unique_ptr<Transport>(int trainer, Transport* servers)> NetworksWith(FaultOptions faults,
                                                                                        FaultCounters* counters);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_FAULTY_TRANSPORT_H_
