// Gradient rows of one trainer on their way to all others: merged by id for each of its nodes of the lane tree.
#ifndef WEIR_PSERVER_REPLICA_NODE_ROWS_H_
#define WEIR_PSERVER_REPLICA_NODE_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/param_channel.h"
#include "pserver/params/gradient.h"

namespace weir {

// Returns the rows of `lanes`, summed over the lanes of each node, as bytes.
// InvalidArgument if a lane has values of another width.
absl::StatusOr<std::string> PackNodeRows(absl::Span<const LaneRange> nodes, int width,
                                         absl::Span<const StepChannel::LaneRows> lanes);

// Appends the gradients in such bytes to `gradients`; `target` is the index of their block, which has `height` rows.
// `nodes`: those of the trainer that sent them. Borrows the bytes. DataLoss: they are no rows of this width and these
// nodes, or name rows that the block does not have.
absl::Status ReadNodeRows(const std::string& bytes, absl::Span<const LaneRange> nodes, int target, int width,
                          int64_t height, std::vector<Gradient>* gradients);

}  // namespace weir

#endif  // WEIR_PSERVER_REPLICA_NODE_ROWS_H_
