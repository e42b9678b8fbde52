#include "trainer/loop/evaluations.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "proto/evaluation.pb.h"
#include "trainer/progress/training_watch.h"

namespace weir {
namespace {

const ProfileName kEvaluation("evaluation");

std::string EvaluationKey(int64_t step) { return absl::StrCat("eval.", step); }

}  // namespace

absl::StatusOr<std::string> Evaluations::ReadAndEvaluate(int64_t version) {
  ASSIGN_OR_RETURN(std::unique_ptr<LaneReader> reader, o_.data->EvalReader());
  JobMetrics metrics(o_.metrics);
  RETURN_IF_ERROR(o_.session->Evaluate(version, reader.get(), o_.trainer.UntilStop(), &metrics));
  WarnOfSkippedLines(*reader, "data.eval");
  return metrics.SerializedPart();
}

absl::StatusOr<MetricResult> Evaluations::Merge(const std::vector<std::string>& all, std::vector<size_t>* without,
                                                bool* stopped) const {
  *stopped = false;
  JobMetrics metrics(o_.metrics);
  for (size_t t = 0; t < all.size(); ++t) {
    if (all[t].empty()) {
      without->push_back(t);
      continue;
    }
    v1::EvaluationPart part;
    if (!part.ParseFromString(all[t])) {
      return absl::DataLossError(absl::StrCat("the evaluation of trainer ", t, " cannot be read"));
    }
    if (part.stopped()) {
      *stopped = true;
      continue;
    }
    RETURN_IF_ERROR(metrics.Merge(part));
  }
  return metrics.Result();
}

absl::StatusOr<std::string> Evaluations::EvaluateStreams(int64_t version) {
  absl::StatusOr<std::string> mine = ReadAndEvaluate(version);
  if (mine.ok()) return mine;
  if (o_.trainer.StoppedBy(mine.status())) {
    v1::EvaluationPart part;
    part.set_stopped(true);
    return part.SerializeAsString();
  }
  RETURN_IF_ERROR(o_.deferred->Defer(mine.status()));
  return "";
}

void Evaluations::LogStop(int64_t step) const {
  if (!o_.trainer.IsChief()) return;
  LOG(INFO) << "the evaluation after step " << step << " was stopped before its end, and has no result";
}

absl::Status Evaluations::Run(std::string_view key, int64_t step, int64_t version) {
  const ProfileSpan span(step - 1, ProfileKind::kBorder, kEvaluation);
  ASSIGN_OR_RETURN(std::string mine, EvaluateStreams(version));
  ASSIGN_OR_RETURN(const std::vector<std::string> all, o_.exchange(key, std::move(mine)));
  if (all.empty()) return absl::OkStatus();
  std::vector<size_t> without;
  ASSIGN_OR_RETURN(MetricResult result, Merge(all, &without, &stopped_));
  if (stopped_) {
    LogStop(step);
    return absl::OkStatus();
  }
  result_ = std::move(result);
  result_step_ = step;
  if (o_.early_stop != nullptr) o_.early_stop->Judge(step, *result_);
  if (o_.trainer.IsChief()) {
    o_.progress->Say(absl::StrCat(
        "eval step=", step, " examples=", result_->samples, " ", result_->ToString(),
        without.empty() ? "" : absl::StrCat(" (without trainer ", absl::StrJoin(without, ", trainer "), ")")));
  }
  if (result_->samples == 0) {
    if (o_.trainer.IsChief()) {
      LOG(WARNING)
          << "the evaluation after step " << step
          << " had no examples, and ranks nothing; data.eval.where keeps none of data.eval.files, if it is set";
    }
    result_.reset();
    return absl::OkStatus();
  }
  if (o_.watch != nullptr && o_.trainer.IsChief()) o_.watch->Evaluation(step, *result_);
  // A result of part of the data ranks no checkpoint.
  if (without.empty()) o_.checkpoints->RecordEvaluation(step, *result_, o_.early_stop);
  return absl::OkStatus();
}

absl::Status Evaluations::Start(int64_t step, int64_t version) {
  const ProfileSpan span(step - 1, ProfileKind::kBorder, kEvaluation);
  ASSIGN_OR_RETURN(std::string mine, EvaluateStreams(version));
  open_.push_back(step);
  return o_.trainer.client->board().Contribute(EvaluationKey(step), std::move(mine),
                                               /*reader=*/o_.trainer.client->member().Chief());
}

absl::Status Evaluations::ReportComplete() {
  if (!o_.trainer.IsChief()) return absl::OkStatus();
  std::vector<int64_t> still_open;
  for (const int64_t step : open_) {
    std::vector<std::string> all;
    ASSIGN_OR_RETURN(const bool complete, o_.trainer.client->board().TryCollect(EvaluationKey(step), &all));
    if (!complete) {
      still_open.push_back(step);
      continue;
    }
    if (all.empty()) continue;  // reported by the chief before this one
    // Trainers that have died, or ended before this step.
    std::vector<size_t> without;
    bool stopped = false;
    ASSIGN_OR_RETURN(const MetricResult result, Merge(all, &without, &stopped));
    if (stopped) {
      LogStop(step);
    } else {
      ReportLive(step, result, without);
    }
  }
  open_ = std::move(still_open);
  return absl::OkStatus();
}

void Evaluations::ReportLive(int64_t step, const MetricResult& result, const std::vector<size_t>& without) {
  if (o_.watch != nullptr && result.samples > 0) o_.watch->Evaluation(step, result);
  o_.progress->Say(absl::StrCat("eval step=", step, " examples=", result.samples, " ", result.ToString(),
                                " live=1 (parameters moved while it ran: async",
                                without.empty() ? "" : "; without trainer ", absl::StrJoin(without, ", trainer "),
                                ")"));
}

absl::Status Evaluations::Complete(absl::Span<const int64_t> open_at_chief) {
  // An evaluation of the chief that this trainer took no part in, because its data ended earlier or it began later,
  // would stay open for ever: contribute nothing to it.
  for (const int64_t step : open_at_chief) {
    if (std::find(open_.begin(), open_.end(), step) != open_.end()) continue;
    RETURN_IF_ERROR(
        o_.trainer.client->board().Contribute(EvaluationKey(step), "", /*reader=*/o_.trainer.client->member().Chief()));
  }
  RETURN_IF_ERROR(o_.trainer.client->board().Exchange("end.evaluations", "", /*kept=*/true).status());
  return ReportComplete();
}

}  // namespace weir
