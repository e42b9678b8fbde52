// add_positions: the vector of its position added to each element of a sequence (ops/sequence.h)
//
//   X       [B, T, W]  f32
//   W       [T, W]     f32   vectors of the positions
//   Length  [B, 1]     f32
//   Out     [B, T, W]  f32   0 behind the length
//   from_end  bool = false   position 0 is that of the last element of an example, 1 that of the one before it
//
// Gradient (add_positions_grad): dX = dOut, 0 behind the length; dW of a position adds dOut of the elements there, in
// the order of examples.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/sequence.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

// out may be x.
WEIR_VECTORIZED void AddRows(int64_t n, const float* x, const float* w, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + w[i];
}

class AddPositionsKernel : public OpKernel {
  enum Input { kX, kW, kLength };
  enum Output { kOut };

 public:
  explicit AddPositionsKernel(const KernelInit& init) : from_end_(init.attrs.Bool("from_end")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &x = ctx.input(kX), &w = ctx.input(kW), &length = ctx.input(kLength);
    RETURN_IF_ERROR(CheckSequence("X", x, length));
    const int64_t batch = x.dim(0), most = x.dim(1), width = x.dim(2);
    RETURN_IF_ERROR(CheckTensor("W", w, {most, width}));
    Tensor* const out = ctx.output(kOut);
    out->Resize(v1::FLOAT32, x.dims());
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t n = LengthOf(length, b);
      const float* const from = x.data<float>() + b * most * width;
      float* const to = out->data<float>() + b * most * width;
      if (from_end_) {
        for (int64_t t = 0; t < n; ++t) {
          AddRows(width, from + t * width, w.data<float>() + (n - 1 - t) * width, to + t * width);
        }
      } else {
        AddRows(n * width, from, w.data<float>(), to);
      }
      std::fill_n(to + n * width, (most - n) * width, 0.0f);
    }
    return absl::OkStatus();
  }

 private:
  const bool from_end_;
};

class AddPositionsGradKernel : public OpKernel {
  enum Input { kW, kLength, kOutGrad };
  enum Output { kXGrad, kWGrad };

 public:
  explicit AddPositionsGradKernel(const KernelInit& init) : from_end_(init.attrs.Bool("from_end")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &w = ctx.input(kW), &length = ctx.input(kLength), &dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckSequence("Out@GRAD", dout, length));
    const int64_t batch = dout.dim(0), most = dout.dim(1), width = dout.dim(2);
    RETURN_IF_ERROR(CheckTensor("W", w, {most, width}));
    if (ctx.has_output(kWGrad)) {
      ctx.output(kWGrad)->Resize(v1::FLOAT32, w.dims());
      float* const dw = ctx.output(kWGrad)->data<float>();
      std::fill_n(dw, most * width, 0.0f);
      for (int64_t b = 0; b < batch; ++b) {
        const int64_t n = LengthOf(length, b);
        const float* const from = dout.data<float>() + b * most * width;
        if (!from_end_) {
          AddRows(n * width, dw, from, dw);
          continue;
        }
        for (int64_t t = 0; t < n; ++t) {
          float* const row = dw + (n - 1 - t) * width;
          AddRows(width, row, from + t * width, row);
        }
      }
    }
    // Written last, because it may share the memory of dOut.
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    ctx.output(kXGrad)->Resize(v1::FLOAT32, dout.dims());
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t n = LengthOf(length, b);
      const float* const from = dout.data<float>() + b * most * width;
      float* const to = ctx.output(kXGrad)->data<float>() + b * most * width;
      if (to != from) std::copy_n(from, n * width, to);
      std::fill_n(to + n * width, (most - n) * width, 0.0f);
    }
    return absl::OkStatus();
  }

 private:
  const bool from_end_;
};

// `slot`: X, or its gradient's.
absl::Status ExpectPositions(const InferContext& ctx, std::string_view slot) {
  RETURN_IF_ERROR(ExpectSequence(ctx, slot));
  const Shape x = ctx.InputShape(slot);
  return ExpectDims(ctx, "W", {x[1], x[2]});
}

void PositionElements(ElementContext& ctx) {
  const ElementAxes& x = ctx.Names("X");
  const v1::VarDesc& w = ctx.Input("W");
  if (x.size() == 2) ctx.NameParameter("W", {AxisOf(w.name(), w.dims(0)), x.back()});
  ctx.NameOutput("Out", x);
}

REGISTER_OP(add_positions)
({.type = "add_positions",
  .summary = "each element of a sequence plus the vector of its position",
  .inputs = {{"X"}, {"W"}, {"Length"}},
  .outputs = {{"Out"}},
  .attrs = {BoolAttr("from_end", false)},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectPositions(ctx, "X"));
    SetLike(ctx, "Out", "X");
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"W", "Length"}, {}, {"Out"}, {"X", "W"}),
  .cost = ElementwiseCost(1),
  .in_place = {{"X", "Out"}},
  .elements = PositionElements,
  .effect = ElementEffect::kApart});
REGISTER_OP(add_positions_grad)
({.type = "add_positions_grad",
  .summary = "gradients of add_positions",
  .inputs = {{"W"}, {"Length"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true}, {.name = "W@GRAD", .optional = true}},
  .attrs = {BoolAttr("from_end", false)},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectPositions(ctx, "Out@GRAD"));
    if (ctx.OutputCount("X@GRAD") > 0) SetLike(ctx, "X@GRAD", "Out@GRAD");
    if (ctx.OutputCount("W@GRAD") > 0) SetLike(ctx, "W@GRAD", "W");
    return absl::OkStatus();
  },
  .cost = ElementwiseCost(1),
  .in_place = {{"Out@GRAD", "X@GRAD"}}});

REGISTER_KERNEL(add_positions, MakeKernel<AddPositionsKernel>);
REGISTER_KERNEL(add_positions_grad, MakeKernel<AddPositionsGradKernel>);

}  // namespace
}  // namespace weir
