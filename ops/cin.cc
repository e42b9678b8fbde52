// cin: a layer of a compressed interaction network (xDeepFM). Vector h of the result is the sum over i and j of
// w[(i,j), h] x_i o x0_j, element by element
//
//   X    [B, H, W]      f32   what the layer before gave
//   X0   [B, F, W]      f32   what the network reads
//   W    [H * F, N]     f32
//   Sum? [B, S]         f32   of the first S vectors only the sum of their values
//   Out? [B, N - S, W]  f32   the others
//   summed  int = 0: S. There is a Sum if it is above 0, an Out if it is below N.
//
// Sum costs 1 / W of what Out does: the sum over the values of a vector is sum over (i,j) of w[(i,j), h] (x_i . x0_j).
//
// Gradient (cin_grad): with dz(i,j) = sum over h of w[(i,j), h] dOut_h,  dx_i = sum over j of dz(i,j) o x0_j,
// dx0_j = sum over i of dz(i,j) o x_i,  dw = sum over examples and values of (x_i o x0_j) dOut_h. That of Sum is the
// same with a dSum_h for all values of a vector. The parts of Out come first, and gradients of X and X0 add their terms
// in the order of (i,j).
//
// The products x_i o x0_j of an example are H * F * W values: they are made for kColumns values of an example's vectors
// and for about kTerms pairs (i,j) at a time, and stay in the second-level cache. Blocks are padded, so that the bits
// of an example do not depend on how many others there are.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/gemm.h"
#include "ops/row_products.h"
#include "ops/scratch.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

constexpr int64_t kColumns = 256;
constexpr int64_t kTerms = 384;
// Examples of a block of products x_i . x0_j.
constexpr int64_t kRows = 64;
// Floats per iteration: one register of AVX-512, two of AVX2.
constexpr int kLine = 16;

int64_t Padded(int64_t n) { return (n + kLine - 1) / kLine * kLine; }

struct Sizes {
  int64_t batch, vectors, fields, width;  // B, H, F, W
  int64_t outputs, summed;                // N, S

  int64_t terms() const { return vectors * fields; }
  int64_t full() const { return outputs - summed; }
};

// z [of `count` rows of x, fields, columns] = x_i o x0_j.
WEIR_VECTORIZED void MakeTerms(int64_t count, int64_t fields, int64_t columns, const float* x, const float* x0,
                               float* z) {
  for (int64_t i = 0; i < count; ++i, x += columns) {
    const float* y = x0;
    for (int64_t j = 0; j < fields; ++j, y += columns, z += columns) {
      WEIR_INDEPENDENT
      for (int64_t c = 0; c < columns; ++c) z[c] = x[c] * y[c];
    }
  }
}

// Adds dz_ij o x0_j to dx_i, and dz_ij o x_i to dx0_j.
WEIR_VECTORIZED void AddTermGradients(int64_t count, int64_t fields, int64_t columns, const float* __restrict dz,
                                      const float* __restrict x, const float* __restrict x0, float* __restrict dx,
                                      float* __restrict dx0) {
  for (int64_t i = 0; i < count; ++i, x += columns, dx += columns) {
    for (int64_t j = 0; j < fields; ++j, dz += columns) {
      const float* __restrict y = x0 + j * columns;
      float* __restrict dy = dx0 + j * columns;
      for (int64_t c = 0; c < columns; ++c) {
        dx[c] += dz[c] * y[c];
        dy[c] += dz[c] * x[c];
      }
    }
  }
}

// out [fields] = products of one vector x with those of the transposed t [width, stride].
WEIR_VECTORIZED void Products(int64_t fields, int64_t width, int64_t stride, const float* __restrict x,
                              const float* __restrict t, float* __restrict out) {
  for (int64_t j = 0; j < fields; j += kLine) {
    float sum[kLine] = {};
    for (int64_t w = 0; w < width; ++w) {
      const float by = x[w];
      const float* __restrict y = t + w * stride + j;
      for (int k = 0; k < kLine; ++k) sum[k] += by * y[k];
    }
    if (fields - j >= kLine) {
      for (int k = 0; k < kLine; ++k) out[j + k] = sum[k];
    } else {
      for (int k = 0; k < fields - j; ++k) out[j + k] = sum[k];
    }
  }
}

