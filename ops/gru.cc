// gru: a gated recurrent unit over a sequence (ops/sequence.h), from a state of zeros:
//   r = sigmoid(x w_r + b_r + h u_r + c_r),  z likewise,  q = h u_n + c_n,  n = tanh(x w_n + b_n + r o q),
//   h' = (1 - z) o n + z o h
//
//   X       [B, T, W]      f32
//   Length  [B, 1]         f32
//   W       [W, 3 S]       f32   gates r, z, n side by side; so are U, B and C
//   U       [S, 3 S]       f32
//   B, C    [3 S]          f32
//   Hidden  [B, T, S]      f32   the state behind each element, 0 behind the length
//   Last    [B, S]         f32   the state behind the last element, 0 of an empty sequence
//   Gates   [B, T, 4 S]    f32   r, z, n, q of each element, 0 behind the length; kept for the gradient
//
// Gradient (gru_grad): through time, from the last element to the first. dX is 0 behind the length.
//
// Examples are ordered by their lengths, longest first, so that those that have an element t are the first ones: their
// states are one matrix. The products of the elements with W are taken for several t at a time. The bits of an example
// do not depend on the others (ops/row_products.h); gradients of parameters add the elements of a run of t, latest
// first, and in it the examples in this order.
#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/gemm.h"
#include "ops/gru_math.h"
#include "ops/row_products.h"
#include "ops/scratch.h"
#include "ops/sequence.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

// Elements whose products are taken at once: enough for a product, and few enough for the cache.
constexpr int64_t kRows = 512;

struct Sizes {
  int64_t batch, most, width, size;
};

// Order of the examples, and runs of elements t.
struct Order {
  std::vector<int64_t> example;  // longest first, equal ones in the order of the batch
  std::vector<int64_t> active;   // examples that have an element t
  struct Run {
    int64_t first, end, rows;
  };
  std::vector<Run> runs;

  Order(const Sizes& n, const Tensor& length) : example(static_cast<size_t>(n.batch)) {
    std::iota(example.begin(), example.end(), 0);
    std::stable_sort(example.begin(), example.end(),
                     [&](int64_t a, int64_t b) { return LengthOf(length, a) > LengthOf(length, b); });
    const int64_t longest = n.batch == 0 ? 0 : LengthOf(length, example[0]);
    int64_t count = n.batch;
    for (int64_t t = 0; t < longest; ++t) {
      while (LengthOf(length, example[static_cast<size_t>(count - 1)]) <= t) --count;
      active.push_back(count);
    }
    for (int64_t t = 0; t < longest;) {
      Run run = {t, t, 0};
      do {
        run.rows += active[static_cast<size_t>(run.end++)];
      } while (run.end < longest && run.rows < kRows);
      runs.push_back(run);
      t = run.end;
    }
  }
  int64_t count(int64_t t) const { return active[static_cast<size_t>(t)]; }
  // Most rows of a run.
  int64_t most_rows() const {
    int64_t most = 0;
    for (const Run& run : runs) most = std::max(most, run.rows);
    return most;
  }
};

WEIR_VECTORIZED void AddBias(int64_t rows, int64_t n, const float* bias, float* x) {
  for (int64_t r = 0; r < rows; ++r, x += n) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] + bias[i];
  }
}

// One step of an example, all arrays of which are different. x, h [3 size] are the products with their biases;
// gates [4 size]; state [size] is read and written.
WEIR_VECTORIZED void Step(int64_t size, const float* __restrict x, const float* __restrict h, float* __restrict gates,
                          float* __restrict state, float* __restrict hidden) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < size; ++i) {
    const GruGates g = GatesOf(x[i], x[size + i], x[2 * size + i], h[i], h[size + i], h[2 * size + i]);
    gates[i] = g.r;
    gates[size + i] = g.z;
    gates[2 * size + i] = g.n;
    gates[3 * size + i] = g.q;
    state[i] = GruState(g.z, g.n, state[i]);
    hidden[i] = state[i];
  }
}

// Gradients of one step: dx, dh [3 size] of the products; dstate [size] comes in for the state behind the element and
// goes out with what reaches the state before it directly.
WEIR_VECTORIZED void StepGradient(int64_t size, const float* __restrict gates, const float* __restrict before,
                                  float* __restrict dstate, float* __restrict dx, float* __restrict dh) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < size; ++i) {
    const GruGradients d =
        GradientsOf(gates[i], gates[size + i], gates[2 * size + i], gates[3 * size + i], before[i], dstate[i]);
    dx[i] = d.r;
    dx[size + i] = d.z;
    dx[2 * size + i] = d.n;
    dh[i] = d.r;
    dh[size + i] = d.z;
    dh[2 * size + i] = d.q;
    dstate[i] = d.before;
  }
}

