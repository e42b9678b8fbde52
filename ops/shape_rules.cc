#include "ops/shape_rules.h"

#include <algorithm>
#include <utility>

#include "framework/base/status_macros.h"
#include "framework/graph/op_view.h"

namespace weir {
namespace {

std::string DimsString(const v1::VarDesc& var) { return ShapeString(Shape(var.dims().begin(), var.dims().end())); }

double Bytes(const v1::VarDesc& var) {
  return var.kind() == v1::DENSE ? Elements(var) * static_cast<double>(DTypeSize(var.dtype())) : 0;
}

}  // namespace

absl::Status ExpectDense(const InferContext& ctx, std::string_view slot, DType dtype, int i) {
  const v1::VarDesc& var = ctx.Input(slot, i);
  if (var.kind() != v1::DENSE) {
    return ctx.Error(absl::StrCat(Av(slot), " must be a dense tensor, got ", v1::VarKind_Name(var.kind()),
                                  " (variable ", var.name(), ")"));
  }
  if (var.dtype() != dtype) {
    return ctx.Error(absl::StrCat(Av(slot), " must be ", v1::DType_Name(dtype), ", got ", v1::DType_Name(var.dtype()),
                                  " (variable ", var.name(), ")"));
  }
  return absl::OkStatus();
}

absl::Status ExpectAllDense(const InferContext& ctx, std::string_view slot) {
  for (int i = 0; i < ctx.InputCount(slot); ++i) RETURN_IF_ERROR(ExpectDense(ctx, slot, v1::FLOAT32, i));
  return absl::OkStatus();
}

absl::Status ExpectRank(const InferContext& ctx, std::string_view slot, int rank, int i) {
  const v1::VarDesc& var = ctx.Input(slot, i);
  if (var.dims_size() == rank) return absl::OkStatus();
  return ctx.Error(
      absl::StrCat(Av(slot), " must have ", rank, " dims, got ", DimsString(var), " (variable ", var.name(), ")"));
}

absl::Status ExpectSameDims(const InferContext& ctx, std::string_view slot_a, std::string_view slot_b) {
  const Shape a = ctx.InputShape(slot_a), b = ctx.InputShape(slot_b);
  if (DimsAgree(a, b)) return absl::OkStatus();
  return ctx.Error(absl::StrCat(Av(slot_a), " has dims ", ShapeString(a), ", ", Av(slot_b), " ", ShapeString(b),
                                "; they must be the same"));
}

void SetLike(InferContext& ctx, std::string_view output, std::string_view input, int out_i, int in_i) {
  const v1::VarDesc& from = ctx.Input(input, in_i);
  v1::VarDesc* to = ctx.Output(output, out_i);
  if (to == &from) return;
  to->set_kind(from.kind());
  to->set_dtype(from.dtype());
  *to->mutable_dims() = from.dims();
}

ShapeRule SameShapeRule(std::string input, std::string output) {
  return [input = std::move(input), output = std::move(output)](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectDense(ctx, input));
    SetLike(ctx, output, input);
    return absl::OkStatus();
  };
}

double Elements(const v1::VarDesc& var) {
  double n = 1;
  for (int64_t d : var.dims()) n *= d < 0 ? 1 : static_cast<double>(d);
  return n;
}

CostRule ElementwiseCost(double flops_per_output) {
  return [flops_per_output](InferContext& ctx) {
    Cost cost;
    for (const v1::OpSlot& slot : ctx.op().inputs()) {
      for (int i = 0; i < slot.vars_size(); ++i) cost.bytes += Bytes(ctx.Input(slot.name(), i));
    }
    bool first = true;
    for (const v1::OpSlot& slot : ctx.op().outputs()) {
      for (int i = 0; i < slot.vars_size(); ++i) {
        const v1::VarDesc& out = *ctx.Output(slot.name(), i);
        cost.bytes += Bytes(out);
        if (first) cost.flops = flops_per_output * Elements(out);
        first = false;
      }
    }
    return cost;
  };
}

