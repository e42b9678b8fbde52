// dot_interaction: products of all pairs of the vectors of an example (DLRM)
//
//   X*    [B, S, W] or [B, W]  f32; side by side they are F vectors of W
//   Out   [B, P]               f32   x_i . x_j for the pairs (1,0), (2,0), (2,1), ..., P = F (F - 1) / 2
//   self_interaction  bool = false   with the products (i,i) too: (0,0), (1,0), (1,1), ..., P = F (F + 1) / 2
//
// Gradient (dot_interaction_grad): dx_i = sum over j, in order, of dOut(i,j) x_j, that of (i,i) twice. Its attribute
// `wanted` says which inputs have one. A product adds its W terms in order.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/runtime/kernel.h"
#include "ops/dot_interaction_math.h"
#include "ops/fit.h"
#include "ops/scratch.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

// Floats per iteration: one register of AVX-512, two of AVX2.
constexpr int kBlock = 16;

int64_t Padded(int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

// Computes the products of row i with rows 0 to count - 1 from the transposed t [width, stride]. Each column adds its
// terms in order.
WEIR_VECTORIZED void PairProducts(int64_t width, int64_t stride, const float* __restrict t, int64_t i, int64_t count,
                                  float* __restrict out) {
  for (int64_t j = 0; j < count; j += kBlock) {
    float sum[kBlock] = {};
    for (int64_t w = 0; w < width; ++w) {
      const float x = t[w * stride + i];
      const float* __restrict y = t + w * stride + j;
      for (int k = 0; k < kBlock; ++k) sum[k] += x * y[k];
    }
    if (count - j >= kBlock) {
      for (int k = 0; k < kBlock; ++k) out[j + k] = sum[k];
    } else {
      for (int k = 0; k < count - j; ++k) out[j + k] = sum[k];
    }
  }
}

// to [width] = sum over j of g[j] * x[j], x [count, stride]; the row `without` is left out.
WEIR_VECTORIZED void WeighedRows(int64_t count, int64_t width, int64_t stride, const float* __restrict g,
                                 const float* __restrict x, int64_t without, float* __restrict to) {
  for (int64_t w = 0; w < width; w += kBlock) {
    float sum[kBlock] = {};
    for (int64_t j = 0; j < count; ++j) {
      if (j == without) continue;
      const float* __restrict from = x + j * stride + w;
      const float weight = g[j];
      for (int k = 0; k < kBlock; ++k) sum[k] += weight * from[k];
    }
    if (width - w >= kBlock) {
      for (int k = 0; k < kBlock; ++k) to[w + k] = sum[k];
    } else {
      for (int k = 0; k < width - w; ++k) to[w + k] = sum[k];
    }
  }
}

// Returns the number of vectors of an input; 1 if it is [B, W].
int64_t VectorsOf(absl::Span<const int64_t> dims) { return dims.size() == 3 ? dims[1] : 1; }

// Shape of all inputs of a run together.
struct Vectors {
  int64_t batch = 0, count = 0, width = 0;
  static absl::StatusOr<Vectors> Of(KernelContext& ctx, int slot) {
    Vectors v;
    for (int i = 0; i < ctx.input_count(slot); ++i) {
      const Tensor& x = ctx.input(slot, i);
      const std::string name = absl::StrCat("X[", i, "]");
      if (x.rank() != 3) RETURN_IF_ERROR(CheckRank(name, x, 2));
      if (i == 0) {
        v.batch = x.dim(0);
        v.width = x.dim(x.rank() - 1);
      }
      const Shape want = x.rank() == 3 ? Shape{v.batch, x.dim(1), v.width} : Shape{v.batch, v.width};
      RETURN_IF_ERROR(CheckTensor(name, x, want));
      v.count += VectorsOf(x.dims());
    }
    return v;
  }
};

class DotInteractionKernel : public OpKernel {
 public:
  explicit DotInteractionKernel(const KernelInit& init) : self_(init.attrs.Bool("self_interaction")) {}
  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(const Vectors v, Vectors::Of(ctx, 0));
    const int64_t pairs = PairCount(v.count, self_);
    Tensor* out = ctx.output(0);
    out->Resize(v1::FLOAT32, {v.batch, pairs});
    if (out->size() == 0) return absl::OkStatus();
    const int64_t stride = Padded(v.count);
    float* const t = Scratch(v.width * stride);
    // Clear the padding behind the last vector, whose products are computed and discarded.
    std::fill_n(t, v.width * stride, 0.0f);
    float* to = out->data<float>();
    for (int64_t b = 0; b < v.batch; ++b) {
      int64_t row = 0;
      for (int i = 0; i < ctx.input_count(0); ++i) {
        const Tensor& x = ctx.input(0, i);
        const int64_t count = VectorsOf(x.dims());
        const float* from = x.data<float>() + b * count * v.width;
        for (int64_t r = 0; r < count; ++r, ++row, from += v.width) {
          for (int64_t w = 0; w < v.width; ++w) t[w * stride + row] = from[w];
        }
      }
      for (int64_t i = 0; i < v.count; ++i) {
        const int64_t end = PairEnd(i, self_);
        PairProducts(v.width, stride, t, i, end, to);
        to += end;
      }
    }
    return absl::OkStatus();
  }

 private:
  const bool self_;
};

