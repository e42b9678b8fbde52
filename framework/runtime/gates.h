// Gate ops of an executor, which run beside the lanes: each on a thread of the pool, while the lanes go on.
//
// Thread-safe.
#ifndef WEIR_FRAMEWORK_RUNTIME_GATES_H_
#define WEIR_FRAMEWORK_RUNTIME_GATES_H_

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/first_error.h"

namespace weir {

class Gates {
 public:
  // `run` runs the gate op of this index; its errors go to `errors`, which is borrowed. Gates may run at the same time.
  Gates(std::function<absl::Status(int op)> run, FirstError* errors) : run_(std::move(run)), errors_(errors) {}
  Gates(const Gates&) = delete;
  Gates& operator=(const Gates&) = delete;

  // Starts a gate on the pool, or runs it here if there is none. A gate whose turn comes after an error does not run.
  void Start(int op, ThreadPool* pool);
  // Returns when every gate that was started has ended. The calling thread runs tasks of the pool that no worker has
  // begun.
  void Wait(ThreadPool* pool);

 private:
  void RunAndCount(int op);
  bool running();

  const std::function<absl::Status(int op)> run_;
  FirstError* const errors_;
  Mutex mu_;
  CondVar ended_;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_GATES_H_
