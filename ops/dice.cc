// dice: out = p * x + (1 - p) * slope * x, p = sigmoid(norm), norm = (x - mean) / sqrt(variance + epsilon)
//
//   X              [B, .., W]  f32; a row is the W values of the last dim
//   Slope          [W]         f32
//   Mean           [W]         f32, running mean
//   Variance       [W]         f32, running variance
//   Out            like X      f32
//   BatchMean      [W]         f32, what was subtracted
//   BatchVariance  [W]         f32, squared distance from it, divided by the number of rows
//   epsilon float > 0; momentum float in [0, 1): of the running averages (framework/graph/running_averages.h)
//
// Mean and variance are those of batch_norm, of the lane's own rows in training and else the running ones, and sums go
// over rows in their order.
//
// Gradient (dice_grad), over n rows, with
//   direct = dOut * (p + (1 - p) * slope), dnorm = dOut * x * (1 - slope) * p * (1 - p):
//   dX = direct + (dnorm - mean of dnorm - norm * mean of dnorm * norm) / sqrt(variance + epsilon)
//   dSlope = sum of dOut * x * (1 - p)
// Mean@GRAD and Variance@GRAD are no gradients: they are BatchMean and BatchVariance times the examples of the lane,
// as batch_norm's.
#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/running_averages.h"
#include "framework/runtime/kernel.h"
#include "ops/activation_math.h"
#include "ops/fit.h"
#include "ops/row_statistics.h"
#include "ops/scratch.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void DiceRows(int64_t rows, int64_t n, const float* mean, const float* inverse, const float* slope,
                              const float* x, float* out) {
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = Dice(x[i], (x[i] - mean[i]) * inverse[i], slope[i]);
  }
}

// Sums over rows of dnorm, of dnorm * norm, and of what the slope gets.
WEIR_VECTORIZED void SumGradients(int64_t rows, int64_t n, const float* mean, const float* inverse, const float* slope,
                                  const float* x, const float* dout, float* sum, float* products, float* dslope) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) sum[i] = products[i] = dslope[i] = 0;
  for (int64_t r = 0; r < rows; ++r, x += n, dout += n) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      const float norm = (x[i] - mean[i]) * inverse[i];
      const float dnorm = DiceNormGrad(x[i], norm, slope[i], dout[i]);
      sum[i] += dnorm;
      products[i] += dnorm * norm;
      dslope[i] += DiceSlopeGrad(x[i], norm, dout[i]);
    }
  }
}

// dx may be dout.
WEIR_VECTORIZED void InputGradient(int64_t rows, int64_t n, const float* mean, const float* inverse, const float* slope,
                                   const float* sum, const float* products, const float* x, const float* dout,
                                   float* dx) {
  for (int64_t r = 0; r < rows; ++r, x += n, dout += n, dx += n) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      const float norm = (x[i] - mean[i]) * inverse[i];
      dx[i] = DiceDirectGrad(norm, slope[i], dout[i]) +
              inverse[i] * (DiceNormGrad(x[i], norm, slope[i], dout[i]) - sum[i] - norm * products[i]);
    }
  }
}

// Sizes of one run.
struct Rows {
  int64_t examples = 0, count = 0, width = 0;

  static absl::StatusOr<Rows> Of(const Tensor& x) {
    RETURN_IF_ERROR(CheckTensor("X", x, x.dims()));
    if (x.rank() < 2 || x.dim(x.rank() - 1) < 1) {
      return absl::InvalidArgumentError(absl::StrCat("X must be [B, .., W], got ", ShapeString(x.dims())));
    }
    const int64_t width = x.dim(x.rank() - 1);
    return Rows{.examples = x.dim(0), .count = x.size() / width, .width = width};
  }
};

void SetInverse(int64_t n, float epsilon, const float* variance, float* inverse) {
  for (int64_t i = 0; i < n; ++i) inverse[i] = InverseDeviation(variance[i], epsilon);
}

class DiceKernel : public OpKernel {
  enum Input { kX, kSlope, kMean, kVariance };
  enum Output { kOut, kBatchMean, kBatchVariance };

