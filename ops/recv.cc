// recv: asks for parameter blocks
//
//   Out*  dense f32, as described; the values are there after fetch_barrier. A channel that does not fill them
//         leaves those of the run before.
//
// `blocks`, `servers`: one of each per Out.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/channel_op.h"

namespace weir {
namespace {

class RecvKernel : public OpKernel {
 public:
  RecvKernel(std::vector<BlockRef> blocks, std::vector<Shape> dims)
      : blocks_(std::move(blocks)), dims_(std::move(dims)) {}

  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(StepChannel * channel, ChannelOf(ctx));
    for (size_t i = 0; i < blocks_.size(); ++i) {
      Tensor* out = ctx.output(0, static_cast<int>(i));
      if (!out->initialized() || out->dims() != absl::MakeConstSpan(dims_[i])) out->Resize(v1::FLOAT32, dims_[i]);
      RETURN_IF_ERROR(channel->Receive(blocks_[i], out));
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<BlockRef> blocks_;
  const std::vector<Shape> dims_;
};

absl::StatusOr<std::unique_ptr<OpKernel>> Make(const KernelInit& init) {
  std::vector<BlockRef> blocks = BlocksOf(init.attrs);
  const std::vector<std::string> vars = VarsOfOutput(init.op, "Out");
  CHECK_EQ(blocks.size(), vars.size());
  std::vector<Shape> dims;
  for (size_t i = 0; i < vars.size(); ++i) {
    const v1::VarDesc* var = init.vars(vars[i]);
    if (var == nullptr) return absl::InvalidArgumentError(absl::StrCat("'", vars[i], "' is not described"));
    dims.emplace_back(var->dims().begin(), var->dims().end());
    for (int64_t d : dims.back()) {
      if (d < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", vars[i], "' must have known dims to be received, got ", ShapeString(dims.back())));
      }
    }
    blocks[i].count = ElementCount(dims.back());
  }
  return std::unique_ptr<OpKernel>(new RecvKernel(std::move(blocks), std::move(dims)));
}

REGISTER_OP(recv)
({.type = "recv",
  .summary = "asks for parameter blocks",
  .outputs = {{.name = "Out", .variadic = true}},
  .attrs = {Required(StringsAttr("blocks")), Required(IntsAttr("servers"))},
  .scope = OpScope::kStep,
  // The pass that slices a parameter describes the outputs.
  .shape = [](InferContext& ctx) { return CheckBlocks(ctx, ctx.OutputCount("Out")); },
  .cost =
      [](InferContext& ctx) {
        Cost cost;
        for (int i = 0; i < ctx.OutputCount("Out"); ++i) {
          double bytes = 4;
          for (int64_t d : ctx.Output("Out", i)->dims()) bytes *= static_cast<double>(std::max<int64_t>(d, 1));
          cost.bytes += bytes;
        }
        return cost;
      }});
REGISTER_KERNEL(recv, Make);
REGISTER_HOST_OP(recv);

}  // namespace
}  // namespace weir
