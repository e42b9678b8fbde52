// Building blocks of shape, cost and gradient rules of operators. Dimensions may be -1 (the batch) in descriptions.
#ifndef WEIR_OPS_SHAPE_RULES_H_
#define WEIR_OPS_SHAPE_RULES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "framework/base/string_views.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"

namespace weir {

// Returns OK if the input is dense and of the type, else "relu: X must be FLOAT32, got INT64 (variable label)".
absl::Status ExpectDense(const InferContext& ctx, std::string_view slot, DType dtype = v1::FLOAT32, int i = 0);
// Returns OK if all inputs of a slot are dense float32.
absl::Status ExpectAllDense(const InferContext& ctx, std::string_view slot);
// Returns OK if the input has `rank` dims, else "softmax: X must have 2 dims, got [-1, 3, 4]".
absl::Status ExpectRank(const InferContext& ctx, std::string_view slot, int rank, int i = 0);
// Returns OK if the dims agree; -1 agrees with anything. "square_error: X has dims [-1, 1], Label [-1, 2]; they must be
// the same".
absl::Status ExpectSameDims(const InferContext& ctx, std::string_view slot_a, std::string_view slot_b);

// Copies kind, dtype and dims from an input to an output.
void SetLike(InferContext& ctx, std::string_view output, std::string_view input, int out_i = 0, int in_i = 0);

// Returns a shape rule that requires a dense float32 X (slot `input`) and gives Out (slot `output`) its description.
ShapeRule SameShapeRule(std::string input = "X", std::string output = "Out");

// Writes to `out` the dims [B, N] of X [B, K..] times the matrix Y [K, N]. Errors name both shapes.
absl::Status MatrixProductDims(const InferContext& ctx, std::string_view x_slot, std::string_view y_slot, Shape* out);
// Returns a cost rule: 2 * B * K * N flops per product, and the bytes of all variables.
CostRule MatrixProductCost(std::string x_slot, std::string y_slot, int products);

// Returns the product of dims, with -1 counted as 1.
double Elements(const v1::VarDesc& var);
// Returns a cost rule: the bytes of all dense inputs and outputs, and `flops_per_output` for each element of the first
// output.
CostRule ElementwiseCost(double flops_per_output);

// Returns the op "<type>_grad" with the named forward inputs and outputs, the gradients of all outputs and inputs that
// exist, and the forward op's attributes. Slots: X, Out, "Out@GRAD" -> "X@GRAD".
//   MakeGradOp(ctx, {"X"}, {"Out"}, {"Out"}, {"X"})
// reads X, Out and Out@GRAD and writes X@GRAD. Empty result when no wanted input has a gradient.
std::vector<v1::OpDesc> MakeGradOp(GradContext& ctx, const std::vector<std::string>& forward_inputs,
                                   const std::vector<std::string>& forward_outputs,
                                   const std::vector<std::string>& output_grads,
                                   const std::vector<std::string>& input_grads);
// Returns MakeGradOp as a gradient rule.
GradRule GradOpRule(std::vector<std::string> forward_inputs, std::vector<std::string> forward_outputs,
                    std::vector<std::string> output_grads, std::vector<std::string> input_grads);

}  // namespace weir

#endif  // WEIR_OPS_SHAPE_RULES_H_
