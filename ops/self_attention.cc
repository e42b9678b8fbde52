// self_attention: softmax(Q K^T * scale) V among the elements of an example, of each head by itself
//
//   Q, K, V  [B, T, S]          f32   heads side by side, S / heads columns each
//   Length?  [B, 1]             f32   elements of an example (ops/sequence.h); all T without it
//   Out      [B, T, S]          f32   0 behind the length
//   Weight   [B, heads * T, T]  f32   of head h and element t in row h * T + t; 0 for what is not attended to; kept for
//                                     the gradient
//   heads   int  = 1       divides S; scale is 1 / sqrt(S / heads)
//   causal  bool = false   element t attends to the elements 0 to t
//
// Gradient (self_attention_grad), of each head, with dW[t, u] = dOut[t] . V[u]:
//   dV[u] = sum over t of W[t, u] dOut[t]
//   dS[t, u] = W[t, u] (dW[t, u] - sum over u of W[t, u] dW[t, u]) * scale
//   dQ[t] = sum over u of dS[t, u] K[u],  dK[u] = sum over t of dS[t, u] Q[t]
// Behind the length they are 0.
//
// Products add their terms in order, sums over a row of weights are in the order of ops/fixed_sum.h. An example's bits
// depend on nothing but the example, and what is not attended to is not multiplied.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/attention_math.h"
#include "ops/fit.h"
#include "ops/fixed_sum.h"
#include "ops/scratch.h"
#include "ops/sequence.h"
#include "ops/shape_rules.h"
#include "ops/vector_math.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

// Columns of a tile: one register of AVX-512, two of AVX2. Rows of a tile: what hides the latency of an addition.
constexpr int kBlock = 16, kRows = 4;
// The compiler lays out arrays of this size badly (3.8 instead of 85 GFLOP/s), so tiles name their vectors.
typedef float Block __attribute__((vector_size(kBlock * sizeof(float)), aligned(sizeof(float)), may_alias));

