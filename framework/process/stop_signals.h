// Handles SIGTERM, SIGINT and SIGHUP: the first requests an orderly end, a second SIGTERM or SIGINT ends the process at
// once. A SIGHUP that the process was told to ignore (nohup) stays ignored; a second one has no effect. Nor has a
// second SIGTERM within a second: schedulers send it to every process of a job, and programs that have started others,
// such as launch, send it to them, too.
//
// A program that uses this file blocks the signals before its libraries' constructors run, and `launch` starts it that
// way: a signal that arrives early stays pending until the process waits for signals.
//
// Create one in main before any other thread starts: later threads inherit the blocked signals, and a thread named
// "weir-signals" waits for them. The callback is therefore ordinary code and may lock.
#ifndef WEIR_FRAMEWORK_PROCESS_STOP_SIGNALS_H_
#define WEIR_FRAMEWORK_PROCESS_STOP_SIGNALS_H_

#include <signal.h>

#include <functional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "framework/base/mutex.h"

namespace weir {

// Returns the signals that ask this process to end: SIGTERM, SIGINT, and SIGHUP unless it is ignored. For programs that
// wait for signals themselves.
sigset_t StopSignalSet();

// Time in which a second SIGTERM is the same request as the first.
inline constexpr absl::Duration kSameSigterm = absl::Seconds(1);

class StopSignals {
 public:
  StopSignals();
  // Joins the thread; signals stay blocked.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Sets the callback of the first signal. It runs on the signal thread, or, if the signal has arrived already, on the
  // calling thread before OnStop returns. With an empty function, OnStop returns when no callback is running, so that
  // the objects it uses may be destroyed. The callback must not call OnStop() or requested(), which would wait for it.
  void OnStop(std::function<void()> on_stop);
  bool requested();

  // Sets what the log says of the end that a first signal brings about, for a program that does not train; at first
  // "the job ends at the next step border, with a checkpoint, and before its first step without one".
  void SetMeaning(std::string meaning);

  // Ends the process with `code` after `limit`, and reports `why`, unless it has ended before or a later call sets
  // another limit. For the last part of main: a library that may not return (because it got no memory or threads) must
  // not keep the process alive.
  void EndWithin(absl::Duration limit, int code, std::string why);

  // Sets the exit code of a process that ends without an error; at first kExitOk.
  void SetCode(int code);
  int code();

 private:
  void Wait();
  // Returns the time until the process must have ended.
  absl::Duration Left();

  Mutex mu_;
  std::function<void()> on_stop_ ABSL_GUARDED_BY(mu_);
  bool requested_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time end_by_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  int end_code_ ABSL_GUARDED_BY(mu_) = 0;
  int code_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time same_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::string end_why_ ABSL_GUARDED_BY(mu_);
  std::string meaning_ ABSL_GUARDED_BY(mu_) =
      "the job ends at the next step border, with a checkpoint, and before its first step without one";
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_PROCESS_STOP_SIGNALS_H_
