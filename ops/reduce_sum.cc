// reduce_sum: adds the elements along some dims of each example.
//
//   X         [B, ..]  f32
//   Out       X's dims without those added up, or with 1 in their place if keep_dim   f32
//   dims      ints, never the batch (0); negative count from the end; empty: all but the batch
//   keep_dim  bool = false
//
// Order: X's, neighbouring elements as in ops/fixed_sum.h. Gradient (reduce_sum_grad): dOut repeated.
#include <algorithm>
#include <memory>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/broadcast.h"
#include "ops/fit.h"
#include "ops/fixed_sum.h"
#include "ops/pieces.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void AddRun(int64_t n, const float* x, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] += x[i];
}

WEIR_VECTORIZED float SumRun(int64_t n, const float* x) {
  return FixedSum(n, [x](int64_t i) { return x[i]; });
}

// Returns X's dims, with 1 for the dims that are added up.
absl::StatusOr<Shape> KeptDims(absl::Span<const int64_t> x, const std::vector<int64_t>& dims) {
  if (x.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("X has dims ", ShapeString(x), "; there must be one besides the batch to add up"));
  }
  Shape kept(x.begin(), x.end());
  if (dims.empty()) std::fill(kept.begin() + 1, kept.end(), 1);
  for (int64_t d : dims) {
    const int64_t axis = NormalAxis(d, x.size());
    if (axis < 0)
      return absl::InvalidArgumentError(absl::StrCat("dim ", d, " is outside of X's dims ", ShapeString(x)));
    if (axis == 0) return absl::InvalidArgumentError("dim 0 is the batch, which is never added up");
    kept[axis] = 1;
  }
  return kept;
}

Shape OutputDims(absl::Span<const int64_t> x, absl::Span<const int64_t> kept, const std::vector<int64_t>& dims,
                 bool keep_dim) {
  if (keep_dim) return Shape(kept.begin(), kept.end());
  Shape out;
  for (size_t d = 0; d < x.size(); ++d) {
    const bool added = (dims.empty() && d > 0) || std::any_of(dims.begin(), dims.end(), [&](int64_t given) {
                         return NormalAxis(given, x.size()) == static_cast<int64_t>(d);
                       });
    if (!added) out.push_back(x[d]);
  }
  return out;
}

absl::Status ReduceSumShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  const Shape x = ctx.InputShape("X");
  const std::vector<int64_t> dims = ctx.attrs().Ints("dims");
  const absl::StatusOr<Shape> kept = KeptDims(x, dims);
  if (!kept.ok()) return ctx.Error(ToStd(kept.status().message()));
  ctx.SetOutput("Out", OutputDims(x, *kept, dims, ctx.attrs().Bool("keep_dim")));
  return absl::OkStatus();
}

absl::Status ReduceSumGradShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  const Shape x = ctx.InputShape("X");
  const std::vector<int64_t> dims = ctx.attrs().Ints("dims");
  const absl::StatusOr<Shape> kept = KeptDims(x, dims);
  if (!kept.ok()) return ctx.Error(ToStd(kept.status().message()));
  RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", OutputDims(x, *kept, dims, ctx.attrs().Bool("keep_dim"))));
  SetLike(ctx, "X@GRAD", "X");
  return absl::OkStatus();
}

class ReduceSumKernel : public OpKernel {
 public:
  explicit ReduceSumKernel(const KernelInit& init)
      : dims_(init.attrs.Ints("dims")), keep_dim_(init.attrs.Bool("keep_dim")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    ASSIGN_OR_RETURN(const Shape kept, KeptDims(x.dims(), dims_));
    Tensor* out = ctx.output(0);
    out->Resize(v1::FLOAT32, OutputDims(x.dims(), kept, dims_, keep_dim_));
    float* sums = out->data<float>();
    std::fill_n(sums, out->size(), 0.0f);
    const Broadcast broadcast(x.dims(), kept);
    const int64_t n = broadcast.inner();
    broadcast.ForEach([&](int64_t at, int64_t out_at) {
      const float* run = x.data<float>() + at;
      if (broadcast.inner_moves()) {
        AddRun(n, run, sums + out_at);
      } else {
        sums[out_at] += SumRun(n, run);
      }
    });
    return absl::OkStatus();
  }

