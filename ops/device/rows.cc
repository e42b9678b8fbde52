#include "ops/device/rows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/host_work.h"
#include "ops/device/launch.h"
#include "ops/device/lookup_functors.h"
#include "ops/device/operands.h"
#include "ops/id_deduper.h"

namespace weir {
namespace device {
namespace {

SelectedRows& RowsOn(const DeviceVariable& var, int lane) {
  Variable* const host = var.host[var.shared ? 0 : static_cast<size_t>(lane)];
  if (!std::holds_alternative<SelectedRows>(*host)) *host = SelectedRows();
  return std::get<SelectedRows>(*host);
}

// Checks the values of lanes whose rows are present: [ids, width].
absl::Status CheckRowValues(std::string_view slot, const DeviceVariable& var, int lanes) {
  const DeviceTensor& x = var.device;
  for (int lane = 0; lane < lanes; ++lane) {
    const SelectedRows& rows = RowsOn(var, lane);
    if (!rows.present) continue;
    RETURN_IF_ERROR(CheckThere(slot, x));
    if (x.rank() == 2 && x.lanes() == lanes && x.rows(lane) == static_cast<int64_t>(rows.ids.size())) continue;
    return absl::InvalidArgumentError(absl::StrCat(absl::string_view(slot.data(), slot.size()), " has ",
                                                   rows.ids.size(), " rows with values ",
                                                   ShapeString(x.dims(std::min(lane, x.lanes() - 1)))));
  }
  return absl::OkStatus();
}

class RowsScaleKernel : public OpDeviceKernel {
 public:
  explicit RowsScaleKernel(const KernelInit& init) : scale_(static_cast<float>(init.attrs.Float("scale"))) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceVariable& x = ctx.input_var(0);
    DeviceVariable& out = ctx.output_var(0);
    RETURN_IF_ERROR(CheckRowValues("X", x, ctx.lanes));
    for (int lane = 0; &x != &out && lane < ctx.lanes; ++lane) {
      RowsOn(out, lane).CopyRowsOf(RowsOn(x, lane));
    }
    if (!x.device.initialized()) {
      out.device.Clear();
      return absl::OkStatus();
    }
    const float* const from = x.device.data<float>();
    RETURN_IF_ERROR(ctx.ResizeLike(0, x.device));
    return ForEach(ctx.runtime(), x.device.size(),
                   MultiplyAt{.x = from, .factor = scale_, .y = out.device.data<float>()});
  }

 private:
  const float scale_;
};

// Rows of one id are added in the order of inputs, then of rows; the result has each id once, in the order of first
// appearance.
class RowsSumKernel : public OpDeviceKernel {
 public:
  explicit RowsSumKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const int inputs = ctx.input_count(0);
    int64_t width = -1;
    for (int i = 0; i < inputs; ++i) {
      const DeviceVariable& x = ctx.input_var(0, i);
      RETURN_IF_ERROR(CheckRowValues(absl::StrCat("X[", i, "]"), x, ctx.lanes));
      if (!x.device.initialized()) continue;
      if (width >= 0 && x.device.width() != width) {
        return absl::InvalidArgumentError(
            absl::StrCat("X has rows of ", width, " and of ", x.device.width(), " values; they must be the same"));
      }
      width = x.device.width();
    }
    lanes_.resize(static_cast<size_t>(ctx.lanes));
    RETURN_IF_ERROR(ForLanes(ctx, [&](int lane) {
      Merge(ctx, lane);
      return absl::OkStatus();
    }));
    // Set the result after all lanes are merged: it may share the memory of an input.
    for (int lane = 0; lane < ctx.lanes; ++lane) {
      SelectedRows& out = RowsOn(ctx.output_var(0), lane);
      LaneSum& sum = lanes_[static_cast<size_t>(lane)];
      std::swap(out.ids, sum.ids);
      std::swap(out.step_rows, sum.step_rows);
      out.height = sum.height;
      out.present = out.merged = sum.present;
    }
    if (width < 0) {
      ctx.output(0).Clear();
      return absl::OkStatus();
    }
    return Add(ctx, width);
  }

 private:
  struct LaneSum {
    IdDeduper deduper;
    std::vector<int64_t> ids;
    std::vector<int32_t> step_rows;
    int64_t height = -1;
    bool present = false;
    std::vector<int32_t> place;       // of the rows of all inputs
    std::vector<int32_t> begin;       // of each sum's terms, and the end
    std::vector<int32_t> input, row;  // of each term; rows count from the lane's first
  };

