// bilinear: products of all pairs i < j of the vectors of an example, the first of them multiplied by a matrix
// (FiBiNET): out(i,j) = (x_i w) o x_j, element by element
//
//   X    [B, F, W]  f32   F at least 2
//   W    [W, W]           one matrix for all pairs,
//        [F - 1, W, W]    or one for each i,
//        [P, W, W]  f32   or one for each pair
//   Out  [B, P, W]  f32   pairs (0,1), (0,2), ..., (1,2), ..., P = F (F - 1) / 2
//
// Gradient (bilinear_grad), with u the product x_i w of a pair: du = dOut(i,j) o x_j, added over the pairs that have
// the product; dx_i = du w^T, dx_j = dOut(i,j) o u, dw = x_i^T du over the examples, a block of kBlock at a time. dx
// adds its terms in the order of pairs.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/gemm.h"
#include "ops/pairs_of_vectors.h"
#include "ops/row_products.h"
#include "ops/scratch.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

constexpr int64_t kBlock = 128;                     // examples of a product: what they need stays in the cache
constexpr int64_t kMostVectors = int64_t{1} << 20;  // so that the number of pairs does not overflow

// out [rows, n] = a o b; rows are a stride apart, in floats.
WEIR_VECTORIZED void MultiplyRows(int64_t rows, int64_t n, const float* a, int64_t stride_a, const float* b,
                                  int64_t stride_b, float* out, int64_t stride_out) {
  for (int64_t r = 0; r < rows; ++r, a += stride_a, b += stride_b, out += stride_out) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
  }
}

// out += a o b.
WEIR_VECTORIZED void AddProducts(int64_t rows, int64_t n, const float* a, int64_t stride_a, const float* b,
                                 int64_t stride_b, float* out, int64_t stride_out) {
  for (int64_t r = 0; r < rows; ++r, a += stride_a, b += stride_b, out += stride_out) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = out[i] + a[i] * b[i];
  }
}

WEIR_VECTORIZED void AddRows(int64_t rows, int64_t n, const float* from, float* out, int64_t stride_out) {
  for (int64_t r = 0; r < rows; ++r, from += n, out += stride_out) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = out[i] + from[i];
  }
}

struct Sizes {
  int64_t batch, vectors, width;
  // Matrix of a pair: one for all pairs, one for each left vector, or one for each pair.
  enum Matrices { kAll, kEach, kPair } matrices;

  int64_t pairs() const { return PairsOf(vectors); }
  int64_t matrix(int64_t i, int64_t pair) const {
    return (matrices == kAll ? 0 : matrices == kEach ? i : pair) * width * width;
  }
};

// Sets the sizes; false if X and W do not fit.
bool SizesOf(absl::Span<const int64_t> x, absl::Span<const int64_t> w, Sizes* n) {
  if (x.size() != 3 || x[1] < 2 || x[1] > kMostVectors || x[2] < 1) return false;
  *n = {x[0], x[1], x[2], Sizes::kAll};
  if (w.size() != 2 && w.size() != 3) return false;
  if (w.back() != x[2] || w[w.size() - 2] != x[2]) return false;
  if (w.size() == 2) return true;
  n->matrices = w[0] == x[1] - 1 ? Sizes::kEach : Sizes::kPair;
  return n->matrices == Sizes::kEach || w[0] == n->pairs();
}

absl::StatusOr<Sizes> CheckSizes(const Tensor& x, const Tensor& w) {
  RETURN_IF_ERROR(CheckRank("X", x, 3));
  RETURN_IF_ERROR(CheckTensor("W", w, w.dims()));
  Sizes n;
  if (SizesOf(x.dims(), w.dims(), &n)) return n;
  return absl::InvalidArgumentError(
      absl::StrCat("W ", ShapeString(w.dims()), " is no matrix for pairs of X ", ShapeString(x.dims())));
}

// Calls fn(i, first pair, end of pairs, matrix) for each product u of the vectors of an example: pairs from `first` on
// are (i, j), (i, j + 1), ...
template <typename Fn>
void ForEachProduct(const Sizes& n, const Fn& fn) {
  int64_t pair = 0;
  for (int64_t i = 0; i + 1 < n.vectors; ++i) {
    const int64_t end = pair + n.vectors - 1 - i;
    if (n.matrices != Sizes::kPair) {
      fn(i, i + 1, pair, end, n.matrix(i, pair));
      pair = end;
      continue;
    }
    for (int64_t j = i + 1; pair < end; ++pair, ++j) fn(i, j, pair, pair + 1, n.matrix(i, pair));
  }
}

