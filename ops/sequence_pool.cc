// sequence_pool: one vector of a sequence (ops/sequence.h)
//
//   X       [B, T, W]  f32
//   Length  [B, 1]     f32
//   Out     [B, W]     f32   0 where Length is
//   type    sum, mean, sqrt_n (the sum divided by the root of the length), max (of each column), first, last
//
// Gradient (sequence_pool_grad): of elements behind the length it is 0; of max it goes to the first element that is the
// largest of its column. Sums add elements in their order, so that a pooled look-up of the same ids has the same bits.
#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/scratch.h"
#include "ops/sequence.h"
#include "ops/sequence_pool.h"
#include "ops/sequence_pool_math.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {

absl::StatusOr<SequencePooling> ParseSequencePooling(const std::string& name) {
  if (name == "sum") return SequencePooling::kSum;
  if (name == "mean") return SequencePooling::kMean;
  if (name == "sqrt_n") return SequencePooling::kSqrtN;
  if (name == "max") return SequencePooling::kMax;
  if (name == "first") return SequencePooling::kFirst;
  if (name == "last") return SequencePooling::kLast;
  return absl::InvalidArgumentError(
      absl::StrCat("type must be sum, mean, sqrt_n, max, first or last, got '", name, "'"));
}

namespace {

// Columns are independent of one another.
WEIR_VECTORIZED void SumElements(int64_t n, int64_t width, float divisor, const float* __restrict x,
                                 float* __restrict out) {
  for (int64_t w = 0; w < width; ++w) out[w] = 0;
  for (int64_t t = 0; t < n; ++t, x += width) {
    WEIR_INDEPENDENT
    for (int64_t w = 0; w < width; ++w) out[w] += x[w];
  }
  if (divisor == 1.0f) return;
  WEIR_INDEPENDENT
  for (int64_t w = 0; w < width; ++w) out[w] = out[w] / divisor;
}

WEIR_VECTORIZED void LargestElements(int64_t n, int64_t width, const float* __restrict x, float* __restrict out) {
  for (int64_t w = 0; w < width; ++w) out[w] = x[w];
  for (int64_t t = 1; t < n; ++t) {
    x += width;
    WEIR_INDEPENDENT
    for (int64_t w = 0; w < width; ++w) out[w] = LargerOf(out[w], x[w]);
  }
}

WEIR_VECTORIZED void SumGradient(int64_t n, int64_t width, float divisor, const float* __restrict dout,
                                 float* __restrict dx) {
  for (int64_t t = 0; t < n; ++t, dx += width) {
    WEIR_INDEPENDENT
    for (int64_t w = 0; w < width; ++w) dx[w] = dout[w] / divisor;
  }
}

// The caller sets `left` to dout.
WEIR_VECTORIZED void LargestGradient(int64_t n, int64_t width, const float* __restrict largest,
                                     const float* __restrict x, float* __restrict left, float* __restrict dx) {
  for (int64_t t = 0; t < n; ++t, x += width, dx += width) {
    WEIR_INDEPENDENT
    for (int64_t w = 0; w < width; ++w) {
      dx[w] = GradientOfLargest(x[w], largest[w], left[w]);
      left[w] = LeftOfGradient(x[w], largest[w], left[w]);
    }
  }
}

class SequencePoolKernel : public OpKernel {
 public:
  explicit SequencePoolKernel(SequencePooling type) : type_(type) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& length = ctx.input(1);
    RETURN_IF_ERROR(CheckSequence("X", x, length));
    const int64_t batch = x.dim(0), most = x.dim(1), width = x.dim(2);
    Tensor* const out = ctx.output(0);
    out->Resize(v1::FLOAT32, {batch, width});
    if (out->size() == 0) return absl::OkStatus();
    float* to = out->data<float>();
    for (int64_t b = 0; b < batch; ++b, to += width) {
      const int64_t n = LengthOf(length, b);
      if (n == 0) {
        std::fill_n(to, width, 0.0f);
      } else {
        Pool(n, width, x.data<float>() + b * most * width, to);
      }
    }
    return absl::OkStatus();
  }

 private:
  void Pool(int64_t n, int64_t width, const float* x, float* out) const {
    switch (type_) {
      case SequencePooling::kMax:
        return LargestElements(n, width, x, out);
      case SequencePooling::kFirst:
        std::copy_n(x, width, out);
        return;
      case SequencePooling::kLast:
        std::copy_n(x + (n - 1) * width, width, out);
        return;
      default:
        return SumElements(n, width, SequenceDivisor(type_, static_cast<float>(n)), x, out);
    }
  }

