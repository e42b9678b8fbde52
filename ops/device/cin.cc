// cin and its gradient (ops/cin.cc). The products x_i o x0_j are made for as many examples at a time as 64 MiB hold,
// and for at least one; for the gradient of W, which is a sum over the examples of a lane, for as many vectors of X.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/cin_functors.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/product.h"

namespace weir {
namespace device {
namespace {

constexpr int64_t kMostFloats = int64_t{1} << 24;

struct Sizes {
  int64_t batch = 0, vectors = 0, fields = 0, width = 0, outputs = 0, summed = 0;

  int64_t terms() const { return vectors * fields; }
  int64_t full() const { return outputs - summed; }
  // Rows of an example, and examples of a chunk.
  int64_t rows(bool dots) const { return dots ? 1 : width; }
  int64_t chunk(bool dots) const { return std::max<int64_t>(1, kMostFloats / (rows(dots) * terms())); }
  CinColumns columns(bool dots) const {
    return {
        .outputs = outputs, .first = dots ? 0 : summed, .count = dots ? summed : full(), .width = width, .dots = dots};
  }

  static absl::StatusOr<Sizes> Of(const DeviceTensor& x, const DeviceTensor& x0, const DeviceTensor& w,
                                  int64_t summed) {
    RETURN_IF_ERROR(CheckRank("X", x, 3));
    RETURN_IF_ERROR(CheckRank("X0", x0, 3));
    RETURN_IF_ERROR(CheckRank("W", w, 2));
    Sizes n = {x.rows(), x.row_dims()[0], x0.row_dims()[0], x.row_dims()[1], w.width(), summed};
    RETURN_IF_ERROR(CheckRows("X0", x0, x, {n.fields, n.width}));
    RETURN_IF_ERROR(CheckShared("W", w, {n.terms(), n.outputs}));
    if (n.terms() > 0 && n.width > 0 && n.outputs > 0 && summed >= 0 && summed <= n.outputs) return n;
    return absl::InvalidArgumentError(absl::StrCat("X ", ShapeString(x.dims()), ", X0 ", ShapeString(x0.dims()),
                                                   " and W ", ShapeString(w.dims()), " give no ", summed, " sums"));
  }
};

absl::Status ReserveFloats(DeviceKernelContext& ctx, int64_t floats, DeviceArray* array) {
  return array->Reserve(ctx.memory(), static_cast<size_t>(floats) * sizeof(float));
}

CinVectors VectorsOf(const Sizes& n, const DeviceTensor& x, const DeviceTensor& x0) {
  return {.vectors = n.vectors, .fields = n.fields, .width = n.width, .x = x.data<float>(), .x0 = x0.data<float>()};
}

class CinKernel : public OpDeviceKernel {
  enum Input { kX, kX0, kW };
  enum Output { kSum, kOut };

 public:
  explicit CinKernel(const KernelInit& init) : summed_(init.attrs.Int("summed")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const Sizes n, Sizes::Of(x, ctx.input(kX0), ctx.input(kW), summed_));
    if (ctx.has_output(kSum)) {
      RETURN_IF_ERROR(ctx.Resize(kSum, 2, x.lane_rows(), {n.summed}));
      RETURN_IF_ERROR(Make(ctx, n, /*dots=*/true, ctx.output(kSum).data<float>()));
    }
    if (!ctx.has_output(kOut)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.Resize(kOut, 3, x.lane_rows(), {n.full(), n.width}));
    return Make(ctx, n, /*dots=*/false, ctx.output(kOut).data<float>());
  }

