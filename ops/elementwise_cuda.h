// CUDA twins of relu, scale and the elementwise operators for operands of one shape: launchers over device memory. The arithmetic
// is that of the CPU (ops/activation_math.h, ops/elementwise_math.h). Empty where Weir is built without the CUDA toolkit.
#ifndef WEIR_OPS_ELEMENTWISE_CUDA_H_
#define WEIR_OPS_ELEMENTWISE_CUDA_H_

#include <cstdint>

#if WEIR_HAVE_CUDA

#include <cuda_runtime_api.h>

namespace weir {

// y[i] = f(x[i]) or f(a[i], b[i]) for i < n, queued on the stream; pointers are device memory, and an output may be an input.
// Return what the launch returned; what goes wrong later shows at the next synchronisation.
cudaError_t CudaRelu(int64_t n, const float* x, float* y, cudaStream_t stream);
cudaError_t CudaReluGrad(int64_t n, const float* y, const float* dy, float* dx, cudaStream_t stream);
cudaError_t CudaScale(int64_t n, const float* x, float scale, float bias, float* y, cudaStream_t stream);
cudaError_t CudaAdd(int64_t n, const float* x, const float* y, float* out, cudaStream_t stream);
cudaError_t CudaMul(int64_t n, const float* x, const float* y, float* out, cudaStream_t stream);

}  // namespace weir

#endif  // WEIR_HAVE_CUDA

#endif  // WEIR_OPS_ELEMENTWISE_CUDA_H_
