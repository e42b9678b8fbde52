// batch_norm: every channel of X with mean 0 and variance 1 over the batch, then scaled and shifted:
//   out = f((x - mean) / sqrt(variance + epsilon) * scale + shift)
//
//   X              [B, C, ..]  f32; a channel is all elements with one index of the second dim
//   Scale, Shift   [C]         f32
//   Mean           [C]         f32, running mean
//   Variance       [C]         f32, running variance
//   Out            like X      f32
//   BatchMean      [C]         f32, what was subtracted
//   BatchVariance  [C]         f32, squared distance from it, divided by the elements of the channel
//   epsilon float > 0; activation: identity, relu, sigmoid or tanh
//   momentum float in [0, 1): of the running averages (framework/graph/running_averages.h)
//
// In training mean and variance are those of the lane's own examples; a channel of one element has variance 0.
// Otherwise they are the running ones. Sums go over examples in order, in each example in the order of ops/fixed_sum.h;
// the variance is taken around the mean in a second pass.
//
// Gradient (batch_norm_grad), with n elements in a channel, dpre = dOut * f' taken from Out, and
// norm = (x - mean) / sqrt(variance + epsilon):
//   dShift = sum of dpre, dScale = sum of dpre * norm,
//   dX = scale / sqrt(variance + epsilon) * (dpre - dShift / n - norm * dScale / n)
// Mean@GRAD and Variance@GRAD are no gradients: they are BatchMean and BatchVariance times the examples of the lane,
// which servers divide by the samples of the step and make running averages of.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/running_averages.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/fixed_sum.h"
#include "ops/fused_activation.h"
#include "ops/row_statistics.h"
#include "ops/scratch.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

// Sizes of one run: a channel has `size` elements side by side in each of `batch` examples, `step` apart.
struct Channels {
  int64_t batch = 0, count = 0, size = 0;
  int64_t step() const { return count * size; }
  int64_t elements() const { return batch * size; }

  static absl::StatusOr<Channels> Of(const Tensor& x) {
    RETURN_IF_ERROR(CheckTensor("X", x, x.dims()));
    if (x.rank() >= 2) return Channels{x.dim(0), x.dim(1), ElementCount(x.dims().subspan(2))};
    return absl::InvalidArgumentError(absl::StrCat("X must be [B, C, ..], got ", ShapeString(x.dims())));
  }
};

// ---------------------------------------------------------------------- functions of one channel, which begins at x

WEIR_VECTORIZED float Sum(const Channels& c, const float* x) {
  float sum = 0;
  for (int64_t b = 0; b < c.batch; ++b, x += c.step()) sum += FixedSum(c.size, [&](int64_t i) { return x[i]; });
  return sum;
}

WEIR_VECTORIZED float SumOfSquares(const Channels& c, float mean, const float* x) {
  float sum = 0;
  for (int64_t b = 0; b < c.batch; ++b, x += c.step()) {
    sum += FixedSum(c.size, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  }
  return sum;
}

// Sum of dpre * (x - mean).
WEIR_VECTORIZED float SumOfProducts(const Channels& c, float mean, const float* x, const float* dpre) {
  float sum = 0;
  for (int64_t b = 0; b < c.batch; ++b, x += c.step(), dpre += c.step()) {
    sum += FixedSum(c.size, [&](int64_t i) { return dpre[i] * (x[i] - mean); });
  }
  return sum;
}

WEIR_VECTORIZED void Normalise(const Channels& c, float mean, float factor, const float* x, float* out) {
  for (int64_t b = 0; b < c.batch; ++b, x += c.step(), out += c.step()) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < c.size; ++i) out[i] = (x[i] - mean) * factor;
  }
}

// dx = factor * (dpre - shift - (x - mean) * slope). dx may be dpre.
WEIR_VECTORIZED void InputGradient(const Channels& c, float mean, float factor, float shift, float slope,
                                   const float* x, const float* dpre, float* dx) {
  for (int64_t b = 0; b < c.batch; ++b, x += c.step(), dpre += c.step(), dx += c.step()) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < c.size; ++i) dx[i] = factor * (dpre[i] - shift - (x[i] - mean) * slope);
  }
}

// -------------------------------------------------------------------------------------- examples of one element each
//
// Take the same sums as above, of several channels at a time.

WEIR_VECTORIZED void SumRowsOfProducts(const Channels& c, const float* mean, const float* x, const float* dpre,
                                       float* sum) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < c.count; ++i) sum[i] = 0;
  for (int64_t b = 0; b < c.batch; ++b, x += c.count, dpre += c.count) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < c.count; ++i) sum[i] += dpre[i] * (x[i] - mean[i]);
  }
}

