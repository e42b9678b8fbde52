#include "pserver/channels/make_replica_channel.h"

#include "framework/graph/training_mode.h"
#include "glog/logging.h"
#include "pserver/channels/all_reduce_channel.h"
#include "pserver/channels/local_sgd_channel.h"

namespace weir {

absl::StatusOr<std::unique_ptr<ReplicaChannel>> MakeReplicaChannel(const ReplicaChannel::Options& options) {
  CHECK(options.replica != nullptr && options.servers != nullptr);
  return ModeOf(*options.main).all_reduce().local_steps() > 0 ? MakeLocalSgdChannel(options)
                                                              : MakeAllReduceChannel(options);
}

}  // namespace weir
