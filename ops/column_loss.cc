#include "ops/column_loss.h"

#include "ops/fit.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void MultiplyBy(int64_t n, const float* weight, float* values) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) values[i] = values[i] * weight[i];
}

}  // namespace

absl::Status CheckColumnLoss(const Tensor& x, const Tensor& label, const Tensor* weight, const Tensor* out_grad) {
  RETURN_IF_ERROR(CheckTensor("X", x, x.dims()));
  RETURN_IF_ERROR(CheckTensor("Label", label, x.dims()));
  if (weight != nullptr) RETURN_IF_ERROR(CheckTensor("Weight", *weight, x.dims()));
  if (out_grad != nullptr) RETURN_IF_ERROR(CheckTensor("the gradient of the loss", *out_grad, x.dims()));
  return absl::OkStatus();
}

void Weigh(const Tensor& weight, Tensor* values) {
  CHECK_EQ(weight.size(), values->size());
  MultiplyBy(values->size(), weight.data<float>(), values->data<float>());
}

}  // namespace weir
