// Shape rules of losses with one number per example.
#ifndef WEIR_OPS_LOSS_SHAPE_H_
#define WEIR_OPS_LOSS_SHAPE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "framework/graph/op_registry.h"

namespace weir {

// Returns OK if the input is dense f32 [B, 1]; else an error that explains the input of a loss.
absl::Status ExpectColumn(const InferContext& ctx, std::string_view slot);

// Shape rule: X (slot `x`), Label and, if given, Weight are [B, 1], and so is the output.
absl::Status ColumnLossShape(InferContext& ctx, std::string_view x, std::string_view out);

// Returns the shape rule of the gradient op: X, Label, Weight? and the gradient of the output are [B, 1]; the output is
// like X. Slots: `x`, Label, Weight, "<out>@GRAD" -> "<x>@GRAD".
ShapeRule ColumnLossGradRule(std::string x, std::string out);

}  // namespace weir

#endif  // WEIR_OPS_LOSS_SHAPE_H_
