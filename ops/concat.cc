// concat: joins tensors along an axis.
//
//   X*    same dims but for `axis`  f32
//   Out   their sum along `axis`    f32
//   axis  int = 1; negative counts from the end
//
// Batches are not joined with each other: along axis 0 all sizes must be known (blocks of a parameter).
//
// Gradient (concat_grad): each dX is its piece of dOut. Attributes of concat_grad: `sections`, sizes of all pieces
// along `axis`; `wanted`, which pieces X@GRAD has.
#include <cstring>
#include <memory>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/pieces.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

absl::Status ConcatShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectAllDense(ctx, "X"));
  Shape out = ctx.InputShape("X", 0);
  const int64_t given = ctx.attrs().Int("axis");
  const int64_t axis = NormalAxis(given, out.size());
  if (axis < 0) return ctx.Error(absl::StrCat("axis ", given, " is outside of X's dims ", ShapeString(out)));
  int64_t sum = 0;
  for (int i = 0; i < ctx.InputCount("X"); ++i) {
    Shape dims = ctx.InputShape("X", i);
    Shape others = out;
    bool fits = dims.size() == out.size();
    if (fits) {
      others[axis] = dims[axis];
      fits = dims == others;
    }
    if (!fits) {
      return ctx.Error(absl::StrCat("X[0] has dims ", ShapeString(ctx.InputShape("X", 0)), ", X[", i, "] (",
                                    ctx.Input("X", i).name(), ") ", ShapeString(dims),
                                    "; they may differ only along axis ", axis));
    }
    if (dims[axis] < 0) {
      return ctx.Error(absl::StrCat("X[", i, "] (", ctx.Input("X", i).name(), ") has dims ", ShapeString(dims),
                                    "; its size along axis ", axis, " must be known"));
    }
    sum += dims[axis];
  }
  out[axis] = sum;
  ctx.SetOutput("Out", out);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::OpDesc>> ConcatGradient(GradContext& ctx) {
  const auto& vars = ctx.op().inputs(0).vars();
  const int64_t axis = NormalAxis(ctx.attrs().Int("axis"), ctx.Var(vars[0]).dims_size());
  std::vector<int64_t> sections, wanted;
  std::vector<std::string> grads;
  for (int i = 0; i < vars.size(); ++i) {
    sections.push_back(ctx.Var(vars[i]).dims(static_cast<int>(axis)));
    const std::string grad = ctx.InputGrad("X", i);
    if (grad.empty()) continue;
    wanted.push_back(i);
    grads.push_back(grad);
  }
  if (wanted.empty()) return std::vector<v1::OpDesc>();
  return std::vector<v1::OpDesc>{
      MakeOp("concat_grad", {{"Out@GRAD", {ctx.OutputGrad("Out")}}}, {{"X@GRAD", grads}},
             {AttrI("axis", axis), AttrInts("sections", sections), AttrInts("wanted", wanted)})};
}

absl::Status ConcatGradShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "Out@GRAD"));
  const Shape out = ctx.InputShape("Out@GRAD");
  const std::vector<int64_t> sections = ctx.attrs().Ints("sections"), wanted = ctx.attrs().Ints("wanted");
  const int64_t axis = NormalAxis(ctx.attrs().Int("axis"), out.size());
  if (axis < 0 || static_cast<int>(wanted.size()) != ctx.OutputCount("X@GRAD")) {
    return ctx.Error(absl::StrCat("axis ", axis, " and ", wanted.size(),
                                  " wanted pieces do not fit to Out@GRAD of dims ", ShapeString(out), " and ",
                                  ctx.OutputCount("X@GRAD"), " outputs"));
  }
  int64_t left = out[axis];
  for (int64_t s : sections) {
    if (s < 0 || s > left) left = -1;
    if (left >= 0) left -= s;
  }
  if (left != 0) {
    return ctx.Error(absl::StrCat("sections ", ShapeString(sections), " do not add up to the size of Out@GRAD ",
                                  ShapeString(out), " along axis ", axis));
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] < 0 || wanted[i] >= static_cast<int64_t>(sections.size())) {
      return ctx.Error(absl::StrCat("piece ", wanted[i], " of ", sections.size(), " does not exist"));
    }
    Shape dims = out;
    dims[axis] = sections[wanted[i]];
    ctx.SetOutput("X@GRAD", dims, v1::FLOAT32, static_cast<int>(i));
  }
  return absl::OkStatus();
}

