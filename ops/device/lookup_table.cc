// lookup_table on a matrix, and its gradient (ops/lookup_table.cc).
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/id_selection.h"
#include "ops/device/host_work.h"
#include "ops/device/lookup.h"
#include "ops/device/operands.h"
#include "ops/id_deduper.h"

namespace weir {
namespace device {
namespace {

// Slots Ids, W, and Out@GRAD of the gradient.
constexpr int kW = 1, kOutGrad = 2;

// Checks that W is one matrix for all lanes, and that ids are rows of it.
absl::Status CheckTableInputs(DeviceKernelContext& ctx, const LookupAttrs& attrs) {
  const DeviceTensor& w = ctx.input(kW);
  RETURN_IF_ERROR(CheckRank("W", w, 2));
  if (w.lanes() != 1 || w.rows() > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("W must be one matrix for all lanes of at most ", INT32_MAX,
                                                   " rows, got ", ShapeString(w.dims()), " in ", w.lanes(), " lanes"));
  }
  return ForLanes(ctx, [&](int lane) -> absl::Status {
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds);
    RETURN_IF_ERROR(CheckIds(ids, attrs));
    return CheckRange(ids, attrs, w.rows());
  });
}

class LookupTableKernel : public OpDeviceKernel {
 public:
  LookupTableKernel(LookupAttrs attrs, int64_t slots) : attrs_(attrs), slots_(slots) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    RETURN_IF_ERROR(CheckTableInputs(ctx, attrs_));
    const DeviceTensor& w = ctx.input(kW);
    const RowOf<int64_t> ids = [&](int lane) { return ctx.host_input<IdBatch>(lane, kIds).values.data(); };
    return LookUp(ctx, attrs_, slots_, w.width(), w.data<float>(), ids, &staged_);
  }

 private:
  const LookupAttrs attrs_;
  const int64_t slots_;
  DeviceLanding staged_;
};

// Gradient of W: selected rows if is_sparse, else a matrix like W for each lane.
class LookupTableGradKernel : public OpDeviceKernel {
 public:
  LookupTableGradKernel(LookupAttrs attrs, int64_t slots, bool is_sparse)
      : attrs_(attrs), slots_(slots), is_sparse_(is_sparse) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    RETURN_IF_ERROR(CheckTableInputs(ctx, attrs_));
    const DeviceTensor& w = ctx.input(kW);
    ASSIGN_OR_RETURN(const IdGroups g, ReadGroups(ctx, attrs_));
    ASSIGN_OR_RETURN(const OutLayout out, LayOut(ctx, attrs_, slots_, w.width()));
    const DeviceTensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckOutGradient(dout, out));
    if (!is_sparse_ && w.rows() > INT32_MAX / ctx.lanes) {
      return absl::InvalidArgumentError(absl::StrCat("gradients of ", w.rows(), " rows in each of ", ctx.lanes,
                                                     " lanes are too many for a device; set is_sparse"));
    }
    numbers_.resize(static_cast<size_t>(ctx.lanes));
    RETURN_IF_ERROR(
        gradients_.Sort(ctx, attrs_, g, [&](int lane, RowGradients::Lane* of) { Number(ctx, w.rows(), lane, of); }));
    std::vector<int64_t> lane_rows(static_cast<size_t>(ctx.lanes), w.rows());
    for (int lane = 0; is_sparse_ && lane < ctx.lanes; ++lane) {
      lane_rows[static_cast<size_t>(lane)] = gradients_.rows(lane);
    }
    RETURN_IF_ERROR(ctx.Resize(0, 2, lane_rows, {w.width()}));
    const DeviceTensor& grad = ctx.output(0);
    if (!is_sparse_ && grad.size() > 0) {
      RETURN_IF_ERROR(
          ctx.runtime().Zero(DeviceQueue::kCompute, grad.raw(), static_cast<size_t>(grad.size()) * sizeof(float)));
    }
    return gradients_.Sum(ctx, g, dout, lane_rows, w.width());
  }

 private:
  void Number(DeviceKernelContext& ctx, int64_t height, int lane, RowGradients::Lane* of) {
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds);
    IdDeduper& numbers = numbers_[static_cast<size_t>(lane)];
    std::vector<int64_t>* distinct = &of->row;
    if (is_sparse_) distinct = &FreshRows(ctx.output_var(0), lane, height)->ids;
    distinct->clear();
    of->place.assign(ids.values.size(), -1);
    numbers.Start(static_cast<int64_t>(ids.values.size()));
    ForSelectedIds(ids, attrs_.selection(), [&](int64_t begin, int64_t end) {
      numbers.Add(ids.values.data() + begin, end - begin, of->place.data() + begin, distinct);
    });
    of->count = distinct->size();
  }

  const LookupAttrs attrs_;
  const int64_t slots_;
  const bool is_sparse_;
  std::vector<IdDeduper> numbers_;  // by lane
  RowGradients gradients_;
};

template <typename Kernel, typename... Rest>
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeOfTable(const KernelInit& init, Rest... rest) {
  if (init.attrs.Bool("is_distributed")) {
    return absl::InvalidArgumentError("W is distributed: its rows are on servers; transpile the program first");
  }
  ASSIGN_OR_RETURN(const LookupAttrs attrs, ReadLookupAttrs(init.attrs));
  ASSIGN_OR_RETURN(const int64_t slots, SlotsOf(init));
  return std::unique_ptr<OpDeviceKernel>(new Kernel(attrs, slots, rest...));
}

absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeTable(const KernelInit& init) {
  return MakeOfTable<LookupTableKernel>(init);
}
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeTableGrad(const KernelInit& init) {
  return MakeOfTable<LookupTableGradKernel>(init, init.attrs.Bool("is_sparse"));
}

REGISTER_DEVICE_KERNEL(lookup_table, MakeTable, {"Ids"});
REGISTER_DEVICE_KERNEL(lookup_table_grad, MakeTableGrad, {"Ids"});

}  // namespace
}  // namespace device
}  // namespace weir