 private:
  absl::Status Make(DeviceKernelContext& ctx, const Sizes& n, bool dots, float* out) {
    const CinVectors v = VectorsOf(n, ctx.input(kX), ctx.input(kX0));
    const int64_t chunk = std::min(n.chunk(dots), n.batch);
    RETURN_IF_ERROR(ReserveFloats(ctx, chunk * n.rows(dots) * (n.terms() + n.outputs), &memory_));
    for (int64_t b = 0; b < n.batch; b += chunk) {
      const int64_t rows = std::min(chunk, n.batch - b) * n.rows(dots), first = b * n.rows(dots);
      float *const terms = memory_.data<float>(), *const product = terms + rows * n.terms();
      RETURN_IF_ERROR(ForEach(
          ctx.runtime(), rows * n.terms(),
          CinTermsAt{.v = v, .first_row = first, .first_vector = 0, .count = n.vectors, .dots = dots, .terms = terms}));
      RETURN_IF_ERROR(Multiply(ctx, {.m = rows,
                                     .n = n.outputs,
                                     .k = n.terms(),
                                     .a = terms,
                                     .b = ctx.input(kW).data<float>(),
                                     .c = product,
                                     .b_is_weight = true}));
      const CinColumns columns = n.columns(dots);
      RETURN_IF_ERROR(ForEach(ctx.runtime(), rows * columns.count,
                              CinResultAt{.c = columns, .first_row = first, .matrix = product, .values = out}));
    }
    return absl::OkStatus();
  }

  const int64_t summed_;
  DeviceArray memory_;
};

class CinGradKernel : public OpDeviceKernel {
  enum Input { kX, kX0, kW, kSumGrad, kOutGrad };
  enum Output { kXGrad, kX0Grad, kWGrad };

 public:
  explicit CinGradKernel(const KernelInit& init) : summed_(init.attrs.Int("summed")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &x = ctx.input(kX), &x0 = ctx.input(kX0), &w = ctx.input(kW);
    ASSIGN_OR_RETURN(const Sizes n, Sizes::Of(x, x0, w, summed_));
    if (ctx.has_output(kXGrad)) RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
    if (ctx.has_output(kX0Grad)) RETURN_IF_ERROR(ctx.ResizeLike(kX0Grad, x0));
    if (ctx.has_output(kWGrad)) {
      const std::vector<int64_t> each(static_cast<size_t>(x.lanes()), n.terms());
      RETURN_IF_ERROR(ctx.Resize(kWGrad, 2, each, {n.outputs}));
    }
    bool add = false;
    if (ctx.has_input(kOutGrad)) {
      RETURN_IF_ERROR(CheckRows("Out@GRAD", ctx.input(kOutGrad), x, {n.full(), n.width}));
      RETURN_IF_ERROR(Part(ctx, n, /*dots=*/false, ctx.input(kOutGrad).data<float>(), add));
      add = true;
    }
    if (ctx.has_input(kSumGrad)) {
      RETURN_IF_ERROR(CheckRows("Sum@GRAD", ctx.input(kSumGrad), x, {n.summed}));
      RETURN_IF_ERROR(Part(ctx, n, /*dots=*/true, ctx.input(kSumGrad).data<float>(), add));
      add = true;
    }
    if (add) return absl::OkStatus();
    for (const Output slot : {kXGrad, kX0Grad, kWGrad}) {
      if (!ctx.has_output(slot)) continue;
      RETURN_IF_ERROR(ForEach(ctx.runtime(), ctx.output(slot).size(),
                              FillAt{.value = 0.0f, .out = ctx.output(slot).data<float>()}));
    }
    return absl::OkStatus();
  }

 private:
  // Stores, or adds, what one output gives to all gradients.
  absl::Status Part(DeviceKernelContext& ctx, const Sizes& n, bool dots, const float* dout, bool add) {
    const int64_t rows = n.batch * n.rows(dots);
    RETURN_IF_ERROR(ReserveFloats(ctx, rows * n.outputs, &matrix_));
    RETURN_IF_ERROR(ForEach(ctx.runtime(), rows * n.outputs,
                            CinMatrixAt{.c = n.columns(dots), .values = dout, .matrix = matrix_.data<float>()}));
    if (ctx.has_output(kWGrad)) RETURN_IF_ERROR(OfWeights(ctx, n, dots, add));
    if (!ctx.has_output(kXGrad) && !ctx.has_output(kX0Grad)) return absl::OkStatus();
    return OfVectors(ctx, n, dots, add);
  }