WEIR_VECTORIZED void NormaliseRows(const Channels& c, const float* mean, const float* factor, const float* shift,
                                   const float* x, float* out) {
  for (int64_t b = 0; b < c.batch; ++b, x += c.count, out += c.count) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < c.count; ++i) out[i] = (x[i] - mean[i]) * factor[i] + shift[i];
  }
}

WEIR_VECTORIZED void InputGradientOfRows(const Channels& c, const float* mean, const float* factor, const float* shift,
                                         const float* slope, const float* x, const float* dpre, float* dx) {
  for (int64_t b = 0; b < c.batch; ++b, x += c.count, dpre += c.count, dx += c.count) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < c.count; ++i) dx[i] = factor[i] * (dpre[i] - shift[i] - (x[i] - mean[i]) * slope[i]);
  }
}

// ---------------------------------------------------------------------------------------------------------------------

void Measure(const Channels& c, const float* x, float* mean, float* variance) {
  if (c.elements() == 0) {
    std::fill_n(mean, c.count, 0.0f);
    std::fill_n(variance, c.count, 0.0f);
    return;
  }
  const float n = static_cast<float>(c.elements());
  if (c.size == 1) return MeasureColumns(c.batch, c.count, x, mean, variance);
  for (int64_t i = 0; i < c.count; ++i) {
    mean[i] = Sum(c, x + i * c.size) / n;
    variance[i] = SumOfSquares(c, mean[i], x + i * c.size) / n;
  }
}

class BatchNormKernel : public OpKernel {
  enum Input { kX, kScale, kShift, kMean, kVariance };
  enum Output { kOut, kBatchMean, kBatchVariance };

 public:
  BatchNormKernel(FusedActivation activation, float epsilon) : activation_(activation), epsilon_(epsilon) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const Channels c, Channels::Of(x));
    RETURN_IF_ERROR(CheckTensor("Scale", ctx.input(kScale), {c.count}));
    RETURN_IF_ERROR(CheckTensor("Shift", ctx.input(kShift), {c.count}));
    RETURN_IF_ERROR(CheckTensor("Mean", ctx.input(kMean), {c.count}));
    RETURN_IF_ERROR(CheckTensor("Variance", ctx.input(kVariance), {c.count}));
    Tensor* const out = ctx.output(kOut);
    out->Resize(v1::FLOAT32, x.dims());
    for (int slot : {kBatchMean, kBatchVariance}) ctx.output(slot)->Resize(v1::FLOAT32, {c.count});
    float* const mean = ctx.output(kBatchMean)->data<float>();
    float* const variance = ctx.output(kBatchVariance)->data<float>();
    if (ctx.step->training) {
      Measure(c, x.data<float>(), mean, variance);
    } else {
      std::copy_n(ctx.input(kMean).data<float>(), c.count, mean);
      std::copy_n(ctx.input(kVariance).data<float>(), c.count, variance);
    }
    const float* const scale = ctx.input(kScale).data<float>();
    const float* const shift = ctx.input(kShift).data<float>();
    if (c.size == 1) {
      float* const factor = Scratch(c.count);
      for (int64_t i = 0; i < c.count; ++i) factor[i] = scale[i] * InverseDeviation(variance[i], epsilon_);
      NormaliseRows(c, mean, factor, shift, x.data<float>(), out->data<float>());
      if (activation_ != FusedActivation::kIdentity) {
        AddAndActivate(activation_, out->size(), 0, out->data<float>(), out->data<float>());
      }
      return absl::OkStatus();
    }
    for (int64_t i = 0; i < c.count; ++i) {
      float* const y = out->data<float>() + i * c.size;
      Normalise(c, mean[i], scale[i] * InverseDeviation(variance[i], epsilon_), x.data<float>() + i * c.size, y);
      for (int64_t b = 0; b < c.batch; ++b)
        AddAndActivate(activation_, c.size, shift[i], y + b * c.step(), y + b * c.step());
    }
    return absl::OkStatus();
  }

 private:
  const FusedActivation activation_;
  const float epsilon_;
};

class BatchNormGradKernel : public OpKernel {
  enum Input { kX, kScale, kBatchMean, kBatchVariance, kOut, kOutGrad };
  enum Output { kXGrad, kScaleGrad, kShiftGrad, kMeanGrad, kVarianceGrad };

