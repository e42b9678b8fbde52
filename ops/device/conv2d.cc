// conv2d and its gradient (ops/conv2d.cc): columns of windows in device memory, and products of matrices.
//
// Columns are made for a chunk of examples at a time, as many as 64 MiB hold and at least one. Where an example has few
// windows several stand side by side as a group, so that products are large enough. The gradient of W is a product for
// each group of a lane and the sum of them in order, that of X is gathered by each of its elements: no atomics, and an
// order that follows from the shapes and the examples of lanes alone.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "ops/device/batch_norm_functors.h"
#include "ops/device/column_sums.h"
#include "ops/device/conv2d_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/picture_operands.h"
#include "ops/device/product.h"
#include "ops/windows.h"

namespace weir {
namespace device {
namespace {

// Most floats in each matrix of a chunk.
constexpr int64_t kMostFloats = int64_t{1} << 24;
// Windows in a group, roughly; the products of pictures of 28 x 28 have no more.
constexpr int64_t kGroupWindows = 512;
constexpr std::string_view kOwner = "columns of convolutions";

// Floats of one group in each matrix, and the chunks.
struct Plan {
  Conv conv = {};
  int64_t taps = 0, groups = 0;
  int64_t columns = 0, matrix = 0, products = 0;
  int64_t chunk = 1;
  std::vector<int64_t> out_row_dims;
};

// `lanes`: groups are those of each lane.
absl::StatusOr<Plan> MakePlan(const DeviceTensor& x, const DeviceTensor& w, const WindowSettings& settings,
                              bool lanes) {
  RETURN_IF_ERROR(CheckRank("X", x, 4));
  RETURN_IF_ERROR(CheckRank("W", w, 4));
  RETURN_IF_ERROR(CheckShared("W", w, w.dims()));
  Shape x_dims = x.dims();
  x_dims[0] = x.rows();
  ASSIGN_OR_RETURN(const ConvSizes sizes, MakeConvSizes(x_dims, w.dims(), settings));
  LaneRows examples = RowsOf(x);
  if (!lanes) examples = {.lanes = 1, .begin = {0, x.rows()}};
  int64_t most = 1;
  for (int l = 0; l < examples.lanes; ++l) most = std::max(most, examples.count(l));
  Plan plan;
  Conv& c = plan.conv;
  c = {.channels = sizes.channels,
       .filters = sizes.filters,
       .height = AxisOf(sizes.height),
       .width = AxisOf(sizes.width),
       .groups = {.examples = examples,
                  .groups = {.lanes = examples.lanes},
                  .size = std::clamp<int64_t>(kGroupWindows / sizes.windows(), 1, most)}};
  for (int l = 0; l < examples.lanes; ++l) {
    c.groups.groups.begin[l + 1] = c.groups.groups.begin[l] + (examples.count(l) + c.groups.size - 1) / c.groups.size;
  }
  plan.groups = c.groups.groups.begin[examples.lanes];
  plan.taps = sizes.taps;
  plan.columns = sizes.taps * c.line();
  plan.matrix = sizes.filters * c.line();
  plan.products = sizes.filters * sizes.taps;
  const int64_t largest = std::max({plan.columns, plan.matrix, lanes ? plan.products : 0, int64_t{1}});
  plan.chunk = std::max<int64_t>(1, kMostFloats / largest);
  plan.out_row_dims = {sizes.filters, sizes.height.count, sizes.width.count};
  return plan;
}

// Reserves memory for the matrices of a chunk, one behind the other.
absl::Status ReserveFloats(DeviceKernelContext& ctx, int64_t floats, DeviceArray* array) {
  return array->Reserve(ctx.memory(), static_cast<size_t>(floats) * sizeof(float));
}

class ConvKernel : public OpDeviceKernel {
  enum Input { kX, kW, kBias };
  enum Output { kOut };

