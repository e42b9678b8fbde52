// attention_pairs: what the mlp of an attention reads (DIN), a row for each element of each sequence (ops/sequence.h),
// none for what stands behind it
//
//   Query     [B, W]       f32
//   Sequence  [B, T, W]    f32
//   Length    [B, 1]       f32
//   Out       [B, T, 4 W]  f32   [q, k, q - k, q * k] of each element k; 0 behind the length
//
// Gradient (attention_pairs_grad): that of q adds what its rows give in their order; of elements behind the length it
// is 0.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/attention_math.h"
#include "ops/fit.h"
#include "ops/sequence.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void PairRow(int64_t width, const float* __restrict q, const float* __restrict k,
                             float* __restrict row) {
  WEIR_INDEPENDENT
  for (int64_t w = 0; w < width; ++w) {
    row[w] = q[w];
    row[width + w] = k[w];
    row[2 * width + w] = PairDifference(q[w], k[w]);
    row[3 * width + w] = PairProduct(q[w], k[w]);
  }
}

WEIR_VECTORIZED void AddQueryGradient(int64_t width, const float* __restrict row, const float* __restrict k,
                                      float* __restrict dq) {
  WEIR_INDEPENDENT
  for (int64_t w = 0; w < width; ++w)
    dq[w] += PairGradientOfQuery(row[w], row[2 * width + w], row[3 * width + w], k[w]);
}

WEIR_VECTORIZED void ElementGradient(int64_t width, const float* __restrict row, const float* __restrict q,
                                     float* __restrict dk) {
  WEIR_INDEPENDENT
  for (int64_t w = 0; w < width; ++w) {
    dk[w] = PairGradientOfElement(row[width + w], row[2 * width + w], row[3 * width + w], q[w]);
  }
}

class AttentionPairsKernel : public OpKernel {
  enum Input { kQuery, kSequence, kLength };
  enum Output { kOut };

 public:
  explicit AttentionPairsKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& query = ctx.input(kQuery);
    const Tensor& sequence = ctx.input(kSequence);
    const Tensor& length = ctx.input(kLength);
    RETURN_IF_ERROR(CheckSequence("Sequence", sequence, length));
    const int64_t batch = sequence.dim(0), most = sequence.dim(1), width = sequence.dim(2);
    RETURN_IF_ERROR(CheckTensor("Query", query, {batch, width}));
    Tensor* const out = ctx.output(kOut);
    out->Resize(v1::FLOAT32, {batch, most, 4 * width});
    if (out->size() == 0) return absl::OkStatus();
    float* row = out->data<float>();
    for (int64_t b = 0; b < batch; ++b) {
      const float* const q = query.data<float>() + b * width;
      const float* k = sequence.data<float>() + b * most * width;
      const int64_t n = LengthOf(length, b);
      for (int64_t t = 0; t < n; ++t, k += width, row += 4 * width) PairRow(width, q, k, row);
      row = std::fill_n(row, (most - n) * 4 * width, 0.0f);
    }
    return absl::OkStatus();
  }
};

class AttentionPairsGradKernel : public OpKernel {
  enum Input { kQuery, kSequence, kLength, kOutGrad };
  enum Output { kQueryGrad, kSequenceGrad };

