// lookup_rows and its gradient (ops/lookup_rows.cc), and what lookup_concat shares with them: look-ups in the rows that
// prefetch brought for the step.
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/host_work.h"
#include "ops/device/lookup.h"

namespace weir {
namespace device {

absl::Status CheckRowInputs(DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t width, int k) {
  const SelectedRows& rows = ctx.host_input<SelectedRows>(0, kRows, k);
  const int64_t count = static_cast<int64_t>(rows.ids.size());
  const DeviceTensor& values = ctx.input(kRows, k);
  if (!values.initialized() || values.dtype() != v1::FLOAT32 || values.rank() != 2 || values.rows() != count ||
      values.width() != width) {
    return absl::InvalidArgumentError(
        absl::StrCat("Rows has values ", ShapeString(values.dims()), " for ", count, " ids of width ", width));
  }
  return ForLanes(ctx, [&](int lane) {
    return CheckStepIndex(attrs, ctx.host_input<IdBatch>(lane, kIds, k), ctx.host_input<Tensor>(lane, kIndex, k), rows);
  });
}

RowOf<int32_t> PlacesOf(const DeviceKernelContext& ctx, int k) {
  return [&ctx, k](int lane) -> const int32_t* {
    const Tensor& index = ctx.host_input<Tensor>(lane, kIndex, k);
    return index.size() == 0 ? nullptr : index.data<int32_t>();
  };
}

absl::Status StepRowsGradient::Run(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k, int64_t width,
                                   const DeviceTensor& dout, const GroupRows& places) {
  ASSIGN_OR_RETURN(const IdGroups g, ReadGroups(ctx, attrs, k));
  row_places_.resize(static_cast<size_t>(ctx.lanes));
  RETURN_IF_ERROR(gradients_.Sort(
      ctx, attrs, g, [&](int lane, RowGradients::Lane* of) { Number(ctx, attrs, k, lane, of); }, k));
  std::vector<int64_t> lane_rows;
  lane_rows.reserve(static_cast<size_t>(ctx.lanes));
  for (int lane = 0; lane < ctx.lanes; ++lane) lane_rows.push_back(gradients_.rows(lane));
  RETURN_IF_ERROR(ctx.Resize(0, 2, lane_rows, {width}, k));
  return gradients_.Sum(ctx, g, dout, lane_rows, width, k, places);
}

void StepRowsGradient::Number(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k, int lane,
                              RowGradients::Lane* of) {
  const SelectedRows& rows = ctx.host_input<SelectedRows>(0, kRows, k);
  const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds, k);
  SelectedRows* const grad = FreshRows(ctx.output_var(0, k), lane, rows.height);
  of->place.assign(ids.values.size(), -1);
  // Position among this lane's rows, by row of the step; -1 for rows that the lane does not read.
  std::vector<int32_t>& places = row_places_[static_cast<size_t>(lane)];
  places.assign(rows.ids.size(), -1);
  const Tensor& given = ctx.host_input<Tensor>(lane, kIndex, k);
  const int32_t* const index = ids.values.empty() ? nullptr : given.data<int32_t>();
  ForReadIds(attrs, ids, [&](size_t i, int64_t) {
    int32_t& place = places[static_cast<size_t>(index[i])];
    if (place < 0) {
      place = static_cast<int32_t>(grad->ids.size());
      grad->ids.push_back(rows.ids[static_cast<size_t>(index[i])]);
      grad->step_rows.push_back(index[i]);
    }
    of->place[i] = place;
  });
  of->count = grad->ids.size();
}

namespace {

class LookupRowsKernel : public OpDeviceKernel {
 public:
  LookupRowsKernel(LookupAttrs attrs, int64_t slots, int64_t width) : attrs_(attrs), slots_(slots), width_(width) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    RETURN_IF_ERROR(CheckRowInputs(ctx, attrs_, width_));
    return LookUp(ctx, attrs_, slots_, width_, ctx.input(kRows).data<float>(), PlacesOf(ctx, 0), &staged_);
  }

 private:
  const LookupAttrs attrs_;
  const int64_t slots_, width_;
  DeviceLanding staged_;
};

class LookupRowsGradKernel : public OpDeviceKernel {
  // Inputs behind those of lookup_rows.
  enum Input { kOutGrad = kRows + 1 };

 public:
  LookupRowsGradKernel(LookupAttrs attrs, int64_t slots, int64_t width) : attrs_(attrs), slots_(slots), width_(width) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    RETURN_IF_ERROR(CheckRowInputs(ctx, attrs_, width_));
    ASSIGN_OR_RETURN(const OutLayout out, LayOut(ctx, attrs_, slots_, width_));
    const DeviceTensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckOutGradient(dout, out));
    return gradient_.Run(ctx, attrs_, 0, width_, dout, GroupRows());
  }

 private:
  const LookupAttrs attrs_;
  const int64_t slots_, width_;
  StepRowsGradient gradient_;
};

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeOfRows(const KernelInit& init) {
  ASSIGN_OR_RETURN(const LookupAttrs attrs, ReadLookupAttrs(init.attrs));
  const v1::VarDesc* const rows = Described(init, "Rows");
  if (rows == nullptr || rows->dims_size() != 2)
    return absl::InvalidArgumentError("Rows is not described as [-1, width]");
  ASSIGN_OR_RETURN(const int64_t slots, SlotsOf(init));
  return std::unique_ptr<OpDeviceKernel>(new Kernel(attrs, slots, rows->dims(1)));
}

REGISTER_DEVICE_KERNEL(lookup_rows, MakeOfRows<LookupRowsKernel>, {"Ids", "Index"});
REGISTER_DEVICE_KERNEL(lookup_rows_grad, MakeOfRows<LookupRowsGradKernel>, {"Ids", "Index"});

}  // namespace
}  // namespace device
}  // namespace weir
