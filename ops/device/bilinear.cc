// bilinear and its gradient (ops/bilinear.cc). One matrix for all pairs multiplies X as it stands, with a product of
// the last vector that is not used; several multiply copies of the vectors, one after the other, as a strided batch.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/bilinear_functors.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/product.h"

namespace weir {
namespace device {
namespace {

// Products of a run.
struct Sizes {
  BilinearProducts p = {};
  bool one_matrix = false;

  // Floats of all products.
  int64_t floats() const { return one_matrix ? p.batch * p.row : p.count() * p.step; }

  static absl::StatusOr<Sizes> Of(const DeviceTensor& x, const DeviceTensor& w) {
    RETURN_IF_ERROR(CheckRank("X", x, 3));
    RETURN_IF_ERROR(CheckThere("W", w));
    Sizes s;
    s.one_matrix = w.rank() == 2;
    const int64_t vectors = x.row_dims()[0], width = x.row_dims()[1];
    const int64_t matrices = s.one_matrix ? 1 : w.dims(0)[0];
    s.p = {.batch = x.rows(), .vectors = vectors, .width = width};
    s.p.of_pairs = !s.one_matrix && matrices != vectors - 1;
    s.p.row = s.one_matrix ? vectors * width : width;
    s.p.step = s.one_matrix ? width : x.rows() * width;
    const Shape want = s.one_matrix ? Shape{width, width} : Shape{matrices, width, width};
    RETURN_IF_ERROR(CheckShared("W", w, want));
    if (vectors >= 2 && width > 0 && (s.one_matrix || matrices == s.p.count())) return s;
    return absl::InvalidArgumentError(
        absl::StrCat("W ", ShapeString(w.dims()), " is no matrix for pairs of X ", ShapeString(x.dims())));
  }
};

class Bilinear : public OpDeviceKernel {
 protected:
  // Sets left() to the vectors that products read, and u to the products of them with W.
  absl::Status MakeProducts(DeviceKernelContext& ctx, const Sizes& s, const DeviceTensor& x, const float* w, float* u) {
    left_ = x.data<float>();
    if (!s.one_matrix) {
      RETURN_IF_ERROR(copies_.Reserve(ctx.memory(), static_cast<size_t>(s.floats()) * sizeof(float)));
      RETURN_IF_ERROR(ForEach(ctx.runtime(), s.floats(),
                              BilinearLeftAt{.p = s.p, .x = x.data<float>(), .to = copies_.data<float>()}));
      left_ = copies_.data<float>();
    }
    return Apply(ctx, s, left_, w, /*transpose=*/false, u);
  }
  // to = from * W, or its transposed; both are laid out like the products.
  static absl::Status Apply(DeviceKernelContext& ctx, const Sizes& s, const float* from, const float* w, bool transpose,
                            float* to) {
    const int64_t width = s.p.width;
    if (s.one_matrix) {
      return Multiply(ctx, {.m = s.p.batch * s.p.vectors,
                            .n = width,
                            .k = width,
                            .a = from,
                            .b = w,
                            .c = to,
                            .transpose_b = transpose,
                            .b_is_weight = true});
    }
    return Multiply(ctx, {.m = s.p.batch,
                          .n = width,
                          .k = width,
                          .a = from,
                          .b = w,
                          .c = to,
                          .transpose_b = transpose,
                          .count = s.p.count(),
                          .stride_a = s.p.step,
                          .stride_b = width * width,
                          .stride_c = s.p.step,
                          .b_is_weight = true});
  }
  const float* left() const { return left_; }

 private:
  const float* left_ = nullptr;
  DeviceArray copies_;
};

class BilinearKernel : public Bilinear {
  enum Input { kX, kW };

