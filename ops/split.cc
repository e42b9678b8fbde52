// split: cuts a tensor along an axis.
//
//   X         any shape  f32
//   Out*      like X but for `axis`  f32
//   axis      int = 1; negative counts from the end; not the batch
//   sections  ints: sizes along `axis`, one per output; empty: equal parts
//
// Gradient (split_grad): dX joined from the dOut's; a piece without a gradient is 0. Attribute `present` of split_grad:
// which pieces Out@GRAD has.
#include <algorithm>
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

absl::Status SplitShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  const Shape x = ctx.InputShape("X");
  const int64_t given = ctx.attrs().Int("axis");
  const int64_t axis = NormalAxis(given, x.size());
  if (axis < 0) return ctx.Error(absl::StrCat("axis ", given, " is outside of X's dims ", ShapeString(x)));
  if (x[axis] < 0) {
    return ctx.Error(absl::StrCat("X has dims ", ShapeString(x), "; its size along axis ", axis, " must be known"));
  }
  std::vector<int64_t> sections = ctx.attrs().Ints("sections");
  const int count = ctx.OutputCount("Out");
  if (sections.empty()) {
    if (x[axis] % count != 0) {
      return ctx.Error(absl::StrCat("X has dims ", ShapeString(x), "; ", x[axis], " does not divide into ", count,
                                    " equal parts: give sections"));
    }
    sections.assign(count, x[axis] / count);
  }
  int64_t sum = 0;
  for (int64_t s : sections) {
    if (s < 0 || __builtin_add_overflow(sum, s, &sum)) {
      return ctx.Error(absl::StrCat("sections ", ShapeString(sections), " has a size that is negative or too large"));
    }
  }
  if (static_cast<int>(sections.size()) != count || sum != x[axis]) {
    return ctx.Error(absl::StrCat("sections ", ShapeString(sections), " of ", count,
                                  " outputs must be one per output and add up to ", x[axis], ", the size of X ",
                                  ShapeString(x), " along axis ", axis));
  }
  for (int i = 0; i < count; ++i) {
    Shape dims = x;
    dims[axis] = sections[i];
    ctx.SetOutput("Out", dims, v1::FLOAT32, i);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::OpDesc>> SplitGradient(GradContext& ctx) {
  const std::string dx = ctx.InputGrad("X");
  if (dx.empty()) return std::vector<v1::OpDesc>();
  const auto& outs = ctx.op().outputs(0).vars();
  const int64_t axis = NormalAxis(ctx.attrs().Int("axis"), ctx.Var(outs[0]).dims_size());
  std::vector<int64_t> sections, present;
  std::vector<std::string> grads;
  for (int i = 0; i < outs.size(); ++i) {
    sections.push_back(ctx.Var(outs[i]).dims(static_cast<int>(axis)));
    const std::string grad = ctx.OutputGrad("Out", i);
    if (grad.empty()) continue;
    present.push_back(i);
    grads.push_back(grad);
  }
  return std::vector<v1::OpDesc>{
      MakeOp("split_grad", {{"Out@GRAD", grads}}, {{"X@GRAD", {dx}}},
             {AttrI("axis", axis), AttrInts("sections", sections), AttrInts("present", present)})};
}

absl::Status SplitGradShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectAllDense(ctx, "Out@GRAD"));
  Shape dims = ctx.InputShape("Out@GRAD");
  const int64_t axis = NormalAxis(ctx.attrs().Int("axis"), dims.size());
  const std::vector<int64_t> sections = ctx.attrs().Ints("sections"), present = ctx.attrs().Ints("present");
  int64_t sum = 0;
  for (int64_t s : sections) {
    if (s < 0 || __builtin_add_overflow(sum, s, &sum)) {
      return ctx.Error(absl::StrCat("sections ", ShapeString(sections), " has a size that is negative or too large"));
    }
  }
  bool fits = axis >= 0 && static_cast<int>(present.size()) == ctx.InputCount("Out@GRAD");
  std::vector<bool> seen(sections.size(), false);
  for (size_t i = 0; fits && i < present.size(); ++i) {
    fits = present[i] >= 0 && present[i] < static_cast<int64_t>(sections.size()) && !seen[present[i]];
    if (!fits) break;
    seen[present[i]] = true;
    dims[axis] = sections[present[i]];
    fits = ctx.InputShape("Out@GRAD", static_cast<int>(i)) == dims;
  }
  if (!fits) return ctx.Error("axis, sections and present do not fit to the gradients given");
  dims[axis] = sum;
  ctx.SetOutput("X@GRAD", dims);
  return absl::OkStatus();
}

