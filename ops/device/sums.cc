// sum, mean, reduce_sum, fill_like_batch and their gradients (files of the same names in ops/).
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/rows.h"
#include "ops/pieces.h"

namespace weir {
namespace device {
namespace {

// Adds the inputs that are present; the result is absent if none is.
class SumKernel : public OpDeviceKernel {
 public:
  explicit SumKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    std::vector<const DeviceTensor*> present;
    for (int i = 0; i < ctx.input_count(0); ++i) {
      if (ctx.input(0, i).initialized()) present.push_back(&ctx.input(0, i));
    }
    if (present.empty()) {
      ctx.output(0).Clear();
      return absl::OkStatus();
    }
    std::vector<const float*> x;
    for (const DeviceTensor* tensor : present) {
      RETURN_IF_ERROR(CheckLike("X", *tensor, *present[0]));
      x.push_back(tensor->data<float>());
    }
    const int64_t n = present[0]->size();
    RETURN_IF_ERROR(ctx.ResizeLike(0, *present[0]));
    float* const out = ctx.output(0).data<float>();
    float* to = out;
    if (x.size() > SumAt::kMost) {
      // Sum into scratch memory: Out may share the memory of an input of a later round.
      RETURN_IF_ERROR(scratch_.Reserve(ctx.memory(), static_cast<size_t>(n) * sizeof(float)));
      to = scratch_.data<float>();
    }
    size_t done = 0;
    while (done < x.size()) {
      SumAt sum = {.count = 0, .x = {}, .out = to};
      if (done > 0) sum.x[sum.count++] = to;
      while (sum.count < SumAt::kMost && done < x.size()) sum.x[sum.count++] = x[done++];
      if (done == x.size()) sum.out = out;
      RETURN_IF_ERROR(ForEach(ctx.runtime(), n, sum));
    }
    return absl::OkStatus();
  }

 private:
  DeviceArray scratch_;
};

absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeSum(const KernelInit& init) {
  ASSIGN_OR_RETURN(const bool rows, IsOfRows(init));
  if (rows) return MakeRowsSum(init);
  return MakeDeviceKernel<SumKernel>(init);
}

class MeanKernel : public OpDeviceKernel {
 public:
  explicit MeanKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckThere("X", x));
    RETURN_IF_ERROR(ctx.Resize(0, 0, std::vector<int64_t>(static_cast<size_t>(x.lanes()), 1), {}));
    return Reduce(ctx.runtime(), x.lanes(),
                  LaneMean{.x = x.data<float>(), .elements = ElementsOf(x), .out = ctx.output(0).data<float>()});
  }
};

class MeanGradKernel : public OpDeviceKernel {
 public:
  explicit MeanGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    const DeviceTensor& dout = ctx.input(1);
    RETURN_IF_ERROR(CheckThere("X", x));
    RETURN_IF_ERROR(CheckRank("Out@GRAD", dout, 0));
    if (dout.lanes() != x.lanes()) return absl::InvalidArgumentError("Out@GRAD is not that of each lane of X");
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    return ForEach(
        ctx.runtime(), x.size(),
        SpreadLanesAt{.elements = ElementsOf(x), .from = dout.data<float>(), .out = ctx.output(0).data<float>()});
  }
};

class FillLikeBatchKernel : public OpDeviceKernel {
 public:
  explicit FillLikeBatchKernel(const KernelInit& init)
      : value_(static_cast<float>(init.attrs.Float("value"))),
        scalar_(init.attrs.Bool("scalar_times_batch")),
        seeds_(init.op.role() == v1::BACKWARD) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckThere("X", x));
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    float* const out = ctx.output(0).data<float>();
    const float scale = seeds_ ? ctx.step->loss_scale : 1;
    if (!scalar_) return ForEach(ctx.runtime(), x.size(), FillAt{.value = value_ * scale, .out = out});
    FillLanesAt fill = {.elements = ElementsOf(x), .value = {}, .out = out};
    for (int l = 0; l < x.lanes(); ++l) fill.value[l] = value_ * static_cast<float>(ctx.lane_batch[l]) * scale;
    return ForEach(ctx.runtime(), x.size(), fill);
  }

 private:
  const float value_;
  const bool scalar_;
  const bool seeds_;
};

// Shapes of a sum over dims after the batch: the rows of all lanes are one array.
struct Added {
  IndexMap kept, repeated;
  IndexMap out_of_x;  // place in Out of each element of X
  int64_t outputs = 1;
  Shape out_row_dims;
  int out_rank = 0;
};

