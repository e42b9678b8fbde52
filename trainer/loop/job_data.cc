#include "trainer/loop/job_data.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "trainer/data/watched_pass.h"
#include "trainer/follow/follower.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

// Contribution of a trainer that was asked to stop before it had measured its streams. It is none of CollectStatistics,
// which begins with another magic number.
constexpr char kStopped[] = "stopped";

}  // namespace

JobData::JobData(JobDataOptions options)
    : o_(std::move(options)), spec_(MakeDataSpec(o_.job->config, o_.job->directory, *o_.program)) {}

absl::StatusOr<std::unique_ptr<JobData>> JobData::Open(JobDataOptions options) {
  std::unique_ptr<JobData> data(new JobData(std::move(options)));
  const v1::Data& config = data->o_.job->config.data();
  const std::string& directory = data->o_.job->directory;
  if (config.has_follow()) {
    ASSIGN_OR_RETURN(data->train_, DataSet::OpenFound(config, config.train(), directory, "data.train", {}));
  } else {
    ASSIGN_OR_RETURN(data->train_, DataSet::Open(config, config.train(), directory, "data.train"));
  }
  if (config.has_eval()) {
    ASSIGN_OR_RETURN(data->eval_, DataSet::Open(config, config.eval(), directory, "data.eval"));
  }
  return data;
}

absl::Status JobData::CutBy(int scheme) {
  if (!CutsTrainBy(scheme)) {
    return absl::FailedPreconditionError(absl::StrCat("the chief cuts data.train into streams by rule ", scheme,
                                                      ", which this build does not know for its files: all trainers "
                                                      "need the same build"));
  }
  spec_.stream_scheme = scheme;
  return absl::OkStatus();
}

std::vector<Input> JobData::Inputs() const {
  std::vector<Input> inputs;
  if (!follows()) inputs.push_back(DataInput("data.train", *train_));
  if (eval_.has_value()) inputs.push_back(DataInput("data.eval", *eval_));
  return inputs;
}

absl::StatusOr<std::string> JobData::MeasureStreams() const {
  DataSet train = *train_;
  if (follows()) {
    absl::StatusOr<std::shared_ptr<const DataSet>> first = follower_->AwaitFirst();
    if (o_.trainer.StoppedBy(first.status())) return kStopped;
    if (!first.ok()) return AtField(*o_.job, first.status());
    train = **first;
  }
  const v1::Deadlines& deadlines = o_.job->config.deadlines();
  const LaneRange streams = spec_.StreamsOf(o_.trainer.id);
  const PassWatch watch = {
      .what = absl::StrCat("the data statistics of streams ", streams.begin, " to ", streams.begin + streams.count - 1),
      .slow_warning = absl::Seconds(deadlines.slow_warning_s()),
      .progress_deadline = absl::Seconds(deadlines.progress_deadline_s()),
      .keep_waiting = o_.trainer.UntilStop()};
  // A pass that is left behind must own everything it uses, its threads included.
  absl::StatusOr<std::string> mine = RunWatched(
      watch, [spec = spec_, train, streams, threads = o_.pool->threads()](const std::function<bool()>& cancelled) {
        ThreadPool pool("weir-statistics", threads);
        return CollectStatistics(spec, train, streams, &pool, cancelled);
      });
  if (o_.trainer.StoppedBy(mine.status())) return kStopped;
  if (!mine.ok()) return AtField(*o_.job, mine.status());
  return mine;
}

absl::Status JobData::LearnStatistics(const std::string& saved) {
  if (!NeedsStatistics(spec_)) return absl::OkStatus();
  if (!saved.empty()) {
    ASSIGN_OR_RETURN(statistics_, DataStatistics::Parse(saved));
    return absl::OkStatus();
  }
  if (follows() && follower_->takes_over()) {
    // The files that they were measured on may be gone.
    std::vector<std::string> all;
    ASSIGN_OR_RETURN(const bool complete, o_.trainer.client->board().TryCollect("statistics", &all));
    if (complete && !all.empty()) return TakeStatistics(all);
  }
  ASSIGN_OR_RETURN(const std::string mine, MeasureStreams());
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   o_.trainer.client->board().Exchange("statistics", mine, /*kept=*/true));
  return TakeStatistics(all);
}

