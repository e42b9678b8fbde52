// Channel of a trainer that updates its replica with its own gradients, and averages it with those of the others from
// time to time (distribute.local_sgd).
//
// Gradients are added over the lanes of this trainer alone and divided by its own samples. After every
// AllReduceMode.local_steps steps, and after those that ReplicaChannel::Options.equal_every names, at a stop and at the
// end of the data, values and optimizer state of all trainers are averaged by the samples of each since the average
// before. The program receives the averaged values. Steps count from the beginning of the job, so a run that is resumed
// averages after the same steps; a stop at another step adds an average, on which later steps depend.
#ifndef WEIR_PSERVER_CHANNELS_LOCAL_SGD_CHANNEL_H_
#define WEIR_PSERVER_CHANNELS_LOCAL_SGD_CHANNEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "pserver/channels/replica_channel.h"

namespace weir {

// InvalidArgument: the program adds gradients that the replica does not hold, or the state of its optimizers cannot be
// averaged.
absl::StatusOr<std::unique_ptr<ReplicaChannel>> MakeLocalSgdChannel(const ReplicaChannel::Options& options);

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_LOCAL_SGD_CHANNEL_H_
