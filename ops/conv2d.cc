// conv2d: Out = f(X convolved with W + Bias), a cross-correlation as everywhere:
//   out[b, f, i, j] =
//       f(bias[f] + sum over c, k, l of w[f, c, k, l] * x[b, c, i * stride + k - padding, j * stride + l - padding])
//
//   X     [B, C, H, W]    f32; beyond its edges it is 0
//   W     [F, C, KH, KW]  f32
//   Bias? [F]             f32
//   Out   [B, F, H', W']  f32, H' = (H + 2 padding - KH) / stride + 1
//   stride, padding: two ints, of height and width; padding is below the kernel
//   activation: identity, relu, sigmoid or tanh
//
// A convolution is a product of W, as a matrix [F, taps] with a tap for each (c, k, l), and the matrix of columns
// [taps, windows]: the elements that each window covers. It is taken in blocks of windows, several examples or some
// rows of one, whose columns stay in the cache. Blocks follow from the shapes alone, so the order of every sum does.
//
// oneDNN has convolutions of its own. They choose blocks, and with them the order of sums, by the sizes of the
// machine's caches, and trainers of one job may run on different machines; the product of matrices is the one that fc
// uses. On one core of an AMD EPYC (Zen 4), 16 examples of 32 x 14 x 14 and 64 filters of 3 x 3, they took 1.1 ms
// forward, 1.3 for the weights and 1.1 for the input with what it takes to bring pictures into their layout and back;
// blocks of columns and products 1.5, 1.6 and 1.6.
//
// Gradient (conv2d_grad), with dPre = dOut * f' taken from Out:
//   dBias = sum of dPre over windows
//   dW    = dPre * columns^T
//   dX    = sum of W^T * dPre over the windows that cover an element
// Sums go over blocks of examples in order, and within a block over the taps.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/fixed_sum.h"
#include "ops/fused_activation.h"
#include "ops/gemm.h"
#include "ops/scratch.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"
#include "ops/windows.h"

namespace weir {
namespace {

// Floats in the columns of a block: 1 MiB, the second-level cache of the measured cores, and enough for a product to
// run at full speed.
constexpr int64_t kBlockFloats = int64_t{1} << 18;
constexpr int64_t kBlockWindows = 1024;
// Elements per copy; copies may run past the ends of rows.
constexpr int64_t kChunk = 16;

// Sizes of one run.
struct Conv : ConvSizes {
  // Size of a block: `examples` whole examples, or, if one is too large, `rows` rows of windows of one.
  int64_t examples = 1, rows = 1;

