// split_byref: the blocks of a gradient, as views of it
//
//   X     [D0, ...] f32
//   Out*  elements of X in order, `sections` each. A section of whole rows of X is [rows, ...], any other [elements]
//
// No copy: an Out shares X's memory and lives until X is written again.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/runtime/kernel.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

Shape SectionShape(absl::Span<const int64_t> x, int64_t elements) {
  const int64_t row = x.empty() ? 1 : ElementCount(x.subspan(1));
  if (row == 0 || elements % row != 0) return {elements};
  Shape dims(x.begin(), x.end());
  if (dims.empty()) dims.push_back(0);
  dims[0] = elements / row;
  return dims;
}

class SplitByrefKernel : public OpKernel {
 public:
  explicit SplitByrefKernel(const KernelInit& init) : sections_(init.attrs.Ints("sections")) {}

  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    if (!x.initialized()) {  // an absent gradient has absent blocks
      for (size_t i = 0; i < sections_.size(); ++i) ctx.output(0, static_cast<int>(i))->Clear();
      return absl::OkStatus();
    }
    const int64_t total = std::accumulate(sections_.begin(), sections_.end(), int64_t{0});
    if (total != x.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("sections hold ", total, " elements, X ", ShapeString(x.dims()), " has ", x.size()));
    }
    int64_t begin = 0;
    for (size_t i = 0; i < sections_.size(); ++i) {
      *ctx.output(0, static_cast<int>(i)) = x.View(begin, SectionShape(x.dims(), sections_[i]));
      begin += sections_[i];
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<int64_t> sections_;
};

REGISTER_OP(split_byref)
({.type = "split_byref",
  .summary = "blocks of a gradient, sharing its memory",
  .inputs = {{"X"}},
  .outputs = {{.name = "Out", .variadic = true}},
  .attrs = {Required(IntsAttr("sections"))},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectDense(ctx, "X"));
    const std::vector<int64_t> sections = ctx.attrs().Ints("sections");
    const Shape x = ctx.InputShape("X");
    for (int64_t d : x) {
      if (d < 0) return ctx.Error("X must have known dims, got " + ShapeString(x));
    }
    int64_t total = 0;
    for (int64_t s : sections) {
      if (s < 1) return ctx.Error("sections must be positive, got " + std::to_string(s));
      if (__builtin_add_overflow(total, s, &total)) return ctx.Error("sections add up to more than any X has");
    }
    if (static_cast<int>(sections.size()) != ctx.OutputCount("Out") || total != KnownCount(x)) {
      return ctx.Error(std::string(absl::StrCat(sections.size(), " sections of ", total, " elements in all for X ",
                                                ShapeString(x), " and ", ctx.OutputCount("Out"), " Out")));
    }
    for (size_t i = 0; i < sections.size(); ++i) {
      ctx.SetOutput("Out", SectionShape(x, sections[i]), v1::FLOAT32, static_cast<int>(i));
    }
    return absl::OkStatus();
  },
  .cost = [](InferContext&) { return Cost{}; }});
REGISTER_KERNEL(split_byref, MakeKernel<SplitByrefKernel>);

}  // namespace
}  // namespace weir