// out [width] += sum over j < count of g[j * step] x_j, x [count, stride].
WEIR_VECTORIZED void AddWeighed(int64_t count, int64_t width, int64_t stride, const float* __restrict g, int64_t step,
                                const float* __restrict x, float* __restrict out) {
  for (int64_t w = 0; w < width; w += kLine) {
    float sum[kLine] = {};
    for (int64_t j = 0; j < count; ++j) {
      const float by = g[j * step];
      const float* __restrict from = x + j * stride + w;
      for (int k = 0; k < kLine; ++k) sum[k] += by * from[k];
    }
    if (width - w >= kLine) {
      for (int k = 0; k < kLine; ++k) out[w + k] += sum[k];
    } else {
      for (int k = 0; k < width - w; ++k) out[w + k] += sum[k];
    }
  }
}

// Vectors [B, count, W] of a block of examples as [count, columns]: the values of the examples side by side, 0 behind
// them.
void Gather(int64_t examples, int64_t count, int64_t width, int64_t columns, const float* from, float* to) {
  for (int64_t v = 0; v < count; ++v, to += columns) {
    for (int64_t e = 0; e < examples; ++e) std::copy_n(from + (e * count + v) * width, width, to + e * width);
    std::fill(to + examples * width, to + columns, 0.0f);
  }
}
void Scatter(int64_t examples, int64_t count, int64_t width, int64_t columns, const float* from, float* to) {
  for (int64_t v = 0; v < count; ++v, from += columns) {
    for (int64_t e = 0; e < examples; ++e) std::copy_n(from + e * width, width, to + (e * count + v) * width);
  }
}

void Transpose(int64_t rows, int64_t columns, const float* from, int64_t stride, float* to) {
  for (int64_t r = 0; r < rows; r += kLine) {
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t i = r; i < std::min(rows, r + kLine); ++i) to[c * stride + i] = from[i * columns + c];
    }
  }
}

// Blocks of Out: examples whose values are the columns, and rows of X whose terms are made at a time.
struct Blocks {
  int64_t examples, columns, count;
  explicit Blocks(const Sizes& n)
      : examples(std::max<int64_t>(1, kColumns / n.width)),
        columns(Padded(examples * n.width)),
        count(std::clamp<int64_t>(kTerms / n.fields, 1, n.vectors)) {}
};

absl::StatusOr<Sizes> CheckSizes(const Tensor& x, const Tensor& x0, const Tensor& w, int64_t summed) {
  RETURN_IF_ERROR(CheckRank("X", x, 3));
  RETURN_IF_ERROR(CheckRank("W", w, 2));
  RETURN_IF_ERROR(CheckRank("X0", x0, 3));
  RETURN_IF_ERROR(CheckTensor("X0", x0, {x.dim(0), x0.dim(1), x.dim(2)}));
  RETURN_IF_ERROR(CheckTensor("W", w, {x.dim(1) * x0.dim(1), w.dim(1)}));
  const Sizes n = {x.dim(0), x.dim(1), x0.dim(1), x.dim(2), w.dim(1), summed};
  if (n.vectors > 0 && n.fields > 0 && n.width > 0 && n.outputs > 0 && summed >= 0 && summed <= n.outputs) return n;
  return absl::InvalidArgumentError(absl::StrCat("X ", ShapeString(x.dims()), ", X0 ", ShapeString(x0.dims()),
                                                 " and W ", ShapeString(w.dims()), " give no ", summed, " sums"));
}

class CinKernel : public OpKernel {
  enum Input { kX, kX0, kW };
  enum Output { kSum, kOut };

