// SIGTERM, SIGINT and SIGHUP: the first asks for an orderly end, a second SIGTERM or SIGINT ends the process at once. A
// SIGHUP that the process was told to ignore (nohup) stays ignored; a second one says nothing new.
//
// A program that uses this file holds the signals back before its libraries' constructors run, and `launch` starts it
// so: one that comes early waits until it is asked for.
//
// Make one in main before any other thread starts: later threads inherit that the signals are blocked, and a thread
// named "weir-signals" waits for them. So the callback is ordinary code and may lock.
#ifndef WEIR_FRAMEWORK_BASE_STOP_SIGNALS_H_
#define WEIR_FRAMEWORK_BASE_STOP_SIGNALS_H_

#include <signal.h>

#include <functional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "framework/base/mutex.h"

namespace weir {

// Those that ask this process to end: SIGTERM, SIGINT, and SIGHUP unless it is ignored. For programs that wait for
// signals themselves.
sigset_t StopSignalSet();

class StopSignals {
 public:
  StopSignals();
  // Joins the thread; signals stay blocked.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // What the first signal does; runs on the signal thread, at once if the signal has come already. Given an empty
  // function, returns when no callback runs any more, so that what it uses may be destroyed.
  void OnStop(std::function<void()> on_stop);
  bool requested();

  // From now on the process ends with `code` after `limit`, unless it has ended before or was given another limit, and
  // says `why`. For the last part of main: what cannot be trusted to return (a library that got no memory or threads)
  // must not keep the process.
  void EndWithin(absl::Duration limit, int code, std::string why);

 private:
  void Wait();
  // Until the process must have ended.
  absl::Duration Left();

  Mutex mu_;
  std::function<void()> on_stop_ ABSL_GUARDED_BY(mu_);
  bool requested_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time end_by_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  int end_code_ ABSL_GUARDED_BY(mu_) = 0;
  std::string end_why_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_STOP_SIGNALS_H_
