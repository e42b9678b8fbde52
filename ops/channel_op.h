// What the ops that move variables share.
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

// FailedPrecondition in a process without servers.
absl::StatusOr<ParamChannel*> ChannelOf(const KernelContext& ctx);

// The variables of a slot, in order; empty when the op does not have it.
std::vector<std::string> VarsOfInput(const v1::OpDesc& op, std::string_view slot);
std::vector<std::string> VarsOfOutput(const v1::OpDesc& op, std::string_view slot);

// Attributes blocks and servers, one of each for every one of `count` variables.
absl::Status CheckBlocks(const InferContext& ctx, int count);
std::vector<BlockRef> BlocksOf(const AttrReader& attrs);

}  // namespace weir

#endif  // WEIR_OPS_CHANNEL_OP_H_