 public:
  explicit DiceKernel(const KernelInit& init) : epsilon_(static_cast<float>(init.attrs.Float("epsilon"))) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const Rows rows, Rows::Of(x));
    const int64_t n = rows.width;
    RETURN_IF_ERROR(CheckTensor("Slope", ctx.input(kSlope), {n}));
    RETURN_IF_ERROR(CheckTensor("Mean", ctx.input(kMean), {n}));
    RETURN_IF_ERROR(CheckTensor("Variance", ctx.input(kVariance), {n}));
    ctx.output(kOut)->Resize(v1::FLOAT32, x.dims());
    for (const int slot : {kBatchMean, kBatchVariance}) ctx.output(slot)->Resize(v1::FLOAT32, {n});
    float* const mean = ctx.output(kBatchMean)->data<float>();
    float* const variance = ctx.output(kBatchVariance)->data<float>();
    if (ctx.step->training) {
      MeasureColumns(rows.count, n, x.data<float>(), mean, variance);
    } else {
      std::copy_n(ctx.input(kMean).data<float>(), n, mean);
      std::copy_n(ctx.input(kVariance).data<float>(), n, variance);
    }
    float* const inverse = Scratch(n);
    SetInverse(n, epsilon_, variance, inverse);
    DiceRows(rows.count, n, mean, inverse, ctx.input(kSlope).data<float>(), x.data<float>(),
             ctx.output(kOut)->data<float>());
    return absl::OkStatus();
  }

 private:
  const float epsilon_;
};

class DiceGradKernel : public OpKernel {
  enum Input { kX, kSlope, kBatchMean, kBatchVariance, kOutGrad };
  enum Output { kXGrad, kSlopeGrad, kMeanGrad, kVarianceGrad };

 public:
  explicit DiceGradKernel(const KernelInit& init) : epsilon_(static_cast<float>(init.attrs.Float("epsilon"))) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const Rows rows, Rows::Of(x));
    const int64_t n = rows.width;
    RETURN_IF_ERROR(CheckTensor("Slope", ctx.input(kSlope), {n}));
    RETURN_IF_ERROR(CheckTensor("BatchMean", ctx.input(kBatchMean), {n}));
    RETURN_IF_ERROR(CheckTensor("BatchVariance", ctx.input(kBatchVariance), {n}));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(kOutGrad), x.dims()));
    const float* const mean = ctx.input(kBatchMean).data<float>();
    const float* const variance = ctx.input(kBatchVariance).data<float>();
    if (ctx.has_output(kMeanGrad)) TimesExamples(rows, mean, ctx.output(kMeanGrad));
    if (ctx.has_output(kVarianceGrad)) TimesExamples(rows, variance, ctx.output(kVarianceGrad));
    if (!ctx.has_output(kXGrad) && !ctx.has_output(kSlopeGrad)) return absl::OkStatus();
    float* const inverse = Scratch(4 * n);
    float *const sum = inverse + n, *const products = sum + n;
    float* dslope = products + n;
    if (ctx.has_output(kSlopeGrad)) {
      ctx.output(kSlopeGrad)->Resize(v1::FLOAT32, {n});
      dslope = ctx.output(kSlopeGrad)->data<float>();
    }
    SetInverse(n, epsilon_, variance, inverse);
    const float* const slope = ctx.input(kSlope).data<float>();
    const float* const dout = ctx.input(kOutGrad).data<float>();
    SumGradients(rows.count, n, mean, inverse, slope, x.data<float>(), dout, sum, products, dslope);
    // Written last, because it may share the memory of dOut.
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    ctx.output(kXGrad)->Resize(v1::FLOAT32, x.dims());
    const float count = static_cast<float>(std::max<int64_t>(1, rows.count));
    for (int64_t i = 0; i < n; ++i) {
      sum[i] /= count;
      products[i] /= count;
    }
    InputGradient(rows.count, n, mean, inverse, slope, sum, products, x.data<float>(), dout,
                  ctx.output(kXGrad)->data<float>());
    return absl::OkStatus();
  }

 private:
  static void TimesExamples(const Rows& rows, const float* measured, Tensor* to) {
    to->Resize(v1::FLOAT32, {rows.width});
    const float examples = static_cast<float>(rows.examples);
    for (int64_t i = 0; i < rows.width; ++i) to->data<float>()[i] = examples * measured[i];
  }

  const float epsilon_;
};