  int64_t block_windows() const { return examples * rows * width.count; }
  // Size of the part of one channel of one example that a block reads, with padding.
  int64_t padded_height() const { return (rows - 1) * height.stride + height.kernel; }
  int64_t padded_width() const { return (width.count - 1) * width.stride + width.kernel; }
  int64_t padded() const { return channels * padded_height() * padded_width(); }
};

// Examples [example, example + examples), rows of windows [row, row + rows) of each.
struct Block {
  int64_t example, examples, row, rows;
};

template <typename Fn>
void ForBlocks(const Conv& c, Fn fn) {
  for (int64_t b = 0; b < c.batch; b += c.examples) {
    const int64_t examples = std::min(c.examples, c.batch - b);
    for (int64_t row = 0; row < c.height.count; row += c.rows) {
      fn(Block{.example = b, .examples = examples, .row = row, .rows = std::min(c.rows, c.height.count - row)});
    }
  }
}

absl::StatusOr<Conv> MakeConv(absl::Span<const int64_t> x, absl::Span<const int64_t> w,
                              const WindowSettings& settings) {
  Conv c;
  ASSIGN_OR_RETURN(static_cast<ConvSizes&>(c), MakeConvSizes(x, w, settings));
  const int64_t columns = std::max<int64_t>(1, std::min(kBlockWindows, kBlockFloats / std::max<int64_t>(1, c.taps)));
  if (columns >= c.windows()) {
    c.rows = c.height.count;
    c.examples = std::max<int64_t>(1, std::min(c.batch, columns / c.windows()));
  } else {
    c.rows = std::max<int64_t>(1, std::min(c.height.count, columns / c.width.count));
  }
  // Bound the padded examples too: with large strides they have more elements than the columns.
  c.examples = std::clamp<int64_t>(kBlockFloats / std::max<int64_t>(1, c.padded()), 1, c.examples);
  if (c.padded() > kBlockFloats) c.rows = std::max<int64_t>(1, c.rows * kBlockFloats / c.padded());
  return c;
}

// Copies the rows of one example that a block reads, for all channels, with zeros as padding.
WEIR_VECTORIZED void Pad(const Conv& c, int64_t first_row, const float* x, float* padded) {
  const int64_t height = c.padded_height(), width = c.padded_width();
  const int64_t left = c.width.padding, used = std::min(c.width.size, width - left);
  for (int64_t ch = 0; ch < c.channels; ++ch, x += c.height.size * c.width.size) {
    for (int64_t h = 0; h < height; ++h, padded += width) {
      const int64_t row = first_row * c.height.stride - c.height.padding + h;
      if (row < 0 || row >= c.height.size) {
        for (int64_t i = 0; i < width; ++i) padded[i] = 0;
        continue;
      }
      for (int64_t i = 0; i < left; ++i) padded[i] = 0;
      const float* from = x + row * c.width.size;
      WEIR_INDEPENDENT
      for (int64_t i = 0; i < used; ++i) padded[left + i] = from[i];
      for (int64_t i = left + used; i < width; ++i) padded[i] = 0;
    }
  }
}

// cols [taps, n] of `examples` padded examples, from the lowest address to the highest: whatever a row writes behind
// its end is written once more. Reads and writes up to kChunk - 1 floats behind either end.
WEIR_VECTORIZED void TakeColumns(const Conv& c, int64_t examples, int64_t rows, const float* padded, float* cols) {
  const int64_t height = c.padded_height(), width = c.padded_width(), count = c.width.count;
  const int64_t down = c.height.stride * width, right = c.width.stride;
  for (int64_t ch = 0; ch < c.channels; ++ch) {
    for (int64_t k = 0; k < c.height.kernel; ++k) {
      for (int64_t l = 0; l < c.width.kernel; ++l) {
        for (int64_t b = 0; b < examples; ++b) {
          const float* from = padded + b * c.padded() + (ch * height + k) * width + l;
          for (int64_t r = 0; r < rows; ++r, from += down, cols += count) {
            if (right == 1) {
              for (int64_t i = 0; i < count; i += kChunk) {
                float chunk[kChunk];
                std::memcpy(chunk, from + i, sizeof chunk);
                std::memcpy(cols + i, chunk, sizeof chunk);
              }
            } else {
              for (int64_t i = 0; i < count; ++i) cols[i] = from[i * right];
            }
          }
        }
      }
    }
  }
}

// Reverses TakeColumns for one example of a block: adds to each element its gradients from all windows. cols: columns
// of the example, rows `n` apart.
WEIR_VECTORIZED void AddColumns(const Conv& c, const Block& block, const float* cols, int64_t n, float* dx) {
  const int64_t count = c.width.count, right = c.width.stride;
  for (int64_t ch = 0; ch < c.channels; ++ch, dx += c.height.size * c.width.size) {
    for (int64_t k = 0; k < c.height.kernel; ++k) {
      const int64_t first = std::max(block.row, c.height.First(k)),
                    last = std::min(block.row + block.rows, c.height.Last(k));
      for (int64_t l = 0; l < c.width.kernel; ++l, cols += n) {
        const int64_t begin = c.width.First(l), end = c.width.Last(l);
        for (int64_t r = first; r < last; ++r) {
          const float* from = cols + (r - block.row) * count;
          float* to = dx + (r * c.height.stride - c.height.padding + k) * c.width.size + l - c.width.padding;
          if (right == 1) {
            WEIR_INDEPENDENT
            for (int64_t i = begin; i < end; ++i) to[i] += from[i];
          } else {
            for (int64_t i = begin; i < end; ++i) to[i * right] += from[i];
          }
        }
      }
    }
  }
}

WEIR_VECTORIZED float SumOf(int64_t n, const float* x) {
  return FixedSum(n, [&](int64_t i) { return x[i]; });
}

// Working memory of one block: columns, padded examples, and a matrix [filters, windows].
struct Work {
  float* cols = nullptr;
  float* padded = nullptr;
  float* matrix = nullptr;
  float* transposed = nullptr;  // [taps, filters]
};

int64_t RoundUp(int64_t n) { return (n + kChunk - 1) / kChunk * kChunk; }

Work MakeWork(const Conv& c, bool transposed) {
  const int64_t cols = RoundUp(c.taps * c.block_windows()) + kChunk, padded = RoundUp(c.examples * c.padded()) + kChunk;
  const int64_t matrix = RoundUp(c.filters * c.block_windows());
  float* const all = Scratch(cols + padded + matrix + (transposed ? c.taps * c.filters : 0));
  Work work{
      .cols = all, .padded = all + cols, .matrix = all + cols + padded, .transposed = all + cols + padded + matrix};
  // TakeColumns reads these floats and does not use them: initialize them.
  std::fill_n(work.padded + c.examples * c.padded(), kChunk, 0.0f);
  return work;
}

void FillColumns(const Conv& c, const Block& block, const float* x, const Work& work) {
  for (int64_t b = 0; b < block.examples; ++b) {
    Pad(c, block.row, x + (block.example + b) * c.channels * c.height.size * c.width.size,
        work.padded + b * c.padded());
  }
  TakeColumns(c, block.examples, block.rows, work.padded, work.cols);
}

class ConvKernel : public OpKernel {
  enum Input { kX, kW, kBias };
  enum Output { kOut };

