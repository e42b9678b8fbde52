// The CUDA side of ops/device/launch.h. A .cu file includes this and the functors, and names those it builds.
#ifndef WEIR_OPS_DEVICE_LAUNCH_CUH_
#define WEIR_OPS_DEVICE_LAUNCH_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/device/fours.h"
#include "ops/device/reduce_order.h"

namespace weir {
namespace device {

constexpr int kThreads = 256;
// Some waves on the largest devices of today; the grid walks over what is left.
constexpr int64_t kMostBlocks = 8192;

template <typename F>
__global__ void __launch_bounds__(kThreads) ForEachKernel(int64_t n, F f) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) f(i);
}

// Value of the thread `width` places on in the warp, word by word.
template <typename T>
__device__ T FromThreadBehind(T x, int width) {
  static_assert(sizeof(T) % sizeof(unsigned) == 0);
  unsigned words[sizeof(T) / sizeof(unsigned)];
  memcpy(words, &x, sizeof(T));
  for (unsigned& word : words) word = __shfl_down_sync(0xffffffffu, word, width);
  memcpy(&x, words, sizeof(T));
  return x;
}

// A warp for each output.
template <typename F>
__global__ void __launch_bounds__(kThreads) ReduceKernel(int64_t outputs, F f) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * (kThreads / kWarp);
  for (int64_t o = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp; o < outputs;
       o += stride) {
    typename F::Sum sum = {};
    const int64_t terms = f.Terms(o);
    for (int64_t k = lane; k < terms; k += kWarp) sum += f.Term(o, k);
    for (int width = kWarp / 2; width > 0; width /= 2) sum += FromThreadBehind(sum, width);
    if (lane == 0) f.Store(o, sum);
  }
}

inline unsigned Blocks(int64_t n, int64_t a_block) {
  const int64_t blocks = (n + a_block - 1) / a_block;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

template <typename F>
int LaunchForEach(void* stream, int64_t n, const F& f) {
  if constexpr (kHasFours<F>) {
    if (n >= 4 && f.Fours()) {
      const int64_t count = AsFours<F>::Count(n);
      ForEachKernel<<<Blocks(count, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(count,
                                                                                                 AsFours<F>{n / 4, f});
      return static_cast<int>(cudaGetLastError());
    }
  }
  ForEachKernel<<<Blocks(n, kThreads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(n, f);
  return static_cast<int>(cudaGetLastError());
}

template <typename F>
int LaunchReduce(void* stream, int64_t outputs, const F& f) {
  ReduceKernel<<<Blocks(outputs, kThreads / kWarp), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(outputs, f);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace device
}  // namespace weir

// In namespace weir::device.
#define WEIR_FOR_EACH(...) template int LaunchForEach<__VA_ARGS__>(void*, int64_t, const __VA_ARGS__&)
#define WEIR_REDUCE(...) template int LaunchReduce<__VA_ARGS__>(void*, int64_t, const __VA_ARGS__&)

#endif  // WEIR_OPS_DEVICE_LAUNCH_CUH_
