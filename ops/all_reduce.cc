// all_reduce: gradients of one parameter, added over the lanes of all trainers
//
//   X  gradient of a parameter that every trainer holds: dense, or rows of an is_sparse parameter
//
// The sum goes to the trainer's own copy of the parameter, whose update runs after send_barrier
// (framework/graph/training_mode.h: TrainingMode.all_reduce). `block`: the parameter. `bucket`: gradients of one bucket
// travel together, buckets in ascending order. `width`: of rows, 0 for dense. `mean`: means of lanes are sent, for
// their adasum (TrainingMode.all_reduce.adasum). `bad_rows`, `measured`: ops/outgoing_gradients.h.
#include <string>

#include "framework/base/status_macros.h"
#include "ops/outgoing_gradients.h"

namespace weir {
namespace {

class AllReduceKernel : public OpKernel {
 public:
  explicit AllReduceKernel(const KernelInit& init)
      : gradients_(init, {{.name = init.attrs.String("block"), .server = -1}}, init.attrs.Bool("mean")) {}
  absl::Status Run(KernelContext& ctx) override { return gradients_.Send(ctx); }

 private:
  OutgoingGradients gradients_;
};

REGISTER_OP(all_reduce)
({.type = "all_reduce",
  .summary = "gradients added over all trainers",
  .inputs = {{.name = "X", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .attrs = {Required(StringAttr("block", "")), IntAttr("bucket", 0), IntAttr("width", 0), BoolAttr("bad_rows", false),
            BoolAttr("measured", false), BoolAttr("mean", false)},
  .scope = OpScope::kGate,
  .shape = [](InferContext& ctx) -> absl::Status {
    const int64_t bucket = ctx.attrs().Int("bucket");
    if (bucket < 0) return ctx.Error("bucket must not be negative, got " + std::to_string(bucket));
    if (ctx.attrs().Bool("mean") && (ctx.attrs().Bool("measured") || ctx.attrs().Int("width") > 0)) {
      return ctx.Error("mean is of dense gradients, neither of measurements nor of rows");
    }
    return CheckOutgoing(ctx);
  },
  .cost = OutgoingCost});
REGISTER_KERNEL(all_reduce, MakeKernel<AllReduceKernel>);

}  // namespace
}  // namespace weir