// Sets the dims of what is measured.
absl::Status ExpectColumns(const InferContext& ctx, Shape* columns) {
  // Check epsilon as float32, the type that the kernels compute with.
  const double epsilon = ctx.attrs().Float("epsilon"), momentum = ctx.attrs().Float("momentum");
  if (!(static_cast<float>(epsilon) > 0 && std::isfinite(static_cast<float>(epsilon)))) {
    return ctx.Error(absl::StrCat("epsilon must be positive, got ", epsilon));
  }
  if (!(momentum >= 0 && momentum < 1)) return ctx.Error(absl::StrCat("momentum must be in [0, 1), got ", momentum));
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  const Shape x = ctx.InputShape("X");
  if (x.size() < 2 || x.back() < 1) {
    return ctx.Error(absl::StrCat("X must be [B, .., W] with a known, positive W, got ", ShapeString(x)));
  }
  *columns = {x.back()};
  return ExpectDims(ctx, "Slope", *columns);
}

CostRule DiceCost(double flops, double passes) {
  return [=](InferContext& ctx) {
    const double elements = Elements(ctx.Input("X"));
    return Cost{.flops = flops * elements, .bytes = 4 * passes * elements};
  };
}

std::vector<AttrDef> Attrs() { return {FloatAttr("epsilon", 1e-8), FloatAttr("momentum", 0.9)}; }

REGISTER_OP(dice)
({.type = "dice",
  .summary = "x or Slope * x, weighed by sigmoid((x - mean) / sqrt(variance + epsilon)), of the batch or running",
  .inputs = {{"X"}, {"Slope"}, {"Mean"}, {"Variance"}},
  .outputs = {{"Out"}, {"BatchMean"}, {"BatchVariance"}},
  .attrs = Attrs(),
  .shape = [](InferContext& ctx) -> absl::Status {
    Shape columns;
    RETURN_IF_ERROR(ExpectColumns(ctx, &columns));
    for (const char* slot : {"Mean", "Variance"}) RETURN_IF_ERROR(ExpectDims(ctx, slot, columns));
    SetLike(ctx, "Out", "X");
    for (const char* slot : {"BatchMean", "BatchVariance"}) ctx.SetOutput(slot, columns);
    return absl::OkStatus();
  },
  .gradient = [](GradContext& ctx) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    for (const char* slot : {"BatchMean", "BatchVariance"}) {
      if (ctx.OutputGrad(slot).empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("dice: ", slot, " has no gradient of its own; only Out may be used by the model"));
    }
    return MakeGradOp(ctx, {"X", "Slope"}, {"BatchMean", "BatchVariance"}, {"Out"}, {"X", "Slope", "Mean", "Variance"});
  },
  .cost = DiceCost(35, 4),
  .elements = LastAxisElements({"Slope", "Mean", "Variance"}),
  .effect = ElementEffect::kApart});
REGISTER_OP(dice_grad)
({.type = "dice_grad",
  .summary = "gradients of dice, and what it has measured as gradients of its running averages",
  .inputs = {{"X"}, {"Slope"}, {"BatchMean"}, {"BatchVariance"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true},
              {.name = "Slope@GRAD", .optional = true},
              {.name = "Mean@GRAD", .optional = true},
              {.name = "Variance@GRAD", .optional = true}},
  .attrs = Attrs(),
  .shape = [](InferContext& ctx) -> absl::Status {
    Shape columns;
    RETURN_IF_ERROR(ExpectColumns(ctx, &columns));
    for (const char* slot : {"BatchMean", "BatchVariance"}) RETURN_IF_ERROR(ExpectDims(ctx, slot, columns));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", ctx.InputShape("X")));
    if (ctx.OutputCount("X@GRAD") > 0) SetLike(ctx, "X@GRAD", "X");
    for (const char* slot : {"Slope@GRAD", "Mean@GRAD", "Variance@GRAD"}) {
      if (ctx.OutputCount(slot) > 0) ctx.SetOutput(slot, columns);
    }
    return absl::OkStatus();
  },
  .cost = DiceCost(70, 5),
  .in_place = {{"Out@GRAD", "X@GRAD"}}});

REGISTER_KERNEL(dice, MakeKernel<DiceKernel>);
REGISTER_KERNEL(dice_grad, MakeKernel<DiceGradKernel>);
REGISTER_RUNNING_AVERAGES(dice)({.op = "dice", .inputs = {"Mean", "Variance"}, .momentum = "momentum"});

}  // namespace
}  // namespace weir
