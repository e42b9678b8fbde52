#include "trainer/loop/train_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"
#include "framework/base/status_message.h"
#include "framework/graph/training_mode.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "trainer/checkpoints/beginning.h"
#include "trainer/checkpoints/checkpointing.h"
#include "trainer/checkpoints/job_checkpoints.h"
#include "trainer/follow/file_course.h"
#include "trainer/loop/deferred_error.h"
#include "trainer/loop/digests.h"
#include "trainer/loop/ending.h"
#include "trainer/loop/evaluations.h"
#include "trainer/loop/job_data.h"
#include "trainer/loop/rounds.h"
#include "trainer/loop/step_order.h"
#include "trainer/loop/step_reports.h"
#include "trainer/loop/step_timer.h"
#include "trainer/metrics/early_stop.h"
#include "trainer/metrics/job_metrics.h"
#include "trainer/progress/progress.h"
#include "trainer/progress/run_progress.h"
#include "trainer/progress/training_watch.h"
#include "trainer/session/loss_scaler.h"
#include "trainer/session/same_inputs.h"
#include "trainer/session/workers.h"
#include "trainer/this_trainer.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

const ProfileName kStepName("step"), kMetrics("training metrics");

class TrainLoop {
 public:
  explicit TrainLoop(const TrainOptions& options);

  absl::StatusOr<TrainSummary> Run();

 private:
  // Opens and compares the inputs, agrees with the others on where to begin, and creates the parts below. Sets
  // summary_.stopped instead of creating them if the job was asked to stop before the data statistics were complete:
  // there is nothing to save then.
  absl::Status Begin();
  absl::Status CreateParts(const Begun& begun);
  // Creates the parts that work at borders. `metrics`: of evaluations.
  void CreateBorderParts(const std::shared_ptr<const MetricPlan>& metrics);
  // Trains until the data, train.max_steps, train.early_stop or a stop ends it.
  absl::Status Steps();
  // Makes one step. Returns false if the run ends before it.
  absl::StatusOr<bool> OneStep();
  // Runs the rounds of a step, train.accumulate_steps one after the other. Returns false if there was none.
  absl::StatusOr<bool> RunRounds(StepResult* result);
  // Records a step that is done, whether it took effect or was skipped.
  void FinishStep(const StepResult& result);
  // Does the duties of a step border: digest, checkpoint, evaluation.
  absl::Status AtBorder();
  // Evaluates at this border, `last` or not (StepOrder::Evaluate). If a request to stop cuts that short, the run ends
  // at this border.
  absl::Status Evaluate(bool last);
  // Ends the run together with the other trainers: last checkpoint, errors, last evaluation.
  absl::Status End();
  // Reports the number of restarts to event files and metrics.
  void ReportRestarts();

  // FailedPrecondition: most examples of the last evaluation have no finite loss.
  absl::Status CheckLosses(const MetricResult& eval) const;

  // Returns the state for a checkpoint at this border.
  BorderState StateAtBorder() const;
  const v1::Train& train() const { return o_.job->config.train(); }
  // Returns whether checkpoints have the places of streams.
  bool KeepsPlaces() const { return data_->train().HasPlaces() && !o_.job->config.checkpoint().dir().empty(); }
  bool LastStepDone() const { return train().max_steps() > 0 && step_ >= train().max_steps(); }
  bool Due(int64_t every) const { return every > 0 && step_ % every == 0; }

  const TrainOptions& o_;
  const ThisTrainer self_;
  const v1::TrainingMode mode_;
  const std::unique_ptr<StepOrder> order_;
  LossScaler loss_scaler_;
  EarlyStop early_stop_;
  DeferredError deferred_;
  // The following are set by Begin.
  std::unique_ptr<JobData> data_;
  std::unique_ptr<RunProgress> run_progress_;  // the chief's, if the job keeps checkpoints
  std::unique_ptr<StepReports> reports_;
  std::unique_ptr<JobCheckpoints> checkpoints_;
  std::unique_ptr<Workers> workers_;
  std::unique_ptr<Rounds> rounds_;
  std::unique_ptr<Evaluations> evaluations_;
  std::unique_ptr<Digests> digests_;
  v1::Lineage lineage_;  // of the run's values; empty: they are its own
  // The run was resumed at a step that has an evaluation, which is not in the checkpoint.
  bool makes_up_evaluation_ = false;
  int64_t step_ = 0;  // steps done
  // Version of the servers at this border: steps done, and one more if a step without examples has ended the run.
  int64_t version_ = 0;
  StepTimer timer_;
  v1::Ending ending_;  // filled by Steps
  TrainSummary summary_;
};

