// split_selected_rows: a gradient of rows, by the row blocks of its parameter
//
//   X     selected rows [H, ...]
//   Out*  selected rows [h_i, ...]: rows of X in section i of `height_sections`, in their order; ids count from the
//         section's first row
//
// Sections sum to H. step_rows are not kept.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"

namespace weir {
namespace {

class SplitSelectedRowsKernel : public OpKernel {
 public:
  explicit SplitSelectedRowsKernel(const KernelInit& init) : heights_(init.attrs.Ints("height_sections")) {
    begins_.push_back(0);
    for (int64_t h : heights_) begins_.push_back(begins_.back() + h);
  }

  absl::Status Run(KernelContext& ctx) override {
    const SelectedRows& x = std::get<SelectedRows>(ctx.input_var(0));
    std::vector<SelectedRows*> outs;
    for (size_t i = 0; i < heights_.size(); ++i) {
      outs.push_back(ctx.OutputAs<SelectedRows>(0, static_cast<int>(i)));
      outs[i]->ids.clear();
      outs[i]->step_rows.clear();
      outs[i]->height = heights_[i];
      outs[i]->merged = x.merged;
      outs[i]->present = x.present;
    }
    if (!x.present) return absl::OkStatus();
    for (int64_t id : x.ids) {
      if (id < 0 || id >= begins_.back()) {
        return absl::InvalidArgumentError(
            absl::StrCat("X has row ", id, "; sections hold rows 0 to ", begins_.back() - 1));
      }
      const size_t s = SectionOf(id);
      outs[s]->ids.push_back(id - begins_[s]);
    }
    CopyValues(x, outs);
    return absl::OkStatus();
  }

 private:
  size_t SectionOf(int64_t id) const {
    return static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), id) - begins_.begin() - 1);
  }

  void CopyValues(const SelectedRows& x, const std::vector<SelectedRows*>& outs) {
    Shape dims(x.values.dims().begin(), x.values.dims().end());
    if (dims.empty()) dims = {0, 0};
    std::vector<float*> to;
    for (SelectedRows* out : outs) {
      dims[0] = static_cast<int64_t>(out->ids.size());
      out->values.Resize(v1::FLOAT32, dims);
      to.push_back(out->values.data<float>());
    }
    if (x.ids.empty()) return;
    const int64_t width = x.values.size() / static_cast<int64_t>(x.ids.size());
    const float* from = x.values.data<float>();
    for (int64_t id : x.ids) {
      float*& next = to[SectionOf(id)];
      std::memcpy(next, from, sizeof(float) * static_cast<size_t>(width));
      next += width;
      from += width;
    }
  }

  const std::vector<int64_t> heights_;
  std::vector<int64_t> begins_;  // of each section, and the end
};

REGISTER_OP(split_selected_rows)
({.type = "split_selected_rows",
  .summary = "a gradient of rows, by row blocks",
  .inputs = {{.name = "X", .kinds = {v1::SELECTED_ROWS}}},
  .outputs = {{.name = "Out", .kinds = {v1::SELECTED_ROWS}, .variadic = true}},
  .attrs = {Required(IntsAttr("height_sections"))},
  .shape = [](InferContext& ctx) -> absl::Status {
    const std::vector<int64_t> heights = ctx.attrs().Ints("height_sections");
    Shape dims = ctx.InputShape("X");
    int64_t total = 0;
    for (int64_t h : heights) {
      if (h < 1) return ctx.Error("height_sections must be positive, got " + std::to_string(h));
      if (__builtin_add_overflow(total, h, &total)) return ctx.Error("height_sections add up to more than any X has");
    }
    if (dims.empty() || static_cast<int>(heights.size()) != ctx.OutputCount("Out") || total != dims[0]) {
      return ctx.Error(std::string(absl::StrCat(heights.size(), " height_sections of ", total, " rows in all for X ",
                                                ShapeString(dims), " and ", ctx.OutputCount("Out"), " Out")));
    }
    for (size_t i = 0; i < heights.size(); ++i) {
      dims[0] = heights[i];
      ctx.SetOutput("Out", dims, v1::FLOAT32, static_cast<int>(i));
      ctx.Output("Out", static_cast<int>(i))->set_kind(v1::SELECTED_ROWS);
    }
    return absl::OkStatus();
  },
  .cost =
      [](InferContext& ctx) {
        double bytes = 8;
        for (int64_t d : ctx.InputShape("X")) bytes *= static_cast<double>(std::max<int64_t>(d, 1));
        return Cost{.bytes = bytes};
      }});
REGISTER_KERNEL(split_selected_rows, MakeKernel<SplitSelectedRowsKernel>);

}  // namespace
}  // namespace weir
