#include "trainer/predict/predict.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "glog/logging.h"
#include "pserver/channels/make_replica_channel.h"
#include "trainer/checkpoints/checkpointing.h"
#include "trainer/checkpoints/resume_check.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/lane_reader.h"
#include "trainer/data/statistics.h"
#include "trainer/files/data_set.h"
#include "trainer/predict/carried_input.h"
#include "trainer/predict/prediction_file.h"
#include "trainer/predict/scores.h"
#include "trainer/session/same_inputs.h"
#include "trainer/session/session.h"
#include "transpiler/job/checkpoint_job.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

constexpr int kChief = 0;

// Exchanges contributions to a step of the prediction; the result is by trainer. Unavailable if one is empty: its
// trainer has died (async), and the others cannot do its part. until_stop: as in Board::Exchange.
absl::StatusOr<std::vector<std::string>> OfAll(Client* client, const char* key, const std::string& mine,
                                               bool until_stop = true) {
  ASSIGN_OR_RETURN(std::vector<std::string> all, client->board().Exchange(key, mine, /*kept=*/false, until_stop));
  for (size_t t = 0; t < all.size(); ++t) {
    if (all[t].empty())
      return absl::UnavailableError(absl::StrCat("trainer ", t, " died before its part was done: predict again"));
  }
  return all;
}

// The chief has the servers load the checkpoint and tells the others what they need of it.
struct Model {
  int64_t step = 0;
  std::string statistics;
};

absl::StatusOr<Model> LoadModel(const PredictOptions& o) {
  std::string mine = "-";
  if (o.trainer_id == kChief) {
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
    const std::string path = std::filesystem::absolute(newest.found.path).lexically_normal().string();
    RETURN_IF_ERROR(
        LoadIntoServers(o.client, path.ends_with('/') ? path.substr(0, path.size() - 1) : path, newest.manifest));
    if (o.replica != nullptr) RETURN_IF_ERROR(o.replica->LoadValues(path, newest.manifest));
    ASSIGN_OR_RETURN(const std::string statistics, ReadStatistics(newest.found.path, newest.manifest));
    LOG(INFO) << "scores with " << newest.found.path;
    mine = absl::StrCat(newest.manifest.step(), "\n", statistics);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all, OfAll(o.client, "model", mine));
  if (o.replica != nullptr) RETURN_IF_ERROR(o.replica->Broadcast(kChief));
  const size_t end = all[kChief].find('\n');
  Model model;
  if (end == std::string::npos || !absl::SimpleAtoi(all[kChief].substr(0, end), &model.step)) {
    return absl::InternalError("what the chief says of the checkpoint cannot be read");
  }
  model.statistics = all[kChief].substr(end + 1);
  return model;
}

// Ends the prediction when its end was requested: what is not whole is of no use.
absl::Status CheckStop(const PredictOptions& o) {
  RETURN_IF_ERROR(o.client->member().JobStatus());
  return o.client->member().StopRequested() ? absl::CancelledError("asked to stop") : absl::OkStatus();
}

constexpr char kScores[] = "scores";

// Sends the scores to the chief as a stream, because all of them may exceed the memory of the servers.
absl::Status SendScores(const PredictOptions& o, const Scores& mine) {
  const std::unique_ptr<ByteStream> stream = o.client->board().StreamTo(kScores, kChief);
  RETURN_IF_ERROR(stream->Append(mine.Serialize()));
  return stream->Finish();
}

// Lines are read again for what they carry: a thousand take a few milliseconds.
constexpr int64_t kLinesBetweenLooks = 1024;