class BilinearKernel : public OpKernel {
  enum Input { kX, kW };

 public:
  explicit BilinearKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &x = ctx.input(kX), &w = ctx.input(kW);
    ASSIGN_OR_RETURN(const Sizes n, CheckSizes(x, w));
    Tensor* const out = ctx.output(0);
    out->Resize(v1::FLOAT32, {n.batch, n.pairs(), n.width});
    const int64_t row = n.vectors * n.width, out_row = n.pairs() * n.width;
    float* const u = Scratch(std::min(n.batch, kBlock) * n.width);
    for (int64_t b = 0; b < n.batch; b += kBlock) {
      const int64_t rows = std::min(kBlock, n.batch - b);
      const float* const xs = x.data<float>() + b * row;
      float* const to = out->data<float>() + b * out_row;
      ForEachProduct(n, [&](int64_t i, int64_t j, int64_t pair, int64_t end, int64_t matrix) {
        MultiplyEachRow(rows, n.width, n.width, xs + i * n.width, row, w.data<float>() + matrix, n.width, u, n.width,
                        {.precision = ctx.step->precision});
        for (; pair < end; ++pair, ++j) {
          MultiplyRows(rows, n.width, u, n.width, xs + j * n.width, row, to + pair * n.width, out_row);
        }
      });
    }
    return absl::OkStatus();
  }
};

class BilinearGradKernel : public OpKernel {
  enum Input { kX, kW, kOutGrad };
  enum Output { kXGrad, kWGrad };

 public:
  explicit BilinearGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &x = ctx.input(kX), &w = ctx.input(kW), &dout = ctx.input(kOutGrad);
    ASSIGN_OR_RETURN(const Sizes n, CheckSizes(x, w));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, {n.batch, n.pairs(), n.width}));
    float* dx = nullptr;
    float* dw = nullptr;
    if (ctx.has_output(kXGrad)) {
      ctx.output(kXGrad)->Resize(v1::FLOAT32, x.dims());
      dx = ctx.output(kXGrad)->data<float>();
      std::fill_n(dx, x.size(), 0.0f);
    }
    if (ctx.has_output(kWGrad)) {
      ctx.output(kWGrad)->Resize(v1::FLOAT32, w.dims());
      dw = ctx.output(kWGrad)->data<float>();
      std::fill_n(dw, w.size(), 0.0f);
    }
    const int64_t row = n.vectors * n.width, out_row = n.pairs() * n.width;
    const int64_t block = std::min(n.batch, kBlock) * n.width;
    // u, du and du w^T of a block.
    float* const u = Scratch(3 * block);
    float *const du = u + block, *const back = du + block;
    for (int64_t b = 0; b < n.batch; b += kBlock) {
      const int64_t rows = std::min(kBlock, n.batch - b);
      const float* const xs = x.data<float>() + b * row;
      const float* const from = dout.data<float>() + b * out_row;
      float* const to = dx == nullptr ? nullptr : dx + b * row;
      ForEachProduct(n, [&](int64_t i, int64_t first, int64_t pair, int64_t end, int64_t matrix) {
        if (to != nullptr) {
          MultiplyEachRow(rows, n.width, n.width, xs + i * n.width, row, w.data<float>() + matrix, n.width, u, n.width,
                          {.precision = ctx.step->precision});
        }
        for (int64_t p = pair, j = first; p < end; ++p, ++j) {
          if (to != nullptr) {
            AddProducts(rows, n.width, from + p * n.width, out_row, u, n.width, to + j * n.width, row);
          }
          if (p == pair) {
            MultiplyRows(rows, n.width, from + p * n.width, out_row, xs + j * n.width, row, du, n.width);
          } else {
            AddProducts(rows, n.width, from + p * n.width, out_row, xs + j * n.width, row, du, n.width);
          }
        }
        if (to != nullptr) {
          MultiplyEachRow(rows, n.width, n.width, du, n.width, w.data<float>() + matrix, n.width, back, n.width,
                          {.transpose_b = true, .precision = ctx.step->precision});
          AddRows(rows, n.width, back, to + i * n.width, row);
        }
        if (dw != nullptr) {
          Gemm(n.width, n.width, rows, xs + i * n.width, row, du, n.width, dw + matrix, n.width,
               {.transpose_a = true, .beta = 1, .precision = ctx.step->precision});
        }
      });
    }
    return absl::OkStatus();
  }
};