class SplitKernel : public OpKernel {
 public:
  explicit SplitKernel(const KernelInit& init)
      : axis_(init.attrs.Int("axis")), sections_(init.attrs.Ints("sections")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const int64_t axis = NormalAxis(axis_, x.rank());
    const int count = ctx.output_count(0);
    if (axis < 0)
      return absl::InvalidArgumentError(absl::StrCat("X has dims ", ShapeString(x.dims()), ", no axis ", axis_));
    const int64_t whole = x.dim(static_cast<int>(axis));
    int64_t sum = 0;
    for (int64_t s : sections_) sum += s;
    if (sections_.empty() ? whole % count != 0 : whole != sum) {
      return absl::InvalidArgumentError(absl::StrCat("X has dims ", ShapeString(x.dims()), ", which ", count,
                                                     " outputs of sections ", ShapeString(sections_),
                                                     " do not cut along axis ", axis));
    }
    int64_t begin = 0;
    for (int i = 0; i < count; ++i) {
      const int64_t size = sections_.empty() ? x.dim(static_cast<int>(axis)) / count : sections_[i];
      Shape dims(x.dims().begin(), x.dims().end());
      dims[axis] = size;
      Tensor* out = ctx.output(0, i);
      out->Resize(v1::FLOAT32, dims);
      CopyFromPiece(x.dims(), axis, begin, size, x.data<float>(), out->data<float>());
      begin += size;
    }
    return absl::OkStatus();
  }

 private:
  const int64_t axis_;
  const std::vector<int64_t> sections_;
};

class SplitGradKernel : public OpKernel {
 public:
  explicit SplitGradKernel(const KernelInit& init)
      : axis_(init.attrs.Int("axis")), sections_(init.attrs.Ints("sections")), present_(init.attrs.Ints("present")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& first = ctx.input(0);
    const int64_t axis = NormalAxis(axis_, first.rank());
    if (axis < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("Out@GRAD has dims ", ShapeString(first.dims()), ", no axis ", axis_));
    }
    Shape dims(first.dims().begin(), first.dims().end());
    for (size_t i = 0; i < present_.size(); ++i) {
      dims[axis] = sections_[present_[i]];
      RETURN_IF_ERROR(CheckTensor(absl::StrCat("Out@GRAD[", i, "]"), ctx.input(0, static_cast<int>(i)), dims));
    }
    dims[axis] = 0;
    for (int64_t s : sections_) dims[axis] += s;
    Tensor* dx = ctx.output(0);
    dx->Resize(v1::FLOAT32, dims);
    if (present_.size() < sections_.size()) std::fill_n(dx->data<float>(), dx->size(), 0.0f);
    for (size_t i = 0; i < present_.size(); ++i) {
      int64_t begin = 0;
      for (int64_t p = 0; p < present_[i]; ++p) begin += sections_[p];
      CopyIntoPiece(dims, axis, begin, sections_[present_[i]], ctx.input(0, static_cast<int>(i)).data<float>(),
                    dx->data<float>());
    }
    return absl::OkStatus();
  }

 private:
  const int64_t axis_;
  const std::vector<int64_t> sections_;
  const std::vector<int64_t> present_;
};

void SplitElements(ElementContext& ctx) {
  const ElementAxes& x = ctx.Names("X");
  const int64_t given = ctx.attrs().Int("axis"), axis = given < 0 ? given + static_cast<int64_t>(x.size()) + 1 : given;
  if (axis < 1 || axis > static_cast<int64_t>(x.size())) return;
  int64_t begin = 0;
  for (int i = 0; i < ctx.OutputCount("Out"); ++i) {
    const int64_t size = ctx.Output("Out", i).dims(static_cast<int>(axis));
    ElementAxes piece = x;
    piece[static_cast<size_t>(axis - 1)] = SliceAxis(x[static_cast<size_t>(axis - 1)], begin, size);
    ctx.NameOutput("Out", std::move(piece), i);
    begin += size;
  }
}

REGISTER_OP(split)
({.type = "split",
  .summary = "cuts a tensor along an axis",
  .inputs = {{"X"}},
  .outputs = {{.name = "Out", .variadic = true}},
  .attrs = {IntAttr("axis", 1), IntsAttr("sections")},
  .shape = SplitShape,
  .gradient = SplitGradient,
  .cost = ElementwiseCost(0),
  .elements = SplitElements,
  .effect = ElementEffect::kApart,
  .zero_of_zero = true});
REGISTER_OP(split_grad)
({.type = "split_grad",
  .summary = "joins the gradients of the pieces of a split",
  .inputs = {{.name = "Out@GRAD", .variadic = true}},
  .outputs = {{"X@GRAD"}},
  .attrs = {Required(IntAttr("axis", 1)), Required(IntsAttr("sections")), Required(IntsAttr("present"))},
  .shape = SplitGradShape,
  .cost = ElementwiseCost(0)});

REGISTER_KERNEL(split, MakeKernel<SplitKernel>);
REGISTER_KERNEL(split_grad, MakeKernel<SplitGradKernel>);

}  // namespace
}  // namespace weir