// Inputs X*, Out@GRAD; outputs X@GRAD* of the inputs in `wanted`.
class DotInteractionGradKernel : public OpKernel {
 public:
  explicit DotInteractionGradKernel(const KernelInit& init)
      : self_(init.attrs.Bool("self_interaction")), wanted_(init.attrs.Ints("wanted")) {}
  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(const Vectors v, Vectors::Of(ctx, 0));
    const Tensor& dout = ctx.input(1);
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, {v.batch, PairCount(v.count, self_)}));
    for (size_t k = 0; k < wanted_.size(); ++k) {
      ctx.output(0, static_cast<int>(k))->Resize(v1::FLOAT32, ctx.input(0, static_cast<int>(wanted_[k])).dims());
    }
    if (v.batch == 0 || v.count == 0 || v.width == 0) return absl::OkStatus();
    const int64_t stride = Padded(v.width);
    float* const x = Scratch(v.count * stride + v.count * v.count);
    float* const g = x + v.count * stride;
    std::fill_n(x, v.count * stride, 0.0f);
    const float* from = dout.data<float>();
    for (int64_t b = 0; b < v.batch; ++b) {
      Gather(ctx, v, b, stride, x);
      for (int64_t i = 0; i < v.count; ++i) {
        for (int64_t j = 0; j < PairEnd(i, self_); ++j, ++from) g[i * v.count + j] = g[j * v.count + i] = *from;
        if (self_) g[i * v.count + i] *= 2;
      }
      for (size_t k = 0; k < wanted_.size(); ++k) {
        Tensor* const dx = ctx.output(0, static_cast<int>(k));
        const int64_t first = FirstRow(ctx, static_cast<int>(wanted_[k])), count = VectorsOf(dx->dims());
        float* to = dx->data<float>() + b * count * v.width;
        for (int64_t i = first; i < first + count; ++i, to += v.width) {
          WeighedRows(v.count, v.width, stride, g + i * v.count, x, self_ ? -1 : i, to);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  static void Gather(KernelContext& ctx, const Vectors& v, int64_t b, int64_t stride, float* x) {
    for (int i = 0; i < ctx.input_count(0); ++i) {
      const Tensor& tensor = ctx.input(0, i);
      const int64_t count = VectorsOf(tensor.dims());
      const float* from = tensor.data<float>() + b * count * v.width;
      for (int64_t r = 0; r < count; ++r, x += stride, from += v.width) {
        std::memcpy(x, from, sizeof(float) * static_cast<size_t>(v.width));
      }
    }
  }

  static int64_t FirstRow(KernelContext& ctx, int input) {
    int64_t row = 0;
    for (int i = 0; i < input; ++i) row += VectorsOf(ctx.input(0, i).dims());
    return row;
  }

  const bool self_;
  const std::vector<int64_t> wanted_;
};

// Returns the number of pairs if the inputs fit together.
absl::StatusOr<int64_t> InferPairs(const InferContext& ctx) {
  RETURN_IF_ERROR(ExpectAllDense(ctx, "X"));
  const Shape first = ctx.InputShape("X", 0);
  int64_t vectors = 0;
  for (int i = 0; i < ctx.InputCount("X"); ++i) {
    const Shape x = ctx.InputShape("X", i);
    const bool vectors_of_it = (x.size() == 2 || x.size() == 3) && x.back() > 0 && VectorsOf(x) >= 0;
    if (!vectors_of_it || x.back() != first.back() || x[0] != first[0]) {
      return ctx.Error(absl::StrCat("X[", i, "] (", ctx.Input("X", i).name(), ") has dims ", ShapeString(x), ", X[0] ",
                                    ShapeString(first), "; inputs are [B, S, W] or [B, W] of one width"));
    }
    vectors += VectorsOf(x);
  }
  const bool self = ctx.attrs().Bool("self_interaction");
  // Limit the vectors so that twice the number of pairs fits into an int64.
  if (vectors < (self ? 1 : 2) || vectors > (int64_t{1} << 31)) {
    return ctx.Error(absl::StrCat(vectors, " vectors have no pairs, or too many"));
  }
  return PairCount(vectors, self);
}

// Counts 2 * W flops per pair.
CostRule PairCost(int products) {
  return [products](InferContext& ctx) {
    Cost cost = ElementwiseCost(0)(ctx);
    const Shape x = ctx.InputShape("X", 0);
    double vectors = 0;
    for (int i = 0; i < ctx.InputCount("X"); ++i) vectors += static_cast<double>(VectorsOf(ctx.InputShape("X", i)));
    cost.flops =
        products * static_cast<double>(std::max<int64_t>(x[0], 1)) * vectors * vectors * static_cast<double>(x.back());
    return cost;
  };
}

absl::StatusOr<std::vector<v1::OpDesc>> DotInteractionGradient(GradContext& ctx) {
  const auto& vars = ctx.op().inputs(0).vars();
  std::vector<int64_t> wanted;
  std::vector<std::string> inputs(vars.begin(), vars.end()), grads;
  for (int i = 0; i < vars.size(); ++i) {
    const std::string grad = ctx.InputGrad("X", i);
    if (grad.empty()) continue;
    wanted.push_back(i);
    grads.push_back(grad);
  }
  if (wanted.empty()) return std::vector<v1::OpDesc>();
  return std::vector<v1::OpDesc>{
      MakeOp("dot_interaction_grad", {{"X", inputs}, {"Out@GRAD", {ctx.OutputGrad("Out")}}}, {{"X@GRAD", grads}},
             {AttrB("self_interaction", ctx.attrs().Bool("self_interaction")), AttrInts("wanted", wanted)})};
}

// A pair has the names of both vectors, whichever comes first.
void PairElements(ElementContext& ctx) {
  std::vector<std::string> vectors;
  for (int i = 0; i < ctx.InputCount("X"); ++i) {
    const ElementAxes& x = ctx.Names("X", i);
    if (x.size() == 1) {
      vectors.push_back(ctx.Input("X", i).name());
    } else {
      for (int64_t k = 0; k < AxisSize(x.front()); ++k) vectors.push_back(ElementName(x.front(), k));
    }
  }
  const bool self = ctx.attrs().Bool("self_interaction");
  ElementAxis pairs;
  for (size_t a = 0; a < vectors.size(); ++a) {
    for (size_t b = 0; b < a + (self ? 1 : 0); ++b) {
      pairs.push_back({.of = absl::StrCat(ctx.Output("Out").name(), "/", std::min(vectors[a], vectors[b]), "/",
                                          std::max(vectors[a], vectors[b]))});
    }
  }
  ctx.NameOutput("Out", {std::move(pairs)});
}

REGISTER_OP(dot_interaction)
({.type = "dot_interaction",
  .summary = "products of all pairs of vectors of an example",
  .inputs = {{.name = "X", .variadic = true}},
  .outputs = {{"Out"}},
  .attrs = {BoolAttr("self_interaction", false)},
  .shape = [](InferContext& ctx) -> absl::Status {
    ASSIGN_OR_RETURN(const int64_t pairs, InferPairs(ctx));
    ctx.SetOutput("Out", {ctx.InputShape("X", 0)[0], pairs});
    return absl::OkStatus();
  },
  .gradient = DotInteractionGradient,
  .cost = PairCost(1),
  .elements = PairElements,
  .effect = ElementEffect::kAdded,
  .zero_of_zero = true});

REGISTER_OP(dot_interaction_grad)
({.type = "dot_interaction_grad",
  .summary = "gradients of dot_interaction",
  .inputs = {{.name = "X", .variadic = true}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .variadic = true}},
  .attrs = {BoolAttr("self_interaction", false), Required(IntsAttr("wanted"))},
  .shape = [](InferContext& ctx) -> absl::Status {
    ASSIGN_OR_RETURN(const int64_t pairs, InferPairs(ctx));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", {ctx.InputShape("X", 0)[0], pairs}));
    const std::vector<int64_t> wanted = ctx.attrs().Ints("wanted");
    if (static_cast<int>(wanted.size()) != ctx.OutputCount("X@GRAD")) {
      return ctx.Error(absl::StrCat(wanted.size(), " inputs are wanted, X@GRAD has ", ctx.OutputCount("X@GRAD")));
    }
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (wanted[k] < 0 || wanted[k] >= ctx.InputCount("X")) {
        return ctx.Error(absl::StrCat("input ", wanted[k], " of ", ctx.InputCount("X"), " does not exist"));
      }
      SetLike(ctx, "X@GRAD", "X", static_cast<int>(k), static_cast<int>(wanted[k]));
    }
    return absl::OkStatus();
  },
  .cost = PairCost(2)});

REGISTER_KERNEL(dot_interaction, MakeKernel<DotInteractionKernel>);
REGISTER_KERNEL(dot_interaction_grad, MakeKernel<DotInteractionGradKernel>);

}  // namespace
}  // namespace weir