inline __attribute__((always_inline)) int64_t Padded(int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

// Steps that a row of a sum takes: all, those up to the row's own number, or those from it on.
enum class Steps { kAll, kUpToRow, kFromRow };

// A matrix: element (r, c) is at[r * row + c * column].
struct Strided {
  const float* at;
  int64_t row, column;
};

template <int kTile>
inline __attribute__((always_inline)) void AddTile(Steps which, int64_t first, int64_t steps, const Strided& factor,
                                                   const float* x, int64_t stride, int64_t columns, float* out,
                                                   int64_t out_stride) {
  Block sum[kTile] = {};
  const auto add = [&](int64_t s, int r) __attribute__((always_inline)) {
    sum[r] += factor.at[(first + r) * factor.row + s * factor.column] * *reinterpret_cast<const Block*>(x + s * stride);
  };
  if (which == Steps::kFromRow) {
    for (int s = 0; s < kTile - 1; ++s) {
      for (int r = 0; r <= s; ++r) add(first + s, r);
    }
  }
  const int64_t begin = which == Steps::kFromRow ? first + kTile - 1 : 0;
  const int64_t end = which == Steps::kUpToRow ? first + 1 : steps;
  for (int64_t s = begin; s < end; ++s) {
    for (int r = 0; r < kTile; ++r) add(s, r);
  }
  if (which == Steps::kUpToRow) {
    for (int s = 1; s < kTile; ++s) {
      for (int r = s; r < kTile; ++r) add(first + s, r);
    }
  }
  for (int r = 0; r < kTile; ++r) {
    float* const to = out + (first + r) * out_stride;
    if (columns >= kBlock) {
      *reinterpret_cast<Block*>(to) = sum[r];
    } else {
      for (int64_t c = 0; c < columns; ++c) to[c] = sum[r][c];
    }
  }
}

// out[r, c] = sum over the steps s of row r, in order, of factor(r, s) x[s, c]. Rows of x are `stride` apart and have
// Padded(columns) elements. `triangle`: leaves out the blocks of columns that begin behind column r.
WEIR_VECTORIZED void AddProducts(Steps which, int64_t rows, int64_t steps, int64_t columns, const Strided& factor,
                                 const float* x, int64_t stride, bool triangle, float* out, int64_t out_stride) {
  for (int64_t c = 0; c < columns; c += kBlock) {
    int64_t r = triangle ? c : 0;
    for (; r + kRows <= rows; r += kRows) {
      AddTile<kRows>(which, r, steps, factor, x + c, stride, columns - c, out + c, out_stride);
    }
    for (; r < rows; ++r) AddTile<1>(which, r, steps, factor, x + c, stride, columns - c, out + c, out_stride);
  }
}

// to [width, stride] = x^T, x of n rows, `row` apart. The columns up to Padded(n) are 0.
WEIR_VECTORIZED void Transpose(int64_t n, int64_t width, const float* x, int64_t row, int64_t stride, float* to) {
  for (int64_t t = 0; t < n; ++t, x += row) {
    for (int64_t w = 0; w < width; ++w) to[w * stride + t] = x[w];
  }
  for (int64_t w = 0; w < width; ++w) std::fill_n(to + w * stride + n, Padded(n) - n, 0.0f);
}

// Adds the parts of a padded row's sum in the order of ops/fixed_sum.h: what is behind the row's end is 0 and changes
// no bit.
inline __attribute__((always_inline)) float AddParts(const Block& sum) {
  static_assert(kPartialSums == kBlock);
  float part[kPartialSums];
  for (int i = 0; i < kBlock; ++i) part[i] = sum[i];
  return AddPartialSums(part);
}

// Elements that row t of n attends to.
inline int64_t EndOf(bool causal, int64_t t, int64_t n) { return causal ? t + 1 : n; }

// Makes weights of the scores of n elements, which are padded rows, `stride` apart.
WEIR_VECTORIZED void SoftmaxRows(bool causal, int64_t n, int64_t stride, float scale, float* row) {
  for (int64_t t = 0; t < n; ++t, row += stride) {
    const int64_t end = EndOf(causal, t, n), padded = Padded(end);
    WEIR_INDEPENDENT
    for (int64_t u = 0; u < padded; ++u) row[u] = row[u] * scale;
    for (int64_t u = end; u < padded; ++u) row[u] = -std::numeric_limits<float>::infinity();
    Block most = *reinterpret_cast<const Block*>(row);
    for (int64_t u = kBlock; u < padded; u += kBlock) {
      const Block next = *reinterpret_cast<const Block*>(row + u);
      most = next > most ? next : most;
    }
    float part[kBlock];
    for (int i = 0; i < kBlock; ++i) part[i] = most[i];
    for (int width = kBlock / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) part[i] = part[i + width] > part[i] ? part[i + width] : part[i];
    }
    const float largest = part[0];
    WEIR_INDEPENDENT
    for (int64_t u = 0; u < padded; ++u) row[u] = Exp(row[u] - largest);
    Block parts = {};
    for (int64_t u = 0; u < padded; u += kBlock) parts += *reinterpret_cast<const Block*>(row + u);
    const float factor = 1.0f / AddParts(parts);
    WEIR_INDEPENDENT
    for (int64_t u = 0; u < padded; ++u) row[u] = row[u] * factor;
  }
}

// Makes gradients of scores of those of weights, in place. Both are padded rows; padding of the weights is 0.
WEIR_VECTORIZED void ScoreGradientRows(bool causal, int64_t n, int64_t stride, float scale, const float* weight,
                                       float* row) {
  for (int64_t t = 0; t < n; ++t, row += stride, weight += stride) {
    const int64_t end = EndOf(causal, t, n), padded = Padded(end);
    for (int64_t u = end; u < padded; ++u) row[u] = 0;
    Block parts = {};
    for (int64_t u = 0; u < padded; u += kBlock) {
      parts += *reinterpret_cast<const Block*>(weight + u) * *reinterpret_cast<const Block*>(row + u);
    }
    const float sum = AddParts(parts);
    WEIR_INDEPENDENT
    for (int64_t u = 0; u < padded; ++u) row[u] = SoftmaxScoreGradient(weight[u], row[u], sum) * scale;
  }
}

// Sizes of one run; `width`: columns of a head.
struct Sizes {
  int64_t batch = 0, most = 0, size = 0, heads = 1, width = 0;
  bool causal = false;
  float scale = 1;
  const Tensor* length = nullptr;

