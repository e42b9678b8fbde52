// Activations that operators apply to their own output: fc, conv2d, batch_norm.
#ifndef WEIR_OPS_FUSED_ACTIVATION_H_
#define WEIR_OPS_FUSED_ACTIVATION_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace weir {

enum class FusedActivation { kIdentity, kRelu, kSigmoid, kTanh };

// Parses the attribute `activation`: "identity", "relu", "sigmoid", "tanh".
absl::StatusOr<FusedActivation> ParseFusedActivation(std::string_view name);

// Computes y[i] = f(x[i] + add). y may be x.
void AddAndActivate(FusedActivation f, int64_t n, float add, const float* x, float* y);

// Computes dpre[i] = dout[i] * f', with f' from out[i]. dpre may be dout.
void BackThroughActivation(FusedActivation f, int64_t n, const float* out, const float* dout, float* dpre);

}  // namespace weir

#endif  // WEIR_OPS_FUSED_ACTIVATION_H_