TrainLoop::TrainLoop(const TrainOptions& options)
    : o_(options),
      self_({.id = options.trainer_id,
             .trainers = options.programs->main.plan().trainers(),
             .sync = options.programs->main.plan().sync(),
             .client = options.client,
             .replica = options.replica}),
      mode_(ModeOf(options.programs->main)),
      order_(StepOrder::Of(self_, mode_)),
      loss_scaler_(options.job->config.train()),
      early_stop_(options.job->config),
      deferred_(options.client, /*saves=*/!options.job->config.checkpoint().dir().empty()),
      timer_(options.trainer_id, options.job->config.deadlines(), options.client, options.clock) {}

absl::StatusOr<TrainSummary> TrainLoop::Run() {
  RETURN_IF_ERROR(Begin());
  if (summary_.stopped) return summary_;
  RETURN_IF_ERROR(Steps());
  RETURN_IF_ERROR(End());
  return summary_;
}

absl::Status TrainLoop::Begin() {
  CHECK_EQ(mode_.has_all_reduce(), o_.replica != nullptr);
  const v1::JobConfig& config = o_.job->config;
  ASSIGN_OR_RETURN(data_, JobData::Open({.trainer = self_,
                                         .job = o_.job,
                                         .program = &o_.programs->main,
                                         .pool = o_.pool,
                                         .batches_per_step = int64_t{mode_.accumulate()} * mode_.workers(),
                                         .keeps_places = !config.checkpoint().dir().empty(),
                                         .reader_threads = o_.reader_threads,
                                         .before_batch = o_.before_batch}));
  std::vector<Input> inputs = ProgramInputs(*o_.programs);
  for (Input& input : data_->Inputs()) inputs.push_back(std::move(input));
  RETURN_IF_ERROR(CheckSameInputs(self_.client, self_.id, self_.trainers, inputs));
  std::unique_ptr<Checkpointing> checkpointing;
  if (!config.checkpoint().dir().empty()) {
    checkpointing = std::make_unique<Checkpointing>(
        o_.job->Path(config.checkpoint().dir()), config, o_.programs->main.plan(),
        TrainFiles{.description = data_->train().files().Description(),
                   .cuts_by = [this](int scheme) { return data_->train().CutsBy(scheme); }},
        o_.client, o_.replica, o_.run);
  } else if (o_.resume) {
    return o_.job->positions.Error("checkpoint.dir", "--resume needs checkpoint.dir: where the checkpoints are");
  }
  checkpoints_ = JobCheckpoints::Create({.trainer = self_,
                                         .checkpointing = std::move(checkpointing),
                                         .say = [this](const std::string& line) { reports_->progress().Say(line); }});
  ASSIGN_OR_RETURN(const Begun begun, weir::Begin({.trainer = self_,
                                                   .job = o_.job,
                                                   .checkpoints = checkpoints_.get(),
                                                   .resume = o_.resume,
                                                   .resume_run = o_.resume_run,
                                                   .plan_start = o_.plan_start}));
  step_ = version_ = begun.step;
  if (checkpoints_->keeps() && self_.IsChief()) {
    run_progress_ = std::make_unique<RunProgress>(o_.job->Path(config.checkpoint().dir()), o_.run, o_.clock);
    run_progress_->Begin(step_, begun.beginning.resumed(), o_.restarts);
  }
  const v1::TrainerState& state = begun.beginning.trainers();
  lineage_ = state.lineage();
  loss_scaler_.Restore(state);
  early_stop_.Restore(state);
  makes_up_evaluation_ = order_->MakesUpEvaluations() && begun.beginning.not_evaluated() && step_ > 0 &&
                         Due(train().eval_every_steps()) && data_->has_eval();
  RETURN_IF_ERROR(data_->Begin(begun));
  const absl::Status learned = data_->LearnStatistics(begun.beginning);
  if (data_->stopped()) {
    data_->course().Stop();
    if (self_.IsChief()) LOG(INFO) << learned.message() << ": the job ends before its first step, without a checkpoint";
    if (run_progress_ != nullptr) run_progress_->End();
    summary_.stopped = true;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(learned);
  return CreateParts(begun);
}

absl::Status TrainLoop::CreateParts(const Begun& begun) {
  const v1::TrainerState& state = begun.beginning.trainers();
  const int64_t batches = int64_t{mode_.accumulate()} * mode_.workers();
  const int64_t batch_size = o_.job->config.data().batch_size();
  ASSIGN_OR_RETURN(std::unique_ptr<LaneReader> reader, data_->TrainReader());
  self_.client->steps().SetFirstStep(step_);
  ASSIGN_OR_RETURN(const std::shared_ptr<const MetricPlan> metrics,
                   MetricPlan::Create(o_.job->config, o_.programs->main, reader->columns(),
                                      data_->statistics() == nullptr ? nullptr : &data_->statistics()->learned()));
  ASSIGN_OR_RETURN(const std::shared_ptr<const MetricPlan> in_training,
                   MetricPlan::CreateForTraining(o_.job->config, o_.programs->main, reader->columns()));
  ASSIGN_OR_RETURN(workers_, Workers::Create({.trainer = self_,
                                              .pool = o_.pool,
                                              .device = o_.device,
                                              .job = o_.job,
                                              .programs = o_.programs,
                                              .columns = reader->columns(),
                                              .first_step = step_,
                                              .judged = metrics->JudgedVariables(),
                                              .items = metrics->ItemVariables()}));
  rounds_ = std::make_unique<Rounds>(Rounds::Options{.trainer = self_,
                                                     .mode = mode_,
                                                     .max_steps = train().max_steps(),
                                                     .batch_size = batch_size,
                                                     .epochs = data_->spec().epochs,
                                                     .expected_first_step = data_->train().FirstStepIn(state),
                                                     .order = order_.get(),
                                                     .workers = workers_.get(),
                                                     .course = &data_->course(),
                                                     .keeps_places = KeepsPlaces(),
                                                     .first_step = step_,
                                                     .always_ahead = o_.always_ahead},
                                     std::move(reader));
  if (self_.IsChief() && batches > 1) {
    LOG(INFO) << "a step is " << mode_.accumulate() << " x " << mode_.workers() << " batches of " << batch_size
              << " examples (train.accumulate_steps x train.workers): the effective batch is " << batches * batch_size
              << " examples";
  }
  reports_ = std::make_unique<StepReports>(StepReports::Options{.trainer_id = self_.id,
                                                                .main = &o_.programs->main,
                                                                .metrics = in_training,
                                                                .out = o_.out,
                                                                .live = o_.live,
                                                                .interval = absl::Seconds(train().log_every_seconds()),
                                                                .clock = o_.clock,
                                                                .watch = o_.watch});
  if (o_.watch != nullptr) o_.watch->Begin(*o_.job, o_.programs->main, step_);
  CreateBorderParts(metrics);
  return absl::OkStatus();
}

void TrainLoop::CreateBorderParts(const std::shared_ptr<const MetricPlan>& metrics) {
  evaluations_ =
      std::make_unique<Evaluations>(Evaluations::Options{.trainer = self_,
                                                         .data = data_.get(),
                                                         .session = &workers_->session(0),
                                                         .checkpoints = checkpoints_.get(),
                                                         .progress = &reports_->progress(),
                                                         .deferred = &deferred_,
                                                         .watch = o_.watch,
                                                         .early_stop = &early_stop_,
                                                         .metrics = metrics,
                                                         .exchange = [this](std::string_view key, std::string mine) {
                                                           return order_->ExchangeParts(key, std::move(mine));
                                                         }});
  digests_ = std::make_unique<Digests>(Digests::Options{.trainer = self_,
                                                        .log = o_.digest_log,
                                                        .plan = &o_.programs->main.plan(),
                                                        .progress = &reports_->progress(),
                                                        .deferred = &deferred_});
}

absl::Status TrainLoop::Steps() {
  bool more = true;
  // The run before may have ended between the checkpoint and the evaluation of this step. The evaluation of the last
  // step comes at the end.
  if (early_stop_.Awaits(step_) || (makes_up_evaluation_ && !LastStepDone())) {
    RETURN_IF_ERROR(Evaluate(/*last=*/false));
  }
  while (!ending_.stopped() && !LastStepDone() && !early_stop_.Ends()) {
    timer_.Begin();
    ASSIGN_OR_RETURN(more, OneStep());
    if (o_.after_step) o_.after_step(step_);
    if (!more) break;
    if (run_progress_ != nullptr) ReportRestarts();
    const absl::Duration time = timer_.End(step_);
    const absl::Time border = o_.clock->Now();
    if (o_.watch != nullptr) o_.watch->StepDone(step_, reports_->examples(), time, workers_->session(0));
    RETURN_IF_ERROR(AtBorder());
    if (o_.watch != nullptr) o_.watch->Border(o_.clock->Now() - border);
  }
  Profiler::SetCurrentStep(-1);
  if (!more) {
    // In sync the round behind the last step may be on its way.
    rounds_->EndAhead();
    if (!ending_.stopped()) *ending_.mutable_left_out() = rounds_->CountLeftOut(step_);
  }
  rounds_->StopAhead();
  RETURN_IF_ERROR(order_->EndSteps(step_));
  summary_.steps = step_;
  if (loss_scaler_.on()) summary_.loss_scale = loss_scaler_.scale();
  // A stop that comes in the last step leaves nothing undone but an evaluation.
  if (LastStepDone() && (!data_->has_eval() || evaluations_->Has(step_))) ending_.set_stopped(false);
  summary_.stopped = ending_.stopped();
  summary_.early_stopped = early_stop_.Ends();
  if (summary_.early_stopped && self_.IsChief()) {
    LOG(INFO) << "training ends after step " << step_ << ": " << early_stop_.Why();
  }
  summary_.skipped_steps = reports_->skipped_steps();
  summary_.examples = reports_->progress().examples();
  summary_.seconds = absl::ToDoubleSeconds(reports_->progress().elapsed());
  summary_.train_loss = reports_->progress().mean_loss();
  ending_.set_steps(step_);
  ending_.set_skipped_lines(rounds_->CloseReader());
  *ending_.mutable_absent() = rounds_->absent_inputs();
  data_->course().Finish();
  return absl::OkStatus();
}

absl::StatusOr<bool> TrainLoop::OneStep() {
  Profiler::SetCurrentStep(step_);
  const ProfiledStep profiled(step_);
  const ProfileSpan span(step_, ProfileKind::kStep, kStepName);
  StepResult result;
  ASSIGN_OR_RETURN(const bool begun, RunRounds(&result));
  if (!begun) return false;
  const StepOutcome& outcome = result.outcome = order_->Outcome(result, version_);
  version_ = outcome.version;
  // Another trainer may be the one that lacked a batch.
  if (outcome.ended) ending_.set_stopped(outcome.stop);
  // A trainer that was stopped may not know yet how many examples it has in step 0.
  if (!ending_.stopped()) RETURN_IF_ERROR(rounds_->CheckFirstStep(outcome.first_samples));
  if (outcome.ended) {
    if (self_.IsChief() && outcome.samples > 0 && !ending_.stopped()) {
      LOG(INFO) << "step " << step_ << " has " << outcome.samples << " examples, fewer than half of step 0's "
                << outcome.first_samples << ": it takes no effect, and training ends";
    }
    return false;
  }
  FinishStep(result);
  return true;
}

absl::StatusOr<bool> TrainLoop::RunRounds(StepResult* result) {
  const bool may_skip = train().nan_policy() == v1::Train::SKIP_STEP || loss_scaler_.on();
  if (mode_.accumulate() > 1 && may_skip) reports_->BeginTentatively();
  workers_->SetLossScale(loss_scaler_.scale());
  for (int batch = 0; batch < mode_.accumulate(); ++batch) {
    const absl::Time asked = o_.clock->Now();
    ASSIGN_OR_RETURN(Round* const round, rounds_->Next(step_, batch));
    const absl::Duration waited = o_.clock->Now() - asked;
    timer_.Data(waited);
    if (o_.watch != nullptr) o_.watch->Data(waited);
    if (round->ended) {
      ending_.set_stopped(rounds_->stopped());
      return false;
    }
    reports_->Look(step_, round->batches);
    ASSIGN_OR_RETURN(const std::vector<StepResult> results, workers_->Train(step_, batch, &round->batches));
    const ProfileSpan span(step_, ProfileKind::kOperator, kMetrics);
    for (int worker = 0; worker < workers_->count(); ++worker) {
      const StepResult& of_worker = results[static_cast<size_t>(worker)];
      result->examples += of_worker.examples;
      result->loss_sum += of_worker.loss_sum;
      const bool took_effect = batch + 1 < mode_.accumulate() || !of_worker.outcome.skipped;
      if (!took_effect) continue;
      RETURN_IF_ERROR(reports_->Add(&workers_->session(worker)));
    }
    result->outcome = results[0].outcome;
  }
  reports_->EndRounds(result->outcome.skipped);
  return true;
}

void TrainLoop::FinishStep(const StepResult& result) {
  rounds_->EndStep();
  ++step_;
  data_->course().StepsDone(step_);
  ending_.set_stopped(result.outcome.stop);
  const float scale = loss_scaler_.scale();
  loss_scaler_.StepDone(result.outcome.skipped);
  const double of_data = rounds_->fraction();
  // Either may end the run first.
  const double of_steps =
      train().max_steps() > 0 ? static_cast<double>(step_) / static_cast<double>(train().max_steps()) : 0;
  reports_->Done(step_, result, std::max(of_data, of_steps), loss_scaler_.on() ? loss_scaler_.scale() : 0);
  if (!result.outcome.skipped) return;
  LOG(WARNING) << "step " << step_ << " was skipped: a value was not finite"
               << (loss_scaler_.on()
                       ? absl::StrFormat("; the loss scale was %.0f and is %.0f now", scale, loss_scaler_.scale())
                       : "");
}

absl::Status TrainLoop::AtBorder() {
  const v1::JobConfig& config = o_.job->config;
  if (Due(train().digest_every_steps())) RETURN_IF_ERROR(order_->Digest(digests_.get(), step_, version_));
  RETURN_IF_ERROR(evaluations_->ReportComplete());
  // A stop goes straight to the last checkpoint.
  if (ending_.stopped()) return absl::OkStatus();
  // Saved first: an evaluation that fails or never ends then costs no parameters.
  if (Due(config.checkpoint().every_steps())) RETURN_IF_ERROR(checkpoints_->Save(StateAtBorder()));
  if (!data_->has_eval() || !Due(train().eval_every_steps())) return absl::OkStatus();
  return Evaluate(LastStepDone());
}

absl::Status TrainLoop::Evaluate(bool last) {
  RETURN_IF_ERROR(order_->Evaluate(evaluations_.get(), step_, version_, last));
  // The run ends at this very border: train.early_stop counts this evaluation, and makes it up after a resume here.
  if (evaluations_->stopped()) ending_.set_stopped(true);
  return absl::OkStatus();
}

BorderState TrainLoop::StateAtBorder() const {
  BorderState at = {.step = step_, .version = version_, .statistics = data_->statistics(), .course = &data_->course()};
  loss_scaler_.Save(&at.trainers);
  early_stop_.Save(&at.trainers);
  if (rounds_->first_step_examples() > 0) at.trainers.set_first_step_examples(rounds_->first_step_examples());
  at.trainers.set_stream_scheme(data_->spec().stream_scheme);
  if (lineage_.ancestors_size() > 0) *at.trainers.mutable_lineage() = lineage_;
  if (KeepsPlaces()) at.places = [this] { return rounds_->Places(); };
  if (evaluations_->Has(step_)) at.eval = evaluations_->result();
  return at;
}

absl::Status TrainLoop::End() {
  RETURN_IF_ERROR(workers_->Finish());
  // In async the last checkpoint comes after the last steps of all trainers, and after their last residuals.
  RETURN_IF_ERROR(checkpoints_->Post(StateAtBorder()));
  ending_.set_large_gradients(self_.client->counters().large_gradients);
  ending_.mutable_open_evaluations()->Assign(evaluations_->open().begin(), evaluations_->open().end());
  *ending_.mutable_error() = StatusMessage(deferred_.error());
  ASSIGN_OR_RETURN(const std::vector<std::string> endings,
                   self_.client->board().Exchange("end", ending_.SerializeAsString(), /*kept=*/true));
  data_->course().Stop();
  ASSIGN_OR_RETURN(const v1::Ending all, EndingOfAll(endings, self_.client->member().Chief()));
  absl::Status error = StatusOf(all.error());
  // In async a trainer whose data had ended did not stop itself, but the job is not complete.
  summary_.stopped |= all.stopped();
  if (all.steps() == 0 && !all.stopped()) return data_->NoExamples(all.skipped_lines());
  // All trainers come to the same error.
  if (error.ok() && !all.stopped()) error = data_->NoInputs(all.absent());
  RETURN_IF_ERROR(checkpoints_->SaveLast(StateAtBorder()));
  const bool evaluates = !all.stopped() && data_->has_eval() && !evaluations_->Has(step_);
  // From here on a trainer that fails ends the others: not before the parameters are on disk.
  if (evaluates || !error.ok()) RETURN_IF_ERROR(checkpoints_->AwaitSaved());
  deferred_.Saved();
  RETURN_IF_ERROR(deferred_.error());
  RETURN_IF_ERROR(error);
  summary_.large_gradients = all.large_gradients();
  summary_.left_out = all.left_out().examples();
  summary_.left_out_more = all.left_out().more();
  if (self_.IsChief()) WarnOfLeftOut(all.left_out(), data_->spec().epochs);
  if (data_->has_eval() && train().eval_every_steps() != 0)
    RETURN_IF_ERROR(order_->CompleteEvaluations(evaluations_.get(), all.open_evaluations()));
  if (evaluates) {
    RETURN_IF_ERROR(order_->ReceiveLast(&workers_->session(0), step_));
    RETURN_IF_ERROR(evaluations_->Run("eval.end", step_, version_));
    summary_.stopped |= evaluations_->stopped();
  }
  // An earlier result is not that of the end.
  if (run_progress_ != nullptr) {
    run_progress_->End();
    const v1::RunProgress& now = run_progress_->now();
    summary_.restarts = now.restarts();
    summary_.lost_seconds = now.lost_seconds();
    summary_.repeated_steps = now.repeated_steps();
    summary_.goodput = run_progress_->Goodput();
  }
  if (!evaluations_->Has(step_) || all.stopped()) return absl::OkStatus();
  summary_.eval = evaluations_->result();
  return summary_.eval.has_value() ? CheckLosses(*summary_.eval) : absl::OkStatus();
}

absl::Status TrainLoop::CheckLosses(const MetricResult& eval) const {
  // Single examples may have values that no model can bear.
  if (2 * eval.not_finite <= eval.samples) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the evaluation after step ", step_, ": the loss is not finite for ", eval.not_finite, " of ", eval.samples,
      " examples, so the model is ruined",
      summary_.skipped_steps == 0 ? "" : absl::StrCat(", and ", summary_.skipped_steps, " steps were skipped"),
      "; go on from an earlier checkpoint, with checked data, optimizer.clip or a smaller learning rate"));
}

