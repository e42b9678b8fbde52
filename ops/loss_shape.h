// What losses of one number per example have in common.
#ifndef WEIR_OPS_LOSS_SHAPE_H_
#define WEIR_OPS_LOSS_SHAPE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "framework/graph/op_registry.h"

namespace weir {

// The input is dense f32 [B, 1]; says what a loss needs when it is not.
absl::Status ExpectColumn(const InferContext& ctx, std::string_view slot);

// X (slot `x`), Label and, if given, Weight are [B, 1]; the output is too.
absl::Status ColumnLossShape(InferContext& ctx, std::string_view x, std::string_view out);

// The rule of its gradient: X, Label, Weight? and the gradient of the output are [B, 1]; the output is like X. Slots:
// `x`, Label, Weight, "<out>@GRAD" -> "<x>@GRAD".
ShapeRule ColumnLossGradRule(std::string x, std::string out);

}  // namespace weir

#endif  // WEIR_OPS_LOSS_SHAPE_H_