  void Merge(DeviceKernelContext& ctx, int lane) {
    LaneSum& sum = lanes_[static_cast<size_t>(lane)];
    sum.ids.clear();
    sum.step_rows.clear();
    sum.height = -1;
    sum.present = false;
    bool have_step_rows = true;
    std::vector<const SelectedRows*> inputs;
    size_t terms = 0;
    for (int i = 0; i < ctx.input_count(0); ++i) {
      const SelectedRows& x = RowsOn(ctx.input_var(0, i), lane);
      inputs.push_back(x.present ? &x : nullptr);
      if (!x.present) continue;
      if (!sum.present) sum.height = x.height;
      sum.present = true;
      have_step_rows = have_step_rows && x.step_rows.size() == x.ids.size();
      terms += x.ids.size();
    }
    sum.place.resize(terms);
    sum.deduper.Start(static_cast<int64_t>(terms));
    size_t at = 0;
    for (const SelectedRows* x : inputs) {
      if (x == nullptr) continue;
      const size_t known = sum.ids.size();
      sum.deduper.Add(x->ids.data(), static_cast<int64_t>(x->ids.size()), sum.place.data() + at, &sum.ids);
      if (have_step_rows) {
        sum.step_rows.resize(sum.ids.size());
        for (size_t r = 0; r < x->ids.size(); ++r) {
          const size_t place = static_cast<size_t>(sum.place[at + r]);
          if (place >= known) sum.step_rows[place] = x->step_rows[r];
        }
      }
      at += x->ids.size();
    }
    // Sort the entries by row: count them, then put each in its place.
    sum.begin.assign(sum.ids.size() + 1, 0);
    for (const int32_t place : sum.place) ++sum.begin[static_cast<size_t>(place) + 1];
    for (size_t i = 1; i < sum.begin.size(); ++i) sum.begin[i] += sum.begin[i - 1];
    sum.input.resize(terms);
    sum.row.resize(terms);
    std::vector<int32_t> next(sum.begin.begin(), sum.begin.end() - 1);
    at = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (size_t r = 0; inputs[i] != nullptr && r < inputs[i]->ids.size(); ++r) {
        const size_t term = static_cast<size_t>(next[static_cast<size_t>(sum.place[at++])]++);
        sum.input[term] = static_cast<int32_t>(i);
        sum.row[term] = static_cast<int32_t>(r);
      }
    }
  }

  absl::Status Add(DeviceKernelContext& ctx, int64_t width) {
    std::vector<int64_t> lane_rows;
    std::vector<int32_t> begin, input, row;
    for (int lane = 0; lane < ctx.lanes; ++lane) {
      const LaneSum& sum = lanes_[static_cast<size_t>(lane)];
      const int32_t terms = static_cast<int32_t>(input.size());
      lane_rows.push_back(static_cast<int64_t>(sum.begin.size()) - 1);
      for (size_t i = 0; i + 1 < sum.begin.size(); ++i) begin.push_back(terms + sum.begin[i]);
      input.insert(input.end(), sum.input.begin(), sum.input.end());
      for (size_t term = 0; term < sum.row.size(); ++term) {
        const DeviceTensor& x = ctx.input(0, sum.input[term]);
        row.push_back(static_cast<int32_t>(x.begin(lane) / std::max<int64_t>(width, 1)) + sum.row[term]);
      }
    }
    begin.push_back(static_cast<int32_t>(input.size()));
    AddRowsAt add = {.width = width};
    bool in_place = false;
    for (int i = 0; i < ctx.input_count(0); ++i) {
      add.x[i] = ctx.input(0, i).initialized() ? ctx.input(0, i).data<float>() : nullptr;
      in_place = in_place || &ctx.input(0, i) == &ctx.output(0);
    }
    // Sum into other memory if the result replaces an input, which is read until the sum is complete.
    DeviceTensor& out = in_place ? sum_ : ctx.output(0);
    RETURN_IF_ERROR(out.Resize(ctx.memory(), ctx.output_var(0).owner, v1::FLOAT32, 2, lane_rows, {width}));
    Staged staged;
    const size_t begin_at = staged.Add(begin), input_at = staged.Add(input), row_at = staged.Add(row);
    RETURN_IF_ERROR(staged.Send(ctx, &staged_));
    add.begin = staged.At<int32_t>(begin_at);
    add.input = staged.At<int32_t>(input_at);
    add.row = staged.At<int32_t>(row_at);
    add.out = out.data<float>();
    RETURN_IF_ERROR(ForEach(ctx.runtime(), out.size(), add));
    if (in_place) std::swap(ctx.output(0), sum_);
    return absl::OkStatus();
  }

  std::vector<LaneSum> lanes_;
  DeviceTensor sum_;
  DeviceLanding staged_;
};

