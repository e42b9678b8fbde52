#include "trainer/loop/rounds.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "trainer/follow/file_course.h"
#include "trainer/loop/job_data.h"

namespace weir {
namespace {

const ProfileName kRowsAhead("batch and rows pulled ahead");

int64_t ExamplesIn(const std::vector<std::vector<LaneBatch>>& batches) {
  int64_t examples = 0;
  for (const std::vector<LaneBatch>& of_worker : batches) {
    for (const LaneBatch& lane : of_worker) examples += lane.examples;
  }
  return examples;
}

// Returns the number of examples in a trainer's step 0, as its streams have given them by now.
int64_t FirstExamples(const std::vector<LaneBatch>& newest) {
  int64_t examples = 0;
  for (const LaneBatch& lane : newest) examples += lane.first_examples;
  return examples;
}

}  // namespace

Rounds::Rounds(Options options, std::unique_ptr<LaneReader> reader)
    : o_(std::move(options)),
      reader_(std::move(reader)),
      first_step_examples_(o_.expected_first_step),
      done_(o_.first_step) {
  now_.batches.resize(static_cast<size_t>(o_.workers->count()));
  next_.batches.resize(static_cast<size_t>(o_.workers->count()));
  if (!o_.mode.prefetch_rows()) return;
  late_ = Counters::Process().Get("prefetch.late", "batches");
  ahead_ = std::make_unique<AheadThread>([this] {
    reader_->Cancel();
    o_.trainer.client->ahead().Cancel();
  });
  if (!o_.always_ahead) overlap_ = o_.order->MakeOverlapSwitch();
}

absl::Status Rounds::ReadBatches(std::vector<LaneBatch>* batches) {
  const std::function<absl::Status()> keep_waiting = [this, of_trainer = o_.trainer.KeepWaiting()]() -> absl::Status {
    if (ending_) return absl::CancelledError("the run has ended");
    RETURN_IF_ERROR(of_trainer());
    gave_up_ = !o_.course->EndsStreams() && o_.trainer.client->member().StopRequested();
    return gave_up_ ? absl::CancelledError("the end of the job was requested") : absl::OkStatus();
  };
  const absl::Status read =
      gave_up_ ? absl::OkStatus() : o_.workers->session(0).NextBatches(reader_.get(), batches, keep_waiting);
  if (!gave_up_) return read;
  *batches = reader_->StoppedBatches();
  return absl::OkStatus();
}

absl::Status Rounds::Read(Round* round) {
  const ProfiledStep step(round->step);
  for (int w = 0; w < o_.workers->count(); ++w) {
    std::vector<LaneBatch>& batches = round->batches[static_cast<size_t>(w)];
    RETURN_IF_ERROR(ReadBatches(&batches));
    if (round->batch > 0 || w > 0) continue;
    const bool all = std::all_of(batches.begin(), batches.end(), [](const LaneBatch& b) { return b.ended; });
    round->ended = o_.order->EndsRun({.ended = all});
    if (round->ended) return absl::OkStatus();
  }
  if (!o_.mode.prefetch_rows()) return absl::OkStatus();
  for (int w = 0; w < o_.workers->count(); ++w)
    RETURN_IF_ERROR(o_.workers->session(w).PullAhead(round->step, &round->batches[static_cast<size_t>(w)]));
  return absl::OkStatus();
}

void Rounds::StartAhead(int64_t step, int batch) {
  next_.step = step;
  next_.batch = batch;
  ahead_->Start([this] { return Read(&next_); });
}

absl::Status Rounds::ReadNow(int64_t step, int batch) {
  now_.step = step;
  now_.batch = batch;
  return Read(&now_);
}

absl::Status Rounds::AwaitAhead(int64_t step, int batch) {
  if (!ahead_->busy()) StartAhead(step, batch);  // the first round
  bool waited = false;
  o_.trainer.client->ahead().Need(true);
  const absl::Status read = [&] {
    const ProfileSpan span(step, ProfileKind::kData, kRowsAhead);
    return ahead_->Finish(&waited);
  }();
  o_.trainer.client->ahead().Need(false);
  RETURN_IF_ERROR(read);
  if (waited) late_->Add();
  std::swap(now_, next_);
  return absl::OkStatus();
}

absl::Status Rounds::StartNext(int64_t step, int batch) {
  for (int w = 0; w < o_.workers->count(); ++w) RETURN_IF_ERROR(o_.workers->session(w).TakeAhead());
  if (batch == 0 && overlap_ != nullptr) {
    overlap_->StepBegins(Clock::Real()->Now());
    if (!overlap_->news().empty()) LOG(INFO) << overlap_->news();
    o_.trainer.client->ahead().PullAheadOfVersion(overlap_->on());
  }
  if (batch + 1 < o_.mode.accumulate()) {
    StartAhead(step, batch + 1);
  } else if (o_.max_steps == 0 || step + 1 < o_.max_steps) {
    StartAhead(step + 1, 0);
  }
  return absl::OkStatus();
}

void Rounds::EndStep() {
  trained_ += in_step_;
  done_ = now_.step + 1;
  if (o_.keeps_places) reader_->Passed(done_ * o_.mode.accumulate() * o_.mode.workers());
  if (overlap_ != nullptr) overlap_->StepEnds(Clock::Real()->Now());
}

absl::StatusOr<Round*> Rounds::Next(int64_t step, int batch) {
  if (batch == 0) in_step_ = 0;
  if (batch == 0 && overlap_ != nullptr) overlap_->AsksForStep(Clock::Real()->Now());
  RETURN_IF_ERROR(ahead_ == nullptr ? ReadNow(step, batch) : AwaitAhead(step, batch));
  RETURN_IF_ERROR(HeedEnds());
  now_.ended = now_.ended || o_.order->EndsRun(Streams());
  if (now_.ended) return &now_;
  if (ahead_ != nullptr) RETURN_IF_ERROR(StartNext(step, batch));
  first_ = FirstExamples(now_.batches.back());
  in_step_ += ExamplesIn(now_.batches);
  o_.trainer.client->steps().SetFirstSamples(first_);
  return &now_;
}

absl::Status Rounds::HeedEnds() {
  bool last = false;
  for (const std::vector<LaneBatch>& of_worker : now_.batches) {
    for (const LaneBatch& lane : of_worker) {
      stopped_ |= lane.stopped;
      last |= lane.last;
    }
  }
  if (stopped_) o_.trainer.client->steps().EndWithNextSends();
  return last ? o_.course->PostReadings() : absl::OkStatus();
}

StreamsAtStep Rounds::Streams() const {
  StreamsAtStep streams = {.stopped = stopped_};
  if (now_.batch + 1 < o_.mode.accumulate()) return streams;
  streams.examples = in_step_ + ExamplesIn(now_.batches);
  streams.first_examples = FirstExamples(now_.batches.back());
  return streams;
}

v1::StreamPlaces Rounds::Places() const {
  return reader_ == nullptr ? places_ : reader_->Places(done_ * o_.mode.accumulate() * o_.mode.workers());
}

double Rounds::fraction() const {
  double fraction = 0;
  const std::vector<LaneBatch>& newest = now_.batches.back();
  for (const LaneBatch& lane : newest) fraction += lane.fraction / static_cast<double>(newest.size());
  return fraction;
}

absl::Status Rounds::CheckFirstStep(int64_t examples) {
  first_step_examples_ = examples;
  const int64_t before = o_.expected_first_step;
  if (before == 0 || before == examples) return absl::OkStatus();
  // A step of several batches takes the rest of a short stream's epoch and goes on with the next one, if there is one.
  const bool epochs_decide = o_.mode.accumulate() * o_.mode.workers() > 1;
  return absl::FailedPreconditionError(absl::StrCat(
      "--resume: step 0 had ", before, " examples when the checkpoint was written, and has ", examples,
      " in the data of data.train now: ",
      epochs_decide ? absl::StrCat("train.epochs was another than ", o_.epochs,
                                   ", which decides how many examples a step has where streams have fewer than a step "
                                   "takes from them (data.batch_size x train.accumulate_steps x train.workers), or ")
                    : "",
      "the files are others; bring back those of before", epochs_decide ? ", or train.epochs" : "",
      ", or start a fresh run without --resume"));
}

v1::LeftOut Rounds::CountLeftOut(int64_t steps) {
  v1::LeftOut left;
  left.set_trained(steps * first_);
  // With more left than this, WarnOfLeftOut needs no exact number.
  const int64_t enough = static_cast<int64_t>(2 * kLeftOutWarning * static_cast<double>(left.trained())) /
                             std::max<int64_t>(1, o_.epochs) +
                         o_.batch_size;
  std::vector<LaneBatch> batches;
  while (!reader_->ended() && reader_->given() - trained_ <= enough) {
    const absl::Status read = reader_->Next(absl::Seconds(2), &batches);
    if (read.ok()) continue;
    // An error must not keep the parameters from being saved.
    LOG(INFO) << "examples that are left out were not counted to the end: " << read;
    break;
  }
  left.set_examples(reader_->given() - trained_);
  left.set_more(!reader_->ended());
  return left;
}

void Rounds::EndAhead() {
  if (ahead_ == nullptr || !ahead_->busy()) return;
  // The batches that it has read count as given, but were not trained on; an error of it no longer matters to the run.
  // Its rows are not needed, and CountLeftOut waits for data only so long.
  ending_ = true;
  o_.trainer.client->ahead().Cancel();
  const absl::Status ended = ahead_->Finish();
  if (!ended.ok()) LOG(INFO) << "a batch that was read ahead of the end is not used: " << ended;
}

void Rounds::StopAhead() {
  if (ahead_ != nullptr) ahead_->Stop();
}

int64_t Rounds::CloseReader() {
  WarnOfSkippedLines(*reader_, "data.train");
  const int64_t skipped_lines = reader_->skipped_lines();
  absent_ = reader_->absent_inputs();
  if (o_.keeps_places) places_ = Places();
  reader_.reset();
  return skipped_lines;
}

}  // namespace weir