class ConcatKernel : public OpKernel {
 public:
  explicit ConcatKernel(const KernelInit& init) : axis_(init.attrs.Int("axis")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& first = ctx.input(0);
    const int64_t axis = NormalAxis(axis_, first.rank());
    if (axis < 0)
      return absl::InvalidArgumentError(absl::StrCat("X[0] has dims ", ShapeString(first.dims()), ", no axis ", axis_));
    Shape dims(first.dims().begin(), first.dims().end());
    dims[axis] = 0;
    for (int i = 0; i < ctx.input_count(0); ++i) {
      const Tensor& x = ctx.input(0, i);
      Shape want(first.dims().begin(), first.dims().end());
      if (x.rank() == first.rank()) want[axis] = x.dim(static_cast<int>(axis));
      RETURN_IF_ERROR(CheckTensor(absl::StrCat("X[", i, "]"), x, want));
      dims[axis] += want[axis];
    }
    Tensor* out = ctx.output(0);
    out->Resize(v1::FLOAT32, dims);
    int64_t begin = 0;
    for (int i = 0; i < ctx.input_count(0); ++i) {
      const Tensor& x = ctx.input(0, i);
      const int64_t size = x.dim(static_cast<int>(axis));
      CopyIntoPiece(dims, axis, begin, size, x.data<float>(), out->data<float>());
      begin += size;
    }
    return absl::OkStatus();
  }

 private:
  const int64_t axis_;
};

class ConcatGradKernel : public OpKernel {
 public:
  explicit ConcatGradKernel(const KernelInit& init)
      : axis_(init.attrs.Int("axis")), sections_(init.attrs.Ints("sections")), wanted_(init.attrs.Ints("wanted")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& dout = ctx.input(0);
    const int64_t axis = NormalAxis(axis_, dout.rank());
    int64_t sum = 0;
    for (int64_t s : sections_) sum += s;
    if (axis < 0 || dout.dtype() != v1::FLOAT32 || dout.dim(static_cast<int>(axis)) != sum) {
      return absl::InvalidArgumentError(absl::StrCat("sections ", ShapeString(sections_), " do not cut Out@GRAD ",
                                                     ShapeString(dout.dims()), " along axis ", axis_));
    }
    for (size_t i = 0; i < wanted_.size(); ++i) {
      int64_t begin = 0;
      for (int64_t p = 0; p < wanted_[i]; ++p) begin += sections_[p];
      const int64_t size = sections_[wanted_[i]];
      Shape dims(dout.dims().begin(), dout.dims().end());
      dims[axis] = size;
      Tensor* dx = ctx.output(0, static_cast<int>(i));
      dx->Resize(v1::FLOAT32, dims);
      CopyFromPiece(dout.dims(), axis, begin, size, dout.data<float>(), dx->data<float>());
    }
    return absl::OkStatus();
  }

 private:
  const int64_t axis_;
  const std::vector<int64_t> sections_;
  const std::vector<int64_t> wanted_;
};

void ConcatElements(ElementContext& ctx) {
  const int64_t rank = ctx.Output("Out").dims_size();
  const int64_t given = ctx.attrs().Int("axis"), axis = given < 0 ? given + rank : given;
  if (axis < 1 || axis >= rank) return;
  ElementAxes joined = ctx.Names("X", 0);
  for (int i = 1; i < ctx.InputCount("X"); ++i) {
    const ElementAxes& x = ctx.Names("X", i);
    for (size_t d = 0; d < joined.size() && d < x.size(); ++d) {
      if (static_cast<int64_t>(d) + 1 == axis) {
        joined[d].insert(joined[d].end(), x[d].begin(), x[d].end());
      } else if (joined[d] != x[d]) {
        // Of vectors of several tables, say: known by their places.
        joined[d] = AxisOf("", AxisSize(joined[d]));
      }
    }
  }
  ctx.NameOutput("Out", std::move(joined));
}

REGISTER_OP(concat)
({.type = "concat",
  .summary = "joins tensors along an axis",
  .inputs = {{.name = "X", .variadic = true}},
  .outputs = {{"Out"}},
  .attrs = {IntAttr("axis", 1)},
  .shape = ConcatShape,
  .gradient = ConcatGradient,
  .cost = ElementwiseCost(0),
  .elements = ConcatElements,
  .effect = ElementEffect::kApart,
  .zero_of_zero = true});
REGISTER_OP(concat_grad)
({.type = "concat_grad",
  .summary = "pieces of a joined gradient",
  .inputs = {{"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .variadic = true}},
  .attrs = {Required(IntAttr("axis", 1)), Required(IntsAttr("sections")), Required(IntsAttr("wanted"))},
  .shape = ConcatGradShape,
  .cost = ElementwiseCost(0)});

REGISTER_KERNEL(concat, MakeKernel<ConcatKernel>);
REGISTER_KERNEL(concat_grad, MakeKernel<ConcatGradKernel>);

}  // namespace
}  // namespace weir