WEIR_VECTORIZED void Add(int64_t n, const float* __restrict x, float* __restrict to) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) to[i] = to[i] + x[i];
}

absl::StatusOr<Sizes> CheckSizes(KernelContext& ctx) {
  enum Input { kX, kLength, kW, kU, kB, kC };
  const Tensor &x = ctx.input(kX), &u = ctx.input(kU);
  RETURN_IF_ERROR(CheckSequence("X", x, ctx.input(kLength)));
  RETURN_IF_ERROR(CheckRank("U", u, 2));
  const Sizes n = {x.dim(0), x.dim(1), x.dim(2), u.dim(0)};
  RETURN_IF_ERROR(CheckTensor("U", u, {n.size, 3 * n.size}));
  RETURN_IF_ERROR(CheckTensor("W", ctx.input(kW), {n.width, 3 * n.size}));
  RETURN_IF_ERROR(CheckTensor("B", ctx.input(kB), {3 * n.size}));
  RETURN_IF_ERROR(CheckTensor("C", ctx.input(kC), {3 * n.size}));
  return n;
}

// Copies the elements [first, end) of the examples that have them: t by t, `width` floats each.
void GatherRun(const Order& order, const Order::Run& run, int64_t most, int64_t width, const float* from, float* to) {
  for (int64_t t = run.first; t < run.end; ++t) {
    for (int64_t r = 0; r < order.count(t); ++r, to += width) {
      std::copy_n(from + (order.example[static_cast<size_t>(r)] * most + t) * width, width, to);
    }
  }
}

class GruKernel : public OpKernel {
  enum Input { kX, kLength, kW, kU, kB, kC };
  enum Output { kHidden, kLast, kGates };

 public:
  explicit GruKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(const Sizes n, CheckSizes(ctx));
    const Tensor& length = ctx.input(kLength);
    Tensor *const hidden = ctx.output(kHidden), *const last = ctx.output(kLast), *const gates = ctx.output(kGates);
    hidden->Resize(v1::FLOAT32, {n.batch, n.most, n.size});
    last->Resize(v1::FLOAT32, {n.batch, n.size});
    gates->Resize(v1::FLOAT32, {n.batch, n.most, 4 * n.size});
    for (int64_t b = 0; b < n.batch; ++b) {
      const int64_t first = b * n.most + LengthOf(length, b), end = (b + 1) * n.most;
      std::fill(hidden->data<float>() + first * n.size, hidden->data<float>() + end * n.size, 0.0f);
      std::fill(gates->data<float>() + first * 4 * n.size, gates->data<float>() + end * 4 * n.size, 0.0f);
    }
    const Order order(n, length);
    const int64_t rows = order.most_rows(), three = 3 * n.size;
    float* const x = Scratch(rows * (n.width + three) + n.batch * (three + n.size));
    float *const xw = x + rows * n.width, *const hu = xw + rows * three, *const state = hu + n.batch * three;
    std::fill_n(state, n.batch * n.size, 0.0f);
    for (const Order::Run& run : order.runs) {
      GatherRun(order, run, n.most, n.width, ctx.input(kX).data<float>(), x);
      MultiplyEachRow(run.rows, three, n.width, x, n.width, ctx.input(kW).data<float>(), three, xw, three,
                      {.precision = ctx.step->precision});
      AddBias(run.rows, three, ctx.input(kB).data<float>(), xw);
      const float* row = xw;
      for (int64_t t = run.first; t < run.end; ++t) {
        MultiplyEachRow(order.count(t), three, n.size, state, n.size, ctx.input(kU).data<float>(), three, hu, three,
                        {.precision = ctx.step->precision});
        AddBias(order.count(t), three, ctx.input(kC).data<float>(), hu);
        for (int64_t r = 0; r < order.count(t); ++r, row += three) {
          const int64_t element = order.example[static_cast<size_t>(r)] * n.most + t;
          Step(n.size, row, hu + r * three, gates->data<float>() + element * 4 * n.size, state + r * n.size,
               hidden->data<float>() + element * n.size);
        }
      }
    }
    // The state of an example rests when its elements end.
    for (int64_t r = 0; r < n.batch; ++r) {
      std::copy_n(state + r * n.size, n.size, last->data<float>() + order.example[static_cast<size_t>(r)] * n.size);
    }
    return absl::OkStatus();
  }
};

class GruGradKernel : public OpKernel {
  enum Input { kX, kLength, kW, kU, kB, kC, kHidden, kGates, kHiddenGrad, kLastGrad };
  enum Output { kXGrad, kWGrad, kUGrad, kBGrad, kCGrad };

