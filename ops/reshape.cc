// reshape: the same elements under other dims.
//
//   X      any shape  f32
//   Out    `shape`    f32
//   shape  ints; -1, first only, stands for the batch (or, where all sizes are known, for what is left)
//
// Gradient (reshape_grad): dOut under X's dims.
//
// Both share the memory of their input if an executor sets by_reference, which it does where that is safe
// (framework/runtime/view_ops.h); else they copy. A program cannot set it.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/shared_buffers.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

// Returns the number of elements after the first dim; -1 if it overflows. A dim may be 0.
int64_t PerExample(absl::Span<const int64_t> dims) { return dims.empty() ? 1 : KnownCount(dims.subspan(1)); }

// Refuses by_reference: the executor alone decides whether memory is shared.
absl::Status ExpectNothingSaidOfMemory(const InferContext& ctx) {
  if (!ctx.attrs().Has(kByReference)) return absl::OkStatus();
  return ctx.Error("by_reference is for the executor to say; take it out of the program");
}

absl::Status ReshapeShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectNothingSaidOfMemory(ctx));
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  const Shape x = ctx.InputShape("X");
  const std::vector<int64_t> wanted = ctx.attrs().Ints("shape");
  Shape out(wanted.begin(), wanted.end());
  for (size_t d = 0; d < out.size(); ++d) {
    if (out[d] < -1 || (out[d] == -1 && d > 0)) {
      return ctx.Error(absl::StrCat("shape ", ShapeString(out), ": only the first size may be -1"));
    }
  }
  const auto mismatch = [&] {
    return ctx.Error(absl::StrCat("X has dims ", ShapeString(x), ", which ", ShapeString(out), " cannot hold"));
  };
  const bool x_batch = !x.empty() && x[0] == -1, out_batch = !out.empty() && out[0] == -1;
  if (x_batch) {
    if (!out_batch || PerExample(x) != PerExample(out)) return mismatch();
  } else if (out_batch) {
    const int64_t total = KnownCount(x), rest = PerExample(out);
    if (rest <= 0 || total < 0 || total % rest != 0) return mismatch();
    out[0] = total / rest;
  } else if (KnownCount(x) < 0 || KnownCount(x) != KnownCount(out)) {
    return mismatch();
  }
  ctx.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::Status ReshapeGradShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectNothingSaidOfMemory(ctx));
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectDense(ctx, "Out@GRAD"));
  const Shape x = ctx.InputShape("X"), dout = ctx.InputShape("Out@GRAD");
  const bool batch = !x.empty() && x[0] == -1, dout_batch = !dout.empty() && dout[0] == -1;
  if (batch != dout_batch || (batch ? PerExample(x) != PerExample(dout) : KnownCount(x) != KnownCount(dout))) {
    return ctx.Error(absl::StrCat("X has dims ", ShapeString(x), ", Out@GRAD ", ShapeString(dout),
                                  "; they must hold the same elements"));
  }
  SetLike(ctx, "X@GRAD", "X");
  return absl::OkStatus();
}

absl::Status GiveReshaped(const Tensor& from, bool by_reference, absl::Span<const int64_t> dims, Tensor* to) {
  // A reshape onto the same variable copies nothing.
  if (to == &from) {
    to->Reshape(dims);
    return absl::OkStatus();
  }
  if (by_reference && from.initialized()) {
    *to = from.View(0, dims);
    return absl::OkStatus();
  }
  to->Resize(v1::FLOAT32, dims);
  if (from.bytes() > 0 && to->raw() != from.raw()) std::memcpy(to->raw(), from.raw(), from.bytes());
  return absl::OkStatus();
}

class ReshapeKernel : public OpKernel {
 public:
  explicit ReshapeKernel(const KernelInit& init)
      : shape_(init.attrs.Ints("shape")), by_reference_(init.attrs.Bool(kByReference)) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    Shape dims(shape_.begin(), shape_.end());
    if (!dims.empty() && dims[0] == -1) {
      const int64_t rest = PerExample(dims);
      dims[0] = rest > 0 ? x.size() / rest : x.dim(0);
    }
    if (ElementCount(dims) != x.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("X has dims ", ShapeString(x.dims()), ", which ", ShapeString(dims), " cannot hold"));
    }
    return GiveReshaped(x, by_reference_, dims, ctx.output(0));
  }

 private:
  const std::vector<int64_t> shape_;
  const bool by_reference_;
};

// Inputs X (for its dims), Out@GRAD; output X@GRAD.
class ReshapeGradKernel : public OpKernel {
 public:
  explicit ReshapeGradKernel(const KernelInit& init) : by_reference_(init.attrs.Bool(kByReference)) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& dout = ctx.input(1);
    const Shape dims(x.dims().begin(), x.dims().end());
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, dout.dims()));
    if (dout.size() != x.size()) {
      return absl::InvalidArgumentError(absl::StrCat("X has dims ", ShapeString(x.dims()), ", Out@GRAD ",
                                                     ShapeString(dout.dims()), "; they must hold the same elements"));
    }
    return GiveReshaped(dout, by_reference_, dims, ctx.output(0));
  }

 private:
  const bool by_reference_;
};

// Axes that become one are flattened, and dims of 1 that are put in have no name. Of any other form elements are known
// by their places.
void ReshapeElements(ElementContext& ctx) {
  const ElementAxes& x = ctx.Names("X");
  const v1::VarDesc& out = ctx.Output("Out");
  ElementAxes named;
  size_t next = 0;
  for (int d = 1; d < out.dims_size(); ++d) {
    int64_t size = 1;
    size_t end = next;
    while (end < x.size() && size < out.dims(d)) size *= AxisSize(x[end++]);
    // Vectors of one value are flattened as all others are.
    while (d + 1 == out.dims_size() && end < x.size() && AxisSize(x[end]) == 1) ++end;
    if (size != out.dims(d)) return ctx.NameOutput("Out", {});
    named.push_back(end == next ? AxisOf(out.name(), 1)
                                : FlattenAxes(absl::MakeConstSpan(x).subspan(next, end - next)));
    next = end;
  }
  if (next != x.size()) named.clear();
  ctx.NameOutput("Out", std::move(named));
}

REGISTER_OP(reshape)
({.type = "reshape",
  .summary = "the same elements under other dims",
  .inputs = {{"X"}},
  .outputs = {{"Out"}},
  .attrs = {Required(IntsAttr("shape")), BoolAttr(std::string(kByReference), false)},
  .shape = ReshapeShape,
  .gradient = GradOpRule({"X"}, {}, {"Out"}, {"X"}),
  .cost = ElementwiseCost(0),
  .in_place = {{"X", "Out"}},
  .elements = ReshapeElements,
  .effect = ElementEffect::kApart,
  .zero_of_zero = true});
REGISTER_OP(reshape_grad)
({.type = "reshape_grad",
  .summary = "a gradient under the dims of reshape's X",
  .inputs = {{"X"}, {"Out@GRAD"}},
  .outputs = {{"X@GRAD"}},
  .attrs = {IntsAttr("shape"), BoolAttr(std::string(kByReference), false)},
  .shape = ReshapeGradShape,
  .cost = ElementwiseCost(0),
  .in_place = {{"Out@GRAD", "X@GRAD"}}});

REGISTER_KERNEL(reshape, MakeKernel<ReshapeKernel>);
REGISTER_KERNEL(reshape_grad, MakeKernel<ReshapeGradKernel>);

}  // namespace
}  // namespace weir
