#include "trainer/predict.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "glog/logging.h"
#include "trainer/checkpointing.h"
#include "trainer/data/data_set.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/lane_reader.h"
#include "trainer/data/statistics.h"
#include "trainer/session.h"

namespace weir {
namespace {

constexpr int kChief = 0;

// Predictions with the places where their examples stand. As bytes: number of values per example (int64), then file and
// offset (int64 each) and values (float32 each) of every example.
struct Scores {
  int64_t width = 0;
  std::vector<InputPosition> positions;
  std::vector<float> values;  // positions.size() * width

  std::string Serialize() const {
    std::string out(reinterpret_cast<const char*>(&width), sizeof width);
    for (size_t i = 0; i < positions.size(); ++i) {
      const int64_t place[2] = {positions[i].file, positions[i].offset};
      out.append(reinterpret_cast<const char*>(place), sizeof place);
      out.append(reinterpret_cast<const char*>(values.data() + i * width), width * sizeof(float));
    }
    return out;
  }
  absl::Status Append(const std::string& bytes) {
    const absl::Status bad = absl::InternalError("scores of a trainer cannot be read");
    int64_t its_width = 0;
    if (bytes.size() < sizeof its_width) return bad;
    std::memcpy(&its_width, bytes.data(), sizeof its_width);
    if (its_width == 0) return absl::OkStatus();  // it had no example
    const size_t record = 2 * sizeof(int64_t) + its_width * sizeof(float);
    if (its_width < 0 || (width != 0 && width != its_width) || (bytes.size() - sizeof width) % record != 0) return bad;
    width = its_width;
    for (const char* p = bytes.data() + sizeof width; p != bytes.data() + bytes.size(); p += record) {
      int64_t place[2];
      std::memcpy(place, p, sizeof place);
      positions.push_back({place[0], place[1]});
      values.resize(values.size() + width);
      std::memcpy(values.data() + values.size() - width, p + sizeof place, width * sizeof(float));
    }
    return absl::OkStatus();
  }
  // Lines in input order.
  std::string Text() const {
    std::vector<int64_t> order(positions.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [this](int64_t a, int64_t b) { return positions[a] < positions[b]; });
    std::string text;
    for (const int64_t i : order) {
      for (int64_t j = 0; j < width; ++j) absl::StrAppendFormat(&text, j == 0 ? "%.9g" : " %.9g", values[i * width + j]);
      text += '\n';
    }
    return text;
  }
};

// The chief has the servers load the checkpoint and tells the others what they need of it.
struct Model {
  int64_t step = 0;
  std::string statistics;
};

absl::StatusOr<Model> LoadModel(const PredictOptions& o) {
  std::string mine;
  if (o.trainer_id == kChief) {
    ASSIGN_OR_RETURN(const NewestCheckpoint newest, OpenCheckpoint(o.checkpoint));
    for (const std::string& reason : newest.refused) LOG(WARNING) << "checkpoint refused: " << reason;
    if (newest.manifest.job() != o.job->config.name()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the checkpoint ", newest.found.path, " is of job '", newest.manifest.job(), "', and this is job '",
                       o.job->config.name(), "'; give the job file that it was trained with, or that job's checkpoint"));
    }
    RETURN_IF_ERROR(LoadIntoServers(o.client, newest.found.name));
    ASSIGN_OR_RETURN(const std::string statistics, ReadStatistics(newest.found.path, newest.manifest));
    LOG(INFO) << "scores with " << newest.found.path;
    mine = absl::StrCat(newest.manifest.step(), "\n", statistics);
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> all, o.client->Exchange("model", mine));
  const size_t end = all[kChief].find('\n');
  Model model;
  if (end == std::string::npos || !absl::SimpleAtoi(all[kChief].substr(0, end), &model.step)) {
    return absl::InternalError("what the chief says of the checkpoint cannot be read");
  }
  model.statistics = all[kChief].substr(end + 1);
  return model;
}

}  // namespace

absl::StatusOr<int64_t> RunPredict(const PredictOptions& o) {
  const v1::JobConfig& config = o.job->config;
  ASSIGN_OR_RETURN(const Model model, LoadModel(o));
  const DataSpec spec = MakeDataSpec(config, o.job->directory, o.programs->main);
  std::optional<DataStatistics> statistics;
  if (NeedsStatistics(spec)) {
    if (model.statistics.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the checkpoint ", o.checkpoint, " holds no data statistics, but the job standardises or counts values: it was "
          "trained with another job file"));
    }
    ASSIGN_OR_RETURN(statistics, DataStatistics::Parse(model.statistics));
  }
  v1::DataSource source = config.data().eval();
  if (!o.input.empty()) {
    source.Clear();
    source.add_files(o.input);
  }
  ASSIGN_OR_RETURN(DataSet data, DataSet::Open(source, o.input.empty() ? o.job->directory : "",
                                               o.input.empty() ? "data.eval" : "--input"));
  ASSIGN_OR_RETURN(std::unique_ptr<LaneReader> reader,
                   LaneReader::Create(std::move(data), {.spec = spec,
                                                        .streams = spec.StreamsOf(o.trainer_id),
                                                        .statistics = statistics.has_value() ? &*statistics : nullptr,
                                                        .one_pass_in_order = true,
                                                        .with_positions = true,
                                                        .labels_may_be_missing = true,
                                                        .threads = o.reader_threads}));
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                   Session::Create({.main = o.programs->main,
                                    .startup = o.programs->startup,
                                    .trainer_id = o.trainer_id,
                                    .columns = reader->columns(),
                                    .slow_warning = absl::Seconds(config.deadlines().slow_warning_s()),
                                    .progress_deadline = absl::Seconds(config.deadlines().progress_deadline_s()),
                                    .channel = o.client,
                                    .pool = o.pool}));
  o.client->SetFirstStep(model.step);
  RETURN_IF_ERROR(session->Start(model.step));

  Scores mine;
  RETURN_IF_ERROR(session->Forward(
      model.step, reader.get(), [&] { return o.client->JobStatus(); },
      [&](Executor& executor, const std::vector<LaneBatch>& batches) {
        for (size_t lane = 0; lane < batches.size(); ++lane) {
          if (batches[lane].examples == 0) continue;
          const Tensor& p = std::get<Tensor>(*executor.Find(static_cast<int>(lane), session->loss().prediction()));
          mine.width = p.size() / batches[lane].examples;
          if (mine.width < 1 || mine.width * batches[lane].examples != p.size()) {
            return absl::InvalidArgumentError(absl::StrCat("prediction '", session->loss().prediction(), "' is ",
                                                           ShapeString(p.dims()), " for ", batches[lane].examples,
                                                           " examples; expected as many values for each"));
          }
          mine.positions.insert(mine.positions.end(), batches[lane].positions.begin(), batches[lane].positions.end());
          mine.values.insert(mine.values.end(), p.data<float>(), p.data<float>() + p.size());
        }
        return absl::OkStatus();
      }));

  ASSIGN_OR_RETURN(const std::vector<std::string> all, o.client->Exchange("scores", mine.Serialize()));
  Scores scores;
  for (const std::string& bytes : all) RETURN_IF_ERROR(scores.Append(bytes));
  if (o.trainer_id == kChief) RETURN_IF_ERROR(WriteFileAtomically(o.output, scores.Text()));
  return static_cast<int64_t>(scores.positions.size());
}

}  // namespace weir
