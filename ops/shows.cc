// shows: how many samples of a lane have each id of a table's gradient, and how often those were clicked
//
//   Grad    merged selected rows [*, W] of the table
//   Ids*    all ids of the lane that read the table
//   Index*  [N] i32, one for each Ids: place of each id value among the rows of the step
//   Click   [B, 1] f32
//   Out     selected rows [*, 2], the rows of Grad in its order: samples with the id, and the sum of their Click in
//           their order
//
// A sample that has an id twice counts once. Absent when the gradient is.
#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"
#include "ops/lookup.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

constexpr int kGrad = 0, kIds = 1, kIndex = 2, kClick = 3;

// Finds rows of a gradient by their place in the step, or by id if a sum of gradients has dropped the places.
struct Places {
  absl::Status Find(const SelectedRows& grad) {
    by_id.clear();
    step_rows.clear();
    if (grad.step_rows.size() != grad.ids.size()) {
      for (size_t k = 0; k < grad.ids.size(); ++k) by_id[grad.ids[k]] = static_cast<int64_t>(k);
      return absl::OkStatus();
    }
    int32_t most = -1;
    for (const int32_t row : grad.step_rows) {
      if (row < 0) return absl::InvalidArgumentError(absl::StrCat("Grad has step row ", row));
      most = std::max(most, row);
    }
    step_rows.resize(static_cast<size_t>(int64_t{most} + 1), -1);
    for (size_t k = 0; k < grad.ids.size(); ++k)
      step_rows[static_cast<size_t>(grad.step_rows[k])] = static_cast<int64_t>(k);
    return absl::OkStatus();
  }

  // Returns -1 if the gradient has no such row (padding).
  int64_t RowOf(int32_t index, int64_t id) const {
    if (step_rows.empty()) {
      const auto found = by_id.find(id);
      return found == by_id.end() ? -1 : found->second;
    }
    return index < 0 || static_cast<size_t>(index) >= step_rows.size() ? -1 : step_rows[static_cast<size_t>(index)];
  }

  std::vector<int64_t> step_rows;  // -1: none
  absl::flat_hash_map<int64_t, int64_t> by_id;
  std::vector<int64_t> last_sample;  // by row of the gradient
};

class ShowsKernel : public OpKernel {
 public:
  explicit ShowsKernel(const KernelInit&) {}

