// share_buffers: which variables of a lane live in one buffer, one after the other
//
//   vars     strings
//   buffers  ints, one per variable; the same number is the same buffer
//
// Tells the executor which variables share memory (framework/graph/shared_buffers.h has the rules); running it does
// nothing. Role FORWARD, so that the evaluation program keeps it.
#include "framework/graph/op_registry.h"
#include "framework/graph/shared_buffers.h"
#include "framework/runtime/kernel.h"

namespace weir {
namespace {

class ShareBuffersKernel : public OpKernel {
 public:
  explicit ShareBuffersKernel(const KernelInit&) {}
  absl::Status Run(KernelContext&) override { return absl::OkStatus(); }
};

REGISTER_OP(share_buffers)
({.type = std::string(kShareBuffersOp),
  .summary = "says which variables of a lane share memory",
  .attrs = {Required(StringsAttr("vars")), Required(IntsAttr("buffers"))},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    if (ctx.attrs().Strings("vars").size() == ctx.attrs().Ints("buffers").size()) return absl::OkStatus();
    return ctx.Error("as many buffers as vars are needed");
  },
  .cost = [](InferContext&) { return Cost{}; }});
REGISTER_KERNEL(share_buffers, MakeKernel<ShareBuffersKernel>);
REGISTER_HOST_OP(share_buffers);

}  // namespace
}  // namespace weir
