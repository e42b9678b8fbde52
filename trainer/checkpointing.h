// What the chief (trainer 0) does with checkpoints: finds the one to go on from, has the servers write and read theirs,
// publishes, prunes. With checkpoint.per_host every server publishes and prunes in its own directory, and the chief goes on from
// the newest checkpoint that all of them have. Called at step borders, when in sync no server changes anything.
#ifndef WEIR_TRAINER_CHECKPOINTING_H_
#define WEIR_TRAINER_CHECKPOINTING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "pserver/client.h"
#include "trainer/metrics.h"

namespace weir {

struct ResumePoint {
  // Steps that have taken effect; async: of each trainer.
  int64_t step = 0;
  std::vector<int64_t> trainer_steps;
  // DataStatistics::Serialize(), or "".
  std::string statistics;
  // weir.v1.Residuals of the trainers that wrote it, or "".
  std::string residuals;
  std::optional<v1::LossScale> loss_scale;
};

// What trainers have in a checkpoint: files, of which "" is none, and what stands in the manifest.
struct TrainerState {
  std::string statistics;
  std::string residuals;
  std::optional<v1::LossScale> loss_scale;
};

class Checkpointing {
 public:
  // `dir` absolute. Everything borrowed outlives this.
  Checkpointing(std::string dir, const v1::JobConfig& config, const v1::Plan& plan, Client* client);

  // Loads the newest complete checkpoint into the servers; refused newer ones are logged with the reason. nullopt: the
  // directory holds none. DataLoss: it holds some, none of them complete. FailedPrecondition: it is of a job that this one cannot
  // go on with (trainer/resume_check.h).
  absl::StatusOr<std::optional<ResumePoint>> Resume();
  // A fresh run: checkpoints of an earlier one are moved aside, with a line in the log.
  absl::Status StartAfresh();

  // Has every server write its shard and publishes. version: what the servers must be at (in sync; else not looked at).
  // `eval` is that of this very step, if there was one. Returns the path.
  absl::StatusOr<std::string> Save(int64_t step, int64_t version, const TrainerState& trainers,
                                   const std::optional<MetricResult>& eval);

 private:
  // A checkpoint that can be loaded: its name in every directory, and why newer ones were refused.
  struct Found {
    std::string name;
    std::vector<std::string> refused;
  };
  // nullopt, DataLoss: as Resume.
  absl::StatusOr<std::optional<Found>> FindShared();
  absl::StatusOr<std::optional<Found>> FindOnAllHosts();
  // The servers hold what the checkpoint says: rows that none of them has read would go unnoticed.
  absl::Status CheckLoadedDigest(const v1::CheckpointManifest& manifest);
  absl::Status PublishOnAllHosts(const std::string& temporary, v1::CheckpointManifest manifest);
  absl::StatusOr<v1::CheckpointManifest> WriteShards(const std::string& name, int64_t version, const TrainerState& trainers);

  const std::string dir_;
  const v1::JobConfig& config_;
  const v1::Plan& plan_;
  Client* const client_;
  const bool per_host_;
};

// Has every server of `client` read the checkpoint of the name of `path` in its own directory. FailedPrecondition when that is
// another one than `manifest`, which stands at `path`, an absolute one.
absl::Status LoadIntoServers(Client* client, const std::string& path, const v1::CheckpointManifest& manifest);
// The statistics file of a checkpoint, "" when it has none.
absl::StatusOr<std::string> ReadStatistics(const std::string& directory, const v1::CheckpointManifest& manifest);

}  // namespace weir

#endif  // WEIR_TRAINER_CHECKPOINTING_H_
