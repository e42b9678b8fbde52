#include "ops/channel_op.h"

#include "absl/strings/str_cat.h"
#include "framework/graph/op_view.h"

namespace weir {
namespace {

absl::Status NoChannel() { return absl::FailedPreconditionError("this process has no channel to servers"); }

}  // namespace

absl::StatusOr<RowSource*> RowSourceOf(const KernelContext& ctx) {
  if (ctx.step->rows != nullptr) return ctx.step->rows;
  return NoChannel();
}

absl::StatusOr<StepChannel*> ChannelOf(const KernelContext& ctx) {
  if (ctx.step->channel != nullptr) return ctx.step->channel;
  return NoChannel();
}

std::vector<std::string> VarsOfInput(const v1::OpDesc& op, std::string_view slot) {
  const NameList& vars = SlotVars(op.inputs(), slot);
  return {vars.begin(), vars.end()};
}
std::vector<std::string> VarsOfOutput(const v1::OpDesc& op, std::string_view slot) {
  const NameList& vars = SlotVars(op.outputs(), slot);
  return {vars.begin(), vars.end()};
}

absl::Status CheckBlocks(const InferContext& ctx, int count) {
  const size_t blocks = ctx.attrs().Strings("blocks").size(), servers = ctx.attrs().Ints("servers").size();
  if (blocks == static_cast<size_t>(count) && servers == blocks) return absl::OkStatus();
  return ctx.Error(
      std::string(absl::StrCat(count, " variables need as many blocks and servers, got ", blocks, " and ", servers)));
}

std::vector<BlockRef> BlocksOf(const AttrReader& attrs) {
  std::vector<BlockRef> result;
  const std::vector<std::string> blocks = attrs.Strings("blocks");
  const std::vector<int64_t> servers = attrs.Ints("servers");
  for (size_t i = 0; i < blocks.size(); ++i)
    result.push_back({.name = blocks[i], .server = static_cast<int>(servers.at(i))});
  return result;
}

}  // namespace weir
