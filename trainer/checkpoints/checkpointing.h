// Checkpoint duties of the chief: finds the checkpoint to resume from, has the servers write and read theirs,
// publishes, prunes. With checkpoint.per_host every server publishes in its own directory, and prunes there when all
// have published; the chief resumes from the newest checkpoint that all of them have (CheckpointStore). Called at step
// borders, at which no server of a sync job changes anything.
//
// A directory belongs to one run at a time (framework/checkpoint/owner.h): before it is this run's, nothing in it is
// read for a resume, moved, removed or written; in per_host on every host. While another run on another host may hold
// it, taking ownership waits up to that run's lease.
//
// The newest checkpoint has the highest number in a directory: checkpoints with a higher number than the one that a run
// resumes from, or has just published, are set aside. (In async a run may go on at a lower step than the number of its
// checkpoint.)
#ifndef WEIR_TRAINER_CHECKPOINTS_CHECKPOINTING_H_
#define WEIR_TRAINER_CHECKPOINTS_CHECKPOINTING_H_

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
#include "proto/stream_places.pb.h"
#include "proto/trainer.pb.h"
#include "pserver/client/client.h"
#include "pserver/replica/dense_replica.h"
#include "trainer/checkpoints/checkpoint_store.h"
#include "trainer/checkpoints/resume_check.h"
#include "trainer/metrics/metric_result.h"

namespace weir {

class EarlyStop;

// Checkpoint that a run goes on from; describes a fresh run by default.
struct ResumePoint {
  // Told to all trainers.
  v1::Beginning beginning;
  // File with the residuals of the trainers that wrote it, or "", and contents of its file of places of streams: the
  // chief deals them out.
  std::string residuals;
  std::string places;
};

// State of the trainers for a checkpoint: `state` for the manifest, and contents of files ("": no such file).
struct SavedTrainers {
  v1::TrainerState state;
  std::string statistics;
  // Passes the residuals of all trainers to its argument, piece by piece (ResidualExchange::Gather); null: there are
  // none.
  std::function<absl::Status(const TakeBytes&)> residuals;
  // Returns where the streams of all trainers go on; null: that is unknown.
  std::function<absl::StatusOr<v1::StreamPlaces>()> places;
  // Sets state.follow for a checkpoint in which servers have so many steps of each trainer, which is known when they
  // have written (FileCourse::SaveAt). May be null.
  std::function<absl::Status(const std::vector<int64_t>& trainer_steps, v1::TrainerState* state)> follow;
};

class Checkpointing {
 public:
  // `dir`: absolute path. Borrowed arguments must outlive this object.
  // `replica`: the dense parameters that trainers hold; null: servers hold them. `run`: name of the run, "" if it has
  // none.
  Checkpointing(std::string dir, const v1::JobConfig& config, const v1::Plan& plan, TrainFiles train_files,
                Client* client, DenseReplica* replica = nullptr, std::string run = "");

  // Returns whether this host's directory holds a checkpoint that this run has written. Makes the directory this run's.
  absl::StatusOr<bool> HasOfThisRun();

  // Loads the newest complete checkpoint into the servers, and into this trainer's replica if each has all of it. Newer
  // ones that are refused are logged with the reason and set aside. beginning.resumed() is false if the directory holds
  // none. DataLoss: it holds some, none of them complete. FailedPrecondition: the checkpoint is of a job that this one
  // cannot continue (trainer/checkpoints/resume_check.h), or the directory belongs to a run that is alive.
  absl::StatusOr<ResumePoint> Resume();
  // Brings what `chief` has resumed from into the replicas of all trainers, which call it at the same time: they get
  // its replica, or each reads its share. FailedPrecondition: this trainer's directory does not have that checkpoint.
  absl::Status LoadReplica(const v1::Beginning& beginning, int chief);
  // Begins a fresh run: moves checkpoints of an earlier run aside, with a line in the log.
  absl::Status StartAfresh();

  // Has every server write its shard, then publishes; returns the path. version: the version that servers must be at;
  // negative: any. `eval`: evaluation of this very step, if there was one. An error names the step that is lost and the
  // newest saved one; FailedPrecondition when a disk is full or read-only.
  absl::StatusOr<std::string> Save(int64_t step, int64_t version, const SavedTrainers& trainers,
                                   const std::optional<MetricResult>& eval);
  // Writes this trainer's shard of the checkpoint that `chief` saves at the same time. OK if it could not be written:
  // the chief, which learns why, ends the job.
  absl::Status WriteShareFor(int chief);
  // Adds the figures of an evaluation at the step of the last Save, or of Resume before the first, to the manifest of
  // that checkpoint, with what `early_stop` (null: the job has none) has counted, and prunes by them. The checkpoint
  // stays on disk even if this fails.
  absl::Status RecordEvaluation(const MetricResult& eval, const EarlyStop* early_stop);
  // Returns the number of steps of each trainer in the checkpoint of the last Save.
  const std::vector<int64_t>& saved_trainer_steps() const { return saved_trainer_steps_; }

 private:
  // Adds to an error of loading, if it says that the checkpoint does not fit, the setting by which the job is another.
  absl::Status Explained(const absl::Status& load, const v1::CheckpointManifest& manifest) const;
  absl::StatusOr<std::string> WriteAndPublish(int64_t step, int64_t version, const SavedTrainers& trainers,
                                              const std::optional<MetricResult>& eval);
  // Makes every directory this run's unless it is already; waits as long as that takes.
  absl::Status Own();
  absl::StatusOr<v1::CheckpointManifest> WriteFiles(const std::string& name, int64_t version,
                                                    const SavedTrainers& trainers);
  absl::Status WriteShards(const std::string& name, int64_t version, v1::CheckpointManifest* manifest);

  const std::string dir_;
  const v1::JobConfig& config_;
  const v1::Plan& plan_;
  const TrainFiles train_files_;
  Client* const client_;
  DenseReplica* const replica_;
  const std::string run_;
  const std::unique_ptr<CheckpointStore> store_;
  std::unique_ptr<DirectoryOwner> owner_;  // null before Own
  // Checkpoint published by the last Save.
  struct Published {
    std::string temporary;
    v1::CheckpointManifest manifest;
  };
  std::optional<Published> published_;
  std::vector<int64_t> saved_trainer_steps_;
};

// Has every server of `client` read the checkpoint with the name of `path` from its own directory. FailedPrecondition
// if that is another checkpoint than `manifest`, which was read at the absolute path `path`. Cancelled: the end of the
// job was requested, and loading takes longer than a second.
absl::Status LoadIntoServers(Client* client, const std::string& path, const v1::CheckpointManifest& manifest);
// Passes the contents of a file to `take`, in pieces.
absl::Status ReadInPieces(const std::string& path, const TakeBytes& take);
// Returns the statistics file of a checkpoint, "" if it has none.
absl::StatusOr<std::string> ReadStatistics(const std::string& directory, const v1::CheckpointManifest& manifest);

}  // namespace weir

#endif  // WEIR_TRAINER_CHECKPOINTS_CHECKPOINTING_H_