absl::Status ExpectPairs(const InferContext& ctx, Sizes* n) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectRank(ctx, "X", 3));
  RETURN_IF_ERROR(ExpectDense(ctx, "W"));
  const Shape x = ctx.InputShape("X"), w = ctx.InputShape("W");
  if (x[1] < 2 || x[1] > kMostVectors || x[2] < 1) {
    return ctx.Error(absl::StrCat("X has dims ", ShapeString(x), "; pairs need from 2 to ", kMostVectors,
                                  " vectors of a known width"));
  }
  if (SizesOf(x, w, n)) return absl::OkStatus();
  return ctx.Error(absl::StrCat("W must be [", x[2], ", ", x[2], "], or that for each of ", x[1] - 1, " vectors or ",
                                PairsOf(x[1]), " pairs, got ", ShapeString(w)));
}

CostRule BilinearCost(int products) {
  return [products](InferContext& ctx) {
    Cost cost = ElementwiseCost(0)(ctx);
    Sizes n;
    if (!SizesOf(ctx.InputShape("X"), ctx.InputShape("W"), &n)) return cost;
    const double multiplied = static_cast<double>(n.matrices == Sizes::kPair ? n.pairs() : n.vectors - 1);
    cost.flops = products * static_cast<double>(std::max<int64_t>(n.batch, 1) * n.width) *
                 (2 * multiplied * static_cast<double>(n.width) + static_cast<double>(n.pairs()));
    return cost;
  };
}

void BilinearElements(ElementContext& ctx) {
  const ElementAxes& x = ctx.Names("X");
  if (x.size() != 2) return;
  const int64_t vectors = AxisSize(x[0]);
  ElementAxis pairs;
  for (int64_t i = 0; i < vectors; ++i) {
    for (int64_t j = i + 1; j < vectors; ++j) {
      pairs.push_back(
          {.of = absl::StrCat(ctx.Output("Out").name(), "/", ElementName(x[0], i), "/", ElementName(x[0], j))});
    }
  }
  const v1::VarDesc& w = ctx.Input("W");
  ElementAxes named = {x[1], x[1]};
  if (w.dims_size() == 3) {
    named.insert(named.begin(), w.dims(0) == vectors - 1 ? SliceAxis(x[0], 0, vectors - 1) : pairs);
  }
  ctx.NameParameter("W", std::move(named));
  ctx.NameOutput("Out", {std::move(pairs), x[1]});
}

REGISTER_OP(bilinear)
({.type = "bilinear",
  .summary = "products of all pairs of vectors, the first of a pair multiplied by a matrix",
  .inputs = {{"X"}, {"W"}},
  .outputs = {{"Out"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    Sizes n;
    RETURN_IF_ERROR(ExpectPairs(ctx, &n));
    ctx.SetOutput("Out", {n.batch, n.pairs(), n.width});
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"X", "W"}, {}, {"Out"}, {"X", "W"}),
  .cost = BilinearCost(1),
  .elements = BilinearElements});

REGISTER_OP(bilinear_grad)
({.type = "bilinear_grad",
  .summary = "gradients of bilinear",
  .inputs = {{"X"}, {"W"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true}, {.name = "W@GRAD", .optional = true}},
  .shape = [](InferContext& ctx) -> absl::Status {
    Sizes n;
    RETURN_IF_ERROR(ExpectPairs(ctx, &n));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", {n.batch, n.pairs(), n.width}));
    if (ctx.OutputCount("X@GRAD") > 0) SetLike(ctx, "X@GRAD", "X");
    if (ctx.OutputCount("W@GRAD") > 0) SetLike(ctx, "W@GRAD", "W");
    return absl::OkStatus();
  },
  .cost = BilinearCost(3)});

REGISTER_KERNEL(bilinear, MakeKernel<BilinearKernel>);
REGISTER_KERNEL(bilinear_grad, MakeKernel<BilinearGradKernel>);

}  // namespace
}  // namespace weir