  absl::Status OfVectors(DeviceKernelContext& ctx, const Sizes& n, bool dots, bool add) {
    const CinVectors v = VectorsOf(n, ctx.input(kX), ctx.input(kX0));
    const int64_t chunk = std::min(n.chunk(dots), n.batch);
    RETURN_IF_ERROR(ReserveFloats(ctx, chunk * n.rows(dots) * n.terms(), &terms_));
    for (int64_t b = 0; b < n.batch; b += chunk) {
      const int64_t examples = std::min(chunk, n.batch - b);
      RETURN_IF_ERROR(Multiply(ctx, {.m = examples * n.rows(dots),
                                     .n = n.terms(),
                                     .k = n.outputs,
                                     .a = matrix_.data<float>() + b * n.rows(dots) * n.outputs,
                                     .b = ctx.input(kW).data<float>(),
                                     .c = terms_.data<float>(),
                                     .transpose_b = true,
                                     .b_is_weight = true}));
      for (const bool of_x0 : {false, true}) {
        const int slot = of_x0 ? kX0Grad : kXGrad;
        if (!ctx.has_output(slot)) continue;
        RETURN_IF_ERROR(ForEach(ctx.runtime(), examples * (of_x0 ? n.fields : n.vectors) * n.width,
                                CinVectorGradAt{.v = v,
                                                .first = b,
                                                .of_x0 = of_x0,
                                                .dots = dots,
                                                .add = add,
                                                .dz = terms_.data<float>(),
                                                .dx = ctx.output(slot).data<float>()}));
      }
    }
    return absl::OkStatus();
  }

  absl::Status OfWeights(DeviceKernelContext& ctx, const Sizes& n, bool dots, bool add) {
    const CinVectors v = VectorsOf(n, ctx.input(kX), ctx.input(kX0));
    const std::vector<int64_t>& lanes = ctx.input(kX).lane_rows();
    const int64_t most = *std::max_element(lanes.begin(), lanes.end()) * n.rows(dots);
    const int64_t vectors = std::clamp<int64_t>(kMostFloats / std::max<int64_t>(1, most * n.fields), 1, n.vectors);
    RETURN_IF_ERROR(ReserveFloats(ctx, (most + (add ? n.outputs : 0)) * vectors * n.fields, &terms_));
    float *const terms = terms_.data<float>(), *const product = terms + most * vectors * n.fields;
    int64_t row = 0;
    for (size_t lane = 0; lane < lanes.size(); row += lanes[lane++] * n.rows(dots)) {
      const int64_t rows = lanes[lane] * n.rows(dots);
      float* const dw = ctx.output(kWGrad).data<float>() + static_cast<int64_t>(lane) * n.terms() * n.outputs;
      for (int64_t i = 0; i < n.vectors; i += vectors) {
        const int64_t count = std::min(vectors, n.vectors - i), size = count * n.fields * n.outputs;
        float* const to = dw + i * n.fields * n.outputs;
        RETURN_IF_ERROR(ForEach(
            ctx.runtime(), rows * count * n.fields,
            CinTermsAt{.v = v, .first_row = row, .first_vector = i, .count = count, .dots = dots, .terms = terms}));
        RETURN_IF_ERROR(Multiply(ctx, {.m = count * n.fields,
                                       .n = n.outputs,
                                       .k = rows,
                                       .a = terms,
                                       .b = matrix_.data<float>() + row * n.outputs,
                                       .c = add ? product : to,
                                       .transpose_a = true}));
        if (add) RETURN_IF_ERROR(ForEach(ctx.runtime(), size, SumAt{.count = 2, .x = {to, product}, .out = to}));
      }
    }
    return absl::OkStatus();
  }

  const int64_t summed_;
  DeviceArray matrix_, terms_;
};

REGISTER_DEVICE_KERNEL(cin, MakeDeviceKernel<CinKernel>);
REGISTER_DEVICE_KERNEL(cin_grad, MakeDeviceKernel<CinGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
