// Threads of one trainer that step together, each on a batch of its own: their pushes are merged into one.
//
// A WorkerGroup lies between their programs and the servers, with one channel per thread. Gradients of a lane are added
// in order of the threads, so the sum is that of the same batches run one after the other. Sample counts are added, and
// a verdict SKIP of one thread is that of the step. Thread 0 pushes and receives; the others take its values. Every
// wait has a deadline and names the thread.
#ifndef WEIR_PSERVER_CHANNELS_HALF_ASYNC_H_
#define WEIR_PSERVER_CHANNELS_HALF_ASYNC_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/param_channel.h"
#include "pserver/channels/gradient_sums.h"

namespace weir {

class WorkerGroup {
 public:
  struct Options {
    int workers = 1;
    absl::Duration slow_warning = absl::Seconds(10);
    absl::Duration progress_deadline = absl::Minutes(30);
    // While it is true, the others have a reason to be late, and neither time runs. May be empty.
    std::function<bool()> excused = {};
    // Borrowed.
    ParamChannel* inner = nullptr;
    ThreadPool* pool = nullptr;
  };
  explicit WorkerGroup(Options options);
  ~WorkerGroup();

  // Returns the channel of a thread. A read-only step passes straight through and concerns no other thread. Requires: 0
  // <= worker < workers; no read-only step beside a step; all workers take the same steps.
  ParamChannel* channel(int worker);

  // Runs fn(worker) on one thread each (worker 0 on the calling thread, the others named "weir-worker") and waits for
  // all. Returns the first error; an error ends the waits of the others. Requires: no other Run is under way.
  absl::Status Run(const std::function<absl::Status(int)>& fn);

 private:
  class Port;
  struct Gradient {
    BlockRef block;
    int width = 0;
    std::vector<ParamChannel::LaneTensor> dense;
    std::vector<ParamChannel::LaneRows> rows;
  };
  using Key = std::pair<std::string, int>;  // name, server

  absl::Status BeginStep(int64_t step);
  absl::Status FinishSends(int worker, int64_t samples, v1::Verdict verdict);
  absl::Status MergeAndSend();
  absl::Status FinishReceives(int worker, StepOutcome* outcome);
  void Abort(const absl::Status& status);
  // Waits until `ready`; `what` names the awaited threads or values in messages.
  template <typename Ready, typename What>
  absl::Status WaitFor(const Ready& ready, const What& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  std::vector<std::unique_ptr<Port>> ports_;
  GradientSums sums_;  // used by the thread that merges
  // Serializes calls of the channel, which allows one caller at a time; held across the call. Never taken under mu_.
  Mutex inner_mu_;

  Mutex mu_;
  CondVar changed_;
  int64_t step_ ABSL_GUARDED_BY(mu_) = -1;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::vector<bool> arrived_ ABSL_GUARDED_BY(mu_);  // by worker: has reached the end of its sends
  int64_t samples_ ABSL_GUARDED_BY(mu_) = 0;
  v1::Verdict verdict_ ABSL_GUARDED_BY(mu_) = v1::APPLY;
  // Gradients that each worker pushes, by worker. The tensors belong to the worker and stay until its step ends.
  std::vector<std::map<Key, Gradient>> gradients_ ABSL_GUARDED_BY(mu_);
  bool received_ ABSL_GUARDED_BY(mu_) = false;
  StepOutcome outcome_ ABSL_GUARDED_BY(mu_);
  // Values that thread 0 has received, by block.
  std::map<std::string, const Tensor*> values_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_HALF_ASYNC_H_
