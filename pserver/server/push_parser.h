// Turns the tensors of a push, which come from outside, into gradients that may be trusted.
#ifndef WEIR_PSERVER_SERVER_PUSH_PARSER_H_
#define WEIR_PSERVER_SERVER_PUSH_PARSER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/runtime/lane_tree.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"
#include "pserver/server/server_params.h"

namespace weir {

// `nodes`: those that the trainer owns. `payload` lies at a multiple of 8 and is kept by the gradients. InvalidArgument
// names the item and what is wrong: a name this server does not have, a node that is not the trainer's, elements
// outside the block, a wrong width, another format than the plan's, bytes outside the payload or of the item before,
// ids that repeat or are another server's. What it allocates is bounded by the payload: floats for what is decoded, an
// order for ids.
absl::Status ParseGradients(const v1::PushRequest& request, const Slice& payload, const std::vector<LaneRange>& nodes,
                            ServerParams& params, std::vector<Gradient>* gradients);

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_PUSH_PARSER_H_
