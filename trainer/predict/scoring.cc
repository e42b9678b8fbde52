#include "trainer/predict/scoring.h"

#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "glog/logging.h"
#include "trainer/checkpoints/checkpointing.h"
#include "trainer/checkpoints/resume_check.h"
#include "trainer/session/same_inputs.h"
#include "transpiler/job/checkpoint_job.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

constexpr int kChief = 0;

}  // namespace

absl::Status Scoring::CheckStop() const {
  RETURN_IF_ERROR(client->member().JobStatus());
  return client->member().StopRequested() ? absl::CancelledError("asked to stop") : absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Scoring::OfAll(std::string_view key, const std::string& mine,
                                                        bool until_stop) const {
  ASSIGN_OR_RETURN(std::vector<std::string> all, client->board().Exchange(key, mine, /*kept=*/false, until_stop));
  for (size_t t = 0; t < all.size(); ++t) {
    if (all[t].empty())
      return absl::UnavailableError(absl::StrCat("trainer ", t, " died before its part was done: start again"));
  }
  return all;
}

absl::StatusOr<TrainedModel> LoadModel(const Scoring& o) {
  std::string mine = "-";
  TrainedModel model;
  if (o.IsChief()) {
    ASSIGN_OR_RETURN(const NewestCheckpoint newest, OpenCheckpoint(o.checkpoint));
    for (const std::string& reason : newest.refused) LOG(WARNING) << "checkpoint refused: " << reason;
    if (newest.manifest.job() != o.job->config.name()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the checkpoint ", newest.found.path, " is of job '", newest.manifest.job(), "', and this is job '",
          o.job->config.name(), "'; give the job file that it was trained with, or that job's checkpoint"));
    }
    RETURN_IF_ERROR(CheckSameGeo(newest.found.path, newest.manifest, o.job->config));
    std::string unknown;
    RETURN_IF_ERROR(CheckSameScores(*o.job, newest.manifest.job_text(), newest.found.path, &unknown));
    if (!unknown.empty()) LOG(WARNING) << unknown;
    model.path = std::filesystem::absolute(newest.found.path).lexically_normal().string();
    if (model.path.ends_with('/')) model.path.pop_back();
    RETURN_IF_ERROR(LoadIntoServers(o.client, model.path, newest.manifest));
    if (o.replica != nullptr) RETURN_IF_ERROR(o.replica->LoadValues(model.path, newest.manifest));
    ASSIGN_OR_RETURN(const std::string statistics, ReadStatistics(newest.found.path, newest.manifest));
    LOG(INFO) << "scores with " << newest.found.path;
    mine = absl::StrCat(newest.manifest.step(), "\n", statistics);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all, o.OfAll("model", mine));
  if (o.replica != nullptr) RETURN_IF_ERROR(o.replica->Broadcast(kChief));
  const size_t end = all[kChief].find('\n');
  if (end == std::string::npos || !absl::SimpleAtoi(all[kChief].substr(0, end), &model.step)) {
    return absl::InternalError("what the chief says of the checkpoint cannot be read");
  }
  model.statistics = all[kChief].substr(end + 1);
  return model;
}

absl::StatusOr<ScoredExamples> OpenExamples(const Scoring& o, const TrainedModel& model) {
  const v1::JobConfig& config = o.job->config;
  DataSpec spec = MakeDataSpec(config, o.job->directory, o.programs->main);
  std::optional<DataStatistics> statistics;
  if (NeedsStatistics(spec)) {
    if (model.statistics.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the checkpoint ", o.checkpoint,
          " holds no data statistics, but the job standardises columns, counts values or learns from the data: it was "
          "trained with another job file"));
    }
    ASSIGN_OR_RETURN(statistics, DataStatistics::Parse(model.statistics));
  }
  v1::DataSource source = config.data().eval();
  if (!o.input.empty()) {
    source.Clear();
    source.add_files(o.input);
  }
  const std::string field = o.input.empty() ? "data.eval" : "--input";
  ASSIGN_OR_RETURN(DataSet data, DataSet::Open(config.data(), source, o.input.empty() ? o.job->directory : "", field));
  std::vector<Input> inputs = ProgramInputs(*o.programs);
  inputs.push_back(DataInput(field, data));
  RETURN_IF_ERROR(CheckSameInputs(o.client, o.trainer_id, o.programs->main.plan().trainers(), inputs));
  return ScoredExamples{.spec = std::move(spec), .statistics = std::move(statistics), .data = std::move(data)};
}

absl::StatusOr<std::unique_ptr<LaneReader>> ScoredExamples::Read(const Scoring& o, bool labels_may_be_missing) const {
  return LaneReader::Create(data, {.spec = spec,
                                   .streams = spec.StreamsOf(o.trainer_id),
                                   .statistics = statistics.has_value() ? &*statistics : nullptr,
                                   .one_pass_in_order = true,
                                   .with_positions = true,
                                   .labels_may_be_missing = labels_may_be_missing,
                                   .threads = o.reader_threads});
}

absl::StatusOr<ScoringSession> StartSession(const Scoring& o, const TrainedModel& model, SessionOptions options) {
  ScoringSession made;
  if (o.replica != nullptr) {
    ASSIGN_OR_RETURN(made.own, MakeReplicaChannel({.main = &o.programs->main,
                                                   .trainer_id = o.trainer_id,
                                                   .replica = o.replica,
                                                   .servers = &o.client->steps()}));
  }
  const v1::JobConfig& config = o.job->config;
  options.main = o.programs->main;
  options.startup = o.programs->startup;
  options.trainer_id = o.trainer_id;
  options.device = o.device;
  options.cpu_ops = {config.train().cpu_ops().begin(), config.train().cpu_ops().end()};
  options.precision = PrecisionOf(config.train());
  options.slow_warning = absl::Seconds(config.deadlines().slow_warning_s());
  options.progress_deadline = absl::Seconds(config.deadlines().progress_deadline_s());
  options.channel = made.own == nullptr ? static_cast<ParamChannel*>(&o.client->steps()) : made.own.get();
  options.pool = o.pool;
  ASSIGN_OR_RETURN(made.session, Session::Create(std::move(options)));
  o.client->steps().SetFirstStep(model.step);
  RETURN_IF_ERROR(made.session->Start(model.step));
  return made;
}

}  // namespace weir
