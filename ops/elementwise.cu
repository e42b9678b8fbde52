#include "ops/activation_math.h"
#include "ops/elementwise_cuda.h"
#include "ops/elementwise_math.h"

namespace weir {
namespace {

// Each thread takes every (threads of the grid)-th element, so one grid size fits all n.
template <typename F>
__global__ void ForEach(int64_t n, F f) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) f(i);
}

template <typename F>
cudaError_t Launch(int64_t n, F f, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  constexpr int kThreads = 256;
  constexpr int64_t kMostBlocks = 4096;  // some waves on the largest devices of today
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  ForEach<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0, stream>>>(n, f);
  return cudaGetLastError();
}

struct ReluAt {
  const float* x;
  float* y;
  __device__ void operator()(int64_t i) const { y[i] = Relu(x[i]); }
};
struct ReluGradAt {
  const float* y;
  const float* dy;
  float* dx;
  __device__ void operator()(int64_t i) const { dx[i] = ReluGrad(y[i], dy[i]); }
};
struct ScaleAt {
  const float* x;
  float scale, bias;
  float* y;
  // Two roundings, as on the CPU.
  __device__ void operator()(int64_t i) const { y[i] = __fadd_rn(__fmul_rn(x[i], scale), bias); }
};
template <typename Math>
struct BinaryAt {
  const float* x;
  const float* y;
  float* out;
  __device__ void operator()(int64_t i) const { out[i] = Math::Out(x[i], y[i]); }
};

}  // namespace

cudaError_t CudaRelu(int64_t n, const float* x, float* y, cudaStream_t stream) {
  return Launch(n, ReluAt{x, y}, stream);
}

cudaError_t CudaReluGrad(int64_t n, const float* y, const float* dy, float* dx, cudaStream_t stream) {
  return Launch(n, ReluGradAt{y, dy, dx}, stream);
}

cudaError_t CudaScale(int64_t n, const float* x, float scale, float bias, float* y, cudaStream_t stream) {
  return Launch(n, ScaleAt{x, scale, bias, y}, stream);
}

cudaError_t CudaAdd(int64_t n, const float* x, const float* y, float* out, cudaStream_t stream) {
  return Launch(n, BinaryAt<AddMath>{x, y, out}, stream);
}

cudaError_t CudaMul(int64_t n, const float* x, const float* y, float* out, cudaStream_t stream) {
  return Launch(n, BinaryAt<MulMath>{x, y, out}, stream);
}

}  // namespace weir
