// Checks the tensors of a push, which come from outside, and turns them into gradients that the server can rely on.
#ifndef WEIR_PSERVER_PARAMS_PUSH_PARSER_H_
#define WEIR_PSERVER_PARAMS_PUSH_PARSER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/runtime/lane_tree.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"
#include "pserver/params/server_params.h"

namespace weir {

// `nodes`: nodes of the lane tree that the trainer owns, with those merged with it, ascending. `payload` is aligned to
// 8 bytes and kept alive by the gradients. InvalidArgument names the item and the fault: a name this server does not
// have, a node that is not the trainer's, elements outside the block, a wrong width, another format than the plan's,
// bytes outside the payload or of the item before, ids that repeat or are another server's. Allocates an amount bounded
// by the payload: floats for decoded values, an order for ids.
absl::Status ParseGradients(const v1::PushRequest& request, const Slice& payload, const std::vector<LaneRange>& nodes,
                            ServerParams& params, std::vector<Gradient>* gradients);

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_PUSH_PARSER_H_