 public:
  explicit AttentionPairsGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& query = ctx.input(kQuery);
    const Tensor& sequence = ctx.input(kSequence);
    const Tensor& length = ctx.input(kLength);
    const Tensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckSequence("Sequence", sequence, length));
    const int64_t width = sequence.dim(2);
    RETURN_IF_ERROR(CheckTensor("Query", query, {sequence.dim(0), width}));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, {sequence.dim(0), sequence.dim(1), 4 * width}));
    if (ctx.has_output(kQueryGrad)) OfQuery(sequence, length, dout, ctx.output(kQueryGrad));
    if (ctx.has_output(kSequenceGrad)) OfSequence(query, length, dout, sequence.dims(), ctx.output(kSequenceGrad));
    return absl::OkStatus();
  }

 private:
  static void OfQuery(const Tensor& sequence, const Tensor& length, const Tensor& dout, Tensor* grad) {
    const int64_t batch = sequence.dim(0), most = sequence.dim(1), width = sequence.dim(2);
    grad->Resize(v1::FLOAT32, {batch, width});
    if (grad->size() == 0) return;
    float* dq = grad->data<float>();
    std::fill_n(dq, batch * width, 0.0f);
    for (int64_t b = 0; b < batch; ++b, dq += width) {
      const float* row = dout.data<float>() + b * most * 4 * width;
      const float* k = sequence.data<float>() + b * most * width;
      for (int64_t t = LengthOf(length, b); t > 0; --t, k += width, row += 4 * width)
        AddQueryGradient(width, row, k, dq);
    }
  }

  static void OfSequence(const Tensor& query, const Tensor& length, const Tensor& dout, absl::Span<const int64_t> dims,
                         Tensor* grad) {
    const int64_t batch = dims[0], most = dims[1], width = dims[2];
    grad->Resize(v1::FLOAT32, dims);
    if (grad->size() == 0) return;
    for (int64_t b = 0; b < batch; ++b) {
      const float* row = dout.data<float>() + b * most * 4 * width;
      const float* const q = query.data<float>() + b * width;
      float* dk = grad->data<float>() + b * most * width;
      const int64_t n = LengthOf(length, b);
      std::fill_n(dk + n * width, (most - n) * width, 0.0f);
      for (int64_t t = 0; t < n; ++t, dk += width, row += 4 * width) ElementGradient(width, row, q, dk);
    }
  }
};

Cost PairsCost(InferContext& ctx) {
  const double elements = Elements(ctx.Input("Sequence"));
  return {.flops = 2 * elements, .bytes = 4 * 5 * elements};
}

// Four vectors side by side, each with the columns of the sequence.
void PairedElements(ElementContext& ctx) {
  const ElementAxes& sequence = ctx.Names("Sequence");
  if (sequence.size() != 2) return;
  ElementAxis columns;
  for (const char* part : {"q", "k", "q-k", "q*k"}) {
    const ElementAxis named = PrefixAxis(absl::StrCat(ctx.Output("Out").name(), "/", part), sequence.back());
    columns.insert(columns.end(), named.begin(), named.end());
  }
  ctx.NameOutput("Out", {sequence.front(), std::move(columns)});
}

REGISTER_OP(attention_pairs)
({.type = "attention_pairs",
  .summary = "[q, k, q - k, q * k] of a query and each element of a sequence",
  .inputs = {{"Query"}, {"Sequence"}, {"Length"}},
  .outputs = {{"Out"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectSequence(ctx, "Sequence"));
    const Shape sequence = ctx.InputShape("Sequence");
    RETURN_IF_ERROR(ExpectDims(ctx, "Query", {sequence[0], sequence[2]}));
    ctx.SetOutput("Out", {sequence[0], sequence[1], 4 * sequence[2]});
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"Query", "Sequence", "Length"}, {}, {"Out"}, {"Query", "Sequence"}),
  .cost = PairsCost,
  .elements = PairedElements,
  .effect = ElementEffect::kApart});

REGISTER_OP(attention_pairs_grad)
({.type = "attention_pairs_grad",
  .summary = "gradients of attention_pairs",
  .inputs = {{"Query"}, {"Sequence"}, {"Length"}, {"Out@GRAD"}},
  .outputs = {{.name = "Query@GRAD", .optional = true}, {.name = "Sequence@GRAD", .optional = true}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectSequence(ctx, "Sequence"));
    const Shape sequence = ctx.InputShape("Sequence");
    RETURN_IF_ERROR(ExpectDims(ctx, "Query", {sequence[0], sequence[2]}));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", {sequence[0], sequence[1], 4 * sequence[2]}));
    if (ctx.OutputCount("Query@GRAD") > 0) SetLike(ctx, "Query@GRAD", "Query");
    if (ctx.OutputCount("Sequence@GRAD") > 0) SetLike(ctx, "Sequence@GRAD", "Sequence");
    return absl::OkStatus();
  },
  .cost = PairsCost});

REGISTER_KERNEL(attention_pairs, MakeKernel<AttentionPairsKernel>);
REGISTER_KERNEL(attention_pairs_grad, MakeKernel<AttentionPairsGradKernel>);

}  // namespace
}  // namespace weir
