// What prediction and importance have in common: the model of a checkpoint, and the examples to score with it.
#ifndef WEIR_TRAINER_PREDICT_SCORING_H_
#define WEIR_TRAINER_PREDICT_SCORING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/tensor/device_memory.h"
#include "pserver/channels/make_replica_channel.h"
#include "pserver/client/client.h"
#include "pserver/replica/dense_replica.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/lane_reader.h"
#include "trainer/data/statistics.h"
#include "trainer/files/data_set.h"
#include "trainer/session/session.h"
#include "transpiler/split/transpile.h"

namespace weir {

struct Job;

struct Scoring {
  // All borrowed.
  const Job* job = nullptr;
  const Programs* programs = nullptr;
  Client* client = nullptr;         // joined
  DenseReplica* replica = nullptr;  // as TrainOptions::replica
  ThreadPool* pool = nullptr;
  int trainer_id = 0;
  // Device that computes lanes; null: the CPU.
  DeviceMemory* device = nullptr;
  // Threads that read; 0: as many as cores, at most one per stream.
  int reader_threads = 0;
  // A checkpoint directory (its newest complete checkpoint is used) or a step's directory. The servers read their own
  // <checkpoint.dir>/<step>, and refuse if that is another checkpoint.
  std::string checkpoint;
  // Pattern of the files to score, relative to the working directory; empty: data.eval of the job.
  std::string input;

  bool IsChief() const { return trainer_id == 0; }
  // Ends the work when its end was requested: what is not whole is of no use.
  absl::Status CheckStop() const;
  // Exchanges contributions of all trainers; the result is by trainer. Each key is for one exchange. Unavailable if one
  // is empty: its trainer has died (async), and the others cannot do its part. until_stop: as in Board::Exchange.
  absl::StatusOr<std::vector<std::string>> OfAll(std::string_view key, const std::string& mine,
                                                 bool until_stop = true) const;
};

struct TrainedModel {
  int64_t step = 0;
  std::string statistics;
  std::string path;  // of the checkpoint; the chief only
};

// Has the servers, and the replica, load the checkpoint. Every trainer must call it. FailedPrecondition: the checkpoint
// does not fit this job, or the job would give other scores than the model in it (transpiler/job/checkpoint_job.h).
absl::StatusOr<TrainedModel> LoadModel(const Scoring& scoring);

// The examples to score, the same at all trainers.
struct ScoredExamples {
  DataSpec spec;
  std::optional<DataStatistics> statistics;  // if the job needs them
  DataSet data;

  // Returns a reader of the streams of a trainer, in the order of the files. `labels_may_be_missing`: as in
  // LaneReaderOptions.
  absl::StatusOr<std::unique_ptr<LaneReader>> Read(const Scoring& scoring, bool labels_may_be_missing) const;
};
// Every trainer must call it. InvalidArgument: the files are not the same everywhere, or the checkpoint lacks
// statistics that the job needs.
absl::StatusOr<ScoredExamples> OpenExamples(const Scoring& scoring, const TrainedModel& model);

// A session, and the channel that it borrows.
struct ScoringSession {
  std::unique_ptr<ParamChannel> own;
  std::unique_ptr<Session> session;
};
// Starts a session at the step of the model. `options` has what the caller wants of a session beside its model, place
// and threads.
absl::StatusOr<ScoringSession> StartSession(const Scoring& scoring, const TrainedModel& model, SessionOptions options);

}  // namespace weir

#endif  // WEIR_TRAINER_PREDICT_SCORING_H_