 public:
  explicit CinKernel(const KernelInit& init) : summed_(init.attrs.Int("summed")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &x = ctx.input(kX), &x0 = ctx.input(kX0), &w = ctx.input(kW);
    ASSIGN_OR_RETURN(const Sizes n, CheckSizes(x, x0, w, summed_));
    if (ctx.has_output(kSum)) {
      ctx.output(kSum)->Resize(v1::FLOAT32, {n.batch, n.summed});
      Sums(n, x.data<float>(), x0.data<float>(), w.data<float>(), ctx.step->precision, ctx.output(kSum)->data<float>());
    }
    if (ctx.has_output(kOut)) {
      ctx.output(kOut)->Resize(v1::FLOAT32, {n.batch, n.full(), n.width});
      Vectors(n, x.data<float>(), x0.data<float>(), w.data<float>(), ctx.step->precision,
              ctx.output(kOut)->data<float>());
    }
    return absl::OkStatus();
  }

  // g [terms] = x_i . x0_j of one example. t: memory for the transposed x0, [width, Padded(fields)], cleared.
  static void DotTerms(const Sizes& n, const float* x, const float* x0, float* t, float* g) {
    const int64_t stride = Padded(n.fields);
    Transpose(n.fields, n.width, x0, stride, t);
    for (int64_t i = 0; i < n.vectors; ++i) {
      Products(n.fields, n.width, stride, x + i * n.width, t, g + i * n.fields);
    }
  }

 private:
  static void Sums(const Sizes& n, const float* x, const float* x0, const float* w, ProductPrecision precision,
                   float* sum) {
    const int64_t transposed = n.width * Padded(n.fields);
    float* const t = Scratch(transposed + std::min(n.batch, kRows) * n.terms());
    float* const g = t + transposed;
    std::fill_n(t, transposed, 0.0f);
    for (int64_t b = 0; b < n.batch; b += kRows) {
      const int64_t rows = std::min(kRows, n.batch - b);
      for (int64_t r = 0; r < rows; ++r) {
        DotTerms(n, x + (b + r) * n.vectors * n.width, x0 + (b + r) * n.fields * n.width, t, g + r * n.terms());
      }
      MultiplyEachRow(rows, n.summed, n.terms(), g, n.terms(), w, n.outputs, sum + b * n.summed, n.summed,
                      {.precision = precision});
    }
  }

  static void Vectors(const Sizes& n, const float* x, const float* x0, const float* w, ProductPrecision precision,
                      float* out) {
    const Blocks blocks(n);
    const int64_t columns = blocks.columns;
    float* const xs = Scratch((n.vectors + n.fields + blocks.count * n.fields + n.full()) * columns);
    float *const x0s = xs + n.vectors * columns, *const z = x0s + n.fields * columns;
    float* const product = z + blocks.count * n.fields * columns;
    for (int64_t b = 0; b < n.batch; b += blocks.examples) {
      const int64_t examples = std::min(blocks.examples, n.batch - b);
      Gather(examples, n.vectors, n.width, columns, x + b * n.vectors * n.width, xs);
      Gather(examples, n.fields, n.width, columns, x0 + b * n.fields * n.width, x0s);
      for (int64_t i = 0; i < n.vectors; i += blocks.count) {
        const int64_t count = std::min(blocks.count, n.vectors - i);
        MakeTerms(count, n.fields, columns, xs + i * columns, x0s, z);
        Gemm(n.full(), columns, count * n.fields, w + i * n.fields * n.outputs + n.summed, n.outputs, z, columns,
             product, columns, {.transpose_a = true, .beta = i == 0 ? 0.0f : 1.0f, .precision = precision});
      }
      Scatter(examples, n.full(), n.width, columns, product, out + b * n.full() * n.width);
    }
  }

  const int64_t summed_;
};

// Memory of gradients; null: not wanted.
struct Gradients {
  float *dx = nullptr, *dx0 = nullptr, *dw = nullptr;
};

class CinGradKernel : public OpKernel {
  enum Input { kX, kX0, kW, kSumGrad, kOutGrad };
  enum Output { kXGrad, kX0Grad, kWGrad };