absl::StatusOr<Added> WhatIsAdded(const DeviceTensor& x, const std::vector<int64_t>& dims, bool keep_dim) {
  RETURN_IF_ERROR(CheckThere("X", x));
  if (x.rank() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("X has dims ", ShapeString(x.dims()), "; there must be one besides the batch to add up"));
  }
  if (x.rank() > kMostDims)
    return absl::InvalidArgumentError(absl::StrCat("X has ", x.rank(), " dims, more than ", kMostDims));
  std::vector<bool> added(static_cast<size_t>(x.rank()), dims.empty());
  added[0] = false;
  for (int64_t d : dims) {
    const int64_t axis = NormalAxis(d, static_cast<size_t>(x.rank()));
    if (axis < 0)
      return absl::InvalidArgumentError(absl::StrCat("dim ", d, " is outside of X's dims ", ShapeString(x.dims())));
    if (axis == 0) return absl::InvalidArgumentError("dim 0 is the batch, which is never added up");
    added[static_cast<size_t>(axis)] = true;
  }
  Added a;
  int64_t x_stride[kMostDims], out_stride[kMostDims];
  int64_t stride = 1, reduced = 1;
  const auto size = [&](int d) { return d == 0 ? x.rows() : x.row_dims()[static_cast<size_t>(d - 1)]; };
  for (int d = x.rank() - 1; d >= 0; --d) {
    const bool is_added = added[static_cast<size_t>(d)];
    x_stride[d] = stride;
    out_stride[d] = is_added ? 0 : reduced;
    stride *= size(d);
    if (!is_added) reduced *= size(d);
  }
  const auto add = [](IndexMap* map, int64_t n, int64_t step) {
    map->size[map->dims] = n;
    map->stride[map->dims++] = step;
  };
  for (int d = 0; d < x.rank(); ++d) {
    const bool is_added = added[static_cast<size_t>(d)];
    add(is_added ? &a.repeated : &a.kept, size(d), x_stride[d]);
    add(&a.out_of_x, size(d), out_stride[d]);
    if (!is_added) a.outputs *= size(d);
    if (d > 0 && (!is_added || keep_dim)) a.out_row_dims.push_back(is_added ? 1 : size(d));
  }
  a.out_rank = 1 + static_cast<int>(a.out_row_dims.size());
  return a;
}

class ReduceSumKernel : public OpDeviceKernel {
 public:
  explicit ReduceSumKernel(const KernelInit& init)
      : dims_(init.attrs.Ints("dims")), keep_dim_(init.attrs.Bool("keep_dim")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    ASSIGN_OR_RETURN(const Added a, WhatIsAdded(x, dims_, keep_dim_));
    RETURN_IF_ERROR(ctx.Resize(0, a.out_rank, x.lane_rows(), a.out_row_dims));
    return Reduce(ctx.runtime(), a.outputs,
                  SumOver{.x = x.data<float>(),
                          .kept = a.kept,
                          .repeated = a.repeated,
                          .terms = a.repeated.count(),
                          .out = ctx.output(0).data<float>()});
  }

 private:
  const std::vector<int64_t> dims_;
  const bool keep_dim_;
};

class ReduceSumGradKernel : public OpDeviceKernel {
 public:
  explicit ReduceSumGradKernel(const KernelInit& init)
      : dims_(init.attrs.Ints("dims")), keep_dim_(init.attrs.Bool("keep_dim")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    ASSIGN_OR_RETURN(const Added a, WhatIsAdded(x, dims_, keep_dim_));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", ctx.input(1), x, a.out_row_dims));
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    return ForEach(ctx.runtime(), x.size(),
                   RepeatAt{.dout = ctx.input(1).data<float>(), .map = a.out_of_x, .dx = ctx.output(0).data<float>()});
  }

 private:
  const std::vector<int64_t> dims_;
  const bool keep_dim_;
};

REGISTER_DEVICE_KERNEL(sum, MakeSum);
REGISTER_DEVICE_KERNEL(mean, MakeDeviceKernel<MeanKernel>);
REGISTER_DEVICE_KERNEL(mean_grad, MakeDeviceKernel<MeanGradKernel>);
REGISTER_DEVICE_KERNEL(fill_like_batch, MakeDeviceKernel<FillLikeBatchKernel>);
REGISTER_DEVICE_KERNEL(reduce_sum, MakeDeviceKernel<ReduceSumKernel>);
REGISTER_DEVICE_KERNEL(reduce_sum_grad, MakeDeviceKernel<ReduceSumGradKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
