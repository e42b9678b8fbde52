// fc and mul with their gradients (ops/fc.cc, ops/mul.cc). Gradients of W and Bias are those of each lane; Bias's comes
// with the product that makes W's where the library can (ops/device/product.h). The gradient of the activation is a
// kernel of its own: cuBLASLt's (DRELU_BGRAD) belongs to the product that makes Out@GRAD, in the operator behind this
// one, and would ask forward for a mask of bits beside Out.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/column_sums.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/product.h"

namespace weir {
namespace device {
namespace {

// Checks that X has rows of k values, and that W is one [k, n] for all lanes.
absl::Status CheckProduct(const DeviceTensor& x, std::string_view slot, const DeviceTensor& w) {
  RETURN_IF_ERROR(CheckThere("X", x));
  RETURN_IF_ERROR(CheckRank(slot, w, 2));
  if (w.lanes() == 1 && x.rank() >= 2 && x.width() == w.rows(0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("X ", ShapeString(x.dims()), " cannot be multiplied by ",
                                                 absl::string_view(slot.data(), slot.size()), " ",
                                                 ShapeString(w.dims())));
}

// X [.., k..] with `row_dims` dims of rows, for W [k, n].
struct FcRows {
  std::vector<int64_t> each;  // of each lane
  LaneRows lanes;
  int64_t all = 0;
  Shape out;  // dims of an example of Out

  static absl::StatusOr<FcRows> Of(const DeviceTensor& x, const DeviceTensor& w, int64_t row_dims) {
    RETURN_IF_ERROR(CheckThere("X", x));
    RETURN_IF_ERROR(CheckRank("W", w, 2));
    FcRows r = {.lanes = RowsOf(x)};
    int64_t of_example = 1;
    for (int64_t d = 1; d < row_dims && d < x.rank(); ++d) {
      r.out.push_back(x.row_dims()[static_cast<size_t>(d - 1)]);
      of_example *= r.out.back();
    }
    r.out.push_back(w.width());
    if (w.lanes() != 1 || row_dims < 1 || row_dims >= x.rank() || x.width() != of_example * w.rows(0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("X ", ShapeString(x.dims()), " cannot be multiplied by W ", ShapeString(w.dims())));
    }
    for (const int64_t rows : x.lane_rows()) r.each.push_back(rows * of_example);
    for (int l = 1; l <= r.lanes.lanes; ++l) r.lanes.begin[l] *= of_example;
    r.all = x.rows() * of_example;
    return r;
  }
};

Activation ActivationOf(const std::string& name) {
  return name == "relu"      ? Activation::kRelu
         : name == "sigmoid" ? Activation::kSigmoid
         : name == "tanh"    ? Activation::kTanh
                             : Activation::kIdentity;
}

class FcKernel : public OpDeviceKernel {
  enum Input { kX, kW, kBias };
  enum Output { kOut };

 public:
  explicit FcKernel(const KernelInit& init)
      : activation_(ActivationOf(init.attrs.String("activation"))), row_dims_(init.attrs.Int("row_dims")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    const DeviceTensor& w = ctx.input(kW);
    ASSIGN_OR_RETURN(const FcRows r, FcRows::Of(x, w, row_dims_));
    const int64_t n = w.width();
    if (ctx.has_input(kBias)) RETURN_IF_ERROR(CheckShared("Bias", ctx.input(kBias), {n}));
    RETURN_IF_ERROR(ctx.Resize(kOut, 1 + static_cast<int>(r.out.size()), x.lane_rows(), r.out));
    return MultiplyRows(ctx, r.each, x.data<float>(), w.data<float>(), /*transpose_w=*/false, w.rows(0), n,
                        ctx.output(kOut).data<float>(), ctx.has_input(kBias) ? ctx.input(kBias).data<float>() : nullptr,
                        activation_);
  }

 private:
  const Activation activation_;
  const int64_t row_dims_;
};

class FcGradKernel : public OpDeviceKernel {
  enum Input { kX, kW, kBias, kOut, kOutGrad };
  enum Output { kXGrad, kWGrad, kBiasGrad };

 public:
  explicit FcGradKernel(const KernelInit& init)
      : activation_(ActivationOf(init.attrs.String("activation"))), row_dims_(init.attrs.Int("row_dims")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    const DeviceTensor& w = ctx.input(kW);
    ASSIGN_OR_RETURN(const FcRows r, FcRows::Of(x, w, row_dims_));
    const int64_t k = w.rows(0), n = w.width();
    const DeviceTensor& out = ctx.input(kOut);
    const DeviceTensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckRows("Out", out, x, r.out));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", dout, x, r.out));
    const float* dpre = dout.data<float>();
    if (activation_ != Activation::kIdentity) {
      RETURN_IF_ERROR(dpre_.Reserve(ctx.memory(), static_cast<size_t>(r.all * n) * sizeof(float)));
      RETURN_IF_ERROR(Back(ctx, r.all * n, out.data<float>(), dpre));
      dpre = dpre_.data<float>();
    }
    const std::vector<int64_t> each_k(static_cast<size_t>(x.lanes()), k), each_n(static_cast<size_t>(x.lanes()), n);
    float* dbias = nullptr;
    if (ctx.has_output(kBiasGrad)) {
      RETURN_IF_ERROR(ctx.Resize(kBiasGrad, 1, each_n, {}));
      dbias = ctx.output(kBiasGrad).data<float>();
    }
    if (ctx.has_output(kWGrad)) {
      RETURN_IF_ERROR(ctx.Resize(kWGrad, 2, each_k, {n}));
      ASSIGN_OR_RETURN(const bool summed, MultiplyColumns(ctx, r.each, x.data<float>(), dpre, k, n,
                                                          ctx.output(kWGrad).data<float>(), dbias));
      if (summed) dbias = nullptr;
    }
    if (dbias != nullptr) RETURN_IF_ERROR(SumColumns(ctx, dpre, r.lanes, n, &sums_, dbias));
    if (ctx.has_output(kXGrad)) {
      RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
      RETURN_IF_ERROR(MultiplyRows(ctx, r.each, dpre, w.data<float>(), /*transpose_w=*/true, n, k,
                                   ctx.output(kXGrad).data<float>()));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Back(DeviceKernelContext& ctx, int64_t count, const float* out, const float* dout) {
    float* const dpre = dpre_.data<float>();
    if (activation_ == Activation::kRelu)
      return ForEach(ctx.runtime(), count, UnaryGradAt<ReluFn>{.saved = out, .dy = dout, .dx = dpre});
    if (activation_ == Activation::kSigmoid)
      return ForEach(ctx.runtime(), count, UnaryGradAt<SigmoidFn>{.saved = out, .dy = dout, .dx = dpre});
    return ForEach(ctx.runtime(), count, UnaryGradAt<TanhFn>{.saved = out, .dy = dout, .dx = dpre});
  }

  const Activation activation_;
  const int64_t row_dims_;
  DeviceArray dpre_, sums_;
};

class MulKernel : public OpDeviceKernel {
 public:
  explicit MulKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    const DeviceTensor& y = ctx.input(1);
    RETURN_IF_ERROR(CheckProduct(x, "Y", y));
    RETURN_IF_ERROR(ctx.Resize(0, 2, x.lane_rows(), {y.width()}));
    return MultiplyRows(ctx, x.lane_rows(), x.data<float>(), y.data<float>(), false, y.rows(0), y.width(),
                        ctx.output(0).data<float>());
  }
};

class MulGradKernel : public OpDeviceKernel {
  enum Input { kX, kY, kOutGrad };
  enum Output { kXGrad, kYGrad };

 public:
  explicit MulGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    const DeviceTensor& y = ctx.input(kY);
    RETURN_IF_ERROR(CheckProduct(x, "Y", y));
    const int64_t k = y.rows(0), n = y.width();
    RETURN_IF_ERROR(CheckRows("Out@GRAD", ctx.input(kOutGrad), x, {n}));
    const float* const dout = ctx.input(kOutGrad).data<float>();
    if (ctx.has_output(kYGrad)) {
      RETURN_IF_ERROR(ctx.Resize(kYGrad, 2, std::vector<int64_t>(static_cast<size_t>(x.lanes()), k), {n}));
      RETURN_IF_ERROR(
          MultiplyColumns(ctx, x.lane_rows(), x.data<float>(), dout, k, n, ctx.output(kYGrad).data<float>()).status());
    }
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
    return MultiplyRows(ctx, x.lane_rows(), dout, y.data<float>(), true, n, k, ctx.output(kXGrad).data<float>());
  }
};

REGISTER_DEVICE_KERNEL(fc, MakeDeviceKernel<FcKernel>);
REGISTER_DEVICE_KERNEL(fc_grad, MakeDeviceKernel<FcGradKernel>);
REGISTER_DEVICE_KERNEL(mul, MakeDeviceKernel<MulKernel>);
REGISTER_DEVICE_KERNEL(mul_grad, MakeDeviceKernel<MulGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
