// local_gradient: gradients of one parameter, added over the lanes of this trainer
//
//   X  gradient of a parameter that every trainer holds: dense, or rows of an is_sparse parameter
//
// The sum goes to the trainer's own copy of the parameter, and to no other trainer; its update runs after send_barrier,
// and the copies of all trainers are averaged from time to time (TrainingMode.all_reduce.local_steps,
// framework/graph/training_mode.h). `block`: the parameter. `width`: of rows, 0 for dense. `bad_rows`, `measured`:
// ops/outgoing_gradients.h.
#include "framework/base/status_macros.h"
#include "ops/outgoing_gradients.h"

namespace weir {
namespace {

class LocalGradientKernel : public OpKernel {
 public:
  explicit LocalGradientKernel(const KernelInit& init)
      : gradients_(init, {{.name = init.attrs.String("block"), .server = -1}}) {}
  absl::Status Run(KernelContext& ctx) override { return gradients_.Send(ctx); }

 private:
  OutgoingGradients gradients_;
};

REGISTER_OP(local_gradient)
({.type = "local_gradient",
  .summary = "gradients for the trainer's own copy of a parameter",
  .inputs = {{.name = "X", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .attrs = {Required(StringAttr("block", "")), IntAttr("width", 0), BoolAttr("bad_rows", false),
            BoolAttr("measured", false)},
  .scope = OpScope::kGate,
  .shape = CheckOutgoing,
  .cost = OutgoingCost});
REGISTER_KERNEL(local_gradient, MakeKernel<LocalGradientKernel>);

}  // namespace
}  // namespace weir
