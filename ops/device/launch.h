// Runs functors on a device: the one way from an operator's device kernel to a GPU, and to the emulation.
//
// A functor is a small struct of pointers to device memory and numbers, in a header without Abseil, with
//   void operator()(int64_t i) const                       for ForEach: element i, in any order
//   Sum, Terms(o), Term(o, k), Store(o, sum)               for Reduce: output o is the sum of its terms in the order
//   below
// On CUDA it runs as the kernel that ops/device/*.cu instantiate for it (WEIR_FOR_EACH, WEIR_REDUCE in launch.cuh; the
// linker names a functor that is missing there). In the emulation the same functor runs as a loop. Both give the same
// bits: nvcc compiles without contraction of a * b + c, and sums have one order.
#ifndef WEIR_OPS_DEVICE_LAUNCH_H_
#define WEIR_OPS_DEVICE_LAUNCH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "framework/tensor/device.h"
#include "ops/device/reduce_order.h"

namespace weir {
namespace device {

#if WEIR_HAVE_CUDA
// ops/device/launch.cuh. What the launch returned, as an int.
template <typename F>
int LaunchForEach(void* stream, int64_t n, const F& f);
template <typename F>
int LaunchReduce(void* stream, int64_t outputs, const F& f);
#endif

// f(i) for i in [0, n).
template <typename F>
absl::Status ForEach(DeviceRuntime& runtime, int64_t n, const F& f) {
  if (n == 0) return absl::OkStatus();
  if (runtime.emulated()) {
    return runtime.RunLoop(DeviceQueue::kCompute, [n, f] {
      for (int64_t i = 0; i < n; ++i) f(i);
    });
  }
#if WEIR_HAVE_CUDA
  return runtime.Launched(LaunchForEach(runtime.stream(DeviceQueue::kCompute), n, f));
#else
  return absl::InternalError("a kernel in a build without CUDA");
#endif
}

// f.Store(o, sum of f.Term(o, k) for k in [0, f.Terms(o))) for o in [0, outputs).
template <typename F>
absl::Status Reduce(DeviceRuntime& runtime, int64_t outputs, const F& f) {
  if (outputs == 0) return absl::OkStatus();
  if (runtime.emulated()) {
    return runtime.RunLoop(DeviceQueue::kCompute, [outputs, f] {
      for (int64_t o = 0; o < outputs; ++o) f.Store(o, SumInOrder(f, o));
    });
  }
#if WEIR_HAVE_CUDA
  return runtime.Launched(LaunchReduce(runtime.stream(DeviceQueue::kCompute), outputs, f));
#else
  return absl::InternalError("a kernel in a build without CUDA");
#endif
}

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_LAUNCH_H_
