// fm_interaction: second-order interactions of a factorisation machine
//
//   X        [B, S, W]  f32
//   Sum      [B, W]     f32   sum_s x[b, s, w], kept for the gradient
//   Out      [B, 1]     f32   1/2 sum_w ((sum_s x[b, s, w])^2 - sum_s x[b, s, w]^2)
//   columns  ints: begin, S, W: X is a matrix [B, C], whose columns from `begin` on are the slots;
//            empty: X is all slots
//
// Gradient: dx[b, s, w] = dout[b] * (Sum[b, w] - x[b, s, w]), and 0 in a matrix's other columns; with Onto, which is
// like the matrix, X@GRAD is Onto plus that. Sums over s and over w are taken in order.
#include "ops/fm_interaction.h"
#include "framework/graph/elements.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

// Columns are independent of one another; each adds its slots in order.
WEIR_VECTORIZED void SumSlots(int64_t slots, int64_t width, const float* __restrict x, float* __restrict sum,
                              float* __restrict squares) {
  for (int64_t w = 0; w < width; ++w) {
    sum[w] = 0;
    squares[w] = 0;
  }
  for (int64_t s = 0; s < slots; ++s, x += width) {
    WEIR_INDEPENDENT
    for (int64_t w = 0; w < width; ++w) {
      sum[w] += x[w];
      squares[w] += x[w] * x[w];
    }
  }
}

WEIR_VECTORIZED void SlotGradients(int64_t slots, int64_t width, float dout, const float* __restrict sum,
                                   const float* __restrict x, float* __restrict dx) {
  for (int64_t s = 0; s < slots; ++s, x += width, dx += width) {
    WEIR_INDEPENDENT
    for (int64_t w = 0; w < width; ++w) dx[w] = dout * (sum[w] - x[w]);
  }
}

WEIR_VECTORIZED void SlotGradientsOnto(int64_t slots, int64_t width, float dout, const float* __restrict sum,
                                       const float* __restrict x, const float* __restrict onto, float* __restrict dx) {
  for (int64_t s = 0; s < slots; ++s, x += width, onto += width, dx += width) {
    WEIR_INDEPENDENT
    for (int64_t w = 0; w < width; ++w) dx[w] = onto[w] + dout * (sum[w] - x[w]);
  }
}

// Copies [0, size) of onto, or zeros if it is null.
void CopyOnto(int64_t size, const float* onto, float* dx) {
  if (onto == nullptr) {
    std::fill_n(dx, size, 0.0f);
  } else if (size > 0) {
    std::memmove(dx, onto, static_cast<size_t>(size) * sizeof(float));
  }
}

class FmInteractionKernel : public OpKernel {
 public:
  explicit FmInteractionKernel(const KernelInit& init) : columns_(init.attrs.Ints("columns")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckRank("X", x, columns_.empty() ? 3 : 2));
    ASSIGN_OR_RETURN(const FmSlots of, FmSlotsOf(columns_, x.dims()));
    const int64_t batch = x.dim(0);
    ctx.output(0)->Resize(v1::FLOAT32, {batch, 1});
    ctx.output(1)->Resize(v1::FLOAT32, {batch, of.width});
    const float* from = x.data<float>() + of.begin;
    float* out = ctx.output(0)->data<float>();
    float* sum = ctx.output(1)->data<float>();
    std::vector<float> squares(static_cast<size_t>(of.width));
    for (int64_t b = 0; b < batch; ++b, from += of.stride, sum += of.width) {
      SumSlots(of.slots, of.width, from, sum, squares.data());
      float total = 0;
      for (int64_t w = 0; w < of.width; ++w) total += sum[w] * sum[w] - squares[static_cast<size_t>(w)];
      out[b] = 0.5f * total;
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<int64_t> columns_;
};

class FmInteractionGradKernel : public OpKernel {
  enum Input { kX, kSum, kOutGrad, kOnto };
  enum Output { kXGrad };

