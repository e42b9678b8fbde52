// Helpers of the ops that move variables between trainers and servers.
#ifndef WEIR_OPS_CHANNEL_OP_H_
#define WEIR_OPS_CHANNEL_OP_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/param_channel.h"
#include "proto/program.pb.h"

namespace weir {

// Return the halves of the step's channel. FailedPrecondition in a process without servers.
absl::StatusOr<RowSource*> RowSourceOf(const KernelContext& ctx);
absl::StatusOr<StepChannel*> ChannelOf(const KernelContext& ctx);

// Return the variables of a slot, in order; empty if the op does not have it.
std::vector<std::string> VarsOfInput(const v1::OpDesc& op, std::string_view slot);
std::vector<std::string> VarsOfOutput(const v1::OpDesc& op, std::string_view slot);

// Checks that the attributes blocks and servers have one entry for each of `count` variables.
absl::Status CheckBlocks(const InferContext& ctx, int count);
std::vector<BlockRef> BlocksOf(const AttrReader& attrs);

}  // namespace weir

#endif  // WEIR_OPS_CHANNEL_OP_H_