 public:
  explicit CinGradKernel(const KernelInit& init) : summed_(init.attrs.Int("summed")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &x = ctx.input(kX), &x0 = ctx.input(kX0), &w = ctx.input(kW);
    ASSIGN_OR_RETURN(const Sizes n, CheckSizes(x, x0, w, summed_));
    const auto cleared = [&](int slot, const Tensor& like) -> float* {
      if (!ctx.has_output(slot)) return nullptr;
      ctx.output(slot)->Resize(v1::FLOAT32, like.dims());
      std::fill_n(ctx.output(slot)->data<float>(), like.size(), 0.0f);
      return ctx.output(slot)->data<float>();
    };
    if (ctx.has_input(kSumGrad)) RETURN_IF_ERROR(CheckTensor("Sum@GRAD", ctx.input(kSumGrad), {n.batch, n.summed}));
    if (ctx.has_input(kOutGrad)) {
      RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(kOutGrad), {n.batch, n.full(), n.width}));
    }
    const Gradients to = {cleared(kXGrad, x), cleared(kX0Grad, x0), cleared(kWGrad, w)};
    const ProductPrecision precision = ctx.step->precision;
    if (ctx.has_input(kOutGrad)) {
      OfVectors(n, x.data<float>(), x0.data<float>(), w.data<float>(), ctx.input(kOutGrad).data<float>(), precision,
                to);
    }
    if (ctx.has_input(kSumGrad)) {
      OfSums(n, x.data<float>(), x0.data<float>(), w.data<float>(), ctx.input(kSumGrad).data<float>(), precision, to);
    }
    return absl::OkStatus();
  }

 private:
  static void OfVectors(const Sizes& n, const float* x, const float* x0, const float* w, const float* dout,
                        ProductPrecision precision, const Gradients& to) {
    const Blocks blocks(n);
    const int64_t columns = blocks.columns, most_terms = blocks.count * n.fields;
    float* const xs = Scratch((2 * (n.vectors + n.fields) + most_terms + 2 * n.full()) * columns);
    float *const x0s = xs + n.vectors * columns, *const dxs = x0s + n.fields * columns;
    float *const dx0s = dxs + n.vectors * columns, *const z = dx0s + n.fields * columns;
    float *const d = z + most_terms * columns, *const turned = d + n.full() * columns;
    for (int64_t b = 0; b < n.batch; b += blocks.examples) {
      const int64_t examples = std::min(blocks.examples, n.batch - b);
      Gather(examples, n.vectors, n.width, columns, x + b * n.vectors * n.width, xs);
      Gather(examples, n.fields, n.width, columns, x0 + b * n.fields * n.width, x0s);
      Gather(examples, n.full(), n.width, columns, dout + b * n.full() * n.width, d);
      if (to.dw != nullptr) Transpose(n.full(), columns, d, n.full(), turned);
      std::fill_n(dxs, (n.vectors + n.fields) * columns, 0.0f);
      for (int64_t i = 0; i < n.vectors; i += blocks.count) {
        const int64_t count = std::min(blocks.count, n.vectors - i), terms = count * n.fields;
        const int64_t first = i * n.fields * n.outputs + n.summed;
        if (to.dw != nullptr) {
          MakeTerms(count, n.fields, columns, xs + i * columns, x0s, z);
          Gemm(terms, n.full(), columns, z, columns, turned, n.full(), to.dw + first, n.outputs,
               {.beta = 1, .precision = precision});
        }
        if (to.dx == nullptr && to.dx0 == nullptr) continue;
        Gemm(terms, columns, n.full(), w + first, n.outputs, d, columns, z, columns, {.precision = precision});
        AddTermGradients(count, n.fields, columns, z, xs + i * columns, x0s, dxs + i * columns, dx0s);
      }
      if (to.dx != nullptr) Scatter(examples, n.vectors, n.width, columns, dxs, to.dx + b * n.vectors * n.width);
      if (to.dx0 != nullptr) Scatter(examples, n.fields, n.width, columns, dx0s, to.dx0 + b * n.fields * n.width);
    }
  }

  static void OfSums(const Sizes& n, const float* x, const float* x0, const float* w, const float* dsum,
                     ProductPrecision precision, const Gradients& to) {
    const int64_t transposed = n.width * Padded(n.fields), line = Padded(n.width);
    float* const t = Scratch(transposed + (n.vectors + n.fields) * line + std::min(n.batch, kRows) * n.terms());
    float *const xs = t + transposed, *const x0s = xs + n.vectors * line, *const g = x0s + n.fields * line;
    std::fill_n(t, transposed + (n.vectors + n.fields) * line, 0.0f);
    for (int64_t b = 0; b < n.batch; b += kRows) {
      const int64_t rows = std::min(kRows, n.batch - b);
      const float *const from = x + b * n.vectors * n.width, *const from0 = x0 + b * n.fields * n.width;
      if (to.dw != nullptr) {
        for (int64_t r = 0; r < rows; ++r) {
          CinKernel::DotTerms(n, from + r * n.vectors * n.width, from0 + r * n.fields * n.width, t, g + r * n.terms());
        }
        Gemm(n.terms(), n.summed, rows, g, n.terms(), dsum + b * n.summed, n.summed, to.dw, n.outputs,
             {.transpose_a = true, .beta = 1, .precision = precision});
      }
      if (to.dx == nullptr && to.dx0 == nullptr) continue;
      MultiplyEachRow(rows, n.terms(), n.summed, dsum + b * n.summed, n.summed, w, n.outputs, g, n.terms(),
                      {.transpose_b = true, .precision = precision});
      for (int64_t r = 0; r < rows; ++r) {
        const float* const dg = g + r * n.terms();
        for (int64_t i = 0; i < n.vectors; ++i)
          std::copy_n(from + (r * n.vectors + i) * n.width, n.width, xs + i * line);
        for (int64_t j = 0; j < n.fields; ++j)
          std::copy_n(from0 + (r * n.fields + j) * n.width, n.width, x0s + j * line);
        for (int64_t i = 0; i < n.vectors && to.dx != nullptr; ++i) {
          AddWeighed(n.fields, n.width, line, dg + i * n.fields, 1, x0s, to.dx + ((b + r) * n.vectors + i) * n.width);
        }
        for (int64_t j = 0; j < n.fields && to.dx0 != nullptr; ++j) {
          AddWeighed(n.vectors, n.width, line, dg + j, n.fields, xs, to.dx0 + ((b + r) * n.fields + j) * n.width);
        }
      }
    }
  }

  const int64_t summed_;
};