// Writes the output. `carried`: null if nothing is carried.
absl::Status WriteOutput(const PredictOptions& o, const Scores& scores, PredictionFormat format,
                         CarriedInput* carried) {
  const auto width = static_cast<size_t>(std::max<int64_t>(scores.width, 1));
  std::vector<CarriedColumn> columns;
  if (carried != nullptr) columns = carried->columns();
  std::vector<CarriedValue> row, missing;
  for (const CarriedColumn& column : columns) missing.push_back(MissingValue(column));
  const std::vector<float> nan(width, std::numeric_limits<float>::quiet_NaN());
  ASSIGN_OR_RETURN(const std::unique_ptr<PredictionFile> file,
                   PredictionFile::Create(o.output, format, std::move(columns), static_cast<int64_t>(width)));
  int64_t written = 0;
  for (const Scores::Line& line : scores.InOrder()) {
    if (written++ % kLinesBetweenLooks == 0) RETURN_IF_ERROR(CheckStop(o));
    if (line.index < 0) {
      RETURN_IF_ERROR(file->Add(nan, missing));
      continue;
    }
    if (carried != nullptr) RETURN_IF_ERROR(carried->Next(line.position, &row));
    const float* const values = scores.values.data() + static_cast<size_t>(line.index) * width;
    RETURN_IF_ERROR(file->Add(absl::MakeConstSpan(values, width), row));
  }
  return file->Finish();
}

// Collects the scores of all trainers and writes them. `scores`: those of this trainer. counts: examples scored, by
// trainer.
absl::Status WriteScores(const PredictOptions& o, Scores scores, const std::vector<int64_t>& counts,
                         PredictionFormat format, CarriedInput* carried) {
  for (int t = 0; t < static_cast<int>(counts.size()); ++t) {
    if (t == kChief) continue;
    std::string bytes;
    RETURN_IF_ERROR(o.client->board().ReadStream(kScores, t, [&](std::string_view piece) {
      bytes += piece;
      return CheckStop(o);
    }));
    const size_t before = scores.positions.size();
    RETURN_IF_ERROR(scores.Append(bytes));
    if (static_cast<int64_t>(scores.positions.size() - before) == counts[static_cast<size_t>(t)]) continue;
    return absl::UnavailableError(
        absl::StrCat("trainer ", t, " died before its part was done: start the prediction again"));
  }
  RETURN_IF_ERROR(WriteOutput(o, scores, format, carried));
  if (!scores.skipped.empty()) {
    LOG(WARNING) << scores.skipped.size() << " lines did not parse (data.bad_line: SKIP): they are nan in " << o.output;
  }
  return absl::OkStatus();
}

// Opens the files to score, the same at all trainers, for the streams of this one; at the chief, also for `carried`.
absl::StatusOr<std::unique_ptr<LaneReader>> OpenInput(const PredictOptions& o, const Model& model,
                                                      PredictionFormat format, std::unique_ptr<CarriedInput>* carried) {
  const v1::JobConfig& config = o.job->config;
  const DataSpec spec = MakeDataSpec(config, o.job->directory, o.programs->main);
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
  if (o.trainer_id == kChief && !o.carry.empty()) {
    ASSIGN_OR_RETURN(
        *carried, CarriedInput::Create(spec, data, o.carry, format, statistics.has_value() ? &*statistics : nullptr));
  }
  return LaneReader::Create(std::move(data), {.spec = spec,
                                              .streams = spec.StreamsOf(o.trainer_id),
                                              .statistics = statistics.has_value() ? &*statistics : nullptr,
                                              .one_pass_in_order = true,
                                              .with_positions = true,
                                              .labels_may_be_missing = true,
                                              .threads = o.reader_threads});
}

absl::StatusOr<std::unique_ptr<Session>> StartSession(const PredictOptions& o, int64_t step,
                                                      const std::vector<Column>& columns, ParamChannel* channel) {
  const v1::JobConfig& config = o.job->config;
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                   Session::Create({.main = o.programs->main,
                                    .startup = o.programs->startup,
                                    .trainer_id = o.trainer_id,
                                    .device = o.device,
                                    .cpu_ops = {config.train().cpu_ops().begin(), config.train().cpu_ops().end()},
                                    .precision = PrecisionOf(config.train()),
                                    .predicts = true,
                                    .columns = columns,
                                    .slow_warning = absl::Seconds(config.deadlines().slow_warning_s()),
                                    .progress_deadline = absl::Seconds(config.deadlines().progress_deadline_s()),
                                    .channel = channel,
                                    .pool = o.pool}));
  o.client->steps().SetFirstStep(step);
  RETURN_IF_ERROR(session->Start(step));
  return session;
}

