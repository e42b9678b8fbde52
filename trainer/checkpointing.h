// What the chief does with checkpoints: finds the one to go on from, has the servers write and read theirs,
// publishes, prunes. With checkpoint.per_host every server publishes in its own directory, and prunes there when all
// have published; the chief goes on from the newest checkpoint that all of them have. Called at step borders, when in
// sync no server changes anything.
//
// A directory belongs to one run at a time (framework/checkpoint/owner.h): nothing in it is looked at for a resume,
// moved, removed or written before it is this run's, in per_host on every host. While the mark of a run on another host
// is watched, that takes up to its lease.
//
// The highest number in a directory is that of the newest checkpoint: what has a higher one than the checkpoint that a
// run goes on from, or has just published, is set aside. (In async a run may go on at a lower step than that of its
// checkpoint.)
#ifndef WEIR_TRAINER_CHECKPOINTING_H_
#define WEIR_TRAINER_CHECKPOINTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/checkpoint/owner.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "pserver/client/client.h"
#include "trainer/metrics.h"

namespace weir {

struct ResumePoint {
  // Steps that have taken effect; async: of each trainer.
  int64_t step = 0;
  std::vector<int64_t> trainer_steps;
  // DataStatistics::Serialize(), or "".
  std::string statistics;
  // The file with the residuals of the trainers that wrote it, or "".
  std::string residuals;
  std::optional<v1::LossScale> loss_scale;
  // Sync; 0 if nobody knows.
  int64_t first_step_examples = 0;
};

// What trainers have in a checkpoint: files, of which "" is none, and what stands in the manifest.
struct TrainerState {
  std::string statistics;
  // Gives out everyone's residuals piece by piece (Client::GatherResiduals); null: there are none.
  std::function<absl::Status(const Client::Take&)> residuals;
  std::optional<v1::LossScale> loss_scale;
  // Sync; 0: no step was made.
  int64_t first_step_examples = 0;
};

class Checkpointing {
 public:
  // `dir` absolute. train_data: DataSet::Description of data.train. Everything borrowed outlives this.
  Checkpointing(std::string dir, const v1::JobConfig& config, const v1::Plan& plan, std::string train_data,
                Client* client);

  // Loads the newest complete checkpoint into the servers; refused newer ones are logged with the reason and set aside.
  // nullopt: the directory holds none. DataLoss: it holds some, none of them complete. FailedPrecondition: it is of a
  // job that this one cannot go on with (trainer/resume_check.h), or the directory is that of a run that lives.
  absl::StatusOr<std::optional<ResumePoint>> Resume();
  // A fresh run: checkpoints of an earlier one are moved aside, with a line in the log.
  absl::Status StartAfresh();

  // Has every server write its shard and publishes. version: what the servers must be at (in sync; else not looked at).
  // `eval` is that of this very step, if there was one. Returns the path. An error names the step that is lost and the
  // newest one that is there; FailedPrecondition when a disk is full or read-only.
  absl::StatusOr<std::string> Save(int64_t step, int64_t version, const TrainerState& trainers,
                                   const std::optional<MetricResult>& eval);
  // Adds the figures of an evaluation at the step of the last Save to the manifest of that checkpoint, which is on disk
  // whatever comes of this, and prunes by them.
  absl::Status RecordEvaluation(const MetricResult& eval);
  // Steps of each trainer that the checkpoint of the last Save holds.
  const std::vector<int64_t>& saved_trainer_steps() const { return saved_trainer_steps_; }

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
  absl::StatusOr<std::string> WriteAndPublish(int64_t step, int64_t version, const TrainerState& trainers,
                                              const std::optional<MetricResult>& eval);
  // Makes every directory this run's, if it is not yet; waits for what that takes.
  absl::Status Own();
  // Moves what has a higher number than `above` aside, in every directory.
  absl::Status SetAside(int64_t above);
  absl::Status PublishOnAllHosts(const std::string& temporary, const v1::CheckpointManifest& sealed);
  // What follows a publication. What cannot be removed stays, with a line in the log.
  void Prune(const v1::CheckpointManifest& sealed);
  absl::StatusOr<v1::CheckpointManifest> WriteFiles(const std::string& name, int64_t version,
                                                    const TrainerState& trainers);
  absl::Status WriteShards(const std::string& name, int64_t version, v1::CheckpointManifest* manifest);

  const std::string dir_;
  const v1::JobConfig& config_;
  const v1::Plan& plan_;
  const std::string train_data_;
  Client* const client_;
  const bool per_host_;
  std::unique_ptr<DirectoryOwner> owner_;  // null before Own
  // What the last Save has published.
  struct Published {
    std::string temporary;
    v1::CheckpointManifest manifest;
  };
  std::optional<Published> published_;
  std::vector<int64_t> saved_trainer_steps_;
};

// Has every server of `client` read the checkpoint of the name of `path` in its own directory. FailedPrecondition when
// that is another one than `manifest`, which stands at `path`, an absolute one.
absl::Status LoadIntoServers(Client* client, const std::string& path, const v1::CheckpointManifest& manifest);
// Reads a file from its beginning to its end.
absl::Status ReadInPieces(const std::string& path, const Client::Take& take);
// The statistics file of a checkpoint, "" when it has none.
absl::StatusOr<std::string> ReadStatistics(const std::string& directory, const v1::CheckpointManifest& manifest);

}  // namespace weir

#endif  // WEIR_TRAINER_CHECKPOINTING_H_
