// dot_interaction and its gradient (ops/dot_interaction.cc).
//
// The products of an example's vectors are one product of matrices for each example, all of them a strided batch: X
// X^T, of which the pairs are taken, and G X for the gradients, G being the symmetric matrix of the gradients of the
// pairs. Without self_interaction G has zeros on its diagonal, and the gradient of a vector that is not finite is NaN.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/dot_interaction_functors.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/product.h"

namespace weir {
namespace device {
namespace {

// Vectors of an input, 1 when it is [B, W].
int64_t VectorsOf(const DeviceTensor& x) { return x.rank() == 3 ? x.row_dims()[0] : 1; }

// The inputs X* together.
struct Vectors {
  int64_t rows = 0, count = 0, width = 0;

  static absl::StatusOr<Vectors> Of(const DeviceKernelContext& ctx) {
    Vectors v;
    for (int i = 0; i < ctx.input_count(0); ++i) {
      const DeviceTensor& x = ctx.input(0, i);
      const std::string name = absl::StrCat("X[", i, "]");
      RETURN_IF_ERROR(CheckThere(name, x));
      if (x.rank() != 3) RETURN_IF_ERROR(CheckRank(name, x, 2));
      if (i == 0) {
        v.rows = x.rows();
        v.width = x.row_dims().back();
      }
      Shape want = {v.width};
      if (x.rank() == 3) want = {x.row_dims()[0], v.width};
      const DeviceTensor& first = ctx.input(0, 0);
      if (x.lane_rows() != first.lane_rows() || x.row_dims() != absl::MakeConstSpan(want)) {
        return absl::InvalidArgumentError(absl::StrCat(name, " is ", ShapeString(x.dims()), ", X[0] ",
                                                       ShapeString(first.dims()),
                                                       "; inputs are [B, S, W] or [B, W] of one width"));
      }
      v.count += VectorsOf(x);
    }
    return v;
  }

  // [rows, count, width], in `packed` where there are several inputs.
  absl::StatusOr<const float*> Packed(DeviceKernelContext& ctx, DeviceArray* packed) const {
    if (ctx.input_count(0) == 1) return ctx.input(0).data<float>();
    RETURN_IF_ERROR(packed->Reserve(ctx.memory(), static_cast<size_t>(rows * count * width) * sizeof(float)));
    int64_t first = 0;
    for (int i = 0; i < ctx.input_count(0); ++i) {
      RETURN_IF_ERROR(Copy(ctx, ctx.input(0, i), first, packed->data<float>(), /*into_whole=*/true));
      first += VectorsOf(ctx.input(0, i));
    }
    return packed->data<float>();
  }

  // Copies between all vectors and those of one input, of which `first` is the first.
  absl::Status Copy(DeviceKernelContext& ctx, const DeviceTensor& x, int64_t first, float* whole,
                    bool into_whole) const {
    return ForEach(ctx.runtime(), x.size(),
                   PieceAt{.whole = whole,
                           .piece = x.data<float>(),
                           .stride = count * width,
                           .first = first * width,
                           .length = VectorsOf(x) * width,
                           .into_whole = into_whole});
  }
};

class DotInteractionKernel : public OpDeviceKernel {
 public:
  explicit DotInteractionKernel(const KernelInit& init) : self_(init.attrs.Bool("self_interaction")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    ASSIGN_OR_RETURN(const Vectors v, Vectors::Of(ctx));
    const int64_t pairs = PairCount(v.count, self_);
    RETURN_IF_ERROR(ctx.Resize(0, 2, ctx.input(0).lane_rows(), {pairs}));
    if (ctx.output(0).size() == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const float* const x, v.Packed(ctx, &packed_));
    RETURN_IF_ERROR(products_.Reserve(ctx.memory(), static_cast<size_t>(v.rows * v.count * v.count) * sizeof(float)));
    RETURN_IF_ERROR(Multiply(ctx, {.m = v.count,
                                   .n = v.count,
                                   .k = v.width,
                                   .a = x,
                                   .b = x,
                                   .c = products_.data<float>(),
                                   .transpose_b = true,
                                   .count = v.rows,
                                   .stride_a = v.count * v.width,
                                   .stride_b = v.count * v.width,
                                   .stride_c = v.count * v.count}));
    return ForEach(ctx.runtime(), v.rows * pairs,
                   PairsAt{.products = products_.data<float>(),
                           .vectors = v.count,
                           .pairs = pairs,
                           .self = self_,
                           .out = ctx.output(0).data<float>()});
  }

 private:
  const bool self_;
  DeviceArray packed_, products_;
};

// Inputs X*, Out@GRAD; outputs X@GRAD* of the inputs in `wanted`.
class DotInteractionGradKernel : public OpDeviceKernel {
 public:
  explicit DotInteractionGradKernel(const KernelInit& init)
      : self_(init.attrs.Bool("self_interaction")), wanted_(init.attrs.Ints("wanted")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    ASSIGN_OR_RETURN(const Vectors v, Vectors::Of(ctx));
    const int64_t pairs = PairCount(v.count, self_);
    const DeviceTensor& dout = ctx.input(1);
    RETURN_IF_ERROR(CheckRows("Out@GRAD", dout, ctx.input(0), {pairs}));
    for (size_t k = 0; k < wanted_.size(); ++k) {
      RETURN_IF_ERROR(ctx.ResizeLike(0, ctx.input(0, static_cast<int>(wanted_[k])), static_cast<int>(k)));
    }
    if (v.rows == 0 || v.count == 0 || v.width == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const float* const x, v.Packed(ctx, &packed_));
    const bool whole = ctx.input_count(0) == 1 && wanted_.size() == 1;
    RETURN_IF_ERROR(matrices_.Reserve(ctx.memory(), static_cast<size_t>(v.rows * v.count * v.count) * sizeof(float)));
    if (!whole) {
      RETURN_IF_ERROR(dx_.Reserve(ctx.memory(), static_cast<size_t>(v.rows * v.count * v.width) * sizeof(float)));
    }
    float* const dx = whole ? ctx.output(0).data<float>() : dx_.data<float>();
    RETURN_IF_ERROR(ForEach(ctx.runtime(), v.rows * v.count * v.count,
                            PairGradientsAt{.dout = dout.data<float>(),
                                            .vectors = v.count,
                                            .pairs = pairs,
                                            .self = self_,
                                            .matrices = matrices_.data<float>()}));
    RETURN_IF_ERROR(Multiply(ctx, {.m = v.count,
                                   .n = v.width,
                                   .k = v.count,
                                   .a = matrices_.data<float>(),
                                   .b = x,
                                   .c = dx,
                                   .count = v.rows,
                                   .stride_a = v.count * v.count,
                                   .stride_b = v.count * v.width,
                                   .stride_c = v.count * v.width}));
    for (size_t k = 0; !whole && k < wanted_.size(); ++k) {
      int64_t first = 0;
      for (int i = 0; i < static_cast<int>(wanted_[k]); ++i) first += VectorsOf(ctx.input(0, i));
      RETURN_IF_ERROR(v.Copy(ctx, ctx.output(0, static_cast<int>(k)), first, dx, /*into_whole=*/false));
    }
    return absl::OkStatus();
  }

 private:
  const bool self_;
  const std::vector<int64_t> wanted_;
  DeviceArray packed_, matrices_, dx_;
};

REGISTER_DEVICE_KERNEL(dot_interaction, MakeDeviceKernel<DotInteractionKernel>);
REGISTER_DEVICE_KERNEL(dot_interaction_grad, MakeDeviceKernel<DotInteractionGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