absl::Status MatrixProductDims(const InferContext& ctx, std::string_view x_slot, std::string_view y_slot, Shape* out) {
  const Shape x = ctx.InputShape(x_slot), y = ctx.InputShape(y_slot);
  if (x.size() < 2) {
    return ctx.Error(absl::StrCat(Av(x_slot), " must have the batch and at least one more dim, got ", ShapeString(x),
                                  " (variable ", ctx.Input(x_slot).name(), ")"));
  }
  int64_t k = 1;
  for (size_t i = 1; i < x.size(); ++i) {
    if (x[i] < 0) {
      return ctx.Error(absl::StrCat(Av(x_slot), " has dims ", ShapeString(x), "; only the first may be unknown"));
    }
    k *= x[i];
  }
  if (k != y[0]) {
    return ctx.Error(absl::StrCat(Av(x_slot), " has dims ", ShapeString(x), ", ", k, " values per example; ",
                                  Av(y_slot), " has dims ", ShapeString(y), " and takes ", y[0]));
  }
  *out = {x[0], y[1]};
  return absl::OkStatus();
}

CostRule MatrixProductCost(std::string x_slot, std::string y_slot, int products) {
  return [x_slot = std::move(x_slot), y_slot = std::move(y_slot), products](InferContext& ctx) {
    Cost cost = ElementwiseCost(0)(ctx);
    const Shape y = ctx.InputShape(y_slot);
    cost.flops = 2.0 * products * Elements(ctx.Input(x_slot)) * static_cast<double>(y[1]);
    return cost;
  };
}

std::vector<v1::OpDesc> MakeGradOp(GradContext& ctx, const std::vector<std::string>& forward_inputs,
                                   const std::vector<std::string>& forward_outputs,
                                   const std::vector<std::string>& output_grads,
                                   const std::vector<std::string>& input_grads) {
  v1::OpDesc op;
  op.set_type(ctx.op().type() + "_grad");
  const auto copy = [&](const std::vector<std::string>& names, const OpSlots& from) {
    for (const std::string& name : names) {
      const NameList& vars = SlotVars(from, name);
      if (vars.empty()) continue;
      v1::OpSlot* slot = op.add_inputs();
      slot->set_name(name);
      *slot->mutable_vars() = vars;
    }
  };
  copy(forward_inputs, ctx.op().inputs());
  copy(forward_outputs, ctx.op().outputs());
  for (const std::string& name : output_grads) {
    const NameList& vars = SlotVars(ctx.op().outputs(), name);
    v1::OpSlot slot;
    slot.set_name(GradName(name));
    for (int i = 0; i < vars.size(); ++i) {
      const std::string grad = ctx.OutputGrad(name, i);
      if (!grad.empty()) slot.add_vars(grad);
    }
    if (slot.vars_size() > 0) *op.add_inputs() = std::move(slot);
  }
  for (const std::string& name : input_grads) {
    const NameList& vars = SlotVars(ctx.op().inputs(), name);
    v1::OpSlot slot;
    slot.set_name(GradName(name));
    for (int i = 0; i < vars.size(); ++i) {
      const std::string grad = ctx.InputGrad(name, i);
      if (!grad.empty()) slot.add_vars(grad);
    }
    if (slot.vars_size() > 0) *op.add_outputs() = std::move(slot);
  }
  if (op.outputs_size() == 0) return {};
  *op.mutable_attrs() = ctx.op().attrs();
  return {op};
}

GradRule GradOpRule(std::vector<std::string> forward_inputs, std::vector<std::string> forward_outputs,
                    std::vector<std::string> output_grads, std::vector<std::string> input_grads) {
  return [forward_inputs = std::move(forward_inputs), forward_outputs = std::move(forward_outputs),
          output_grads = std::move(output_grads),
          input_grads = std::move(input_grads)](GradContext& ctx) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    return MakeGradOp(ctx, forward_inputs, forward_outputs, output_grads, input_grads);
  };
}

}  // namespace weir