// Rows of X in section i of the heights, in their order; ids count from the section's first row.
class SplitSelectedRowsKernel : public OpDeviceKernel {
 public:
  explicit SplitSelectedRowsKernel(const KernelInit& init) : heights_(init.attrs.Ints("height_sections")) {
    begins_.push_back(0);
    for (const int64_t h : heights_) begins_.push_back(begins_.back() + h);
  }

  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceVariable& x = ctx.input_var(0);
    RETURN_IF_ERROR(CheckRowValues("X", x, ctx.lanes));
    const size_t sections = heights_.size();
    std::vector<std::vector<int32_t>> from(sections);
    std::vector<std::vector<int64_t>> lane_rows(sections);
    for (int lane = 0; lane < ctx.lanes; ++lane) RETURN_IF_ERROR(Cut(ctx, x, lane, &from, &lane_rows));
    Staged staged;
    std::vector<size_t> at;
    at.reserve(sections);
    for (const std::vector<int32_t>& rows : from) at.push_back(staged.Add(rows));
    if (!x.device.initialized()) {
      for (size_t s = 0; s < sections; ++s) ctx.output(0, static_cast<int>(s)).Clear();
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(staged.Send(ctx, &staged_));
    const int64_t width = x.device.width();
    for (size_t s = 0; s < sections; ++s) {
      const int out = static_cast<int>(s);
      RETURN_IF_ERROR(ctx.Resize(0, 2, lane_rows[s], {width}, out));
      RETURN_IF_ERROR(ForEach(ctx.runtime(), static_cast<int64_t>(from[s].size()) * width,
                              GatherAt{.row = staged.At<int32_t>(at[s]),
                                       .rows = x.device.data<float>(),
                                       .width = width,
                                       .out = ctx.output(0, out).data<float>()}));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Cut(DeviceKernelContext& ctx, const DeviceVariable& x, int lane, std::vector<std::vector<int32_t>>* from,
                   std::vector<std::vector<int64_t>>* lane_rows) const {
    const SelectedRows& rows = RowsOn(x, lane);
    std::vector<SelectedRows*> outs;
    for (size_t s = 0; s < heights_.size(); ++s) {
      SelectedRows& out = RowsOn(ctx.output_var(0, static_cast<int>(s)), lane);
      out.ids.clear();
      out.step_rows.clear();
      out.height = heights_[s];
      out.merged = rows.merged;
      out.present = rows.present;
      outs.push_back(&out);
    }
    const int64_t first = !rows.present || x.device.width() == 0 ? 0 : x.device.begin(lane) / x.device.width();
    for (size_t r = 0; rows.present && r < rows.ids.size(); ++r) {
      const int64_t id = rows.ids[r];
      if (id < 0 || id >= begins_.back()) {
        return absl::InvalidArgumentError(
            absl::StrCat("X has row ", id, "; sections hold rows 0 to ", begins_.back() - 1));
      }
      const size_t s = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), id) - begins_.begin() - 1);
      outs[s]->ids.push_back(id - begins_[s]);
      (*from)[s].push_back(static_cast<int32_t>(first) + static_cast<int32_t>(r));
    }
    for (size_t s = 0; s < heights_.size(); ++s) (*lane_rows)[s].push_back(static_cast<int64_t>(outs[s]->ids.size()));
    return absl::OkStatus();
  }

  const std::vector<int64_t> heights_;
  std::vector<int64_t> begins_;  // of each section, and the end
  DeviceLanding staged_;
};

REGISTER_DEVICE_KERNEL(split_selected_rows, MakeDeviceKernel<SplitSelectedRowsKernel>);

}  // namespace

absl::StatusOr<bool> IsOfRows(const KernelInit& init) {
  bool rows = false, dense = false;
  int inputs = 0;
  for (const v1::OpSlot& slot : init.op.inputs()) {
    for (const std::string& name : slot.vars()) {
      const v1::VarDesc* var = init.vars(name);
      (var != nullptr && var->kind() == v1::SELECTED_ROWS ? rows : dense) = true;
      ++inputs;
    }
  }
  if (rows && dense) {
    return absl::InvalidArgumentError(
        absl::StrCat("dense gradients and selected rows are added to one another by the "
                     "CPU alone; train.cpu_ops: \"",
                     init.op.type(), "\""));
  }
  if (rows && inputs > AddRowsAt::kMost) {
    return absl::InvalidArgumentError(absl::StrCat("a device adds at most ", AddRowsAt::kMost,
                                                   " variables of selected rows, got ", inputs, "; train.cpu_ops: \"",
                                                   init.op.type(), "\""));
  }
  return rows;
}

absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeRowsSum(const KernelInit& init) {
  return MakeDeviceKernel<RowsSumKernel>(init);
}

absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeRowsScale(const KernelInit& init) {
  return MakeDeviceKernel<RowsScaleKernel>(init);
}

}  // namespace device
}  // namespace weir
