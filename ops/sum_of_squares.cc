// sum_of_squares: the exact sum of the squares of a tensor, or of the values of selected rows
//
//   X    any shape; selected rows merged by id
//   Out  [21] int64, an ExactSum (framework/base/exact_sum.h). Of an absent X it is zero
//
// For a sliced parameter, Out is this slice's part of the sum; whole_norm adds the parts.
#include "framework/base/exact_sum.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"
#include "ops/shape_rules.h"
#include "ops/update_op.h"

namespace weir {
namespace {

constexpr int64_t kPiece = int64_t{1} << 16;  // a quarter of a millisecond

class SumOfSquaresKernel : public OpKernel {
 public:
  explicit SumOfSquaresKernel(const KernelInit&) {}

  absl::Status Run(KernelContext& ctx) override {
    const Variable& in = ctx.input_var(0);
    const Tensor* x = std::get_if<Tensor>(&in);
    if (const SelectedRows* rows = std::get_if<SelectedRows>(&in)) {
      if (!rows->merged && rows->ids.size() > 1) {
        return absl::InvalidArgumentError("X has rows that are not merged by id");
      }
      // Without rows the values may be those of an earlier step.
      x = rows->present && !rows->ids.empty() ? &rows->values : nullptr;
    }
    ExactSum sum;
    if (x != nullptr && x->initialized()) {
      const absl::Span<const float> values = x->span<float>();
      Mutex mu;
      ForPieces(ctx.step->pool, x->size(), kPiece, [&](int64_t begin, int64_t end) {
        ExactSum part;
        part.AddSquares(values.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
        MutexLock lock(&mu);
        sum.Add(part);
      });
    }
    Tensor* const out = ctx.output(0);
    out->Resize(v1::INT64, {ExactSum::kWords});
    sum.ToWords(out->data<int64_t>());
    return absl::OkStatus();
  }
};

REGISTER_OP(sum_of_squares)
({.type = "sum_of_squares",
  .summary = "exact sum of squares",
  .inputs = {{.name = "X", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .outputs = {{.name = "Out"}},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    if (ctx.Input("X").dtype() != v1::FLOAT32) return ctx.Error("X must be FLOAT32");
    ctx.SetOutput("Out", {ExactSum::kWords}, v1::INT64);
    return absl::OkStatus();
  },
  .cost =
      [](InferContext& ctx) {
        const double elements = Elements(ctx.Input("X"));
        return Cost{.flops = 2 * elements, .bytes = 4 * elements};
      }});
REGISTER_KERNEL(sum_of_squares, MakeKernel<SumOfSquaresKernel>);

}  // namespace
}  // namespace weir