absl::Status ExpectLayer(const InferContext& ctx, Sizes* n) {
  for (const char* slot : {"X", "X0", "W"}) RETURN_IF_ERROR(ExpectDense(ctx, slot));
  RETURN_IF_ERROR(ExpectRank(ctx, "X", 3));
  RETURN_IF_ERROR(ExpectRank(ctx, "X0", 3));
  RETURN_IF_ERROR(ExpectRank(ctx, "W", 2));
  const Shape x = ctx.InputShape("X"), x0 = ctx.InputShape("X0"), w = ctx.InputShape("W");
  if (x0[0] != x[0] || x0[2] != x[2] || x[1] < 1 || x0[1] < 1 || x[2] < 1) {
    return ctx.Error(absl::StrCat("X0 must be vectors of the examples and the width of X ", ShapeString(x), ", got ",
                                  ShapeString(x0), " (variable ", ctx.Input("X0").name(), ")"));
  }
  if (x[1] > (int64_t{1} << 31) / x0[1] || w[0] != x[1] * x0[1] || w[1] < 1) {
    return ctx.Error(absl::StrCat("W must have a row for each of ", x[1], " times ", x0[1], " vectors, got ",
                                  ShapeString(w), " (variable ", ctx.Input("W").name(), ")"));
  }
  *n = {x[0], x[1], x0[1], x[2], w[1], ctx.attrs().Int("summed")};
  if (n->summed >= 0 && n->summed <= n->outputs) return absl::OkStatus();
  return ctx.Error(absl::StrCat("summed must be from 0 to the ", n->outputs, " columns of W, got ", n->summed));
}

