// Server's side of checkpoints: writes and reads its shard, and publishes, finds and sets aside the part of its host.
//
// Executes ControlRequests. Requires: one request at a time, while no update runs (pserver/server/control_actions.h),
// in sync at a step border.
#ifndef WEIR_PSERVER_PARAMS_SERVER_CHECKPOINTS_H_
#define WEIR_PSERVER_PARAMS_SERVER_CHECKPOINTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/checkpoint/owner.h"
#include "proto/parameter_server.pb.h"
#include "pserver/params/server_params.h"

namespace weir {

class ServerCheckpoints {
 public:
  // `directory`: the owner's mark, in which the run is still missing; its `dir` is "" if the job keeps no checkpoints.
  // `start_from`: StartPaths of the server's own job. `params` is borrowed.
  ServerCheckpoints(OwnerOptions directory, std::vector<std::string> start_from, int server_id, int servers,
                    ServerParams* params)
      : dir_(directory.dir),
        mark_(std::move(directory)),
        start_from_(std::move(start_from)),
        server_id_(server_id),
        servers_(servers),
        params_(params) {}

  // State of the job after a load. trainer_steps: async; for each trainer the smallest count among the shards that this
  // server's blocks and rows come from (the manifest's counts if these shards have none). If they come from one shard,
  // as when nothing was placed anew, no step is missing or applied twice. If they come from several, parts with a
  // larger count get some steps twice, which is better than a missing step.
  struct Loaded {
    int64_t step = 0;
    std::vector<int64_t> trainer_steps;
    // CheckpointShard.table_steps of this server's own shard if the checkpoint has one shard per server; else the
    // largest of all shards; the checkpoint's step if no shard has the field.
    int64_t table_steps = 0;
  };

  // Calls on the job's directory: FailedPrecondition when the job has none.
  //
  // Save writes this server's shard. `trainer_steps`: number of steps of each trainer that have taken effect here,
  // stored beside the values. `table_steps`: async, CheckpointShard.table_steps.
  absl::Status Save(const v1::SaveShard& save, const std::vector<int64_t>& trainer_steps,
                    std::optional<int64_t> table_steps, v1::ControlReply* reply);
  // checkpoint.per_host: makes the directory belong to a run. The answer's `refused` says which run may still own it.
  // Never waits.
  absl::Status Own(const v1::OwnDirectory& own, v1::ControlReply* reply);
  absl::Status Publish(const v1::PublishPart& publish);
  absl::Status Prune(const v1::PruneParts& prune);
  absl::Status Find(v1::ControlReply* reply);
  absl::Status SetAside(const v1::SetPartsAside& request);
  absl::StatusOr<Loaded> Load(const v1::LoadCheckpoint& load);

  // Takes values from the checkpoints of the job's start_from; needs no directory of the job. FailedPrecondition: this
  // server finds others than the caller.
  absl::Status Start(const v1::StartRun& start);

 private:
  absl::Status CheckDirectory() const;
  // Checks a checkpoint written per host: this server needs only its own shard, that of the same server out of the same
  // number of servers.
  absl::Status CheckMine(const std::string& path, const v1::CheckpointManifest& manifest) const;

  // Checks that the checkpoint at `path` is the one the caller means. FailedPrecondition names both directories.
  absl::Status CheckSame(const v1::LoadCheckpoint& load, const std::string& path,
                         const absl::StatusOr<v1::CheckpointManifest>& read) const;

  const std::string dir_;
  const OwnerOptions mark_;
  const std::vector<std::string> start_from_;
  std::unique_ptr<DirectoryOwner> owner_;  // null before Own
  std::string run_;                        // run of owner_
  const int server_id_;
  const int servers_;
  ServerParams* const params_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_SERVER_CHECKPOINTS_H_
