// elementwise_add, _sub, _mul, _div and their gradients (ops/elementwise.cc).
//
// Where Y has the batch, or stands still along it, the rows of all lanes are one array; otherwise lanes are taken one
// by one. The gradient of a Y that all lanes share is that of each lane.
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/broadcast.h"
#include "ops/device/column_sums.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {
namespace {

// Maps the elements of Y to those of X.
struct Maps {
  bool alike = false;
  IndexMap y_of_x, kept, repeated;
};

absl::StatusOr<Maps> MakeMaps(absl::Span<const int64_t> x, absl::Span<const int64_t> y) {
  // Join neighbouring dims that are both broadcast or both not.
  std::vector<int64_t> size;
  std::vector<bool> moves;
  for (size_t d = 0; d < x.size(); ++d) {
    if (x[d] == 1) continue;
    const bool move = y[d] == x[d];
    if (!size.empty() && moves.back() == move) {
      size.back() *= x[d];
    } else {
      size.push_back(x[d]);
      moves.push_back(move);
    }
  }
  if (size.size() > kMostDims)
    return absl::InvalidArgumentError(absl::StrCat("X has dims ", ShapeString(x), ", too many to broadcast over"));
  Maps maps;
  maps.alike = size.empty() || (size.size() == 1 && moves[0]);
  int64_t x_stride = 1, y_stride = 1;
  std::vector<int64_t> x_strides(size.size()), y_strides(size.size());
  for (size_t d = size.size(); d-- > 0;) {
    x_strides[d] = x_stride;
    y_strides[d] = moves[d] ? y_stride : 0;
    x_stride *= size[d];
    if (moves[d]) y_stride *= size[d];
  }
  const auto add = [](IndexMap* map, int64_t n, int64_t stride) {
    map->size[map->dims] = n;
    map->stride[map->dims++] = stride;
  };
  for (size_t d = 0; d < size.size(); ++d) {
    add(&maps.y_of_x, size[d], y_strides[d]);
    add(moves[d] ? &maps.kept : &maps.repeated, size[d], x_strides[d]);
  }
  return maps;
}

// Range of X, and of tensors of its shape, with the range of Y that belongs to it.
struct RangePair {
  int64_t x_begin = 0, x_size = 0;
  int64_t y_begin = 0, y_size = 0;
  int lane = 0;
  Maps maps;
};

// `each_lane`: for the gradient of Y. `joined` says whether the one part is all lanes.
absl::StatusOr<std::vector<RangePair>> RangePairs(const DeviceTensor& x, const DeviceTensor& y, int64_t axis,
                                                  bool each_lane) {
  RETURN_IF_ERROR(CheckThere("X", x));
  RETURN_IF_ERROR(CheckThere("Y", y));
  if (x.lanes() < y.lanes()) {
    return absl::InvalidArgumentError("X is shared by all lanes and Y is not; X must be the larger one");
  }
  const bool y_shared = x.lanes() > y.lanes();
  const int64_t from = axis < 0 ? x.rank() - y.rank() : axis;
  const bool y_has_batch = !y_shared && from == 0 && y.rank() > 0 && y.lane_rows() == x.lane_rows();
  ASSIGN_OR_RETURN(const Shape first, AlignDims(x.dims(), y.dims(), axis));
  const bool still = x.rank() > 0 && y_shared && first[0] == 1 && !each_lane;
  std::vector<RangePair> parts;
  if (x.lanes() == 1 || y_has_batch || still) {
    Shape x_dims = x.dims();
    Shape y_dims = y.dims();
    if (x.rank() > 0) x_dims[0] = x.rows();
    if (y_has_batch) y_dims[0] = y.rows();
    ASSIGN_OR_RETURN(const Shape aligned, AlignDims(x_dims, y_dims, axis));
    RangePair part{.x_size = x.size(), .y_size = y.size()};
    ASSIGN_OR_RETURN(part.maps, MakeMaps(x_dims, aligned));
    parts.push_back(part);
    return parts;
  }
  for (int l = 0; l < x.lanes(); ++l) {
    const int y_lane = y_shared ? 0 : l;
    const Shape x_dims = x.dims(l);
    ASSIGN_OR_RETURN(const Shape aligned, AlignDims(x_dims, y.dims(y_lane), axis));
    RangePair part{
        .x_begin = x.begin(l), .x_size = x.size(l), .y_begin = y.begin(y_lane), .y_size = y.size(y_lane), .lane = l};
    ASSIGN_OR_RETURN(part.maps, MakeMaps(x_dims, aligned));
    parts.push_back(part);
  }
  return parts;
}

template <typename Math>
class ElementwiseKernel : public OpDeviceKernel {
 public:
  explicit ElementwiseKernel(const KernelInit& init) : axis_(init.attrs.Int("axis")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    const DeviceTensor& y = ctx.input(1);
    ASSIGN_OR_RETURN(const std::vector<RangePair> parts, RangePairs(x, y, axis_, /*each_lane=*/false));
    const float* const xs = x.data<float>();
    const float* const ys = y.data<float>();
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    float* const out = ctx.output(0).data<float>();
    for (const RangePair& p : parts) {
      if (p.maps.alike) {
        RETURN_IF_ERROR(
            ForEach(ctx.runtime(), p.x_size, BinaryAlikeAt<Math>{xs + p.x_begin, ys + p.y_begin, out + p.x_begin}));
      } else {
        RETURN_IF_ERROR(ForEach(ctx.runtime(), p.x_size,
                                BinaryAt<Math>{xs + p.x_begin, ys + p.y_begin, p.maps.y_of_x, out + p.x_begin}));
      }
    }
    return absl::OkStatus();
  }