 public:
  ConvKernel(FusedActivation activation, WindowSettings settings)
      : activation_(activation), settings_(std::move(settings)) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    const Tensor& w = ctx.input(kW);
    RETURN_IF_ERROR(CheckRank("X", x, 4));
    RETURN_IF_ERROR(CheckRank("W", w, 4));
    ASSIGN_OR_RETURN(const Conv c, MakeConv(x.dims(), w.dims(), settings_));
    if (ctx.has_input(kBias)) RETURN_IF_ERROR(CheckTensor("Bias", ctx.input(kBias), {c.filters}));
    const float* const bias = ctx.has_input(kBias) ? ctx.input(kBias).data<float>() : nullptr;
    Tensor* const out = ctx.output(kOut);
    out->Resize(v1::FLOAT32, {c.batch, c.filters, c.height.count, c.width.count});
    float* const y = out->data<float>();
    const Work work = MakeWork(c, /*transposed=*/false);
    ForBlocks(c, [&](const Block& block) {
      FillColumns(c, block, x.data<float>(), work);
      const int64_t size = block.rows * c.width.count, n = block.examples * size;
      const auto place = [&](int64_t b, int64_t f) {
        return y + ((block.example + b) * c.filters + f) * c.windows() + block.row * c.width.count;
      };
      // The product of a single example is written straight to its place in the output.
      const bool direct = block.examples == 1;
      float* const product = direct ? place(0, 0) : work.matrix;
      const int64_t line = direct ? c.windows() : n;
      Gemm(c.filters, n, c.taps, w.data<float>(), c.taps, work.cols, n, product, line,
           {.precision = ctx.step->precision});
      if (direct && bias == nullptr && activation_ == FusedActivation::kIdentity) return;
      for (int64_t b = 0; b < block.examples; ++b) {
        for (int64_t f = 0; f < c.filters; ++f) {
          AddAndActivate(activation_, size, bias == nullptr ? 0 : bias[f], product + f * line + b * size, place(b, f));
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  const FusedActivation activation_;
  const WindowSettings settings_;
};

class ConvGradKernel : public OpKernel {
  enum Input { kX, kW, kBias, kOut, kOutGrad };
  enum Output { kXGrad, kWGrad, kBiasGrad };

 public:
  ConvGradKernel(FusedActivation activation, WindowSettings settings)
      : activation_(activation), settings_(std::move(settings)) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    const Tensor& w = ctx.input(kW);
    RETURN_IF_ERROR(CheckRank("X", x, 4));
    RETURN_IF_ERROR(CheckRank("W", w, 4));
    ASSIGN_OR_RETURN(const Conv c, MakeConv(x.dims(), w.dims(), settings_));
    const Shape out_dims = {c.batch, c.filters, c.height.count, c.width.count};
    RETURN_IF_ERROR(CheckTensor("Out", ctx.input(kOut), out_dims));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(kOutGrad), out_dims));
    float* const dx = ctx.has_output(kXGrad) ? Zeros(ctx.output(kXGrad), x.dims()) : nullptr;
    float* const dw = ctx.has_output(kWGrad) ? Zeros(ctx.output(kWGrad), w.dims()) : nullptr;
    float* const dbias = ctx.has_output(kBiasGrad) ? Zeros(ctx.output(kBiasGrad), {c.filters}) : nullptr;
    // Let the rows of the product run along its longer side.
    const bool transposed = dw != nullptr && c.filters > c.taps;
    const Work work = MakeWork(c, transposed);
    if (transposed) std::fill_n(work.transposed, c.taps * c.filters, 0.0f);
    ForBlocks(c, [&](const Block& block) {
      const int64_t size = block.rows * c.width.count, n = block.examples * size;
      int64_t line = n;
      const float* const dpre =
          PreGradient(c, block, ctx.input(kOut).data<float>(), ctx.input(kOutGrad).data<float>(), work, &line);
      if (dbias != nullptr) {
        for (int64_t f = 0; f < c.filters; ++f) {
          for (int64_t b = 0; b < block.examples; ++b) dbias[f] += SumOf(size, dpre + f * line + b * size);
        }
      }
      if (dw != nullptr) {
        FillColumns(c, block, x.data<float>(), work);
        if (transposed) {
          Gemm(c.taps, c.filters, n, work.cols, n, dpre, line, work.transposed, c.filters,
               {.transpose_b = true, .beta = 1, .precision = ctx.step->precision});
        } else {
          Gemm(c.filters, c.taps, n, dpre, line, work.cols, n, dw, c.taps,
               {.transpose_b = true, .beta = 1, .precision = ctx.step->precision});
        }
      }
      if (dx != nullptr) {
        Gemm(c.taps, n, c.filters, w.data<float>(), c.taps, dpre, line, work.cols, n,
             {.transpose_a = true, .precision = ctx.step->precision});
        for (int64_t b = 0; b < block.examples; ++b) {
          AddColumns(c, block, work.cols + b * size, n,
                     dx + (block.example + b) * c.channels * c.height.size * c.width.size);
        }
      }
    });
    for (int64_t f = 0; transposed && f < c.filters; ++f) {
      for (int64_t t = 0; t < c.taps; ++t) dw[f * c.taps + t] = work.transposed[t * c.filters + f];
    }
    return absl::OkStatus();
  }

 private:
  static float* Zeros(Tensor* tensor, absl::Span<const int64_t> dims) {
    tensor->Resize(v1::FLOAT32, dims);
    std::fill_n(tensor->data<float>(), tensor->size(), 0.0f);
    return tensor->data<float>();
  }

  // [filters, windows of the block], `line` apart.
  const float* PreGradient(const Conv& c, const Block& block, const float* out, const float* dout, const Work& work,
                           int64_t* line) const {
    const int64_t size = block.rows * c.width.count;
    const auto place = [&](int64_t b, int64_t f) {
      return ((block.example + b) * c.filters + f) * c.windows() + block.row * c.width.count;
    };
    if (block.examples == 1 && activation_ == FusedActivation::kIdentity) {
      *line = c.windows();
      return dout + place(0, 0);
    }
    for (int64_t b = 0; b < block.examples; ++b) {
      for (int64_t f = 0; f < c.filters; ++f) {
        BackThroughActivation(activation_, size, out + place(b, f), dout + place(b, f),
                              work.matrix + f * *line + b * size);
      }
    }
    return work.matrix;
  }

  const FusedActivation activation_;
  const WindowSettings settings_;
};

// Returns the sizes by the descriptions of the variables; the batch may be -1.
absl::StatusOr<Conv> InferConv(const InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectDense(ctx, "W"));
  RETURN_IF_ERROR(ExpectRank(ctx, "X", 4));
  RETURN_IF_ERROR(ExpectRank(ctx, "W", 4));
  const absl::StatusOr<FusedActivation> activation = ParseFusedActivation(ctx.attrs().String("activation"));
  if (!activation.ok()) return ctx.Error(ToStd(activation.status().message()));
  absl::StatusOr<Conv> conv = MakeConv(ctx.InputShape("X"), ctx.InputShape("W"), ReadWindowSettings(ctx.attrs()));
  if (!conv.ok()) return ctx.Error(ToStd(conv.status().message()));
  if (ctx.InputCount("Bias") > 0) RETURN_IF_ERROR(ExpectDims(ctx, "Bias", {conv->filters}));
  return conv;
}

absl::Status ConvShape(InferContext& ctx) {
  ASSIGN_OR_RETURN(const Conv c, InferConv(ctx));
  ctx.SetOutput("Out", {c.batch, c.filters, c.height.count, c.width.count});
  return absl::OkStatus();
}

absl::Status ConvGradShape(InferContext& ctx) {
  ASSIGN_OR_RETURN(const Conv c, InferConv(ctx));
  const Shape out = {c.batch, c.filters, c.height.count, c.width.count};
  RETURN_IF_ERROR(ExpectDims(ctx, "Out", out));
  RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", out));
  for (const char* slot : {"X", "W", "Bias"}) {
    if (ctx.OutputCount(GradName(slot)) == 0) continue;
    if (ctx.InputCount(slot) == 0) return ctx.Error(absl::StrCat(slot, "@GRAD is asked for, and there is no ", slot));
    SetLike(ctx, GradName(slot), slot);
  }
  return absl::OkStatus();
}

// Counts two operations per tap, window and product, and writing and reading the columns.
CostRule ConvCost(int products) {
  return [products](InferContext& ctx) {
    Cost cost;
    const absl::StatusOr<Conv> c = InferConv(ctx);
    if (!c.ok()) return cost;
    const double windows = static_cast<double>(std::max<int64_t>(1, c->batch)) * static_cast<double>(c->windows());
    cost.flops = 2 * products * windows * static_cast<double>(c->filters) * static_cast<double>(c->taps);
    cost.bytes =
        4 * products *
        (Elements(ctx.Input("X")) + Elements(ctx.Input("W")) + windows * static_cast<double>(c->filters + 2 * c->taps));
    return cost;
  };
}

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpKernel>> MakeConvKernel(const KernelInit& init) {
  ASSIGN_OR_RETURN(const FusedActivation activation, ParseFusedActivation(init.attrs.String("activation")));
  return std::unique_ptr<OpKernel>(new Kernel(activation, ReadWindowSettings(init.attrs)));
}

REGISTER_OP(conv2d)
({.type = "conv2d",
  .summary = "activation(X [B, C, H, W] convolved with W [F, C, KH, KW] + Bias [F])",
  .inputs = {{"X"}, {"W"}, {.name = "Bias", .optional = true}},
  .outputs = {{"Out"}},
  .attrs = {Required(IntsAttr("stride")), Required(IntsAttr("padding")), StringAttr("activation", "identity")},
  .shape = ConvShape,
  .gradient = GradOpRule({"X", "W", "Bias"}, {"Out"}, {"Out"}, {"X", "W", "Bias"}),
  .cost = ConvCost(1)});
REGISTER_OP(conv2d_grad)
({.type = "conv2d_grad",
  .summary = "gradients of conv2d",
  .inputs = {{"X"}, {"W"}, {.name = "Bias", .optional = true}, {"Out"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true},
              {.name = "W@GRAD", .optional = true},
              {.name = "Bias@GRAD", .optional = true}},
  .attrs = {Required(IntsAttr("stride")), Required(IntsAttr("padding")), StringAttr("activation", "identity")},
  .shape = ConvGradShape,
  .cost = ConvCost(2),
  .apart = "X@GRAD"});

REGISTER_KERNEL(conv2d, MakeConvKernel<ConvKernel>);
REGISTER_KERNEL(conv2d_grad, MakeConvKernel<ConvGradKernel>);

}  // namespace
}  // namespace weir