void TrainLoop::ReportRestarts() {
  run_progress_->Step(step_);
  const v1::RunProgress& now = run_progress_->now();
  if (o_.watch != nullptr && now.restarts() > 0) {
    o_.watch->Restarts(now.restarts(), now.lost_seconds(), now.repeated_steps(), run_progress_->Goodput());
  }
}

}  // namespace

std::string TrainSummary::DoneLine() const {
  std::string line = absl::StrFormat("done steps=%d examples=%d seconds=%.2f examples_per_s=%.0f loss=%.6f", steps,
                                     examples, seconds, seconds > 0 ? static_cast<double>(examples) / seconds : 0,
                                     eval.has_value() ? eval->Measure("loss") : train_loss);
  if (eval.has_value()) {
    for (const Figure& figure : eval->All()) {
      if (figure.name != "loss" && !std::isnan(figure.value)) absl::StrAppend(&line, " ", FigureText(figure));
    }
  }
  if (skipped_steps > 0) absl::StrAppend(&line, " skipped_steps=", skipped_steps);
  if (large_gradients > 0) absl::StrAppend(&line, " large_gradients=", large_gradients);
  if (left_out > 0) absl::StrAppend(&line, " left_out=", left_out);
  if (loss_scale > 0) absl::StrAppendFormat(&line, " loss_scale=%.0f", loss_scale);
  if (restarts > 0) {
    absl::StrAppendFormat(&line, " restarts=%d lost_s=%.1f repeated_steps=%d goodput=%.4f", restarts, lost_seconds,
                          repeated_steps, goodput);
  }
  if (early_stopped) line += " early_stop=1";
  if (stopped) line += " stopped=1";
  return line;
}

absl::StatusOr<TrainSummary> RunTraining(const TrainOptions& options) { return TrainLoop(options).Run(); }

}  // namespace weir