 private:
  const std::vector<int64_t> dims_;
  const bool keep_dim_;
};

// Inputs X (for its dims), Out@GRAD; output X@GRAD.
class ReduceSumGradKernel : public OpKernel {
 public:
  explicit ReduceSumGradKernel(const KernelInit& init)
      : dims_(init.attrs.Ints("dims")), keep_dim_(init.attrs.Bool("keep_dim")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    ASSIGN_OR_RETURN(const Shape kept, KeptDims(x.dims(), dims_));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(1), OutputDims(x.dims(), kept, dims_, keep_dim_)));
    const float* dout = ctx.input(1).data<float>();
    Tensor* dx = ctx.output(0);
    dx->Resize(v1::FLOAT32, x.dims());
    const Broadcast broadcast(x.dims(), kept);
    const int64_t n = broadcast.inner();
    broadcast.ForEach([&](int64_t at, int64_t out_at) {
      float* run = dx->data<float>() + at;
      if (broadcast.inner_moves()) {
        std::copy_n(dout + out_at, n, run);
      } else {
        std::fill_n(run, n, dout[out_at]);
      }
    });
    return absl::OkStatus();
  }

 private:
  const std::vector<int64_t> dims_;
  const bool keep_dim_;
};

// Axes that are not added up keep their names, behind that of the sum.
void KeptElements(ElementContext& ctx) {
  const ElementAxes& x = ctx.Names("X");
  const std::string& name = ctx.Output("Out").name();
  const std::vector<int64_t> dims = ctx.attrs().Ints("dims");
  ElementAxes out;
  for (size_t axis = 0; axis < x.size(); ++axis) {
    const bool added = dims.empty() || std::any_of(dims.begin(), dims.end(), [&](int64_t given) {
                         return NormalAxis(given, x.size() + 1) == static_cast<int64_t>(axis) + 1;
                       });
    if (!added) out.push_back(PrefixAxis(name, x[axis]));
    if (added && ctx.attrs().Bool("keep_dim")) out.push_back(AxisOf(name, 1));
  }
  if (out.empty()) return OwnElements()(ctx);
  ctx.NameOutput("Out", std::move(out));
}

REGISTER_OP(reduce_sum)
({.type = "reduce_sum",
  .summary = "sum along dims of each example",
  .inputs = {{"X"}},
  .outputs = {{"Out"}},
  .attrs = {IntsAttr("dims"), BoolAttr("keep_dim", false)},
  .shape = ReduceSumShape,
  .gradient = GradOpRule({"X"}, {}, {"Out"}, {"X"}),
  .cost =
      [](InferContext& ctx) {
        Cost cost = ElementwiseCost(0)(ctx);
        cost.flops = Elements(ctx.Input("X"));
        return cost;
      },
  .elements = KeptElements,
  .effect = ElementEffect::kAdded,
  .zero_of_zero = true});
REGISTER_OP(reduce_sum_grad)
({.type = "reduce_sum_grad",
  .summary = "a gradient repeated along the dims that were added up",
  .inputs = {{"X"}, {"Out@GRAD"}},
  .outputs = {{"X@GRAD"}},
  .attrs = {IntsAttr("dims"), BoolAttr("keep_dim", false)},
  .shape = ReduceSumGradShape,
  .cost = ElementwiseCost(0)});

REGISTER_KERNEL(reduce_sum, MakeKernel<ReduceSumKernel>);
REGISTER_KERNEL(reduce_sum_grad, MakeKernel<ReduceSumGradKernel>);

}  // namespace
}  // namespace weir