absl::Status JobData::TakeStatistics(const std::vector<std::string>& all) {
  for (size_t t = 0; t < all.size(); ++t) {
    if (!all[t].empty()) continue;
    return absl::UnavailableError(
        absl::StrCat("trainer ", t, " died before it had measured its part of data.train: start the job again"));
  }
  stopped_ = std::find(all.begin(), all.end(), kStopped) != all.end();
  if (stopped_) return absl::CancelledError("asked to stop before the data statistics were complete");
  absl::StatusOr<DataStatistics> merged = MergeStatistics(spec_, all);
  if (!merged.ok()) return AtField(*o_.job, merged.status());
  statistics_ = *std::move(merged);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LaneReader>> JobData::TrainReader() const {
  return MakeReader(*train_, /*one_pass=*/false);
}

absl::StatusOr<std::unique_ptr<LaneReader>> JobData::EvalReader() const {
  return MakeReader(*eval_, /*one_pass=*/true);
}

absl::StatusOr<std::unique_ptr<LaneReader>> JobData::MakeReader(const DataSet& data, bool one_pass) const {
  const bool followed = follows() && !one_pass;
  absl::StatusOr<std::unique_ptr<LaneReader>> reader =
      LaneReader::Create(data, {.spec = spec_,
                                .streams = spec_.StreamsOf(o_.trainer.id),
                                .statistics = statistics(),
                                .one_pass_in_order = one_pass,
                                .before_batch = one_pass ? nullptr : o_.before_batch,
                                .first_batches = o_.batches_per_step,
                                .followed = followed ? follower_->files() : nullptr,
                                .starts = followed ? follower_->starts() : std::vector<StreamStart>(),
                                .keeps_places = o_.keeps_places && !one_pass,
                                .warns_of_absent = !one_pass && o_.trainer.IsChief(),
                                .threads = o_.reader_threads});
  return reader.ok() ? std::move(reader) : AtField(*o_.job, reader.status());
}

absl::Status JobData::NoExamples(int64_t skipped_lines) const {
  if (follows()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.train: no file with an example to train on has appeared before '", spec_.config.follow().until(),
        "' (data.follow.until)",
        skipped_lines > 0 ? absl::StrCat("; ", skipped_lines, " lines were skipped (data.bad_line: SKIP)") : ""));
  }
  std::vector<std::string> names;
  for (const DataFile& file : train_->files()) names.push_back(absl::StrCat(file.name, " (", file.bytes, " bytes)"));
  if (names.size() > 3) names.resize(3);
  return absl::InvalidArgumentError(absl::StrCat(
      "data.train: there are no examples to train on in ", train_->files().size(),
      train_->files().size() == 1 ? " file" : " files", ": ", absl::StrJoin(names, ", "),
      train_->files().size() > 3 ? ", ..." : "", train_->where().empty() ? "" : "; data.train.where may leave out all",
      skipped_lines > 0 ? absl::StrCat("; ", skipped_lines, " lines were skipped (data.bad_line: SKIP)") : "",
      o_.job->config.data().drop_last()
          ? absl::StrCat("; a stream gives whole batches only, of ", spec_.StreamBatch(0), " examples (data.drop_last)")
          : ""));
}

absl::Status JobData::NoInputs(const v1::AbsentInputs& absent) const {
  if (!absent.whole() || absent.places().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeReaderParser(spec_.config));
  const std::vector<NamedInput> inputs = ExpectedInputs(*parser, spec_.config);
  if (*absent.places().rbegin() >= inputs.size()) return absl::InternalError("an absent input is none of the job's");
  const bool one = absent.places_size() == 1;
  return AtField(*o_.job, absl::InvalidArgumentError(absl::StrCat(
                              inputs[absent.places(0)].path, ": ", NamesOf(inputs, absent.places()),
                              one ? " is" : " are", " in no example of data.train",
                              train_->where().empty() ? "" : " that its rules keep", InFirstRecord(*parser, *train_),
                              "; correct the name, take it out of the job, or name it in ", "data.may_be_absent")));
}

void WarnOfSkippedLines(const LaneReader& reader, const char* data) {
  if (const int64_t skipped = reader.skipped_lines(); skipped > 0) {
    LOG(WARNING) << skipped << " lines of " << data << " did not parse and were skipped (data.bad_line: SKIP)";
  }
}

}  // namespace weir
