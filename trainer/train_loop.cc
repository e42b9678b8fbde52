#include "trainer/train_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/counters.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/digest_log.h"
#include "framework/runtime/device_executor.h"
#include "framework/runtime/profiler.h"
#include "glog/logging.h"
#include "pserver/embedded/geo_channel.h"
#include "trainer/ahead_thread.h"
#include "trainer/beginning.h"
#include "trainer/checkpointing.h"
#include "trainer/data/data_set.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/lane_reader.h"
#include "trainer/data/statistics.h"
#include "trainer/data/watched_pass.h"
#include "trainer/ending.h"
#include "trainer/half_async.h"
#include "trainer/loss_scaler.h"
#include "trainer/progress.h"
#include "trainer/row_cache.h"
#include "trainer/same_inputs.h"
#include "trainer/session.h"

namespace weir {
namespace {

// The chief in sync.
constexpr int kFirst = 0;
// What the chief says: where to begin; under which number it writes a checkpoint, before it does; that the one of the
// end is published, with the steps of each trainer that it holds.
constexpr char kBeginning[] = "beginning", kSaving[] = "saving", kSaved[] = "saved";

const ProfileName kStepName("step"), kRowsAhead("batch and rows pulled ahead"), kMetrics("training metrics"),
    kWorkers("workers"), kEvaluation("evaluation"), kCheckpoint("checkpoint"), kDigest("digest");

// One run of the program by every worker.
struct Round {
  int64_t step = 0;
  int batch = 0;                                // of the step
  std::vector<std::vector<LaneBatch>> batches;  // by worker
  // Async: this trainer's streams had ended before the step, or have too little left for one.
  bool ended = false;
};

void WarnOfSkipped(const LaneReader& reader, const char* data) {
  if (const int64_t skipped = reader.skipped_lines(); skipped > 0) {
    LOG(WARNING) << skipped << " lines of " << data << " did not parse and were skipped (data.bad_line: SKIP)";
  }
}

class TrainLoop {
 public:
  explicit TrainLoop(const TrainOptions& options)
      : o_(options),
        config_(options.job->config),
        plan_(options.programs->main.plan()),
        mode_(ModeOf(options.programs->main)),
        loss_scaler_(options.job->config.train()),
        skipped_steps_(
            Counters::Process().Get(absl::StrCat("trainer.", options.trainer_id, ".skipped_steps"), "steps")),
        train_metrics_(options.programs->main.losses(0).kind()) {}

  absl::StatusOr<TrainSummary> Run();

 private:
  absl::Status OpenData();
  // Whether all trainers see the same data and run the same program.
  absl::Status CompareInputs();
  absl::Status Begin();
  // What the chief does before anyone begins: checkpoints and row files go to the servers.
  absl::StatusOr<Beginning> MakeBeginning();
  absl::Status LearnStatistics();
  absl::StatusOr<std::unique_ptr<LaneReader>> MakeReader(const DataSet& data, bool one_pass);
  absl::Status StartSessions();
  absl::Status Steps();
  absl::StatusOr<bool> OneStep();
  absl::StatusOr<bool> RunBatches(StepResult* result);
  // Its batches, and with prefetch_rows the rows for them.
  absl::Status ReadRound(Round* round);
  // Brings round (step_, batch) into now_.
  absl::Status NextRound(int batch);
  void StartAhead(int64_t step, int batch);
  // Async: with now_ the step is complete, and it has fewer than half of the examples of this trainer's step 0.
  bool TooSmall() const;
  // Sync: the data is what it was when the checkpoint was written, as far as step 0 shows.
  absl::Status CheckFirstStep(int64_t first_samples);
  // What this trainer's streams had left when they ended the run.
  LeftOut CountLeftOut();
  // `all`: of all trainers.
  void SayLeftOut(const LeftOut& all);
  absl::Status AtBorder();
  // This trainer's share of an evaluation, on the parameters that the session has.
  absl::StatusOr<std::string> Evaluate();
  absl::Status SyncEvaluation(const std::string& key);
  absl::Status StartAsyncEvaluation();
  absl::Status CollectAsyncEvaluations();
  absl::Status EndAsyncEvaluations(const std::string& open_at_chief);
  absl::Status Digest();
  DigestExtent ExtentOf(const std::string& variable) const;
  absl::Status Save();
  // The chief's part of Save. False: another has become the chief.
  absl::StatusOr<bool> WriteCheckpoint();
  // Async: what the checkpoint is called, above those before it, whose chief may have been further; told to server 0.
  // nullopt: another has become the chief.
  absl::StatusOr<std::optional<int64_t>> CheckpointNumber();
  // The checkpoint of the end. Nobody goes before there is one with all of its own steps.
  absl::Status SaveLast();
  // In async: this trainer's residuals, for the checkpoints of the chief, who has its own.
  absl::Status PostResiduals();
  absl::Status RestoreResiduals();
  // Keeps an error of what stands beside the training, which must not cost the parameters: the run stops at the next
  // common step border, saves and ends with it. Returns it when there is nothing to wait for: nothing is saved, or
  // everything is.
  absl::Status Defer(const absl::Status& error);
  // The error of a run whose trainers have not had one example.
  absl::Status NoExamples(int64_t skipped_lines) const;
  absl::Status End();

  // Ends a wait for data when the job has failed elsewhere.
  std::function<absl::Status()> KeepWaiting() {
    return [this] { return o_.client->JobStatus(); };
  }
  // Whether this trainer has the duties of the chief, as server 0 last said. In sync it is always trainer 0.
  bool IsChief() const { return o_.client->Chief() == o_.trainer_id; }
  bool Due(int64_t every) const { return every > 0 && step_ % every == 0; }

