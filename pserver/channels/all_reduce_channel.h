// Channel of a trainer that adds its gradients to those of all others in each step, and updates its replica with the
// result.
//
// The dense gradients of a bucket (attribute of the program's all_reduce ops) are one exchange, the rows of a parameter
// one of their own; pserver/channels/exchange.h has the ways of adding. If the trainers share the updates out, each
// gets the sums, and the rows, of its share alone, and the replica brings the new values of all.
//
// An exchange begins as soon as its gradients and those of all exchanges before it are there, while backward continues.
// The order of exchanges is that of their last all_reduce ops. With 16 bits on the way a trainer gives its verdict when
// all exchanges have ended: a sum that is not finite is SKIP, and all trainers see the same sums.
#ifndef WEIR_PSERVER_CHANNELS_ALL_REDUCE_CHANNEL_H_
#define WEIR_PSERVER_CHANNELS_ALL_REDUCE_CHANNEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "pserver/channels/replica_channel.h"

namespace weir {

// InvalidArgument: the program adds gradients that the replica does not hold, or one of its buckets has too many.
absl::StatusOr<std::unique_ptr<ReplicaChannel>> MakeAllReduceChannel(const ReplicaChannel::Options& options);

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_ALL_REDUCE_CHANNEL_H_