 public:
  BatchNormGradKernel(FusedActivation activation, float epsilon) : activation_(activation), epsilon_(epsilon) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const Channels c, Channels::Of(x));
    RETURN_IF_ERROR(CheckTensor("Scale", ctx.input(kScale), {c.count}));
    RETURN_IF_ERROR(CheckTensor("BatchMean", ctx.input(kBatchMean), {c.count}));
    RETURN_IF_ERROR(CheckTensor("BatchVariance", ctx.input(kBatchVariance), {c.count}));
    RETURN_IF_ERROR(CheckTensor("Out", ctx.input(kOut), x.dims()));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(kOutGrad), x.dims()));
    const float* const mean = ctx.input(kBatchMean).data<float>();
    const float* const variance = ctx.input(kBatchVariance).data<float>();
    if (ctx.has_output(kMeanGrad)) TimesExamples(c, mean, ctx.output(kMeanGrad));
    if (ctx.has_output(kVarianceGrad)) TimesExamples(c, variance, ctx.output(kVarianceGrad));
    // Allocate one piece of memory for results that are not requested, or needed only here.
    const bool activated = activation_ != FusedActivation::kIdentity;
    const int64_t dpre_size = activated && !ctx.has_output(kXGrad) ? x.size() : 0;
    float* const memory = Scratch(5 * c.count + dpre_size);
    float* const dscale = Wanted(ctx, kScaleGrad, c.count, memory);
    float* const dshift = Wanted(ctx, kShiftGrad, c.count, memory + c.count);
    float* dx = nullptr;
    if (ctx.has_output(kXGrad)) {
      ctx.output(kXGrad)->Resize(v1::FLOAT32, x.dims());
      dx = ctx.output(kXGrad)->data<float>();
    }
    const float* dpre = ctx.input(kOutGrad).data<float>();
    if (activated) {
      float* const to = dx != nullptr ? dx : memory + 5 * c.count;
      BackThroughActivation(activation_, x.size(), ctx.input(kOut).data<float>(), dpre, to);
      dpre = to;
    }
    Sums(c, mean, x.data<float>(), dpre, dshift, dscale);
    float* const factor = memory + 2 * c.count;
    float* const slope = memory + 3 * c.count;
    float* const shift = memory + 4 * c.count;
    const float n = static_cast<float>(std::max<int64_t>(1, c.elements()));
    for (int64_t i = 0; i < c.count; ++i) {
      const float inverse = InverseDeviation(variance[i], epsilon_);
      dscale[i] *= inverse;
      factor[i] = ctx.input(kScale).data<float>()[i] * inverse;
      shift[i] = dshift[i] / n;
      slope[i] = inverse * dscale[i] / n;
    }
    if (dx == nullptr) return absl::OkStatus();
    if (c.size == 1) {
      InputGradientOfRows(c, mean, factor, shift, slope, x.data<float>(), dpre, dx);
      return absl::OkStatus();
    }
    for (int64_t i = 0; i < c.count; ++i) {
      const int64_t at = i * c.size;
      InputGradient(c, mean[i], factor[i], shift[i], slope[i], x.data<float>() + at, dpre + at, dx + at);
    }
    return absl::OkStatus();
  }

 private:
  static float* Wanted(KernelContext& ctx, int slot, int64_t n, float* otherwise) {
    if (!ctx.has_output(slot)) return otherwise;
    ctx.output(slot)->Resize(v1::FLOAT32, {n});
    return ctx.output(slot)->data<float>();
  }

  static void TimesExamples(const Channels& c, const float* measured, Tensor* to) {
    to->Resize(v1::FLOAT32, {c.count});
    const float examples = static_cast<float>(c.batch);
    for (int64_t i = 0; i < c.count; ++i) to->data<float>()[i] = examples * measured[i];
  }

  // dshift: sums of dpre; products: sums of dpre * (x - mean).
  static void Sums(const Channels& c, const float* mean, const float* x, const float* dpre, float* dshift,
                   float* products) {
    if (c.size == 1) {
      SumColumns(c.batch, c.count, dpre, dshift);
      SumRowsOfProducts(c, mean, x, dpre, products);
      return;
    }
    for (int64_t i = 0; i < c.count; ++i) {
      dshift[i] = Sum(c, dpre + i * c.size);
      products[i] = SumOfProducts(c, mean[i], x + i * c.size, dpre + i * c.size);
    }
  }

  const FusedActivation activation_;
  const float epsilon_;
};

absl::Status CheckAttrs(const InferContext& ctx) {
  const absl::StatusOr<FusedActivation> activation = ParseFusedActivation(ctx.attrs().String("activation"));
  if (!activation.ok()) return ctx.Error(ToStd(activation.status().message()));
  // Check epsilon as float32, the type that the kernels compute with.
  const double epsilon = ctx.attrs().Float("epsilon"), momentum = ctx.attrs().Float("momentum");
  if (!(static_cast<float>(epsilon) > 0 && std::isfinite(static_cast<float>(epsilon)))) {
    return ctx.Error(absl::StrCat("epsilon must be positive, got ", epsilon));
  }
  if (!(momentum >= 0 && momentum < 1)) return ctx.Error(absl::StrCat("momentum must be in [0, 1), got ", momentum));
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  if (ctx.InputShape("X").size() < 2) {
    return ctx.Error(absl::StrCat("X must be [B, C, ..], got ", ShapeString(ctx.InputShape("X"))));
  }
  return absl::OkStatus();
}