  absl::Status Run(KernelContext& ctx) override {
    SelectedRows* const out = ctx.OutputAs<SelectedRows>(0);
    const SelectedRows* const grad = std::get_if<SelectedRows>(&ctx.input_var(kGrad));
    out->present = grad != nullptr && grad->present;
    if (!out->present) return absl::OkStatus();
    const int64_t rows = static_cast<int64_t>(grad->ids.size());
    const Tensor& click = ctx.input(kClick);
    RETURN_IF_ERROR(Check(ctx, *grad, click));
    out->height = grad->height;
    out->ids = grad->ids;
    out->step_rows = grad->step_rows;
    out->merged = true;
    out->values.Resize(v1::FLOAT32, {rows, 2});
    if (rows == 0) return absl::OkStatus();
    float* const counts = out->values.data<float>();
    std::fill_n(counts, 2 * rows, 0.0f);
    // Kept from step to step, per thread because lanes run on several threads.
    static thread_local Places places;
    RETURN_IF_ERROR(places.Find(*grad));
    std::vector<int64_t>& last_sample = places.last_sample;
    last_sample.assign(static_cast<size_t>(rows), -1);
    const int64_t samples = click.size();
    const float* const clicks = samples == 0 ? nullptr : click.data<float>();
    for (int64_t b = 0; b < samples; ++b) {
      for (int i = 0; i < ctx.input_count(kIds); ++i) {
        const IdBatch& ids = std::get<IdBatch>(ctx.input_var(kIds, i));
        if (ids.offsets.size() < 2) continue;
        const size_t slots = (ids.offsets.size() - 1) / static_cast<size_t>(samples);
        const size_t first = static_cast<size_t>(b) * slots;
        const int32_t* const index = ids.values.empty() ? nullptr : ctx.input(kIndex, i).data<int32_t>();
        for (int64_t v = ids.offsets[first]; v < ids.offsets[first + slots]; ++v) {
          const int64_t row = places.RowOf(index[v], ids.values[static_cast<size_t>(v)]);
          if (row < 0 || last_sample[static_cast<size_t>(row)] == b) continue;
          last_sample[static_cast<size_t>(row)] = b;
          counts[2 * row] += 1;
          counts[2 * row + 1] += clicks[b];
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Check(KernelContext& ctx, const SelectedRows& grad, const Tensor& click) {
    if (!grad.merged && grad.ids.size() > 1)
      return absl::InvalidArgumentError("Grad has rows that are not merged by id");
    if (!click.initialized() || click.dtype() != v1::FLOAT32)
      return absl::InvalidArgumentError("Click has no FLOAT32 values");
    if (ctx.input_count(kIndex) != ctx.input_count(kIds))
      return absl::InvalidArgumentError("there is not one Index for each Ids");
    const size_t samples = static_cast<size_t>(click.size());
    for (int i = 0; i < ctx.input_count(kIds); ++i) {
      const IdBatch& ids = std::get<IdBatch>(ctx.input_var(kIds, i));
      RETURN_IF_ERROR(CheckIds(ids, LookupAttrs{.pooling = Pooling::kSum}));
      const size_t slots = ids.offsets.empty() ? 0 : ids.offsets.size() - 1;
      if (samples == 0 ? slots != 0 : slots % samples != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("Ids has ", slots, " slots for the ", samples, " samples of Click"));
      }
      const Tensor& index = ctx.input(kIndex, i);
      if (!ids.values.empty() && (!index.initialized() || index.dtype() != v1::INT32 ||
                                  index.size() != static_cast<int64_t>(ids.values.size()))) {
        return absl::InvalidArgumentError(
            absl::StrCat("Index has ", index.size(), " entries for ", ids.values.size(), " ids"));
      }
    }
    return absl::OkStatus();
  }
};

REGISTER_OP(shows)
({.type = "shows",
  .summary = "samples that have each row of a table's gradient, and their clicks",
  .inputs = {{.name = "Grad", .kinds = {v1::SELECTED_ROWS}},
             {.name = "Ids", .kinds = {v1::IDS}, .variadic = true},
             {.name = "Index", .variadic = true},
             {.name = "Click"}},
  .outputs = {{.name = "Out", .kinds = {v1::SELECTED_ROWS}}},
  .shape = [](InferContext& ctx) -> absl::Status {
    if (ctx.InputCount("Index") != ctx.InputCount("Ids")) {
      return ctx.Error(
          std::string(absl::StrCat(ctx.InputCount("Ids"), " Ids need as many Index, got ", ctx.InputCount("Index"))));
    }
    for (int i = 0; i < ctx.InputCount("Index"); ++i) {
      if (ctx.Input("Index", i).dtype() != v1::INT32) return ctx.Error("Index must be INT32");
    }
    const Shape click = ctx.InputShape("Click");
    if (ctx.Input("Click").dtype() != v1::FLOAT32 || click.size() != 2 || click[1] != 1) {
      return ctx.Error(std::string(absl::StrCat("Click must be FLOAT32 [-1, 1], got ", ShapeString(click))));
    }
    const Shape grad = ctx.InputShape("Grad");
    ctx.SetOutput("Out", {grad.empty() ? -1 : grad[0], 2});
    ctx.Output("Out")->set_kind(v1::SELECTED_ROWS);
    return absl::OkStatus();
  },
  .cost =
      [](InferContext& ctx) {
        double ids = 0;
        for (int i = 0; i < ctx.InputCount("Ids"); ++i) {
          double slots = 1;
          for (const int64_t d : ctx.InputShape("Ids", i)) slots *= static_cast<double>(std::max<int64_t>(d, 1));
          ids += slots;
        }
        return Cost{.flops = 2 * ids, .bytes = 32 * ids};
      }});
REGISTER_KERNEL(shows, MakeKernel<ShowsKernel>);
// It reads ids, and which rows a gradient has.
REGISTER_HOST_OP(shows);

}  // namespace
}  // namespace weir