 public:
  explicit BilinearKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const Sizes s, Sizes::Of(x, ctx.input(kW)));
    RETURN_IF_ERROR(ctx.Resize(0, 3, x.lane_rows(), {s.p.pairs(), s.p.width}));
    RETURN_IF_ERROR(products_.Reserve(ctx.memory(), static_cast<size_t>(s.floats()) * sizeof(float)));
    RETURN_IF_ERROR(MakeProducts(ctx, s, x, ctx.input(kW).data<float>(), products_.data<float>()));
    return ForEach(
        ctx.runtime(), s.p.batch * s.p.pairs() * s.p.width,
        BilinearAt{.p = s.p, .u = products_.data<float>(), .x = x.data<float>(), .out = ctx.output(0).data<float>()});
  }

 private:
  DeviceArray products_;
};

class BilinearGradKernel : public Bilinear {
  enum Input { kX, kW, kOutGrad };
  enum Output { kXGrad, kWGrad };

 public:
  explicit BilinearGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor &x = ctx.input(kX), &w = ctx.input(kW), &dout = ctx.input(kOutGrad);
    ASSIGN_OR_RETURN(const Sizes s, Sizes::Of(x, w));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", dout, x, {s.p.pairs(), s.p.width}));
    const size_t bytes = static_cast<size_t>(s.floats()) * sizeof(float);
    RETURN_IF_ERROR(memory_.Reserve(ctx.memory(), 3 * bytes));
    float* const u = memory_.data<float>();
    float *const du = u + s.floats(), *const back = du + s.floats();
    RETURN_IF_ERROR(MakeProducts(ctx, s, x, w.data<float>(), u));
    // The product of the last vector, which is not used, has the gradient 0.
    if (s.one_matrix) RETURN_IF_ERROR(ForEach(ctx.runtime(), s.floats(), FillAt{.value = 0.0f, .out = du}));
    RETURN_IF_ERROR(
        ForEach(ctx.runtime(), s.p.batch * s.p.count() * s.p.width,
                BilinearProductGradAt{.p = s.p, .dout = dout.data<float>(), .x = x.data<float>(), .du = du}));
    if (ctx.has_output(kWGrad)) RETURN_IF_ERROR(OfMatrices(ctx, s, x, w, du));
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
    RETURN_IF_ERROR(Apply(ctx, s, du, w.data<float>(), /*transpose=*/true, back));
    return ForEach(
        ctx.runtime(), x.size(),
        BilinearVectorGradAt{
            .p = s.p, .dout = dout.data<float>(), .u = u, .back = back, .dx = ctx.output(kXGrad).data<float>()});
  }

 private:
  absl::Status OfMatrices(DeviceKernelContext& ctx, const Sizes& s, const DeviceTensor& x, const DeviceTensor& w,
                          const float* du) {
    const int64_t width = s.p.width, lanes = x.lanes();
    const std::vector<int64_t> each(static_cast<size_t>(lanes), w.dims(0)[0]);
    const Shape row_dims(w.row_dims().begin(), w.row_dims().end());
    RETURN_IF_ERROR(ctx.Resize(kWGrad, w.rank(), each, row_dims));
    float* const dw = ctx.output(kWGrad).data<float>();
    if (s.one_matrix) {
      std::vector<int64_t> rows = x.lane_rows();
      for (int64_t& r : rows) r *= s.p.vectors;
      return MultiplyColumns(ctx, rows, left(), du, width, width, dw).status();
    }
    int64_t row = 0;
    for (size_t lane = 0; lane < x.lane_rows().size(); row += x.lane_rows()[lane++]) {
      RETURN_IF_ERROR(Multiply(ctx, {.m = width,
                                     .n = width,
                                     .k = x.lane_rows()[lane],
                                     .a = left() + row * width,
                                     .b = du + row * width,
                                     .c = dw + static_cast<int64_t>(lane) * s.p.count() * width * width,
                                     .transpose_a = true,
                                     .count = s.p.count(),
                                     .stride_a = s.p.step,
                                     .stride_b = s.p.step,
                                     .stride_c = width * width}));
    }
    return absl::OkStatus();
  }

  DeviceArray memory_;
};

REGISTER_DEVICE_KERNEL(bilinear, MakeDeviceKernel<BilinearKernel>);
REGISTER_DEVICE_KERNEL(bilinear_grad, MakeDeviceKernel<BilinearGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