CostRule CinCost(int products) {
  return [products](InferContext& ctx) {
    Cost cost = ElementwiseCost(0)(ctx);
    Sizes n;
    if (!ExpectLayer(ctx, &n).ok()) return cost;
    const double examples = static_cast<double>(std::max<int64_t>(n.batch, 1)), terms = static_cast<double>(n.terms());
    const double width = static_cast<double>(n.width), full = static_cast<double>(n.full());
    const double summed = static_cast<double>(n.summed);
    cost.flops = products * examples * terms *
                 ((full > 0 ? width * (1 + 2 * full) : 0) + (summed > 0 ? 2 * (width + summed) : 0));
    return cost;
  };
}

void CinElements(ElementContext& ctx) {
  const ElementAxes &x = ctx.Names("X"), &x0 = ctx.Names("X0");
  if (x.size() != 2 || x0.size() != 2) return;
  const v1::VarDesc& w = ctx.Input("W");
  const ElementAxis out = AxisOf(w.name(), w.dims(1));
  ctx.NameParameter("W", {FlattenAxes(x[0], x0[0]), out});
  const int64_t summed = ctx.attrs().Int("summed");
  if (ctx.OutputCount("Sum") > 0) ctx.NameOutput("Sum", {SliceAxis(out, 0, summed)});
  if (ctx.OutputCount("Out") > 0) ctx.NameOutput("Out", {SliceAxis(out, summed, w.dims(1) - summed), x0[1]});
}

REGISTER_OP(cin)
({.type = "cin",
  .summary = "a layer of a compressed interaction network: sums of products of vectors",
  .inputs = {{"X"}, {"X0"}, {"W"}},
  .outputs = {{.name = "Sum", .optional = true}, {.name = "Out", .optional = true}},
  .attrs = {IntAttr("summed", 0)},
  .shape = [](InferContext& ctx) -> absl::Status {
    Sizes n;
    RETURN_IF_ERROR(ExpectLayer(ctx, &n));
    if ((ctx.OutputCount("Sum") > 0) != (n.summed > 0) || (ctx.OutputCount("Out") > 0) != (n.full() > 0)) {
      return ctx.Error(absl::StrCat("with summed ", n.summed, " of ", n.outputs, " there is ",
                                    n.summed == 0   ? "an Out and no Sum"
                                    : n.full() == 0 ? "a Sum and no Out"
                                                    : "a Sum and an Out"));
    }
    if (n.summed > 0) ctx.SetOutput("Sum", {n.batch, n.summed});
    if (n.full() > 0) ctx.SetOutput("Out", {n.batch, n.full(), n.width});
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"X", "X0", "W"}, {}, {"Sum", "Out"}, {"X", "X0", "W"}),
  .cost = CinCost(1),
  .elements = CinElements,
  .effect = ElementEffect::kWeighted});

REGISTER_OP(cin_grad)
({.type = "cin_grad",
  .summary = "gradients of cin",
  .inputs = {{"X"}, {"X0"}, {"W"}, {.name = "Sum@GRAD", .optional = true}, {.name = "Out@GRAD", .optional = true}},
  .outputs = {{.name = "X@GRAD", .optional = true},
              {.name = "X0@GRAD", .optional = true},
              {.name = "W@GRAD", .optional = true}},
  .attrs = {IntAttr("summed", 0)},
  .shape = [](InferContext& ctx) -> absl::Status {
    Sizes n;
    RETURN_IF_ERROR(ExpectLayer(ctx, &n));
    if (ctx.InputCount("Sum@GRAD") > 0) RETURN_IF_ERROR(ExpectDims(ctx, "Sum@GRAD", {n.batch, n.summed}));
    if (ctx.InputCount("Out@GRAD") > 0) RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", {n.batch, n.full(), n.width}));
    for (const char* slot : {"X", "X0", "W"}) {
      if (ctx.OutputCount(GradName(slot)) > 0) SetLike(ctx, GradName(slot), slot);
    }
    return absl::OkStatus();
  },
  .cost = CinCost(3)});

REGISTER_KERNEL(cin, MakeKernel<CinKernel>);
REGISTER_KERNEL(cin_grad, MakeKernel<CinGradKernel>);

}  // namespace
}  // namespace weir
