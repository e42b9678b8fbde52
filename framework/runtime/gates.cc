#include "framework/runtime/gates.h"

namespace weir {

void Gates::Start(int op, ThreadPool* pool) {
  {
    MutexLock lock(&mu_);
    ++running_;
  }
  if (pool != nullptr) {
    pool->Schedule([this, op] { RunAndCount(op); });
  } else {
    RunAndCount(op);
  }
}

void Gates::RunAndCount(int op) {
  if (!errors_->failed()) errors_->Add(run_(op));
  MutexLock lock(&mu_);
  if (--running_ == 0) ended_.SignalAll();
}

bool Gates::running() {
  MutexLock lock(&mu_);
  return running_ > 0;
}

void Gates::Wait(ThreadPool* pool) {
  // This thread has nothing better to do than a gate that no worker has begun.
  while (pool != nullptr && running() && pool->TryRunOne()) {
  }
  MutexLock lock(&mu_);
  // Gates are calls of a ParamChannel and waits for a device, which end by their own deadlines.
  while (running_ > 0) ended_.Wait(&mu_);
}

}  // namespace weir
