// send: gradients of all lanes on their way to the servers
//
//   X*      gradient blocks (dense, or rows of an is_sparse dense parameter), or the gradient of a distributed table
//   Counts  for a table that counts shows and clicks: selected rows [*, 2], the rows of X in its order
//
// `blocks`, `servers`: parameter block (or table) and server of each X; server -1: by shard. `width`: of rows, 0 for
// dense. `bad_rows`, `measured`: ops/outgoing_gradients.h.
#include "framework/base/status_macros.h"
#include "ops/channel_op.h"
#include "ops/outgoing_gradients.h"

namespace weir {
namespace {

class SendKernel : public OpKernel {
 public:
  explicit SendKernel(const KernelInit& init) : gradients_(init, BlocksOf(init.attrs)) {}
  absl::Status Run(KernelContext& ctx) override { return gradients_.Send(ctx); }

 private:
  OutgoingGradients gradients_;
};

REGISTER_OP(send)
({.type = "send",
  .summary = "gradients to their servers",
  .inputs = {{.name = "X", .kinds = {v1::DENSE, v1::SELECTED_ROWS}, .variadic = true},
             {.name = "Counts", .kinds = {v1::SELECTED_ROWS}, .optional = true}},
  .attrs = {Required(StringsAttr("blocks")), Required(IntsAttr("servers")), IntAttr("width", 0),
            BoolAttr("bad_rows", false), BoolAttr("measured", false)},
  .scope = OpScope::kGate,
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(CheckBlocks(ctx, ctx.InputCount("X")));
    if (ctx.InputCount("Counts") > 0) {
      if (ctx.InputCount("X") != 1 || ctx.attrs().Int("width") == 0)
        return ctx.Error("Counts go with the one gradient of a table");
      const Shape counts = ctx.InputShape("Counts");
      if (ctx.Input("Counts").dtype() != v1::FLOAT32 || counts.size() != 2 || counts[1] != 2) {
        return ctx.Error("Counts must be FLOAT32 [-1, 2], got " + ShapeString(counts));
      }
    }
    return CheckOutgoing(ctx);
  },
  .cost = OutgoingCost});
REGISTER_KERNEL(send, MakeKernel<SendKernel>);

}  // namespace
}  // namespace weir