  int64_t Elements(int64_t example) const { return length == nullptr ? most : LengthOf(*length, example); }
  // Place of the first element of a head of an example.
  int64_t Place(int64_t example, int64_t head) const { return example * most * size + head * width; }
};

// Rows of a head with columns up to Padded(width): where they are, or copied to `memory`, where the last block of
// columns would be another head's.
struct HeadRows {
  const float* at;
  int64_t stride;
  HeadRows(const Sizes& s, int64_t n, const float* from, float* memory) : at(from), stride(s.size) {
    if (s.width % kBlock == 0) return;
    at = memory;
    stride = Padded(s.width);
    for (int64_t t = 0; t < n; ++t, memory += stride, from += s.size) {
      std::copy_n(from, s.width, memory);
      std::fill_n(memory + s.width, stride - s.width, 0.0f);
    }
  }
};

class SelfAttentionBase : public OpKernel {
 protected:
  explicit SelfAttentionBase(const KernelInit& init)
      : heads_(init.attrs.Int("heads")), causal_(init.attrs.Bool("causal")) {}

  // Checks Q, K, V and Length, the first inputs of both kernels.
  absl::StatusOr<Sizes> Read(KernelContext& ctx) const {
    const Tensor& q = ctx.input(0);
    RETURN_IF_ERROR(CheckRank("Q", q, 3));
    RETURN_IF_ERROR(CheckTensor("K", ctx.input(1), q.dims()));
    RETURN_IF_ERROR(CheckTensor("V", ctx.input(2), q.dims()));
    Sizes s = {.batch = q.dim(0), .most = q.dim(1), .size = q.dim(2), .heads = heads_, .causal = causal_};
    if (s.most < 1 || s.size < 1 || heads_ < 1 || s.size % heads_ != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("Q ", ShapeString(q.dims()), " has no ", heads_, " heads of equal, positive size"));
    }
    s.width = s.size / heads_;
    s.scale = 1.0f / std::sqrt(static_cast<float>(s.width));
    if (ctx.has_input(3)) {
      s.length = &ctx.input(3);
      RETURN_IF_ERROR(CheckLengths("Q", q.dims(), *s.length));
    }
    return s;
  }

  const int64_t heads_;
  const bool causal_;
};

class SelfAttentionKernel : public SelfAttentionBase {
  enum Input { kQ, kK, kV, kLength };
  enum Output { kOut, kWeight };

 public:
  explicit SelfAttentionKernel(const KernelInit& init) : SelfAttentionBase(init) {}
  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(const Sizes s, Read(ctx));
    ctx.output(kOut)->Resize(v1::FLOAT32, {s.batch, s.most, s.size});
    ctx.output(kWeight)->Resize(v1::FLOAT32, {s.batch, s.heads * s.most, s.most});
    const int64_t stride = Padded(s.most);
    float* const keys = Scratch(s.width * stride + s.most * stride + s.most * Padded(s.width));
    float* const scores = keys + s.width * stride;
    float* const values = scores + s.most * stride;
    float* weight = ctx.output(kWeight)->data<float>();
    for (int64_t b = 0; b < s.batch; ++b) {
      const int64_t n = s.Elements(b);
      for (int64_t h = 0; h < s.heads; ++h, weight += s.most * s.most) {
        const int64_t place = s.Place(b, h);
        float* const out = ctx.output(kOut)->data<float>() + place;
        Transpose(n, s.width, ctx.input(kK).data<float>() + place, s.size, stride, keys);
        AddProducts(Steps::kAll, n, s.width, Padded(n), {ctx.input(kQ).data<float>() + place, s.size, 1}, keys, stride,
                    s.causal, scores, stride);
        SoftmaxRows(s.causal, n, stride, s.scale, scores);
        const HeadRows v(s, n, ctx.input(kV).data<float>() + place, values);
        AddProducts(s.causal ? Steps::kUpToRow : Steps::kAll, n, n, s.width, {scores, stride, 1}, v.at, v.stride, false,
                    out, s.size);
        for (int64_t t = n; t < s.most; ++t) std::fill_n(out + t * s.size, s.width, 0.0f);
        for (int64_t t = 0; t < n; ++t) {
          const int64_t end = EndOf(s.causal, t, n);
          std::copy_n(scores + t * stride, end, weight + t * s.most);
          std::fill_n(weight + t * s.most + end, s.most - end, 0.0f);
        }
        std::fill_n(weight + n * s.most, (s.most - n) * s.most, 0.0f);
      }
    }
    return absl::OkStatus();
  }
};

