#include "ops/device/product.h"

#include <algorithm>

#include "framework/base/status_macros.h"
#include "ops/device/cublas.h"
#include "ops/gemm.h"

namespace weir {
namespace device {
namespace {

// Lanes have equal numbers of rows.
bool Even(const std::vector<int64_t>& rows) {
  return std::all_of(rows.begin(), rows.end(), [&](int64_t n) { return n == rows[0]; });
}

}  // namespace

absl::Status Multiply(DeviceKernelContext& ctx, const Product& p) {
  if (p.m == 0 || p.n == 0 || p.count == 0) return absl::OkStatus();
  DeviceRuntime& runtime = ctx.runtime();
  if (runtime.emulated()) {
    return runtime.RunLoop(DeviceQueue::kCompute, [p] {
      for (int64_t i = 0; i < p.count; ++i) {
        Gemm(p.m, p.n, p.k, p.a + i * p.stride_a, p.b + i * p.stride_b, p.c + i * p.stride_c,
             {.transpose_a = p.transpose_a, .transpose_b = p.transpose_b});
      }
    });
  }
  if (p.k == 0) {
    for (int64_t i = 0; i < p.count; ++i) {
      RETURN_IF_ERROR(
          runtime.Zero(DeviceQueue::kCompute, p.c + i * p.stride_c, static_cast<size_t>(p.m * p.n) * sizeof(float)));
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Cublas * cublas, Cublas::Of(ctx.memory()));
  return cublas->Multiply(p, ctx.tf32);
}

absl::Status MultiplyRows(DeviceKernelContext& ctx, const std::vector<int64_t>& rows, const float* x, const float* w,
                          bool transpose_w, int64_t k, int64_t n, float* c) {
  if (Even(rows)) {
    return Multiply(ctx, {.m = rows[0],
                          .n = n,
                          .k = k,
                          .a = x,
                          .b = w,
                          .c = c,
                          .transpose_b = transpose_w,
                          .count = static_cast<int64_t>(rows.size()),
                          .stride_a = rows[0] * k,
                          .stride_c = rows[0] * n});
  }
  int64_t row = 0;
  for (size_t l = 0; l < rows.size(); row += rows[l++]) {
    RETURN_IF_ERROR(Multiply(
        ctx, {.m = rows[l], .n = n, .k = k, .a = x + row * k, .b = w, .c = c + row * n, .transpose_b = transpose_w}));
  }
  return absl::OkStatus();
}

absl::Status MultiplyColumns(DeviceKernelContext& ctx, const std::vector<int64_t>& rows, const float* x, const float* y,
                             int64_t k, int64_t n, float* c) {
  if (Even(rows)) {
    return Multiply(ctx, {.m = k,
                          .n = n,
                          .k = rows[0],
                          .a = x,
                          .b = y,
                          .c = c,
                          .transpose_a = true,
                          .count = static_cast<int64_t>(rows.size()),
                          .stride_a = rows[0] * k,
                          .stride_b = rows[0] * n,
                          .stride_c = k * n});
  }
  int64_t row = 0;
  for (size_t l = 0; l < rows.size(); row += rows[l++]) {
    RETURN_IF_ERROR(Multiply(ctx, {.m = k,
                                   .n = n,
                                   .k = rows[l],
                                   .a = x + row * k,
                                   .b = y + row * n,
                                   .c = c + static_cast<int64_t>(l) * k * n,
                                   .transpose_a = true}));
  }
  return absl::OkStatus();
}

}  // namespace device
}  // namespace weir