  const SequencePooling type_;
};

class SequencePoolGradKernel : public OpKernel {
  enum Input { kX, kLength, kOutGrad };
  enum Output { kXGrad };

 public:
  explicit SequencePoolGradKernel(SequencePooling type) : type_(type) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    const Tensor& length = ctx.input(kLength);
    const Tensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckSequence("X", x, length));
    const int64_t batch = x.dim(0), most = x.dim(1), width = x.dim(2);
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, {batch, width}));
    Tensor* const dx = ctx.output(kXGrad);
    dx->Resize(v1::FLOAT32, x.dims());
    if (dx->size() == 0) return absl::OkStatus();
    float* to = dx->data<float>();
    for (int64_t b = 0; b < batch; ++b, to += most * width) {
      const int64_t n = LengthOf(length, b);
      if (n > 0) Spread(n, width, x.data<float>() + b * most * width, dout.data<float>() + b * width, to);
      std::fill_n(to + n * width, (most - n) * width, 0.0f);
    }
    return absl::OkStatus();
  }

 private:
  void Spread(int64_t n, int64_t width, const float* x, const float* dout, float* dx) const {
    switch (type_) {
      case SequencePooling::kMax: {
        float* const largest = Scratch(2 * width);
        float* const left = largest + width;
        LargestElements(n, width, x, largest);
        std::copy_n(dout, width, left);
        return LargestGradient(n, width, largest, x, left, dx);
      }
      case SequencePooling::kFirst:
      case SequencePooling::kLast: {
        std::fill_n(dx, n * width, 0.0f);
        std::copy_n(dout, width, type_ == SequencePooling::kFirst ? dx : dx + (n - 1) * width);
        return;
      }
      default:
        return SumGradient(n, width, SequenceDivisor(type_, static_cast<float>(n)), dout, dx);
    }
  }

  const SequencePooling type_;
};

absl::Status InferPool(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectSequence(ctx, "X"));
  const absl::StatusOr<SequencePooling> type = ParseSequencePooling(ctx.attrs().String("type"));
  return type.ok() ? absl::OkStatus() : ctx.Error(ToStd(type.status().message()));
}

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpKernel>> Make(const KernelInit& init) {
  ASSIGN_OR_RETURN(const SequencePooling type, ParseSequencePooling(init.attrs.String("type")));
  return std::unique_ptr<OpKernel>(new Kernel(type));
}

Cost PoolCost(InferContext& ctx) {
  Cost cost = ElementwiseCost(0)(ctx);
  cost.flops = Elements(ctx.Input("X"));
  return cost;
}

// A pooled vector has the name of the sequence in front.
void PooledElements(ElementContext& ctx) {
  const ElementAxes& x = ctx.Names("X");
  if (x.size() == 2 && !x.front().empty()) ctx.NameOutput("Out", {PrefixAxis(x.front().front().of, x.back())});
}

REGISTER_OP(sequence_pool)
({.type = "sequence_pool",
  .summary = "sum, mean, largest, first or last of the elements of a sequence",
  .inputs = {{"X"}, {"Length"}},
  .outputs = {{"Out"}},
  .attrs = {StringAttr("type", "mean")},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(InferPool(ctx));
    const Shape x = ctx.InputShape("X");
    ctx.SetOutput("Out", {x[0], x[2]});
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"X", "Length"}, {}, {"Out"}, {"X"}),
  .cost = PoolCost,
  .elements = PooledElements,
  .effect = ElementEffect::kApart,
  .zero_of_zero = true});

REGISTER_OP(sequence_pool_grad)
({.type = "sequence_pool_grad",
  .summary = "gradient of sequence_pool",
  .inputs = {{"X"}, {"Length"}, {"Out@GRAD"}},
  .outputs = {{"X@GRAD"}},
  .attrs = {StringAttr("type", "mean")},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(InferPool(ctx));
    const Shape x = ctx.InputShape("X");
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", {x[0], x[2]}));
    SetLike(ctx, "X@GRAD", "X");
    return absl::OkStatus();
  },
  .cost = PoolCost});

REGISTER_KERNEL(sequence_pool, Make<SequencePoolKernel>);
REGISTER_KERNEL(sequence_pool_grad, Make<SequencePoolGradKernel>);

}  // namespace
}  // namespace weir
