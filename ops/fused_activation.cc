#include "ops/fused_activation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "ops/activation_math.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

#define WEIR_ADD_LOOP(name, function)                                         \
  WEIR_VECTORIZED void name(int64_t n, float add, const float* x, float* y) { \
    WEIR_INDEPENDENT                                                          \
    for (int64_t i = 0; i < n; ++i) y[i] = function(x[i] + add);              \
  }
#define WEIR_BACK_LOOP(name, function)                                                     \
  WEIR_VECTORIZED void name(int64_t n, const float* out, const float* dout, float* dpre) { \
    WEIR_INDEPENDENT                                                                       \
    for (int64_t i = 0; i < n; ++i) dpre[i] = function(out[i], dout[i]);                   \
  }

inline float Identity(float x) { return x; }

WEIR_ADD_LOOP(AddIdentity, Identity)
WEIR_ADD_LOOP(AddRelu, Relu)
WEIR_ADD_LOOP(AddSigmoid, Sigmoid)
WEIR_ADD_LOOP(AddTanh, Tanh)
WEIR_BACK_LOOP(BackRelu, ReluGrad)
WEIR_BACK_LOOP(BackSigmoid, SigmoidGrad)
WEIR_BACK_LOOP(BackTanh, TanhGrad)

}  // namespace

absl::StatusOr<FusedActivation> ParseFusedActivation(std::string_view name) {
  if (name == "identity") return FusedActivation::kIdentity;
  if (name == "relu") return FusedActivation::kRelu;
  if (name == "sigmoid") return FusedActivation::kSigmoid;
  if (name == "tanh") return FusedActivation::kTanh;
  return absl::InvalidArgumentError(
      absl::StrCat("activation must be identity, relu, sigmoid or tanh, got '", Av(name), "'"));
}

void AddAndActivate(FusedActivation f, int64_t n, float add, const float* x, float* y) {
  switch (f) {
    case FusedActivation::kIdentity:
      return AddIdentity(n, add, x, y);
    case FusedActivation::kRelu:
      return AddRelu(n, add, x, y);
    case FusedActivation::kSigmoid:
      return AddSigmoid(n, add, x, y);
    case FusedActivation::kTanh:
      return AddTanh(n, add, x, y);
  }
}

void BackThroughActivation(FusedActivation f, int64_t n, const float* out, const float* dout, float* dpre) {
  switch (f) {
    case FusedActivation::kIdentity:
      if (dpre != dout) std::copy_n(dout, n, dpre);
      return;
    case FusedActivation::kRelu:
      return BackRelu(n, out, dout, dpre);
    case FusedActivation::kSigmoid:
      return BackSigmoid(n, out, dout, dpre);
    case FusedActivation::kTanh:
      return BackTanh(n, out, dout, dpre);
  }
}

}  // namespace weir
