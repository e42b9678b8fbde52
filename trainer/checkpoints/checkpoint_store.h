// Where the checkpoints of a job are: in a directory that all processes share, or, with checkpoint.per_host, in parts
// in a directory of each host. Finds, publishes, prunes and sets aside; for the chief.
#ifndef WEIR_TRAINER_CHECKPOINTS_CHECKPOINT_STORE_H_
#define WEIR_TRAINER_CHECKPOINTS_CHECKPOINT_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "pserver/client/client.h"

namespace weir {

// Not thread-safe. Errors are those of files and of calls to servers, where nothing else is said.
class CheckpointStore {
 public:
  // `dir`: absolute path, here and on every host. Borrowed arguments must outlive this object.
  static std::unique_ptr<CheckpointStore> Create(std::string dir, const v1::JobConfig& config, Client* client);
  virtual ~CheckpointStore() = default;

  // A checkpoint that can be loaded: its name, equal in every directory, and the reasons why newer ones were refused.
  struct Found {
    std::string name;
    std::vector<std::string> refused;
  };
  // Finds the newest checkpoint that can be loaded; nullopt: there is none. DataLoss: there are some, none of them
  // complete. FailedPrecondition: they are of another job.
  virtual absl::StatusOr<std::optional<Found>> Find() = 0;
  // Checks that the servers, which have loaded it, hold the state that the checkpoint describes.
  virtual absl::Status CheckLoaded(const v1::CheckpointManifest& manifest) = 0;
  // Makes the directories of other hosts the run's, by `own`. Returns which run may hold one; "": none.
  virtual absl::StatusOr<std::string> OwnOthers(const v1::ControlRequest& own) = 0;
  // Moves checkpoints with a higher number than `above` aside, in every directory.
  absl::Status SetAside(int64_t above);

  // Says in the request that has servers write, and in the manifest, where the parts are.
  virtual void Describe(v1::SaveShard* request, v1::CheckpointManifest* manifest) const = 0;
  virtual absl::Status Publish(const std::string& temporary, const v1::CheckpointManifest& sealed) = 0;
  // Replaces the manifest of a checkpoint that was published from `temporary`.
  virtual absl::Status Replace(const std::string& temporary, const v1::CheckpointManifest& manifest) = 0;
  // Returns true if the manifest of a checkpoint that the run has resumed from may be replaced.
  virtual bool MayReplaceResumed() const = 0;
  // Removes old checkpoints after a publication. Those that cannot be removed stay, with a line in the log.
  void Prune(const v1::CheckpointManifest& sealed);

 protected:
  CheckpointStore(std::string dir, const v1::JobConfig& config, Client* client)
      : dir_(std::move(dir)), config_(config), client_(client) {}
  // Returns the error of a resume from a directory whose checkpoints are of another job.
  absl::Status OtherJob(const std::string& job) const;
  // Returns where checkpoints of this host were moved; "": there were none.
  virtual absl::StatusOr<std::string> SetOwnAside(int64_t above) = 0;
  virtual absl::Status SetOthersAside(int64_t above) = 0;
  virtual absl::Status PruneAll(const v1::CheckpointManifest& sealed) = 0;

  const std::string dir_;
  const v1::JobConfig& config_;
  Client* const client_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_CHECKPOINTS_CHECKPOINT_STORE_H_
