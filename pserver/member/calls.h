// Calls of one trainer to its servers: tries, answers, deadlines, and the failure of the job that ends every wait.
//
// A call is one request until it has its answer, through any number of tries. Thread-safe; a call is waited for by one
// thread at a time. Knows nothing of what the messages say.
#ifndef WEIR_PSERVER_MEMBER_CALLS_H_
#define WEIR_PSERVER_MEMBER_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "framework/base/counters.h"
#include "framework/base/thread_pool.h"
#include "framework/profile/profiler.h"
#include "framework/wire/slices.h"
#include "pserver/member/call_counters.h"
#include "pserver/member/call_settings.h"
#include "pserver/member/heartbeats.h"
#include "pserver/member/job_view.h"
#include "pserver/member/sessions.h"
#include "pserver/member/waits.h"

namespace weir {

// Runs fn(i) for i in [0, n): on all threads if it touches so many bytes that they are worth waking, else on the
// calling thread in order.
void ForEachWorth(ThreadPool* pool, size_t bytes, int64_t n, const std::function<void(int64_t)>& fn);

struct Call {
  // Checks an answer. True ends the call; false asks again at once (the other side was not ready). After DataLoss the
  // call is made once more.
  using Accept = std::function<absl::StatusOr<bool>(const Slices&)>;

  int server = 0;
  Method method = Method::kPush;
  Slices request;
  Accept accept;
  // Purpose of the call in messages; empty: that of the wait.
  std::string what;
  // The answer needs the work of other trainers: while one of them waits for data that does not exist yet, no deadline
  // runs. An answer that needs no other trainer is late in any case.
  bool needs_trainers = false;
  // Nobody waits for the answer before that of another call to the server.
  bool answer_may_wait = false;
  // Step that the profiler records the call under, -1 if it is not recorded, and the name it has there.
  int64_t profiled_step = -1;
  ProfileName profiled_as;
  // Owned by the thread that waits for the call, which may lend it to a thread of a pool while it waits for that one:
  bool finished = false;
  bool reread = false;   // has been made once more after DataLoss
  absl::Status trouble;  // why the last try is repeated
  absl::Duration backoff;
  absl::Time next_try = absl::InfinitePast();
  // Answer of the newest try.
  AnswerSlot answer;
};
using CallPtr = std::shared_ptr<Call>;

class Calls {
 public:
  // `settings` and `heartbeats` are borrowed. The rest is shared with callbacks of the transport, which may run after
  // the destructor.
  Calls(const CallSettings* settings, std::shared_ptr<Sessions> sessions, std::shared_ptr<JobView> job,
        std::shared_ptr<Waits> waits, std::shared_ptr<CallCounters> counters, Heartbeats* heartbeats);

  const CallSettings& settings() const { return settings_; }
  // Returns true while some trainer waits for data that does not exist yet: a wait for its work is then not late.
  bool excused() const { return job_->any_awaits_files(); }
  v1::Caller CallerFor(int server) const { return sessions_->CallerFor(server); }

  static CallPtr New(int server, Method method, Slices request, Call::Accept accept);
  // Starts a try. Requires: the caller holds no lock (an answer from inside the process may come before the return); no
  // try of the call is under way.
  void Issue(const CallPtr& call);
  // Issues calls that are answered before Issue returns, and checks their answers, on all threads. Calls that are to be
  // asked again are left to Wait.
  absl::Status ServeInParallel(absl::Span<const CallPtr> calls, ThreadPool* pool);

  struct WaitOptions {
    // Name in the profiler; null: "an answer".
    const ProfileName* profiled_as = nullptr;
    // If true, the deadline begins anew whenever a server's version has moved (async: another trainer is not ready, but
    // works).
    bool while_others_work = false;
    // If true, the wait ends with Cancelled a second after the end of the job was requested: the answer may never come,
    // and the process that was asked may be killed soon.
    bool until_stop = false;
    // Several answers that are there are taken on its threads; null: all by the thread that waits.
    ThreadPool* pool = nullptr;
    // kAhead: for the thread that works ahead of the program, whose waits Waits::CancelAhead ends. kBeside: for one
    // whose waits hold nothing up.
    Waits::Thread thread = Waits::kProgram;
  };
  // Waits until all calls have their answers; issues those that have not been issued. `what` says in messages what they
  // are for; `deadline` bounds the wait, and rests as Call::needs_trainers of the calls that are still open says.
  // Requires: no other thread waits for one of the calls; the caller holds no lock. Errors: that of a call;
  // DeadlineExceeded; why the job has failed, which goes before all others.
  absl::Status Wait(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline,
                    WaitOptions options);
  absl::Status Wait(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline) {
    return Wait(calls, what, deadline, {});
  }

 private:
  absl::Status WaitUntilAnswered(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline,
                                 const WaitOptions& options, int* last_server);
  // Looks at each call on the threads of the pool, after a try of it if `issue`.
  absl::Status LookInParallel(absl::Span<const CallPtr> calls, bool issue, ThreadPool* pool);
  // Checks the answers that are there on all threads, if there are several. Calls that are to be asked again are left
  // to LookAtAll.
  absl::Status TakeInParallel(absl::Span<const CallPtr> calls, ThreadPool* pool, int* last_server);
  // Looks at all calls that are not finished and issues those that are to be tried (again).
  struct Progress {
    bool finished = true;
    bool issued = false;
  };
  absl::StatusOr<Progress> LookAtAll(absl::Span<const CallPtr> calls, int* last_server);
  // Checks one call; sets `issue` if it is to be tried (again).
  absl::Status Look(const CallPtr& call, bool* issue);
  // Runs the call's check of an answer.
  absl::StatusOr<bool> Accept(Call* call, const absl::StatusOr<Slices>& answer) const;
  // Returns why the job has failed when a server has aborted a call with this error.
  absl::Status FailureOfJob(const absl::Status& aborted);
  // Returns the servers whose answers are missing and what they are for: "server 0, server 1: rows of step 3".
  std::string MissingText(absl::Span<const CallPtr> calls, const std::string& what) const;
  // Returns the earliest time after `after` at which one of the calls is to be tried again.
  static absl::Time NextTry(absl::Span<const CallPtr> calls, absl::Time after);
  // Returns Cancelled when a stop was asked for a lease ago; `stopping`: since when this wait has known of it.
  absl::Status CheckStop(absl::Span<const CallPtr> calls, const std::string& what, absl::Time* stopping) const;
  // Returns why the last try of the first of them that has met trouble has failed, "" if none has: "; the last try:
  // ...".
  static std::string TroubleText(absl::Span<const CallPtr> calls);
  absl::Status TooLate(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration waited,
                       const std::string& held_by) const;

  const CallSettings& settings_;
  const std::shared_ptr<Sessions> sessions_;
  const std::shared_ptr<JobView> job_;
  const std::shared_ptr<Waits> waits_;
  const std::shared_ptr<CallCounters> counters_;
  Counter* const waited_;  // microseconds of the program's waits for answers
  Heartbeats& heartbeats_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_CALLS_H_
