#include "ops/column_loss.h"

#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void MultiplyBy(int64_t n, const float* weight, float* values) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) values[i] = values[i] * weight[i];
}

}  // namespace

void Weigh(const Tensor& weight, Tensor* values) {
  CHECK_EQ(weight.size(), values->size());
  MultiplyBy(values->size(), weight.data<float>(), values->data<float>());
}

}  // namespace weir