 private:
  const int64_t axis_;
};

template <typename Math>
class ElementwiseGradKernel : public OpDeviceKernel {
  enum Input { kX, kY, kOutGrad };
  enum Output { kXGrad, kYGrad };

 public:
  explicit ElementwiseGradKernel(const KernelInit& init) : axis_(init.attrs.Int("axis")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    const DeviceTensor& y = ctx.input(kY);
    const DeviceTensor& out_grad = ctx.input(kOutGrad);
    ASSIGN_OR_RETURN(const std::vector<RangePair> parts, RangePairs(x, y, axis_, /*each_lane=*/false));
    RETURN_IF_ERROR(CheckLike("Out@GRAD", out_grad, x));
    const float* const xs = x.data<float>();
    const float* const ys = y.data<float>();
    const float* const dout = out_grad.data<float>();
    // Compute dY first, because dX may share the memory of Out@GRAD.
    if (ctx.has_output(kYGrad)) RETURN_IF_ERROR(YGradient(ctx, x, y, dout));
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
    DeviceTensor& x_grad = ctx.output(kXGrad);
    float* const dx = x_grad.data<float>();
    for (const RangePair& p : parts) {
      RETURN_IF_ERROR(
          ForEach(ctx.runtime(), p.x_size,
                  BinaryDxAt<Math>{xs + p.x_begin, ys + p.y_begin, dout + p.x_begin, p.maps.y_of_x, dx + p.x_begin}));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status YGradient(DeviceKernelContext& ctx, const DeviceTensor& x, const DeviceTensor& y, const float* dout) {
    ASSIGN_OR_RETURN(const std::vector<RangePair> parts, RangePairs(x, y, axis_, /*each_lane=*/true));
    const std::vector<int64_t> rows =
        y.lanes() == x.lanes() ? y.lane_rows() : std::vector<int64_t>(static_cast<size_t>(x.lanes()), y.rows(0));
    RETURN_IF_ERROR(ctx.Resize(kYGrad, y.rank(), rows, Shape(y.row_dims().begin(), y.row_dims().end())));
    DeviceTensor& y_grad = ctx.output(kYGrad);
    float* const dy = y_grad.data<float>();
    if (std::is_same_v<Math, AddMath> && y.lanes() == 1 && IsColumns(parts, y.size())) {
      LaneRows x_rows = ElementsOf(x);
      for (int l = 1; l <= x_rows.lanes; ++l) x_rows.begin[l] /= y.size();
      return SumColumns(ctx, dout, x_rows, y.size(), &scratch_, dy);
    }
    const float* const xs = x.data<float>();
    const float* const ys = y.data<float>();
    for (const RangePair& p : parts) {
      float* const to = dy + (y.lanes() == x.lanes() ? p.y_begin : p.lane * y.size());
      if (p.maps.alike) {
        RETURN_IF_ERROR(
            ForEach(ctx.runtime(), p.x_size, BinaryDyAt<Math>{xs + p.x_begin, ys + p.y_begin, dout + p.x_begin, to}));
      } else {
        RETURN_IF_ERROR(Reduce(ctx.runtime(), p.y_size,
                               BinaryDySum<Math>{xs + p.x_begin, ys + p.y_begin, dout + p.x_begin, p.maps.kept,
                                                 p.maps.repeated, p.maps.repeated.count(), to}));
      }
    }
    return absl::OkStatus();
  }

  // Returns true if Y is one row that belongs to every row of X.
  static bool IsColumns(const std::vector<RangePair>& parts, int64_t n) {
    for (const RangePair& p : parts) {
      if (p.maps.kept.dims != 1 || p.maps.kept.stride[0] != 1 || p.maps.repeated.dims != 1 ||
          p.maps.repeated.stride[0] != n)
        return false;
    }
    return n > 0;
  }

  const int64_t axis_;
  DeviceArray scratch_;
};

REGISTER_DEVICE_KERNEL(elementwise_add, MakeDeviceKernel<ElementwiseKernel<AddMath>>);
REGISTER_DEVICE_KERNEL(elementwise_add_grad, MakeDeviceKernel<ElementwiseGradKernel<AddMath>>);
REGISTER_DEVICE_KERNEL(elementwise_sub, MakeDeviceKernel<ElementwiseKernel<SubMath>>);
REGISTER_DEVICE_KERNEL(elementwise_sub_grad, MakeDeviceKernel<ElementwiseGradKernel<SubMath>>);
REGISTER_DEVICE_KERNEL(elementwise_mul, MakeDeviceKernel<ElementwiseKernel<MulMath>>);
REGISTER_DEVICE_KERNEL(elementwise_mul_grad, MakeDeviceKernel<ElementwiseGradKernel<MulMath>>);
REGISTER_DEVICE_KERNEL(elementwise_div, MakeDeviceKernel<ElementwiseKernel<DivMath>>);
REGISTER_DEVICE_KERNEL(elementwise_div_grad, MakeDeviceKernel<ElementwiseGradKernel<DivMath>>);

}  // namespace
}  // namespace device
}  // namespace weir
