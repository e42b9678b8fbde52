#include "trainer/loop/job_data.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/formats/partitions.h"
#include "glog/logging.h"
#include "trainer/data/watched_pass.h"
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
  ASSIGN_OR_RETURN(data->train_, TrainSource::Open(data->o_.job));
  if (config.has_eval()) {
    ASSIGN_OR_RETURN(data->eval_, DataSet::Open(config, config.eval(), directory, "data.eval"));
  }
  return data;
}

absl::Status JobData::CutBy(int scheme) {
  if (!train_->CutsBy(scheme)) {
    return absl::FailedPreconditionError(absl::StrCat("the chief cuts data.train into streams by rule ", scheme,
                                                      ", which this build does not know for its files: all trainers "
                                                      "need the same build"));
  }
  spec_.stream_scheme = scheme;
  return absl::OkStatus();
}

absl::Status JobData::Begin(const Begun& begun) {
  const v1::TrainerState& state = begun.beginning.trainers();
  // Before the first step nothing has been read.
  if (begun.beginning.step() > 0) RETURN_IF_ERROR(CutBy(state.stream_scheme()));
  return train_->Begin({.trainer = o_.trainer,
                        .job = o_.job,
                        .spec = spec_,
                        .batches_per_step = o_.batches_per_step,
                        .state = state.follow(),
                        .first_steps = begun.first_steps,
                        .step = begun.step,
                        .takes_over = begun.takes_over},
                       begun.places);
}

std::vector<Input> JobData::Inputs() const {
  std::vector<Input> inputs = train_->Inputs();
  if (eval_.has_value()) inputs.push_back(DataInput("data.eval", *eval_));
  return inputs;
}

absl::StatusOr<std::string> JobData::MeasureStreams() const {
  const absl::StatusOr<DataSet> train = train_->FirstFiles();
  if (o_.trainer.StoppedBy(train.status())) return kStopped;
  if (!train.ok()) return AtField(*o_.job, train.status());
  const v1::Deadlines& deadlines = o_.job->config.deadlines();
  const LaneRange streams = spec_.StreamsOf(o_.trainer.id);
  const PassWatch watch = {
      .what = absl::StrCat("the data statistics of streams ", streams.begin, " to ", streams.begin + streams.count - 1),
      .slow_warning = absl::Seconds(deadlines.slow_warning_s()),
      .progress_deadline = absl::Seconds(deadlines.progress_deadline_s()),
      .keep_waiting = o_.trainer.UntilStop()};
  // A pass that is left behind must own everything it uses, its threads included.
  absl::StatusOr<std::string> mine = RunWatched(
      watch,
      [spec = spec_, train = *train, streams, threads = o_.pool->threads()](const std::function<bool()>& cancelled) {
        ThreadPool pool("weir-statistics", threads);
        return CollectStatistics(spec, train, streams, &pool, cancelled);
      });
  if (o_.trainer.StoppedBy(mine.status())) return kStopped;
  if (!mine.ok()) return AtField(*o_.job, mine.status());
  return mine;
}

absl::Status JobData::LearnStatistics(const v1::Beginning& beginning) {
  if (!NeedsStatistics(spec_)) return absl::OkStatus();
  if (!beginning.statistics().empty()) {
    ASSIGN_OR_RETURN(statistics_, DataStatistics::Parse(beginning.statistics()));
    return absl::OkStatus();
  }
  if (beginning.inherited_size() > 0) {
    ASSIGN_OR_RETURN(heritage_, StatisticsHeritage::Create(spec_, beginning.inherited()));
    if (heritage_->missing().empty()) {
      statistics_ = heritage_->Join(nullptr);
      return absl::OkStatus();
    }
    spec_.uncounted_slots = heritage_->uncounted_slots();
    if (o_.trainer.IsChief()) {
      LOG(INFO) << "start_from: statistics of " << absl::StrJoin(heritage_->missing(), ", ")
                << " are in no checkpoint and are measured";
    }
  }
  if (train_->FirstFilesMayBeGone()) {
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
  statistics_ = heritage_.has_value() ? heritage_->Join(&*merged) : *std::move(merged);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LaneReader>> JobData::TrainReader() const {
  LaneReaderOptions options = ReaderOptions();
  options.before_batch = o_.before_batch;
  options.keeps_places = o_.keeps_places;
  options.warns_of_absent = o_.trainer.IsChief();
  absl::StatusOr<std::unique_ptr<LaneReader>> reader = train_->Reader(std::move(options));
  return reader.ok() ? std::move(reader) : AtField(*o_.job, reader.status());
}

absl::StatusOr<std::unique_ptr<LaneReader>> JobData::EvalReader() const {
  LaneReaderOptions options = ReaderOptions();
  options.spec = SpecOfEvaluation(std::move(options.spec), o_.job->config);
  options.one_pass_in_order = true;
  absl::StatusOr<std::unique_ptr<LaneReader>> reader = LaneReader::Create(*eval_, std::move(options));
  return reader.ok() ? std::move(reader) : AtField(*o_.job, reader.status());
}

LaneReaderOptions JobData::ReaderOptions() const {
  return {.spec = spec_,
          .streams = spec_.StreamsOf(o_.trainer.id),
          .statistics = statistics(),
          .first_batches = o_.batches_per_step,
          .threads = o_.reader_threads};
}

absl::Status JobData::NoInputs(const v1::AbsentInputs& absent) const {
  if (!absent.whole() || absent.places().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeReaderParser(spec_.config));
  const std::vector<NamedInput> inputs = ExpectedInputs(*parser, spec_.config);
  if (*absent.places().rbegin() >= inputs.size()) return absl::InternalError("an absent input is none of the job's");
  const bool one = absent.places_size() == 1;
  return AtField(*o_.job,
                 absl::InvalidArgumentError(absl::StrCat(
                     inputs[absent.places(0)].path, ": ", NamesOf(inputs, absent.places()), one ? " is" : " are",
                     " in no example of data.train", train_->files().where().empty() ? "" : " that its rules keep",
                     InFirstRecord(*parser, train_->files()),
                     "; correct the name, take it out of the job, or name it in ", "data.may_be_absent")));
}

void WarnOfSkippedLines(const LaneReader& reader, const char* data) {
  if (const int64_t skipped = reader.skipped_lines(); skipped > 0) {
    LOG(WARNING) << skipped << " lines of " << data << " did not parse and were skipped (data.bad_line: SKIP)";
  }
}

}  // namespace weir