class SelfAttentionGradKernel : public SelfAttentionBase {
  enum Input { kQ, kK, kV, kLength, kWeight, kOutGrad };
  enum Output { kQGrad, kKGrad, kVGrad };

 public:
  explicit SelfAttentionGradKernel(const KernelInit& init) : SelfAttentionBase(init) {}
  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(const Sizes s, Read(ctx));
    RETURN_IF_ERROR(CheckTensor("Weight", ctx.input(kWeight), {s.batch, s.heads * s.most, s.most}));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(kOutGrad), {s.batch, s.most, s.size}));
    for (const int slot : {kQGrad, kKGrad, kVGrad}) {
      if (ctx.has_output(slot)) ctx.output(slot)->Resize(v1::FLOAT32, {s.batch, s.most, s.size});
    }
    const int64_t stride = Padded(s.most);
    float* const values = Scratch(s.width * stride + 2 * s.most * stride + s.most * Padded(s.width));
    float* const grads = values + s.width * stride;  // of weights, then of scores
    float* const weights = grads + s.most * stride;
    float* const rows = weights + s.most * stride;
    const float* weight = ctx.input(kWeight).data<float>();
    for (int64_t b = 0; b < s.batch; ++b) {
      const int64_t n = s.Elements(b);
      for (int64_t h = 0; h < s.heads; ++h, weight += s.most * s.most) {
        const int64_t place = s.Place(b, h);
        const float* const dout = ctx.input(kOutGrad).data<float>() + place;
        for (int64_t t = 0; t < n; ++t) {
          const int64_t end = EndOf(s.causal, t, n);
          std::copy_n(weight + t * s.most, end, weights + t * stride);
          std::fill_n(weights + t * stride + end, Padded(end) - end, 0.0f);
        }
        if (ctx.has_output(kVGrad)) {
          const HeadRows by(s, n, dout, rows);
          OfElement(ctx, s, n, kVGrad, place, weights, stride, by);
        }
        if (!ctx.has_output(kQGrad) && !ctx.has_output(kKGrad)) continue;
        Transpose(n, s.width, ctx.input(kV).data<float>() + place, s.size, stride, values);
        AddProducts(Steps::kAll, n, s.width, Padded(n), {dout, s.size, 1}, values, stride, s.causal, grads, stride);
        ScoreGradientRows(s.causal, n, stride, s.scale, weights, grads);
        if (ctx.has_output(kQGrad)) {
          const HeadRows k(s, n, ctx.input(kK).data<float>() + place, rows);
          float* const dq = ctx.output(kQGrad)->data<float>() + place;
          AddProducts(s.causal ? Steps::kUpToRow : Steps::kAll, n, n, s.width, {grads, stride, 1}, k.at, k.stride,
                      false, dq, s.size);
          ClearBehind(s, n, dq);
        }
        if (ctx.has_output(kKGrad)) {
          const HeadRows q(s, n, ctx.input(kQ).data<float>() + place, rows);
          OfElement(ctx, s, n, kKGrad, place, grads, stride, q);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  static void ClearBehind(const Sizes& s, int64_t n, float* to) {
    for (int64_t t = n; t < s.most; ++t) std::fill_n(to + t * s.size, s.width, 0.0f);
  }

  // The gradient of element u adds, over the rows t that attend to it, factor[t, u] by[t].
  static void OfElement(KernelContext& ctx, const Sizes& s, int64_t n, int slot, int64_t place, const float* factor,
                        int64_t stride, const HeadRows& by) {
    float* const to = ctx.output(slot)->data<float>() + place;
    AddProducts(s.causal ? Steps::kFromRow : Steps::kAll, n, n, s.width, {factor, 1, stride}, by.at, by.stride, false,
                to, s.size);
    ClearBehind(s, n, to);
  }
};

// Sets the dims of Q, K, V and Out, and of Weight.
absl::Status ExpectAttention(const InferContext& ctx, Shape* elements, Shape* weight) {
  RETURN_IF_ERROR(ExpectAlike(ctx, {"Q", "K", "V"}));
  RETURN_IF_ERROR(ExpectRank(ctx, "Q", 3));
  *elements = ctx.InputShape("Q");
  const Shape& q = *elements;
  const int64_t heads = ctx.attrs().Int("heads");
  if (q[1] < 1 || q[2] < 1) {
    return ctx.Error(
        absl::StrCat("Q has dims ", ShapeString(q), "; attention needs elements of a known, positive width"));
  }
  if (heads < 1 || q[2] % heads != 0) {
    return ctx.Error(absl::StrCat("heads must divide the ", q[2], " columns of Q, got ", heads));
  }
  if (ctx.InputCount("Length") > 0) RETURN_IF_ERROR(ExpectDims(ctx, "Length", {q[0], 1}));
  // heads is at most q[2], and the dims of an example are at most 2^48 together, so that this does not overflow.
  *weight = {q[0], heads * q[1], q[1]};
  return absl::OkStatus();
}

// Forward has two products, backward four.
CostRule AttentionCost(int products, double of_softmax) {
  return [=](InferContext& ctx) {
    Cost cost = ElementwiseCost(0)(ctx);
    const Shape q = ctx.InputShape("Q");
    const double elements = Elements(ctx.Input("Q")), most = static_cast<double>(q[1]);
    const double heads = static_cast<double>(ctx.attrs().Int("heads")), part = ctx.attrs().Bool("causal") ? 0.5 : 1;
    const double weights = elements / static_cast<double>(q[2]) * most * heads;
    cost.flops = part * (2 * products * elements * most + of_softmax * weights);
    return cost;
  };
}

std::vector<AttrDef> Attrs() { return {IntAttr("heads", 1), BoolAttr("causal", false)}; }

REGISTER_OP(self_attention)
({.type = "self_attention",
  .summary = "softmax(Q K^T * scale) V among the elements of an example, by head",
  .inputs = {{"Q"}, {"K"}, {"V"}, {.name = "Length", .optional = true}},
  .outputs = {{"Out"}, {"Weight"}},
  .attrs = Attrs(),
  .shape = [](InferContext& ctx) -> absl::Status {
    Shape elements, weight;
    RETURN_IF_ERROR(ExpectAttention(ctx, &elements, &weight));
    SetLike(ctx, "Out", "Q");
    ctx.SetOutput("Weight", weight);
    return absl::OkStatus();
  },
  .gradient = [](GradContext& ctx) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    if (!ctx.OutputGrad("Weight").empty()) {
      return absl::InvalidArgumentError(
          "self_attention: Weight has no gradient of its own; only Out may be used by the model");
    }
    return MakeGradOp(ctx, {"Q", "K", "V", "Length"}, {"Weight"}, {"Out"}, {"Q", "K", "V"});
  },
  .cost = AttentionCost(2, 25)});
REGISTER_OP(self_attention_grad)
({.type = "self_attention_grad",
  .summary = "gradients of self_attention",
  .inputs = {{"Q"}, {"K"}, {"V"}, {.name = "Length", .optional = true}, {"Weight"}, {"Out@GRAD"}},
  .outputs = {{.name = "Q@GRAD", .optional = true},
              {.name = "K@GRAD", .optional = true},
              {.name = "V@GRAD", .optional = true}},
  .attrs = Attrs(),
  .shape = [](InferContext& ctx) -> absl::Status {
    Shape elements, weight;
    RETURN_IF_ERROR(ExpectAttention(ctx, &elements, &weight));
    RETURN_IF_ERROR(ExpectDims(ctx, "Weight", weight));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", elements));
    for (const char* slot : {"Q@GRAD", "K@GRAD", "V@GRAD"}) {
      if (ctx.OutputCount(slot) > 0) SetLike(ctx, slot, "Q");
    }
    return absl::OkStatus();
  },
  .cost = AttentionCost(4, 6)});

REGISTER_KERNEL(self_attention, MakeKernel<SelfAttentionKernel>);
REGISTER_KERNEL(self_attention_grad, MakeKernel<SelfAttentionGradKernel>);

}  // namespace
}  // namespace weir