  const TrainOptions& o_;
  const v1::JobConfig& config_;
  const v1::Plan& plan_;
  const TrainingMode mode_;
  LossScaler loss_scaler_;
  Counter* const skipped_steps_;
  DataSpec spec_;
  std::optional<DataSet> train_, eval_;
  std::optional<DataStatistics> statistics_;
  std::unique_ptr<Checkpointing> checkpoints_;  // null: the job keeps none
  std::unique_ptr<LaneReader> reader_;
  std::unique_ptr<CachedRowSource> cache_;           // null: no table is cached
  std::unique_ptr<ChannelWithRows> cached_servers_;  // null: no row of the program's own pulls is cached
  std::unique_ptr<GeoChannel> geo_;                  // null: the servers hold the only copy
  std::unique_ptr<WorkerGroup> group_;               // null: one thread runs the program
  // One for each worker; the first evaluates.
  std::vector<std::unique_ptr<Session>> sessions_;
  Session* session_ = nullptr;
  std::unique_ptr<Progress> progress_;
  Metrics train_metrics_;
  Round now_;
  Round next_;  // of ahead_'s thread while that is busy
  Beginning beginning_;
  int beginning_by_ = 0;  // who has said it
  int64_t number_ = 0;    // of the last checkpoint that this trainer has written or gone on from
  // Examples of this trainer: in step 0; in the batches of the step in hand so far; in the steps since it began or went
  // on.
  int64_t first_examples_ = 0, step_examples_ = 0, trained_examples_ = 0;
  int64_t first_step_examples_ = 0;  // sync: of step 0, of the whole cluster
  bool data_ended_ = false;          // that is what ended the run
  LeftOut left_out_;
  int64_t step_ = 0;  // steps done
  // Of the servers at this border: steps done, and one more when a step without examples has ended the run.
  int64_t version_ = 0;
  bool stop_ = false;
  // Evaluations of this very step, for the checkpoint's manifest.
  std::optional<MetricResult> eval_result_;
  int64_t eval_step_ = -1;
  int64_t saved_step_ = -1;
  int64_t posted_step_ = -1;
  int64_t skipped_lines_ = 0;  // of the training data
  absl::Status deferred_;
  bool ended_ = false;  // the parameters of the end are saved
  // Async: evaluations whose contributions are not all there yet, by the step of this trainer.
  std::vector<int64_t> open_evaluations_;
  TrainSummary summary_;
  // With prefetch_rows: runs of the program that had to wait for their batch or its rows.
  Counter* late_ = nullptr;
  // Reads the next round; null without prefetch_rows. It works with what stands above.
  std::unique_ptr<AheadThread> ahead_;
};

absl::StatusOr<TrainSummary> TrainLoop::Run() {
  RETURN_IF_ERROR(OpenData());
  RETURN_IF_ERROR(CompareInputs());
  RETURN_IF_ERROR(Begin());
  RETURN_IF_ERROR(Steps());
  RETURN_IF_ERROR(End());
  return summary_;
}

absl::Status TrainLoop::OpenData() {
  spec_ = MakeDataSpec(config_, o_.job->directory, o_.programs->main);
  ASSIGN_OR_RETURN(train_, DataSet::Open(config_.data(), config_.data().train(), o_.job->directory, "data.train"));
  if (config_.data().has_eval()) {
    ASSIGN_OR_RETURN(eval_, DataSet::Open(config_.data(), config_.data().eval(), o_.job->directory, "data.eval"));
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::CompareInputs() {
  std::vector<Input> inputs = ProgramInputs(*o_.programs);
  inputs.push_back(DataInput("data.train", *train_));
  if (eval_.has_value()) inputs.push_back(DataInput("data.eval", *eval_));
  return CheckSameInputs(o_.client, o_.trainer_id, plan_.trainers(), inputs);
}

absl::StatusOr<Beginning> TrainLoop::MakeBeginning() {
  Beginning mine;
  if (checkpoints_ != nullptr && o_.resume) {
    ASSIGN_OR_RETURN(const std::optional<ResumePoint> point, checkpoints_->Resume());
    mine.resumed = point.has_value();
    if (point.has_value()) mine.point = *point;
    if (!point.has_value())
      LOG(WARNING) << "--resume: no checkpoint in " << config_.checkpoint().dir() << ", starts at step 0";
  } else if (checkpoints_ != nullptr) {
    RETURN_IF_ERROR(checkpoints_->StartAfresh());
  }
  if (!mine.resumed && !RowFiles(*o_.job).empty()) {
    v1::ControlRequest load;
    load.mutable_load_rows();
    RETURN_IF_ERROR(o_.client->Control(load).status());
  }
  return mine;
}

absl::Status TrainLoop::Begin() {
  if (!config_.checkpoint().dir().empty()) {
    checkpoints_ = std::make_unique<Checkpointing>(o_.job->Path(config_.checkpoint().dir()), config_, plan_,
                                                   train_->Description(), o_.client);
  }
  if (o_.resume && config_.checkpoint().dir().empty()) {
    return o_.job->positions.Error("checkpoint.dir", "--resume needs checkpoint.dir: where the checkpoints are");
  }
  const std::optional<int64_t> takes_over = o_.client->TakesOver();
  // It is said once while the servers live: by whoever is the chief, also when the one before has died over it.
  ASSIGN_OR_RETURN(Client::Word word, o_.client->AwaitWord(kBeginning, 0));
  std::string residuals;  // the chief's
  if (word.by < 0) {
    ASSIGN_OR_RETURN(Beginning mine, MakeBeginning());
    word.by = o_.trainer_id;
    word.text = mine.Serialize();
    RETURN_IF_ERROR(o_.client->Post(kBeginning, word.text, 0));
    residuals = std::move(mine.point.residuals);
  }
  ASSIGN_OR_RETURN(beginning_, Beginning::Parse(word.text));
  beginning_.point.residuals = std::move(residuals);
  beginning_by_ = word.by;
  number_ = beginning_.point.step;
  RETURN_IF_ERROR(o_.client->Exchange(kBeginning, "", /*kept=*/true).status());
  step_ = beginning_.point.step;
  if (beginning_.point.loss_scale.has_value()) loss_scaler_.Restore(*beginning_.point.loss_scale);
  if (!plan_.sync() && beginning_.resumed) {
    const std::vector<int64_t>& steps = beginning_.point.trainer_steps;
    if (static_cast<int>(steps.size()) == plan_.trainers()) {
      step_ = steps[o_.trainer_id];
    } else {
      // Nobody knows which lane had come how far: from where all of them had come at least.
      step_ = steps.empty() ? 0 : *std::min_element(steps.begin(), steps.end());
      LOG(WARNING) << "the checkpoint is of " << steps.size() << " trainers, the job has " << plan_.trainers()
                   << ": reading goes on at step " << step_ << ", some examples are seen twice";
    }
  }
  RETURN_IF_ERROR(RestoreResiduals());
  if (takes_over.has_value()) {
    // A dead one that had done nothing begins where all do.
    step_ = std::max(step_, *takes_over);
    LOG(INFO) << "trainer " << o_.trainer_id << " takes the place of a dead one and goes on at step " << step_;
  }
  RETURN_IF_ERROR(LearnStatistics());
  ASSIGN_OR_RETURN(reader_, MakeReader(*train_, /*one_pass=*/false));
  version_ = step_;
  if (step_ > 0) reader_->SkipTo(step_ * mode_.accumulate * mode_.workers);
  o_.client->SetFirstStep(step_);
  return StartSessions();
}

absl::Status TrainLoop::StartSessions() {
  const absl::Duration slow_warning = absl::Seconds(config_.deadlines().slow_warning_s());
  const absl::Duration progress_deadline = absl::Seconds(config_.deadlines().progress_deadline_s());
  std::map<std::string, v1::RowCache> caches;
  for (const v1::Table& table : config_.table()) {
    if (table.has_cache()) caches[table.name()] = table.cache();
  }
  ParamChannel* servers = o_.client;
  RowSource* ahead = mode_.prefetch_rows ? o_.client->Ahead() : nullptr;
  if (!caches.empty()) {
    // Where the rows of training come by.
    RowSource* const rows = mode_.prefetch_rows ? ahead : servers;
    cache_ = std::make_unique<CachedRowSource>(std::move(caches), rows, mode_.prefetch_rows);
    if (mode_.prefetch_rows) {
      ahead = cache_.get();
    } else {
      cached_servers_ = std::make_unique<ChannelWithRows>(cache_.get(), servers);
      servers = cached_servers_.get();
    }
  }
  if (mode_.workers > 1) {
    group_ = std::make_unique<WorkerGroup>(WorkerGroup::Options{.workers = mode_.workers,
                                                                .slow_warning = slow_warning,
                                                                .progress_deadline = progress_deadline,
                                                                .inner = servers,
                                                                .pool = o_.pool});
  }
  if (mode_.geo_every_steps > 0) {
    ASSIGN_OR_RETURN(geo_, GeoChannel::Create({.main = o_.programs->main,
                                               .startup = o_.programs->startup,
                                               .trainer_id = o_.trainer_id,
                                               .first_step = step_,
                                               .servers = o_.client,
                                               .pool = o_.pool}));
  }
  const std::vector<std::string> cpu_ops(config_.train().cpu_ops().begin(), config_.train().cpu_ops().end());
  if (o_.device != nullptr && !cpu_ops.empty()) {
    std::vector<std::string> copies;
    for (const DeviceCopy& copy : DeviceCopies(o_.programs->main, 0, cpu_ops)) {
      copies.push_back(
          absl::StrCat(copy.variable, copy.to_host ? " to the host for " : " to the device for ", copy.for_op));
    }
    LOG(INFO) << "with train.cpu_ops a step copies " << absl::StrJoin(copies, ", ");
  }
  std::vector<std::string> layers;
  for (const v1::Layer& layer : config_.model().layer()) layers.push_back(layer.name());
  for (int worker = 0; worker < mode_.workers; ++worker) {
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                     Session::Create({.main = o_.programs->main,
                                      .startup = o_.programs->startup,
                                      .trainer_id = o_.trainer_id,
                                      .device = o_.device,
                                      .cpu_ops = cpu_ops,
                                      .precision = PrecisionOf(config_.train()),
                                      .columns = reader_->columns(),
                                      .layers = layers,
                                      .slow_warning = slow_warning,
                                      .progress_deadline = progress_deadline,
                                      .channel = group_ != nullptr ? group_->channel(worker)
                                                 : geo_ != nullptr ? static_cast<ParamChannel*>(geo_.get())
                                                                   : servers,
                                      .pool = o_.pool,
                                      .ahead = ahead,
                                      .worker = worker}));
    RETURN_IF_ERROR(session->Start(step_));
    sessions_.push_back(std::move(session));
  }
  session_ = sessions_[0].get();
  now_.batches.resize(sessions_.size());
  next_.batches.resize(sessions_.size());
  if (mode_.prefetch_rows) {
    late_ = Counters::Process().Get("prefetch.late", "batches");
    ahead_ = std::make_unique<AheadThread>([this] {
      reader_->Cancel();
      o_.client->CancelAhead();
    });
  }
  const int64_t batches = int64_t{mode_.accumulate} * mode_.workers;
  if (IsChief() && batches > 1) {
    LOG(INFO) << "a step is " << mode_.accumulate << " x " << mode_.workers << " batches of "
              << config_.data().batch_size()
              << " examples (train.accumulate_steps x train.workers): the effective batch is "
              << batches * config_.data().batch_size() << " examples";
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::LearnStatistics() {
  if (!NeedsStatistics(spec_)) return absl::OkStatus();
  if (!beginning_.point.statistics.empty()) {
    ASSIGN_OR_RETURN(statistics_, DataStatistics::Parse(beginning_.point.statistics));
    return absl::OkStatus();
  }
  const LaneRange streams = spec_.StreamsOf(o_.trainer_id);
  const PassWatch watch = {
      .what = absl::StrCat("the data statistics of streams ", streams.begin, " to ", streams.begin + streams.count - 1),
      .slow_warning = absl::Seconds(config_.deadlines().slow_warning_s()),
      .progress_deadline = absl::Seconds(config_.deadlines().progress_deadline_s()),
      .keep_waiting = KeepWaiting()};
  // Everything it uses is its own, threads included: it may be left behind in a read that never returns.
  const absl::StatusOr<std::string> mine = RunWatched(
      watch,
      [spec = spec_, train = *train_, streams, threads = o_.pool->threads()](const std::function<bool()>& cancelled) {
        ThreadPool pool("weir-statistics", threads);
        return CollectStatistics(spec, train, streams, &pool, cancelled);
      });
  if (!mine.ok()) return AtField(*o_.job, mine.status());
  ASSIGN_OR_RETURN(const std::vector<std::string> all, o_.client->Exchange("statistics", *mine, /*kept=*/true));
  for (size_t t = 0; t < all.size(); ++t) {
    if (!all[t].empty()) continue;
    return absl::UnavailableError(
        absl::StrCat("trainer ", t, " died before it had measured its part of data.train: start the job again"));
  }
  ASSIGN_OR_RETURN(statistics_, MergeStatistics(spec_, all));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LaneReader>> TrainLoop::MakeReader(const DataSet& data, bool one_pass) {
  absl::StatusOr<std::unique_ptr<LaneReader>> reader =
      LaneReader::Create(data, {.spec = spec_,
                                .streams = spec_.StreamsOf(o_.trainer_id),
                                .statistics = statistics_.has_value() ? &*statistics_ : nullptr,
                                .one_pass_in_order = one_pass,
                                .before_batch = one_pass ? nullptr : o_.before_batch,
                                .first_batches = int64_t{mode_.accumulate} * mode_.workers,
                                .threads = o_.reader_threads});
  return reader.ok() ? std::move(reader) : AtField(*o_.job, reader.status());
}

absl::Status TrainLoop::Steps() {
  progress_ = std::make_unique<Progress>(o_.out, o_.live, absl::Seconds(config_.train().log_every_seconds()), o_.clock);
  const int64_t max_steps = config_.train().max_steps();
  while (!stop_ && (max_steps == 0 || step_ < max_steps)) {
    ASSIGN_OR_RETURN(const bool more, OneStep());
    if (o_.after_step) o_.after_step(step_);
    if (!more) {
      data_ended_ = true;
      break;
    }
    RETURN_IF_ERROR(AtBorder());
  }
  Profiler::SetCurrentStep(-1);
  // Nothing is read ahead when the data has ended.
  if (data_ended_) left_out_ = CountLeftOut();
  // A round that nobody will run may be under way.
  if (ahead_ != nullptr) ahead_->Stop();
  if (mode_.staleness >= 0) {
    // A push without samples: no more steps will come from here, and nobody waits for one.
    RETURN_IF_ERROR(o_.client->BeginStep(step_, /*read_only=*/false));
    RETURN_IF_ERROR(o_.client->FinishSends(/*samples=*/0, v1::APPLY));
  }
  summary_.steps = step_;
  if (loss_scaler_.on()) summary_.loss_scale = loss_scaler_.scale();
  summary_.stopped = stop_;
  summary_.examples = progress_->examples();
  summary_.seconds = absl::ToDoubleSeconds(progress_->elapsed());
  summary_.train_loss = progress_->mean_loss();
  WarnOfSkipped(*reader_, "data.train");
  skipped_lines_ = reader_->skipped_lines();
  // The readers' threads and memory are not needed any more.
  reader_.reset();
  return absl::OkStatus();
}

absl::Status TrainLoop::ReadRound(Round* round) {
  const ProfiledStep step(round->step);
  for (size_t w = 0; w < sessions_.size(); ++w) {
    RETURN_IF_ERROR(session_->NextBatches(reader_.get(), &round->batches[w], KeepWaiting()));
    if (round->batch > 0 || w > 0 || plan_.sync()) continue;
    round->ended =
        std::all_of(round->batches[w].begin(), round->batches[w].end(), [](const LaneBatch& b) { return b.ended; });
    if (round->ended) return absl::OkStatus();
  }
  if (!mode_.prefetch_rows) return absl::OkStatus();
  for (size_t w = 0; w < sessions_.size(); ++w)
    RETURN_IF_ERROR(sessions_[w]->PullAhead(round->step, &round->batches[w]));
  return absl::OkStatus();
}

void TrainLoop::StartAhead(int64_t step, int batch) {
  next_.step = step;
  next_.batch = batch;
  ahead_->Start([this] { return ReadRound(&next_); });
}

absl::Status TrainLoop::NextRound(int batch) {
  if (ahead_ == nullptr) {
    now_.step = step_;
    now_.batch = batch;
    RETURN_IF_ERROR(ReadRound(&now_));
    now_.ended = now_.ended || TooSmall();
    return absl::OkStatus();
  }
  if (!ahead_->busy()) StartAhead(step_, batch);  // the first
  bool waited = false;
  o_.client->NeedAhead(true);
  const absl::Status read = [&] {
    const ProfileSpan span(step_, ProfileKind::kData, kRowsAhead);
    return ahead_->Finish(&waited);
  }();
  o_.client->NeedAhead(false);
  RETURN_IF_ERROR(read);
  if (waited) late_->Add();
  std::swap(now_, next_);
  now_.ended = now_.ended || TooSmall();
  if (now_.ended) return absl::OkStatus();
  for (const auto& session : sessions_) session->TakeAhead();
  // What the round after this one needs comes while this one runs.
  const int64_t max_steps = config_.train().max_steps();
  if (batch + 1 < mode_.accumulate) {
    StartAhead(step_, batch + 1);
  } else if (max_steps == 0 || step_ + 1 < max_steps) {
    StartAhead(step_ + 1, 0);
  }
  return absl::OkStatus();
}

bool TrainLoop::TooSmall() const {
  if (plan_.sync() || now_.batch + 1 < mode_.accumulate) return false;
  int64_t examples = step_examples_, first = 0;
  for (const std::vector<LaneBatch>& of_worker : now_.batches) {
    for (const LaneBatch& lane : of_worker) examples += lane.examples;
  }
  for (const LaneBatch& lane : now_.batches.back()) first += lane.first_examples;
  return 2 * examples < first;
}

absl::Status TrainLoop::CheckFirstStep(int64_t first_samples) {
  first_step_examples_ = first_samples;
  const int64_t before = beginning_.point.first_step_examples;
  if (before == 0 || before == first_samples) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--resume: step 0 had ", before, " examples when the checkpoint was written, and has ", first_samples,
      " in the data of data.train now: the files are others; bring back those of before, or start a fresh run without "
      "--resume"));
}

LeftOut TrainLoop::CountLeftOut() {
  LeftOut left = {.trained = step_ * first_examples_};
  // It is not worth reading for to know how much more than this there is.
  const int64_t enough = static_cast<int64_t>(2 * kLeftOutWarning * static_cast<double>(left.trained)) /
                             std::max<int64_t>(1, spec_.epochs) +
                         config_.data().batch_size();
  std::vector<LaneBatch> batches;
  while (!reader_->ended() && reader_->given() - trained_examples_ <= enough) {
    // No error counts any more: parameters are to be saved.
    const absl::Status read = reader_->Next(absl::Seconds(2), &batches);
    if (read.ok()) continue;
    LOG(INFO) << "examples that are left out were not counted to the end: " << read;
    break;
  }
  left.examples = reader_->given() - trained_examples_;
  left.more = !reader_->ended();
  return left;
}

void TrainLoop::SayLeftOut(const LeftOut& all) {
  summary_.left_out = all.examples;
  summary_.left_out_more = all.more;
  if (IsChief()) WarnOfLeftOut(all, spec_.epochs);
}

// The batches of one step: mode_.accumulate one after the other, mode_.workers side by side; batch b of worker w is the
// one that w + b * workers others of the step come before. False when there was none: async, and this trainer's streams
// have ended.
absl::StatusOr<bool> TrainLoop::RunBatches(StepResult* result) {
  const auto train = [&](int batch, int worker, StepResult* of_worker) -> absl::Status {
    const size_t w = static_cast<size_t>(worker);
    const ProfiledStep step(step_);
    ASSIGN_OR_RETURN(*of_worker, sessions_[w]->Train(step_, batch, &now_.batches[w]));
    return absl::OkStatus();
  };
  // What a cycle's verdict takes back.
  std::optional<Metrics> before;
  const bool may_skip = config_.train().nan_policy() == v1::Train::SKIP_STEP || loss_scaler_.on();
  if (mode_.accumulate > 1 && may_skip) before = train_metrics_;
  for (const auto& session : sessions_) session->SetLossScale(loss_scaler_.scale());
  step_examples_ = 0;
  for (int batch = 0; batch < mode_.accumulate; ++batch) {
    RETURN_IF_ERROR(NextRound(batch));
    if (now_.ended) return false;
    first_examples_ = 0;
    for (const LaneBatch& lane : now_.batches.back()) first_examples_ += lane.first_examples;
    o_.client->SetFirstSamples(first_examples_);
    std::vector<StepResult> results(sessions_.size());
    if (group_ == nullptr) {
      RETURN_IF_ERROR(train(batch, 0, &results[0]));
    } else {
      const ProfileSpan span(step_, ProfileKind::kThreads, kWorkers);
      RETURN_IF_ERROR(
          group_->Run([&](int worker) { return train(batch, worker, &results[static_cast<size_t>(worker)]); }));
    }
    const ProfileSpan span(step_, ProfileKind::kOperator, kMetrics);
    for (size_t w = 0; w < sessions_.size(); ++w) {
      result->examples += results[w].examples;
      step_examples_ += results[w].examples;
      result->loss_sum += results[w].loss_sum;
      const bool took_effect = batch + 1 < mode_.accumulate || !results[w].outcome.skipped;
      if (took_effect) RETURN_IF_ERROR(sessions_[w]->AddTrainMetrics(&train_metrics_));
    }
    result->outcome = results[0].outcome;
  }
  if (before.has_value() && result->outcome.skipped) train_metrics_ = *std::move(before);
  return true;
}

// False when there are no more examples: in sync anywhere, in async in this trainer's streams.
absl::StatusOr<bool> TrainLoop::OneStep() {
  Profiler::SetCurrentStep(step_);
  const ProfiledStep profiled(step_);
  const ProfileSpan span(step_, ProfileKind::kStep, kStepName);
  StepResult result;
  ASSIGN_OR_RETURN(const bool begun, RunBatches(&result));
  if (!begun) return false;
  if (plan_.sync()) version_ = result.outcome.version;
  if (plan_.sync()) {
    RETURN_IF_ERROR(CheckFirstStep(result.outcome.first_samples));
    if (result.outcome.ended) {
      if (IsChief() && result.outcome.samples > 0) {
        LOG(INFO) << "step " << step_ << " has " << result.outcome.samples << " examples, fewer than half of step 0's "
                  << result.outcome.first_samples << ": it takes no effect, and training ends";
      }
      return false;
    }
  }
  trained_examples_ += result.examples;
  ++step_;
  stop_ = plan_.sync() ? result.outcome.stop : o_.client->StopRequested();
  const float scale = loss_scaler_.scale();
  loss_scaler_.StepDone(result.outcome.skipped);
  if (result.outcome.skipped) {
    ++summary_.skipped_steps;
    skipped_steps_->Add();
    LOG(WARNING) << "step " << step_ << " was skipped: a value was not finite"
                 << (loss_scaler_.on()
                         ? absl::StrFormat("; the loss scale was %.0f and is %.0f now", scale, loss_scaler_.scale())
                         : "");
  }
  const int64_t max_steps = config_.train().max_steps();
  double read = 0;
  const std::vector<LaneBatch>& newest = now_.batches.back();
  for (const LaneBatch& batch : newest) read += batch.fraction / static_cast<double>(newest.size());
  progress_->Step(
      {.step = step_,
       .examples = plan_.sync() ? result.outcome.samples : result.examples,
       // A skipped step has no loss that says anything.
       .loss_sum = result.outcome.skipped ? 0 : result.loss_sum,
       .loss_examples = result.outcome.skipped ? 0 : result.examples,
       // Whichever ends the run first.
       .fraction = max_steps > 0 ? std::max(read, static_cast<double>(step_) / static_cast<double>(max_steps)) : read,
       .skipped_steps = summary_.skipped_steps,
       .loss_scale = loss_scaler_.on() ? loss_scaler_.scale() : 0},
      [this] {
        const double auc = train_metrics_.Result().auc;
        train_metrics_.Clear();
        return session_->loss().kind() == v1::LossDesc::BINARY ? auc : std::numeric_limits<double>::quiet_NaN();
      });
  return true;
}

absl::Status TrainLoop::AtBorder() {
  if (Due(config_.train().digest_every_steps()) && plan_.sync()) RETURN_IF_ERROR(Digest());
  if (!plan_.sync()) RETURN_IF_ERROR(CollectAsyncEvaluations());
  // A stop goes straight to the last checkpoint.
  if (stop_) return absl::OkStatus();
  // Saved first: an evaluation that fails or never ends costs no parameters.
  if (Due(config_.checkpoint().every_steps())) RETURN_IF_ERROR(Save());
  if (Due(config_.train().eval_every_steps()) && eval_.has_value()) {
    if (!plan_.sync()) return StartAsyncEvaluation();
    // That of the last step comes behind the last checkpoint.
    const int64_t max_steps = config_.train().max_steps();
    if (max_steps == 0 || step_ < max_steps) RETURN_IF_ERROR(SyncEvaluation(absl::StrCat("eval.", step_)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TrainLoop::Evaluate() {
  ASSIGN_OR_RETURN(std::unique_ptr<LaneReader> reader, MakeReader(*eval_, /*one_pass=*/true));
  Metrics metrics(session_->loss().kind());
  RETURN_IF_ERROR(session_->Evaluate(version_, reader.get(), KeepWaiting(), &metrics));
  WarnOfSkipped(*reader, "data.eval");
  return metrics.Serialize();
}

absl::Status TrainLoop::SyncEvaluation(const std::string& key) {
  const ProfileSpan span(step_ - 1, ProfileKind::kBorder, kEvaluation);
  const absl::StatusOr<std::string> mine = Evaluate();
  if (!mine.ok()) RETURN_IF_ERROR(Defer(mine.status()));
  // In async whoever comes late to the end reads what the others said.
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   o_.client->Exchange(key, mine.ok() ? *mine : "", /*kept=*/!plan_.sync()));
  Metrics metrics(session_->loss().kind());
  std::vector<size_t> without;
  for (size_t t = 0; t < all.size(); ++t) {
    // A trainer that died in async has said nothing; nor has one whose evaluation failed, which makes this one of
    // nothing.
    if (all[t].empty() && plan_.sync()) return absl::OkStatus();
    if (all[t].empty()) without.push_back(t);
    if (!all[t].empty()) RETURN_IF_ERROR(metrics.MergeSerialized(all[t]));
  }
  eval_result_ = metrics.Result();
  eval_step_ = step_;
  if (IsChief()) {
    progress_->Say(absl::StrCat(
        "eval step=", step_, " examples=", eval_result_->samples, " ", eval_result_->ToString(),
        without.empty() ? "" : absl::StrCat(" (without trainer ", absl::StrJoin(without, ", trainer "), ")")));
  }
  if (eval_result_->samples == 0) {
    eval_result_.reset();
    return absl::OkStatus();
  }
  // Part of the data ranks no checkpoint.
  if (checkpoints_ != nullptr && IsChief() && saved_step_ == step_ && without.empty()) {
    const absl::Status recorded = checkpoints_->RecordEvaluation(*eval_result_);
    if (!recorded.ok()) {
      LOG(WARNING) << "the checkpoint of step " << step_ << " is saved, without its evaluation: " << recorded.message();
    }
  }
  return absl::OkStatus();
}

absl::Status TrainLoop::StartAsyncEvaluation() {
  const ProfileSpan span(step_ - 1, ProfileKind::kBorder, kEvaluation);
  const absl::StatusOr<std::string> mine = Evaluate();
  if (!mine.ok()) RETURN_IF_ERROR(Defer(mine.status()));
  open_evaluations_.push_back(step_);
  return o_.client->Contribute(absl::StrCat("eval.", step_), mine.ok() ? *mine : "", /*reader=*/o_.client->Chief());
}

absl::Status TrainLoop::CollectAsyncEvaluations() {
  if (!IsChief()) return absl::OkStatus();
  std::vector<int64_t> still_open;
  for (const int64_t step : open_evaluations_) {
    std::vector<std::string> all;
    std::vector<int> without;  // trainers that have said nothing: dead, or ended before this step
    ASSIGN_OR_RETURN(const bool complete, o_.client->TryCollect(absl::StrCat("eval.", step), &all));
    if (!complete) {
      still_open.push_back(step);
      continue;
    }
    if (all.empty()) continue;  // the chief before has told of it
    Metrics metrics(session_->loss().kind());
    for (size_t t = 0; t < all.size(); ++t) {
      if (all[t].empty()) {
        without.push_back(static_cast<int>(t));
      } else {
        RETURN_IF_ERROR(metrics.MergeSerialized(all[t]));
      }
    }
    const MetricResult result = metrics.Result();
    progress_->Say(absl::StrCat("eval step=", step, " examples=", result.samples, " ", result.ToString(),
                                " live=1 (parameters moved while it ran: async",
                                without.empty() ? "" : "; without trainer ", absl::StrJoin(without, ", trainer "),
                                ")"));
  }
  open_evaluations_ = std::move(still_open);
  return absl::OkStatus();
}

// The chief's evaluations that a trainer took no part in, because its data ended earlier or it began later, would stay
// open for ever: it says so with an empty contribution.
absl::Status TrainLoop::EndAsyncEvaluations(const std::string& open_at_chief) {
  if (!eval_.has_value() || config_.train().eval_every_steps() == 0) return absl::OkStatus();
  for (const absl::string_view text : absl::StrSplit(open_at_chief, ',', absl::SkipEmpty())) {
    int64_t step = 0;
    if (!absl::SimpleAtoi(text, &step))
      return absl::InternalError("what the chief says of its evaluations cannot be read");
    if (std::find(open_evaluations_.begin(), open_evaluations_.end(), step) != open_evaluations_.end()) continue;
    RETURN_IF_ERROR(o_.client->Contribute(absl::StrCat("eval.", step), "", /*reader=*/o_.client->Chief()));
  }
  RETURN_IF_ERROR(o_.client->Exchange("end.evaluations", "", /*kept=*/true).status());
  return CollectAsyncEvaluations();
}

absl::Status TrainLoop::Digest() {
  if (!IsChief()) return absl::OkStatus();
  const ProfileSpan span(step_ - 1, ProfileKind::kBorder, kDigest);
  v1::ControlRequest request;
  request.mutable_digest()->set_step(version_);
  ASSIGN_OR_RETURN(const std::vector<v1::ControlReply> replies, o_.client->Control(request));
  DigestTable table;
  for (const v1::ControlReply& reply : replies) {
    for (const v1::VariableDigest& v : reply.variables()) {
      VariableDigestSum sum{.values = v.values(), .state = v.state()};
      for (int i = 0; i < std::min(kDigestRanges, v.ranges_size()); ++i) sum.ranges[i] = v.ranges(i);
      table[v.name()] += sum;
    }
  }
  const VariableDigestSum total = Total(table);
  progress_->Say(
      absl::StrCat("digest step=", step_, " values=", DigestHex(total.values), " state=", DigestHex(total.state)));
  if (o_.digest_log.empty()) return absl::OkStatus();
  std::FILE* log = std::fopen(o_.digest_log.c_str(), "a");
  if (log == nullptr) return Defer(absl::ErrnoToStatus(errno, absl::StrCat("--digest_log=", o_.digest_log)));
  for (const auto& [name, sum] : table)
    std::fprintf(log, "%s\n", DigestLogLine(step_, name, sum, ExtentOf(name)).c_str());
  if (std::fclose(log) != 0) return Defer(absl::ErrnoToStatus(errno, absl::StrCat("--digest_log=", o_.digest_log)));
  return absl::OkStatus();
}

// What a variable's digest is of, by the plan.
DigestExtent TrainLoop::ExtentOf(const std::string& variable) const {
  DigestExtent extent;
  for (const v1::PlacedBlock& block : plan_.blocks()) {
    if (block.parameter() != variable) continue;
    extent.elements += block.element_count();
    extent.row = 1;
    for (int d = 1; d < block.dims_size(); ++d) extent.row *= block.dims(d);
  }
  for (const v1::PlacedTable& table : plan_.tables()) {
    if (table.name() == variable) extent.shards = table.logical_shards();
  }
  return extent;
}

absl::Status TrainLoop::PostResiduals() {
  if (plan_.sync() || IsChief() || !o_.client->KeepsResiduals() || posted_step_ == step_) return absl::OkStatus();
  posted_step_ = step_;
  return o_.client->PostResiduals(step_);
}

absl::Status TrainLoop::RestoreResiduals() {
  if (!beginning_.resumed || !o_.client->KeepsResiduals()) return absl::OkStatus();
  // What has been pushed since knows nothing of them.
  if (o_.client->TakesOver().has_value()) return absl::OkStatus();
  const auto read = [file = beginning_.point.residuals](const Client::Take& take) {
    return file.empty() ? absl::OkStatus() : ReadInPieces(file, take);
  };
  return o_.client->DealResiduals(beginning_by_, read, step_);
}

absl::StatusOr<std::optional<int64_t>> TrainLoop::CheckpointNumber() {
  ASSIGN_OR_RETURN(const Client::Word last, o_.client->NewestWord(kSaving));
  if (!last.chief) return std::nullopt;
  // A dead chief may be publishing what it has called so: only its own is replaced by a trainer at the same step.
  const int64_t newest = std::max(last.edition, number_);
  number_ = step_ > newest || (step_ == newest && newest == number_) ? step_ : newest + 1;
  RETURN_IF_ERROR(o_.client->Post(kSaving, "", number_));
  return number_;
}

absl::StatusOr<bool> TrainLoop::WriteCheckpoint() {
  const ProfileSpan span(step_ - 1, ProfileKind::kBorder, kCheckpoint);
  int64_t number = step_;
  if (plan_.sync() && !IsChief()) {
    if (o_.client->KeepsResiduals()) RETURN_IF_ERROR(o_.client->GatherResiduals(step_, kFirst, {}));
    return false;
  }
  if (!plan_.sync()) {
    ASSIGN_OR_RETURN(const std::optional<int64_t> claimed, CheckpointNumber());
    if (!claimed.has_value()) return false;
    number = *claimed;
  }
  TrainerState state;
  if (o_.client->KeepsResiduals()) {
    state.residuals = [this](const Client::Take& take) {
      // In async others are in the middle of their steps: theirs are as they were when they posted them.
      return plan_.sync() ? o_.client->GatherResiduals(step_, kFirst, take) : o_.client->TakeResiduals(step_, take);
    };
  }
  if (statistics_.has_value()) state.statistics = statistics_->Serialize();
  if (loss_scaler_.on()) state.loss_scale = loss_scaler_.State();
  state.first_step_examples = first_step_examples_;
  const std::optional<MetricResult> eval = eval_step_ == step_ ? eval_result_ : std::nullopt;
  ASSIGN_OR_RETURN(const std::string path, checkpoints_->Save(number, version_, state, eval));
  progress_->Say(absl::StrCat("checkpoint step=", number, " path=", path));
  return true;
}

absl::Status TrainLoop::Save() {
  // Everyone comes here, in sync at the same steps, though only the chief writes.
  if (checkpoints_ == nullptr || saved_step_ == step_) return absl::OkStatus();
  RETURN_IF_ERROR(PostResiduals());
  if (plan_.sync() || IsChief()) RETURN_IF_ERROR(WriteCheckpoint().status());
  saved_step_ = step_;
  return absl::OkStatus();
}

absl::Status TrainLoop::SaveLast() {
  if (plan_.sync() || checkpoints_ == nullptr) return Save();
  // Others may have trained on since the chief's last step, and the chief may die over it.
  saved_step_ = -1;
  for (int64_t edition = 0;;) {
    ASSIGN_OR_RETURN(const Client::Word word, o_.client->AwaitWord(kSaved, edition));
    edition = word.edition + 1;
    const std::vector<std::string> held = absl::StrSplit(word.text, ',');
    int64_t own = -1;
    if (word.by >= 0 &&
        (held.size() != static_cast<size_t>(plan_.trainers()) || !absl::SimpleAtoi(held[o_.trainer_id], &own))) {
      return absl::InternalError("what the chief says of the last checkpoint cannot be read");
    }
    if (own >= step_) return absl::OkStatus();
    if (!word.chief) continue;
    ASSIGN_OR_RETURN(const bool written, WriteCheckpoint());
    if (!written) continue;
    saved_step_ = step_;
    return o_.client->Post(kSaved, absl::StrJoin(checkpoints_->saved_trainer_steps(), ","), edition);
  }
}

absl::Status TrainLoop::Defer(const absl::Status& error) {
  if (ended_ || config_.checkpoint().dir().empty()) return error;
  RETURN_IF_ERROR(o_.client->JobStatus());
  if (deferred_.ok()) {
    deferred_ = error;
    LOG(ERROR) << error.message() << "; the run stops at the next step border, saves and ends with this error";
  }
  o_.client->RequestStop();
  return absl::OkStatus();
}

absl::Status TrainLoop::NoExamples(int64_t skipped_lines) const {
  std::vector<std::string> names;
  for (const DataFile& file : train_->files()) names.push_back(absl::StrCat(file.name, " (", file.bytes, " bytes)"));
  if (names.size() > 3) names.resize(3);
  return absl::InvalidArgumentError(absl::StrCat(
      "data.train: there are no examples to train on in ", train_->files().size(),
      train_->files().size() == 1 ? " file" : " files", ": ", absl::StrJoin(names, ", "),
      train_->files().size() > 3 ? ", ..." : "",
      skipped_lines > 0 ? absl::StrCat("; ", skipped_lines, " lines were skipped (data.bad_line: SKIP)") : "",
      config_.data().drop_last()
          ? absl::StrCat("; a stream gives whole batches only, of ", spec_.StreamBatch(0), " examples (data.drop_last)")
          : ""));
}

absl::Status TrainLoop::End() {
  if (geo_ != nullptr) RETURN_IF_ERROR(geo_->Finish());
  // In async the last checkpoint and the last evaluation come after everyone's last step, and after everyone's last
  // residuals.
  if (checkpoints_ != nullptr) RETURN_IF_ERROR(PostResiduals());
  const Ending mine = {.steps = step_,
                       .skipped_lines = skipped_lines_,
                       .stopped = stop_,
                       .left_out = left_out_,
                       .open_evaluations = absl::StrJoin(open_evaluations_, ","),
                       .error = deferred_};
  ASSIGN_OR_RETURN(const std::vector<std::string> all, o_.client->Exchange("end", mine.Serialize(), /*kept=*/true));
  ASSIGN_OR_RETURN(const Ending of_all, Ending::OfAll(all, o_.client->Chief()));
  if (of_all.steps == 0 && !of_all.stopped) return NoExamples(of_all.skipped_lines);
  RETURN_IF_ERROR(SaveLast());
  const bool judges = !of_all.stopped && eval_.has_value() && eval_step_ != step_;
  // Whoever fails from here on ends the others: not before the parameters are on disk. In async SaveLast waits for
  // that.
  if (plan_.sync() && checkpoints_ != nullptr && (judges || !of_all.error.ok())) {
    RETURN_IF_ERROR(o_.client->Exchange("end.saved", "").status());
  }
  ended_ = true;
  RETURN_IF_ERROR(deferred_);
  RETURN_IF_ERROR(of_all.error);
  SayLeftOut(of_all.left_out);
  if (!plan_.sync()) RETURN_IF_ERROR(EndAsyncEvaluations(of_all.open_evaluations));
  if (judges) {
    // What is judged is what was saved, the servers' values: in async a trainer's own are those of its last step.
    if (!plan_.sync()) RETURN_IF_ERROR(session_->Start(step_));
    RETURN_IF_ERROR(SyncEvaluation("eval.end"));
  }
  summary_.eval = of_all.stopped ? std::nullopt : eval_result_;
  return absl::OkStatus();
}

}  // namespace

std::string TrainSummary::DoneLine() const {
  std::string line = absl::StrFormat("done steps=%d examples=%d seconds=%.2f examples_per_s=%.0f loss=%.6f", steps,
                                     examples, seconds, seconds > 0 ? static_cast<double>(examples) / seconds : 0,
                                     eval.has_value() ? eval->loss : train_loss);
  if (eval.has_value() && eval->kind == v1::LossDesc::BINARY && !std::isnan(eval->auc)) {
    absl::StrAppendFormat(&line, " auc=%.6f", eval->auc);
  }
  if (eval.has_value() && eval->kind == v1::LossDesc::MULTI_CLASS) {
    absl::StrAppendFormat(&line, " accuracy=%.6f", eval->accuracy);
  }
  if (eval.has_value() && eval->kind == v1::LossDesc::REGRESSION) {
    absl::StrAppendFormat(&line, " rmse=%.6f", std::sqrt(eval->loss));
  }
  if (skipped_steps > 0) absl::StrAppend(&line, " skipped_steps=", skipped_steps);
  if (left_out > 0) absl::StrAppend(&line, " left_out=", left_out);
  if (loss_scale > 0) absl::StrAppendFormat(&line, " loss_scale=%.0f", loss_scale);
  if (stopped) line += " stopped=1";
  return line;
}

absl::StatusOr<TrainSummary> RunTraining(const TrainOptions& options) { return TrainLoop(options).Run(); }

}  // namespace weir
