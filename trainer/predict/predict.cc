#include "trainer/predict/predict.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "trainer/data/lane_reader.h"
#include "trainer/predict/carried_input.h"
#include "trainer/predict/prediction_file.h"
#include "trainer/predict/scores.h"
#include "trainer/session/session.h"

namespace weir {
namespace {

constexpr int kChief = 0;

constexpr char kScores[] = "scores";

// Sends the scores to the chief as a stream, because all of them may exceed the memory of the servers.
absl::Status SendScores(const PredictOptions& o, const Scores& mine) {
  const std::unique_ptr<ByteStream> stream = o.scoring.client->board().StreamTo(kScores, kChief);
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
    if (written++ % kLinesBetweenLooks == 0) RETURN_IF_ERROR(o.scoring.CheckStop());
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
    RETURN_IF_ERROR(o.scoring.client->board().ReadStream(kScores, t, [&](std::string_view piece) {
      bytes += piece;
      return o.scoring.CheckStop();
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
absl::StatusOr<std::vector<int64_t>> ExchangeCounts(const Scoring& scoring, size_t mine) {
  ASSIGN_OR_RETURN(const std::vector<std::string> counts, scoring.OfAll("scored", absl::StrCat(mine)));
  std::vector<int64_t> scored;
  for (const std::string& count : counts) {
    if (!absl::SimpleAtoi(count, &scored.emplace_back()))
      return absl::InternalError("what a trainer says of its scores cannot be read");
  }
  return scored;
}

absl::StatusOr<int64_t> Predict(const PredictOptions& o) {
  ASSIGN_OR_RETURN(const PredictionFormat format, PredictionFormatOf(o.output, !o.carry.empty()));
  ASSIGN_OR_RETURN(const TrainedModel model, LoadModel(o.scoring));
  ASSIGN_OR_RETURN(const ScoredExamples examples, OpenExamples(o.scoring, model));
  std::unique_ptr<CarriedInput> carried;
  if (o.scoring.IsChief() && !o.carry.empty()) {
    ASSIGN_OR_RETURN(carried, CarriedInput::Create(examples.spec, examples.data, o.carry, format,
                                                   examples.statistics.has_value() ? &*examples.statistics : nullptr));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LaneReader> reader, examples.Read(o.scoring, /*labels_may_be_missing=*/true));
  ASSIGN_OR_RETURN(const ScoringSession scoring,
                   StartSession(o.scoring, model, {.predicts = true, .columns = reader->columns()}));
  Session* const session = scoring.session.get();
  Scores mine;
  RETURN_IF_ERROR(session->Forward(
      model.step, reader.get(), [&] { return o.scoring.CheckStop(); },
      [&](Executor& executor, const std::vector<LaneBatch>& batches) {
        return AddScores(executor, batches, session->loss().prediction(), &mine);
      }));
  mine.skipped = reader->skipped_positions();
  ASSIGN_OR_RETURN(const std::vector<int64_t> scored, ExchangeCounts(o.scoring, mine.positions.size()));
  RETURN_IF_ERROR(o.scoring.IsChief() ? WriteScores(o, std::move(mine), scored, format, carried.get())
                                      : SendScores(o, mine));
  // Every trainer waits until the file is written: only the chief knows whether it is when a stop is requested.
  RETURN_IF_ERROR(o.scoring.OfAll("written", "-", /*until_stop=*/false).status());
  return std::accumulate(scored.begin(), scored.end(), int64_t{0});
}

}  // namespace

absl::StatusOr<int64_t> RunPredict(const PredictOptions& o) {
  absl::StatusOr<int64_t> predicted = Predict(o);
  // A failure of the job says more, and names this trainer if it was the first to hear of the stop.
  if (!absl::IsCancelled(predicted.status()) || !o.scoring.client->member().StopRequested() ||
      !o.scoring.client->member().JobStatus().ok()) {
    return predicted;
  }
  return absl::CancelledError(absl::StrCat("the prediction was asked to stop and is not complete (",
                                           predicted.status().message(), "): nothing was written ", "to ", o.output,
                                           ", a file of that name is as it was before; predict again"));
}

}  // namespace weir
