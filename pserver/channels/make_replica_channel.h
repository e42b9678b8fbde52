// Choice of the channel of a trainer that holds all dense parameters.
#ifndef WEIR_PSERVER_CHANNELS_MAKE_REPLICA_CHANNEL_H_
#define WEIR_PSERVER_CHANNELS_MAKE_REPLICA_CHANNEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "pserver/channels/replica_channel.h"

namespace weir {

// Returns the channel that the program's mode asks for. Errors as MakeAllReduceChannel and MakeLocalSgdChannel.
absl::StatusOr<std::unique_ptr<ReplicaChannel>> MakeReplicaChannel(const ReplicaChannel::Options& options);

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_MAKE_REPLICA_CHANNEL_H_
