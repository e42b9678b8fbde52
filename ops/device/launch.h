// Runs functors on a device. All device kernels of operators reach a GPU, or the emulation, through this header.
//
// A functor is a small struct of pointers to device memory and numbers, in a header without Abseil, with
//   void operator()(int64_t i) const                       for ForEach: element i, in any order; and, where it pays,
//                                                          four elements at a time (ops/device/fours.h)
//   Sum, Terms(o), Term(o, k), Store(o, sum)               for Reduce: output o is the sum of its terms, in the order
//                                                          of ops/device/reduce_order.h
// On CUDA it runs as the kernel that ops/device/*.cu instantiate for it (WEIR_FOR_EACH, WEIR_REDUCE in launch.cuh; the
// linker names a functor that is missing there). In the emulation the same functor runs as a loop. Both give the same
// bits: nvcc compiles without contraction of a * b + c, and sums have one order.
#ifndef WEIR_OPS_DEVICE_LAUNCH_H_
#define WEIR_OPS_DEVICE_LAUNCH_H_

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"
#include "framework/tensor/device.h"
#include "ops/device/fours.h"
#include "ops/device/reduce_order.h"

namespace weir {
namespace device {

#if WEIR_HAVE_CUDA
// Defined by ops/device/launch.cuh. Returns the result of the launch as an int.
template <typename F>
int LaunchForEach(void* stream, int64_t n, const F& f);
template <typename F>
int LaunchReduce(void* stream, int64_t outputs, const F& f);
#endif

// Passes `function` with these arguments to DeviceRuntime::Call, as plain bytes with cleared padding, so that equal
// arguments are equal bytes.
template <typename Arguments>
absl::Status Call(DeviceRuntime& runtime, DeviceFunction function, Arguments arguments) {
  static_assert(std::is_trivially_copyable_v<Arguments>);
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&arguments);
#endif
  return runtime.Call(function, &arguments, sizeof(arguments));
}

template <typename F>
struct LaunchArguments {
  int64_t n;
  F f;
};

// DeviceFunction of ForEach; `arguments` is a LaunchArguments<F>.
template <typename F>
absl::Status PutForEach(DeviceRuntime& runtime, const void* arguments) {
  const LaunchArguments<F>& a = *static_cast<const LaunchArguments<F>*>(arguments);
  if (runtime.emulated()) {
    return runtime.RunLoop(DeviceQueue::kCompute, [a] {
      if constexpr (kHasFours<F>) {
        if (a.n >= 4 && a.f.Fours()) {
          const AsFours<F> fours = {.fours = a.n / 4, .f = a.f};
          for (int64_t i = 0; i < AsFours<F>::Count(a.n); ++i) fours(i);
          return;
        }
      }
      for (int64_t i = 0; i < a.n; ++i) a.f(i);
    });
  }
#if WEIR_HAVE_CUDA
  return runtime.Launched(LaunchForEach(runtime.stream(DeviceQueue::kCompute), a.n, a.f));
#else
  return absl::InternalError("a kernel in a build without CUDA");
#endif
}

// DeviceFunction of Reduce; `arguments` is a LaunchArguments<F>.
template <typename F>
absl::Status PutReduce(DeviceRuntime& runtime, const void* arguments) {
  const LaunchArguments<F>& a = *static_cast<const LaunchArguments<F>*>(arguments);
  if (runtime.emulated()) {
    return runtime.RunLoop(DeviceQueue::kCompute, [a] {
      for (int64_t o = 0; o < a.n; ++o) a.f.Store(o, SumInOrder(a.f, o));
    });
  }
#if WEIR_HAVE_CUDA
  return runtime.Launched(LaunchReduce(runtime.stream(DeviceQueue::kCompute), a.n, a.f));
#else
  return absl::InternalError("a kernel in a build without CUDA");
#endif
}

// Submits f(i) for i in [0, n) to the compute queue and returns before they have run: the memory that f points to must
// stay until then. Errors are those of the launch.
template <typename F>
absl::Status ForEach(DeviceRuntime& runtime, int64_t n, const F& f) {
  if (n == 0) return absl::OkStatus();
  return Call(runtime, PutForEach<F>, LaunchArguments<F>{.n = n, .f = f});
}

// Submits f.Store(o, sum of f.Term(o, k) for k in [0, f.Terms(o))) for o in [0, outputs), as ForEach does.
template <typename F>
absl::Status Reduce(DeviceRuntime& runtime, int64_t outputs, const F& f) {
  if (outputs == 0) return absl::OkStatus();
  return Call(runtime, PutReduce<F>, LaunchArguments<F>{.n = outputs, .f = f});
}

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_LAUNCH_H_