 public:
  ConvKernel(PictureActivation activation, WindowSettings settings)
      : activation_(activation), settings_(std::move(settings)), memory_(kOwner) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    const DeviceTensor& w = ctx.input(kW);
    ASSIGN_OR_RETURN(Plan plan, MakePlan(x, w, settings_, /*lanes=*/false));
    Conv& c = plan.conv;
    if (ctx.has_input(kBias)) RETURN_IF_ERROR(CheckShared("Bias", ctx.input(kBias), {c.filters}));
    const float* const bias = ctx.has_input(kBias) ? ctx.input(kBias).data<float>() : nullptr;
    RETURN_IF_ERROR(ctx.Resize(kOut, 4, x.lane_rows(), plan.out_row_dims));
    const bool direct = c.groups.size == 1;
    const int64_t chunk = std::min(plan.chunk, plan.groups);
    RETURN_IF_ERROR(ReserveFloats(ctx, chunk * (plan.columns + (direct ? 0 : plan.matrix)), &memory_));
    float* const cols = memory_.data<float>();
    for (int64_t first = 0; first < plan.groups; first += chunk) {
      c.groups.first = first;
      const int64_t count = std::min(chunk, plan.groups - first), places = count * c.groups.size;
      const int64_t example = first * c.groups.size;
      float* const y = ctx.output(kOut).data<float>() + example * c.filters * c.windows();
      float* const product = direct ? y : cols + chunk * plan.columns;
      RETURN_IF_ERROR(ForEach(ctx.runtime(), places * c.channels * c.windows(),
                              ColumnsAt{.c = c, .x = x.data<float>(), .cols = cols}));
      RETURN_IF_ERROR(Multiply(ctx, {.m = c.filters,
                                     .n = c.line(),
                                     .k = plan.taps,
                                     .a = w.data<float>(),
                                     .b = cols,
                                     .c = product,
                                     .count = count,
                                     .stride_b = plan.columns,
                                     .stride_c = plan.matrix}));
      if (direct && bias == nullptr && activation_ == PictureActivation::kIdentity) continue;
      RETURN_IF_ERROR(ForEach(ctx.runtime(), std::min(places, x.rows() - example) * c.filters * c.windows(),
                              ConvOutAt{.c = c, .f = activation_, .product = product, .bias = bias, .out = y}));
    }
    return absl::OkStatus();
  }

 private:
  const PictureActivation activation_;
  const WindowSettings settings_;
  DeviceArray memory_;
};

class ConvGradKernel : public OpDeviceKernel {
  enum Input { kX, kW, kBias, kOut, kOutGrad };
  enum Output { kXGrad, kWGrad, kBiasGrad };