 public:
  explicit FmInteractionGradKernel(const KernelInit& init) : columns_(init.attrs.Ints("columns")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    RETURN_IF_ERROR(CheckRank("X", x, columns_.empty() ? 3 : 2));
    ASSIGN_OR_RETURN(const FmSlots of, FmSlotsOf(columns_, x.dims()));
    const int64_t batch = x.dim(0), size = of.slots * of.width;
    RETURN_IF_ERROR(CheckTensor("Sum", ctx.input(kSum), {batch, of.width}));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(kOutGrad), {batch, 1}));
    if (ctx.has_input(kOnto)) RETURN_IF_ERROR(CheckTensor("Onto", ctx.input(kOnto), x.dims()));
    const float* const sum = ctx.input(kSum).data<float>();
    const float* const dout = ctx.input(kOutGrad).data<float>();
    Tensor* const x_grad = ctx.output(kXGrad);
    x_grad->Resize(v1::FLOAT32, x.dims());
    for (int64_t b = 0; b < batch; ++b) {
      const float* const from = x.data<float>() + b * of.stride;
      const float* const onto = ctx.has_input(kOnto) ? ctx.input(kOnto).data<float>() + b * of.stride : nullptr;
      float* const dx = x_grad->data<float>() + b * of.stride;
      CopyOnto(of.begin, onto, dx);
      if (onto == nullptr) {
        SlotGradients(of.slots, of.width, dout[b], sum + b * of.width, from + of.begin, dx + of.begin);
      } else {
        SlotGradientsOnto(of.slots, of.width, dout[b], sum + b * of.width, from + of.begin, onto + of.begin,
                          dx + of.begin);
      }
      const int64_t end = of.begin + size;
      CopyOnto(of.stride - end, onto == nullptr ? nullptr : onto + end, dx + end);
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<int64_t> columns_;
};

absl::StatusOr<FmSlots> InferSlots(const InferContext& ctx) {
  const std::vector<int64_t> columns = ctx.attrs().Ints("columns");
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  if (columns.empty()) RETURN_IF_ERROR(ExpectRank(ctx, "X", 3));
  absl::StatusOr<FmSlots> slots = FmSlotsOf(columns, ctx.InputShape("X"));
  if (slots.ok()) return slots;
  return ctx.Error(ToStd(slots.status().message()));
}

// Cost of the columns in the slots; only the gradient also writes the other columns.
Cost FmCost(InferContext& ctx) {
  const std::vector<int64_t> columns = ctx.attrs().Ints("columns");
  const double examples = static_cast<double>(std::max<int64_t>(ctx.InputShape("X")[0], 1));
  const double elements = columns.size() == 3
                              ? examples * static_cast<double>(columns[1]) * static_cast<double>(columns[2])
                              : Elements(ctx.Input("X"));
  return {.flops = 3 * elements, .bytes = 4 * elements};
}
Cost FmGradCost(InferContext& ctx) {
  Cost cost = FmCost(ctx);
  cost.bytes += 4 * Elements(ctx.Input("X"));
  if (ctx.InputCount("Onto") > 0) cost.bytes += 4 * Elements(ctx.Input("X"));
  return cost;
}

REGISTER_OP(fm_interaction)
({.type = "fm_interaction",
  .summary = "second-order interactions of the slots of an example",
  .inputs = {{"X"}},
  .outputs = {{"Out"}, {"Sum"}},
  .attrs = {IntsAttr("columns")},
  .shape = [](InferContext& ctx) -> absl::Status {
    ASSIGN_OR_RETURN(const FmSlots slots, InferSlots(ctx));
    const int64_t batch = ctx.InputShape("X")[0];
    ctx.SetOutput("Out", {batch, 1});
    ctx.SetOutput("Sum", {batch, slots.width});
    return absl::OkStatus();
  },
  .gradient = [](GradContext& ctx) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    if (!ctx.OutputGrad("Sum").empty()) {
      return absl::InvalidArgumentError(
          "fm_interaction: Sum has no gradient of its own; only Out may be used by the model");
    }
    return MakeGradOp(ctx, {"X"}, {"Sum"}, {"Out"}, {"X"});
  },
  .cost = FmCost,
  .elements = OwnElements(),
  .effect = ElementEffect::kAdded,
  .zero_of_zero = true});

REGISTER_OP(fm_interaction_grad)
({.type = "fm_interaction_grad",
  .summary = "dout * (Sum - x)",
  .inputs = {{"X"}, {"Sum"}, {"Out@GRAD"}, {.name = "Onto", .optional = true}},
  .outputs = {{"X@GRAD"}},
  .attrs = {IntsAttr("columns")},
  .shape = [](InferContext& ctx) -> absl::Status {
    ASSIGN_OR_RETURN(const FmSlots slots, InferSlots(ctx));
    const Shape x = ctx.InputShape("X");
    RETURN_IF_ERROR(ExpectDims(ctx, "Sum", {x[0], slots.width}));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", {x[0], 1}));
    if (ctx.InputCount("Onto") > 0) RETURN_IF_ERROR(ExpectDims(ctx, "Onto", x));
    SetLike(ctx, "X@GRAD", "X");
    return absl::OkStatus();
  },
  .cost = FmGradCost,
  .in_place = {{"X", "X@GRAD"}, {"Onto", "X@GRAD"}}});

REGISTER_KERNEL(fm_interaction, MakeKernel<FmInteractionKernel>);
REGISTER_KERNEL(fm_interaction_grad, MakeKernel<FmInteractionGradKernel>);

}  // namespace

absl::StatusOr<FmSlots> FmSlotsOf(absl::Span<const int64_t> columns, absl::Span<const int64_t> dims) {
  if (columns.empty()) {
    if (dims.size() == 3) return FmSlots{.slots = dims[1], .width = dims[2], .stride = dims[1] * dims[2]};
    return absl::InvalidArgumentError(
        absl::StrCat("X must have 3 dims [batch, slots, width], got ", ShapeString(dims)));
  }
  if (dims.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat("with columns X must be [batch, columns], got ", ShapeString(dims)));
  }
  if (columns.size() == 3 && columns[0] >= 0 && columns[1] >= 1 && columns[2] >= 1) {
    int64_t end = 0;
    if (!__builtin_mul_overflow(columns[1], columns[2], &end) && !__builtin_add_overflow(end, columns[0], &end) &&
        end <= dims[1])
      return FmSlots{.slots = columns[1], .width = columns[2], .stride = dims[1], .begin = columns[0]};
  }
  return absl::InvalidArgumentError(absl::StrCat("columns ", ShapeString(columns),
                                                 " must be the first column, slots and a width that lie within X ",
                                                 ShapeString(dims)));
}

}  // namespace weir