 public:
  explicit GruGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(const Sizes n, CheckSizes(ctx));
    const Tensor& length = ctx.input(kLength);
    const Shape states = {n.batch, n.most, n.size};
    RETURN_IF_ERROR(CheckTensor("Hidden", ctx.input(kHidden), states));
    RETURN_IF_ERROR(CheckTensor("Gates", ctx.input(kGates), {n.batch, n.most, 4 * n.size}));
    if (ctx.has_input(kHiddenGrad)) RETURN_IF_ERROR(CheckTensor("Hidden@GRAD", ctx.input(kHiddenGrad), states));
    if (ctx.has_input(kLastGrad)) RETURN_IF_ERROR(CheckTensor("Last@GRAD", ctx.input(kLastGrad), {n.batch, n.size}));
    const auto cleared = [&](int slot, int of) -> float* {
      if (!ctx.has_output(slot)) return nullptr;
      Tensor* const grad = ctx.output(slot);
      grad->Resize(v1::FLOAT32, ctx.input(of).dims());
      std::fill_n(grad->data<float>(), grad->size(), 0.0f);
      return grad->data<float>();
    };
    float *const dx = cleared(kXGrad, kX), *const dw = cleared(kWGrad, kW), *const du = cleared(kUGrad, kU);
    float *const db = cleared(kBGrad, kB), *const dc = cleared(kCGrad, kC);
    const Order order(n, length);
    const int64_t rows = order.most_rows(), three = 3 * n.size;
    float* const dxw = Scratch(rows * (2 * three + n.size + n.width) + 2 * n.batch * n.size);
    float *const dhu = dxw + rows * three, *const before = dhu + rows * three, *const x = before + rows * n.size;
    float *const dstate = x + rows * n.width, *const through = dstate + n.batch * n.size;
    std::fill_n(dstate, n.batch * n.size, 0.0f);
    for (size_t i = order.runs.size(); i-- > 0;) {
      const Order::Run& run = order.runs[i];
      int64_t row = run.rows;
      for (int64_t t = run.end; t-- > run.first;) {
        const int64_t count = order.count(t);
        row -= count;
        for (int64_t r = 0; r < count; ++r) {
          Arrive(ctx, n, order.example[static_cast<size_t>(r)], t, dstate + r * n.size);
          StepBack(ctx, n, order.example[static_cast<size_t>(r)], t, before + (row + r) * n.size, dstate + r * n.size,
                   dxw + (row + r) * three, dhu + (row + r) * three);
        }
        if (t == 0) break;  // the state before is no variable
        MultiplyEachRow(count, n.size, three, dhu + row * three, three, ctx.input(kU).data<float>(), three, through,
                        n.size, {.transpose_b = true, .precision = ctx.step->precision});
        Add(count * n.size, through, dstate);
      }
      for (int64_t r = 0; r < run.rows; ++r) {
        if (db != nullptr) Add(three, dxw + r * three, db);
        if (dc != nullptr) Add(three, dhu + r * three, dc);
      }
      const GemmOptions add = {.transpose_a = true, .beta = 1, .precision = ctx.step->precision};
      if (du != nullptr) Gemm(n.size, three, run.rows, before, dhu, du, add);
      if (dw != nullptr) {
        GatherRun(order, run, n.most, n.width, ctx.input(kX).data<float>(), x);
        Gemm(n.width, three, run.rows, x, dxw, dw, add);
      }
      if (dx == nullptr) continue;
      MultiplyEachRow(run.rows, n.width, three, dxw, three, ctx.input(kW).data<float>(), three, x, n.width,
                      {.transpose_b = true, .precision = ctx.step->precision});
      const float* from = x;
      for (int64_t t = run.first; t < run.end; ++t) {
        for (int64_t r = 0; r < order.count(t); ++r, from += n.width) {
          std::copy_n(from, n.width, dx + (order.example[static_cast<size_t>(r)] * n.most + t) * n.width);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  // Adds what the element's outputs give to the gradient of the state behind it.
  static void Arrive(KernelContext& ctx, const Sizes& n, int64_t example, int64_t t, float* dstate) {
    if (ctx.has_input(kHiddenGrad)) {
      Add(n.size, ctx.input(kHiddenGrad).data<float>() + (example * n.most + t) * n.size, dstate);
    }
    if (ctx.has_input(kLastGrad) && t + 1 == LengthOf(ctx.input(kLength), example)) {
      Add(n.size, ctx.input(kLastGrad).data<float>() + example * n.size, dstate);
    }
  }

  static void StepBack(KernelContext& ctx, const Sizes& n, int64_t example, int64_t t, float* before, float* dstate,
                       float* dxw, float* dhu) {
    const int64_t element = example * n.most + t;
    if (t == 0) {
      std::fill_n(before, n.size, 0.0f);
    } else {
      std::copy_n(ctx.input(kHidden).data<float>() + (element - 1) * n.size, n.size, before);
    }
    StepGradient(n.size, ctx.input(kGates).data<float>() + element * 4 * n.size, before, dstate, dxw, dhu);
  }
};

// Sets the sizes if inputs fit each other.
absl::Status ExpectGru(const InferContext& ctx, Sizes* n) {
  RETURN_IF_ERROR(ExpectSequence(ctx, "X"));
  RETURN_IF_ERROR(ExpectDense(ctx, "U"));
  RETURN_IF_ERROR(ExpectRank(ctx, "U", 2));
  const Shape x = ctx.InputShape("X");
  *n = {x[0], x[1], x[2], ctx.InputShape("U")[0]};
  if (n->size < 1) return ctx.Error("U needs a row for each value of the state");
  const int64_t three = 3 * n->size;
  RETURN_IF_ERROR(ExpectDims(ctx, "U", {n->size, three}));
  RETURN_IF_ERROR(ExpectDims(ctx, "W", {n->width, three}));
  RETURN_IF_ERROR(ExpectDims(ctx, "B", {three}));
  return ExpectDims(ctx, "C", {three});
}

CostRule GruCost(int products) {
  return [products](InferContext& ctx) {
    Cost cost = ElementwiseCost(0)(ctx);
    Sizes n;
    if (!ExpectGru(ctx, &n).ok()) return cost;
    // 60: two sigmoids, a tanh and what joins them.
    cost.flops = static_cast<double>(std::max<int64_t>(n.batch, 1) * n.most * n.size) *
                 (6.0 * products * static_cast<double>(n.width + n.size) + 60);
    return cost;
  };
}

REGISTER_OP(gru)
({.type = "gru",
  .summary = "gated recurrent unit over a sequence",
  .inputs = {{"X"}, {"Length"}, {"W"}, {"U"}, {"B"}, {"C"}},
  .outputs = {{"Hidden"}, {"Last"}, {"Gates"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    Sizes n;
    RETURN_IF_ERROR(ExpectGru(ctx, &n));
    ctx.SetOutput("Hidden", {n.batch, n.most, n.size});
    ctx.SetOutput("Last", {n.batch, n.size});
    ctx.SetOutput("Gates", {n.batch, n.most, 4 * n.size});
    return absl::OkStatus();
  },
  .gradient = [](GradContext& ctx) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    if (!ctx.OutputGrad("Gates").empty()) {
      return absl::InvalidArgumentError(
          "gru: Gates has no gradient of its own; only Hidden and Last may be used by "
          "the model");
    }
    return MakeGradOp(ctx, {"X", "Length", "W", "U", "B", "C"}, {"Hidden", "Gates"}, {"Hidden", "Last"},
                      {"X", "W", "U", "B", "C"});
  },
  .cost = GruCost(1)});

REGISTER_OP(gru_grad)
({.type = "gru_grad",
  .summary = "gradients of gru",
  .inputs = {{"X"},
             {"Length"},
             {"W"},
             {"U"},
             {"B"},
             {"C"},
             {"Hidden"},
             {"Gates"},
             {.name = "Hidden@GRAD", .optional = true},
             {.name = "Last@GRAD", .optional = true}},
  .outputs = {{.name = "X@GRAD", .optional = true},
              {.name = "W@GRAD", .optional = true},
              {.name = "U@GRAD", .optional = true},
              {.name = "B@GRAD", .optional = true},
              {.name = "C@GRAD", .optional = true}},
  .shape = [](InferContext& ctx) -> absl::Status {
    Sizes n;
    RETURN_IF_ERROR(ExpectGru(ctx, &n));
    RETURN_IF_ERROR(ExpectDims(ctx, "Hidden", {n.batch, n.most, n.size}));
    RETURN_IF_ERROR(ExpectDims(ctx, "Gates", {n.batch, n.most, 4 * n.size}));
    if (ctx.InputCount("Hidden@GRAD") > 0) {
      RETURN_IF_ERROR(ExpectDims(ctx, "Hidden@GRAD", {n.batch, n.most, n.size}));
    }
    if (ctx.InputCount("Last@GRAD") > 0) RETURN_IF_ERROR(ExpectDims(ctx, "Last@GRAD", {n.batch, n.size}));
    for (const char* slot : {"X", "W", "U", "B", "C"}) {
      if (ctx.OutputCount(GradName(slot)) > 0) SetLike(ctx, GradName(slot), slot);
    }
    return absl::OkStatus();
  },
  .cost = GruCost(2)});

REGISTER_KERNEL(gru, MakeKernel<GruKernel>);
REGISTER_KERNEL(gru_grad, MakeKernel<GruGradKernel>);

}  // namespace
}  // namespace weir