 public:
  ConvGradKernel(PictureActivation activation, WindowSettings settings)
      : activation_(activation), settings_(std::move(settings)), memory_(kOwner) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    const DeviceTensor& w = ctx.input(kW);
    ASSIGN_OR_RETURN(Plan plan, MakePlan(x, w, settings_, /*lanes=*/true));
    Conv& c = plan.conv;
    RETURN_IF_ERROR(CheckRows("Out", ctx.input(kOut), x, plan.out_row_dims));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", ctx.input(kOutGrad), x, plan.out_row_dims));
    const float* const out = ctx.input(kOut).data<float>();
    const float* const dout = ctx.input(kOutGrad).data<float>();
    if (ctx.has_output(kBiasGrad)) RETURN_IF_ERROR(BiasGradient(ctx, c, out, dout));
    const size_t lanes = static_cast<size_t>(x.lanes());
    float* dx = nullptr;
    float* dw = nullptr;
    if (ctx.has_output(kXGrad)) {
      RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
      dx = ctx.output(kXGrad).data<float>();
    }
    if (ctx.has_output(kWGrad)) {
      RETURN_IF_ERROR(ctx.Resize(kWGrad, 4, std::vector<int64_t>(lanes, c.filters), w.row_dims()));
      dw = ctx.output(kWGrad).data<float>();
    }
    if (dx == nullptr && dw == nullptr) return absl::OkStatus();
    // Out@GRAD itself is the matrix if there is no activation to undo and no example to move.
    const bool direct = c.groups.size == 1 && activation_ == PictureActivation::kIdentity;
    const int64_t chunk = std::min(plan.chunk, std::max<int64_t>(1, plan.groups));
    RETURN_IF_ERROR(ReserveFloats(
        ctx, chunk * (plan.columns + (direct ? 0 : plan.matrix) + (dw == nullptr ? 0 : plan.products)), &memory_));
    float* const cols = memory_.data<float>();
    float* const products = cols + chunk * plan.columns;
    float* const matrices = products + (dw == nullptr ? 0 : chunk * plan.products);
    // Run at least once, so that the gradients of no examples are set to 0.
    for (int64_t first = 0; first == 0 || first < plan.groups; first += chunk) {
      c.groups.first = first;
      const int64_t count = std::min(chunk, plan.groups - first), places = count * c.groups.size;
      const float* dpre = dout + first * plan.matrix;
      if (!direct) {
        dpre = matrices;
        RETURN_IF_ERROR(ForEach(ctx.runtime(), places * c.filters * c.windows(),
                                ConvBackAt{.c = c, .f = activation_, .out = out, .dout = dout, .dpre = matrices}));
      }
      if (dw != nullptr) {
        RETURN_IF_ERROR(ForEach(ctx.runtime(), places * c.channels * c.windows(),
                                ColumnsAt{.c = c, .x = x.data<float>(), .cols = cols}));
        RETURN_IF_ERROR(Multiply(ctx, {.m = c.filters,
                                       .n = plan.taps,
                                       .k = c.line(),
                                       .a = dpre,
                                       .b = cols,
                                       .c = products,
                                       .transpose_b = true,
                                       .count = count,
                                       .stride_a = plan.matrix,
                                       .stride_b = plan.columns,
                                       .stride_c = plan.products}));
        RETURN_IF_ERROR(Reduce(ctx.runtime(), x.lanes() * plan.products,
                               ConvFilterSum{.groups = c.groups.groups,
                                             .first = first,
                                             .count = count,
                                             .size = plan.products,
                                             .products = products,
                                             .dw = dw}));
      }
      if (dx != nullptr) {
        RETURN_IF_ERROR(Multiply(ctx, {.m = plan.taps,
                                       .n = c.line(),
                                       .k = c.filters,
                                       .a = w.data<float>(),
                                       .b = dpre,
                                       .c = cols,
                                       .transpose_a = true,
                                       .count = count,
                                       .stride_b = plan.matrix,
                                       .stride_c = plan.columns}));
        RETURN_IF_ERROR(ForEach(ctx.runtime(), places * c.channels * c.height.size * c.width.size,
                                ConvInputAt{.c = c, .cols = cols, .dx = dx}));
      }
    }
    return absl::OkStatus();
  }

 private:
  // Sums the gradient per example and filter, then per lane.
  absl::Status BiasGradient(DeviceKernelContext& ctx, const Conv& c, const float* out, const float* dout) {
    const LaneRows& examples = c.groups.examples;
    const int64_t rows = examples.begin[examples.lanes];
    RETURN_IF_ERROR(ctx.Resize(kBiasGrad, 1, std::vector<int64_t>(static_cast<size_t>(examples.lanes), c.filters), {}));
    RETURN_IF_ERROR(ReserveFloats(ctx, rows * c.filters, &of_examples_));
    RETURN_IF_ERROR(Reduce(ctx.runtime(), rows * c.filters,
                           NormBackSum{.d = {.examples = examples, .channels = c.filters, .size = c.windows()},
                                       .f = activation_,
                                       .out = out,
                                       .dout = dout,
                                       .sums = of_examples_.data<float>()}));
    return SumColumns(ctx, of_examples_.data<float>(), examples, c.filters, &sums_,
                      ctx.output(kBiasGrad).data<float>());
  }

  const PictureActivation activation_;
  const WindowSettings settings_;
  DeviceArray memory_, of_examples_, sums_;
};

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeConvKernel(const KernelInit& init) {
  ASSIGN_OR_RETURN(const PictureActivation activation, ReadActivation(init.attrs));
  return std::unique_ptr<OpDeviceKernel>(new Kernel(activation, ReadWindowSettings(init.attrs)));
}

REGISTER_DEVICE_KERNEL(conv2d, MakeConvKernel<ConvKernel>);
REGISTER_DEVICE_KERNEL(conv2d_grad, MakeConvKernel<ConvGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