// Appends the predictions for the batches that `executor` has just run.
absl::Status AddScores(Executor& executor, const std::vector<LaneBatch>& batches, const std::string& prediction,
                       Scores* scores) {
  for (size_t lane = 0; lane < batches.size(); ++lane) {
    const LaneBatch& batch = batches[lane];
    if (batch.examples == 0) continue;
    const Tensor& p = std::get<Tensor>(*executor.Find(static_cast<int>(lane), prediction));
    scores->width = p.size() / batch.examples;
    if (scores->width < 1 || scores->width * batch.examples != p.size()) {
      return absl::InvalidArgumentError(absl::StrCat("prediction '", prediction, "' is ", ShapeString(p.dims()),
                                                     " for ", batch.examples,
                                                     " examples; expected as many values for each"));
    }
    scores->positions.insert(scores->positions.end(), batch.positions.begin(), batch.positions.end());
    scores->values.insert(scores->values.end(), p.data<float>(), p.data<float>() + p.size());
  }
  return absl::OkStatus();
}

// Exchanges the numbers of examples scored; the result is by trainer.
absl::StatusOr<std::vector<int64_t>> ExchangeCounts(Client* client, size_t mine) {
  ASSIGN_OR_RETURN(const std::vector<std::string> counts, OfAll(client, "scored", absl::StrCat(mine)));
  std::vector<int64_t> scored;
  for (const std::string& count : counts) {
    if (!absl::SimpleAtoi(count, &scored.emplace_back()))
      return absl::InternalError("what a trainer says of its scores cannot be read");
  }
  return scored;
}

absl::StatusOr<int64_t> Predict(const PredictOptions& o) {
  ASSIGN_OR_RETURN(const PredictionFormat format, PredictionFormatOf(o.output, !o.carry.empty()));
  ASSIGN_OR_RETURN(const Model model, LoadModel(o));
  std::unique_ptr<CarriedInput> carried;
  ASSIGN_OR_RETURN(const std::unique_ptr<LaneReader> reader, OpenInput(o, model, format, &carried));
  std::unique_ptr<ParamChannel> own;
  if (o.replica != nullptr) {
    ASSIGN_OR_RETURN(own, MakeReplicaChannel({.main = &o.programs->main,
                                              .trainer_id = o.trainer_id,
                                              .replica = o.replica,
                                              .servers = &o.client->steps()}));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                   StartSession(o, model.step, reader->columns(),
                                own == nullptr ? static_cast<ParamChannel*>(&o.client->steps()) : own.get()));
  Scores mine;
  RETURN_IF_ERROR(session->Forward(
      model.step, reader.get(), [&] { return CheckStop(o); },
      [&](Executor& executor, const std::vector<LaneBatch>& batches) {
        return AddScores(executor, batches, session->loss().prediction(), &mine);
      }));
  mine.skipped = reader->skipped_positions();
  ASSIGN_OR_RETURN(const std::vector<int64_t> scored, ExchangeCounts(o.client, mine.positions.size()));
  RETURN_IF_ERROR(o.trainer_id == kChief ? WriteScores(o, std::move(mine), scored, format, carried.get())
                                         : SendScores(o, mine));
  // Every trainer waits until the file is written: only the chief knows whether it is when a stop is requested.
  RETURN_IF_ERROR(OfAll(o.client, "written", "-", /*until_stop=*/false).status());
  return std::accumulate(scored.begin(), scored.end(), int64_t{0});
}

}  // namespace

absl::StatusOr<int64_t> RunPredict(const PredictOptions& o) {
  absl::StatusOr<int64_t> predicted = Predict(o);
  // A failure of the job says more, and names this trainer if it was the first to hear of the stop.
  if (!absl::IsCancelled(predicted.status()) || !o.client->member().StopRequested() ||
      !o.client->member().JobStatus().ok()) {
    return predicted;
  }
  return absl::CancelledError(absl::StrCat("the prediction was asked to stop and is not complete (",
                                           predicted.status().message(), "): nothing was written ", "to ", o.output,
                                           ", a file of that name is as it was before; predict again"));
}

}  // namespace weir
