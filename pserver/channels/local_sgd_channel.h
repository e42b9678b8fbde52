// Channel of a trainer that updates its own dense parameters and averages them with those of the others from time to
// time (distribute.local_sgd). It lies between the trainer's program and its servers, as AllReduceChannel does.
//
// Dense gradients, and gradient rows of parameters that are sparse and not distributed, are added over the lanes of
// this trainer alone, divided by its own samples, and update its replica. Rows of distributed tables go to the servers
// in every step, which also decide whether the step takes effect, for tables and all replicas alike.
//
// After every AllReduceMode.local_steps steps, and after those that AllReduceOptions.equal_every names, at a stop and
// at the end of the data, values and optimizer state of all trainers are averaged by the samples of each since the
// average before. The program receives the averaged values. Steps count from the beginning of the job, so a run that is
// resumed averages after the same steps; a stop at another step adds an average, on which later steps depend.
#ifndef WEIR_PSERVER_CHANNELS_LOCAL_SGD_CHANNEL_H_
#define WEIR_PSERVER_CHANNELS_LOCAL_SGD_CHANNEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "pserver/channels/all_reduce_channel.h"

namespace weir {

// InvalidArgument: the program adds gradients that the replica does not hold, or the state of its optimizers cannot be
// averaged.
absl::StatusOr<std::unique_ptr<AllReduceChannel>> MakeLocalSgdChannel(const AllReduceOptions& options);

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_LOCAL_SGD_CHANNEL_H_
