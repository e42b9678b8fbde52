// SIGTERM and SIGINT: the first asks for an orderly end, the second ends the process at once.
//
// Make one in main before any other thread starts: it blocks the signals in the calling thread, later threads inherit that,
// and a thread named "weir-signals" waits for them. So the callback is ordinary code and may lock.
#ifndef WEIR_FRAMEWORK_BASE_STOP_SIGNALS_H_
#define WEIR_FRAMEWORK_BASE_STOP_SIGNALS_H_

#include <functional>
#include <thread>

#include "framework/base/mutex.h"

namespace weir {

class StopSignals {
 public:
  StopSignals();
  // Joins the thread; signals stay blocked.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // What the first signal does; runs on the signal thread, at once if the signal has come already. Given an empty function,
  // returns when no callback runs any more, so that what it uses may be destroyed.
  void OnStop(std::function<void()> on_stop);
  bool requested();

 private:
  void Wait();

  Mutex mu_;
  std::function<void()> on_stop_ ABSL_GUARDED_BY(mu_);
  bool requested_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_STOP_SIGNALS_H_