absl::Status BatchNormShape(InferContext& ctx) {
  RETURN_IF_ERROR(CheckAttrs(ctx));
  const Shape channels = {ctx.InputShape("X")[1]};
  for (const char* slot : {"Scale", "Shift", "Mean", "Variance"}) RETURN_IF_ERROR(ExpectDims(ctx, slot, channels));
  SetLike(ctx, "Out", "X");
  for (const char* slot : {"BatchMean", "BatchVariance"}) ctx.SetOutput(slot, channels);
  return absl::OkStatus();
}

absl::Status BatchNormGradShape(InferContext& ctx) {
  RETURN_IF_ERROR(CheckAttrs(ctx));
  const Shape x = ctx.InputShape("X"), channels = {x[1]};
  for (const char* slot : {"Scale", "BatchMean", "BatchVariance"}) RETURN_IF_ERROR(ExpectDims(ctx, slot, channels));
  RETURN_IF_ERROR(ExpectDims(ctx, "Out", x));
  RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", x));
  if (ctx.OutputCount("X@GRAD") > 0) SetLike(ctx, "X@GRAD", "X");
  for (const char* slot : {"Scale@GRAD", "Shift@GRAD", "Mean@GRAD", "Variance@GRAD"}) {
    if (ctx.OutputCount(slot) > 0) ctx.SetOutput(slot, channels);
  }
  return absl::OkStatus();
}

// Passes over X and Out: mean, variance, the result.
CostRule BatchNormCost(double flops, double passes) {
  return [=](InferContext& ctx) {
    const double elements = Elements(ctx.Input("X"));
    return Cost{.flops = flops * elements, .bytes = 4 * passes * elements};
  };
}

std::vector<AttrDef> Attrs() {
  return {FloatAttr("epsilon", 1e-5), FloatAttr("momentum", 0.9), StringAttr("activation", "identity")};
}

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpKernel>> MakeBatchNorm(const KernelInit& init) {
  ASSIGN_OR_RETURN(const FusedActivation activation, ParseFusedActivation(init.attrs.String("activation")));
  return std::unique_ptr<OpKernel>(new Kernel(activation, static_cast<float>(init.attrs.Float("epsilon"))));
}

void ChannelElements(ElementContext& ctx) {
  const ElementAxes& x = ctx.Names("X");
  if (x.empty()) return;
  for (const char* slot : {"Scale", "Shift", "Mean", "Variance"}) ctx.NameParameter(slot, {x.front()});
  ctx.NameOutput("Out", x);
}

REGISTER_OP(batch_norm)
({.type = "batch_norm",
  .summary = "activation((X - mean) / sqrt(variance + epsilon) * Scale + Shift) by channel, of the batch or running",
  .inputs = {{"X"}, {"Scale"}, {"Shift"}, {"Mean"}, {"Variance"}},
  .outputs = {{"Out"}, {"BatchMean"}, {"BatchVariance"}},
  .attrs = Attrs(),
  .shape = BatchNormShape,
  .gradient = [](GradContext& ctx) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    for (const char* slot : {"BatchMean", "BatchVariance"}) {
      if (ctx.OutputGrad(slot).empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("batch_norm: ", slot, " has no gradient of its own; only Out may be used by the model"));
    }
    return MakeGradOp(ctx, {"X", "Scale"}, {"BatchMean", "BatchVariance", "Out"}, {"Out"},
                      {"X", "Scale", "Shift", "Mean", "Variance"});
  },
  .cost = BatchNormCost(8, 4),
  .elements = ChannelElements,
  .effect = ElementEffect::kApart});
REGISTER_OP(batch_norm_grad)
({.type = "batch_norm_grad",
  .summary = "gradients of batch_norm, and what it has measured as gradients of its running averages",
  .inputs = {{"X"}, {"Scale"}, {"BatchMean"}, {"BatchVariance"}, {"Out"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true},
              {.name = "Scale@GRAD", .optional = true},
              {.name = "Shift@GRAD", .optional = true},
              {.name = "Mean@GRAD", .optional = true},
              {.name = "Variance@GRAD", .optional = true}},
  .attrs = Attrs(),
  .shape = BatchNormGradShape,
  .cost = BatchNormCost(10, 7),
  .in_place = {{"Out@GRAD", "X@GRAD"}}});

REGISTER_KERNEL(batch_norm, MakeBatchNorm<BatchNormKernel>);
REGISTER_KERNEL(batch_norm_grad, MakeBatchNorm<BatchNormGradKernel>);
REGISTER_RUNNING_AVERAGES(batch_norm)({.op = "batch_norm", .inputs = {"Mean", "Variance"}, .momentum = "momentum"});

}  // namespace
}  // namespace weir
