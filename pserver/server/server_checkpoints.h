// A server's side of checkpoints: its shard written and read, its host's part published, found and set aside.
//
// Does what a ControlRequest says; when that may be done is the caller's business (pserver/server/server_core.cc): in
// sync at a step border, and one request at a time.
#ifndef WEIR_PSERVER_SERVER_SERVER_CHECKPOINTS_H_
#define WEIR_PSERVER_SERVER_SERVER_CHECKPOINTS_H_

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
#include "pserver/server/server_params.h"

namespace weir {

class ServerCheckpoints {
 public:
  // `directory`: the owner's mark but for its run; its `dir` is "" when the job keeps no checkpoints. `params` is
  // borrowed.
  ServerCheckpoints(OwnerOptions directory, int server_id, int servers, ServerParams* params)
      : dir_(directory.dir), mark_(std::move(directory)), server_id_(server_id), servers_(servers), params_(params) {}

  // Where the job stands after a load. trainer_steps: async; the least of the shards that this server's blocks and rows
  // come from. With one of them, as when nothing was placed anew, no step is missing or comes twice; with several,
  // steps come twice to what stood further, which beats a step that is missing.
  struct Loaded {
    int64_t step = 0;
    std::vector<int64_t> trainer_steps;
    // CheckpointShard.table_steps: of this server's own shard, under the same condition, else the most of all.
    int64_t table_steps = 0;
  };

  // FailedPrecondition for each of them when the job has no directory.
  // `trainer_steps`: of each trainer, those that have taken effect here; kept beside the values that they led to.
  // `table_steps`: async, CheckpointShard.table_steps.
  absl::Status Save(const v1::SaveShard& save, const std::vector<int64_t>& trainer_steps,
                    std::optional<int64_t> table_steps, v1::ControlReply* reply);
  // checkpoint.per_host: makes the directory that of a run; the answer's `refused` says whose it may still be. Never
  // waits.
  absl::Status Own(const v1::OwnDirectory& own, v1::ControlReply* reply);
  absl::Status Publish(const v1::PublishPart& publish);
  absl::Status Prune(const v1::PruneParts& prune);
  absl::Status Find(v1::ControlReply* reply);
  absl::Status SetAside(const v1::SetPartsAside& request);
  absl::StatusOr<Loaded> Load(const v1::LoadCheckpoint& load);

 private:
  absl::Status CheckDirectory() const;
  // Of a checkpoint written per host, this server needs its own shard and no other: that of the same server of as many.
  absl::Status CheckMine(const std::string& path, const v1::CheckpointManifest& manifest) const;

  // What is at `path` is what the caller means. FailedPrecondition names both directories.
  absl::Status CheckSame(const v1::LoadCheckpoint& load, const std::string& path,
                         const absl::StatusOr<v1::CheckpointManifest>& read) const;

  const std::string dir_;
  const OwnerOptions mark_;
  std::unique_ptr<DirectoryOwner> owner_;  // null before Own
  std::string run_;                        // owner_'s
  const int server_id_;
  const int servers_;
  ServerParams* const params_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_SERVER_CHECKPOINTS_H_
