#include "trainer/metrics/early_stop.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

namespace weir {
namespace {

// Beyond any use; a count from a file stays far from the end of its type.
constexpr int kMostEvaluations = 1 << 30;

}  // namespace

EarlyStop::EarlyStop(const v1::JobConfig& job)
    : on_(job.train().has_early_stop()),
      settings_(job.train().early_stop()),
      name_(settings_.has_metric() ? settings_.metric() : job.checkpoint().best_by()),
      every_steps_(job.train().eval_every_steps()) {}

bool EarlyStop::Awaits(int64_t step) const {
  return on_ && every_steps_ > 0 && step % every_steps_ == 0 && step > step_;
}

void EarlyStop::Judge(int64_t step, const MetricResult& result) {
  if (!Awaits(step)) return;
  step_ = step;
  ++evaluations_;
  const std::optional<double> rank = result.RankBy(name_);
  if (!rank.has_value()) {
    LOG(WARNING) << "train.early_stop: this evaluation has no "
                 << (name_.empty() ? std::string(result.DefaultFigure()) : name_) << ", and counts as no better";
    return;
  }
  if (best_.has_value() && !(*rank > *best_ + settings_.min_delta())) return;
  best_ = rank;
  evaluations_ = 0;
}

std::string EarlyStop::Why() const {
  const std::string name = name_.empty() ? "figure of the evaluations" : name_;
  if (!best_.has_value()) {
    return absl::StrCat("none of ", evaluations_, " evaluations had the ", name, " (train.early_stop)");
  }
  // A figure of which less is better has a negative rank.
  return absl::StrFormat("the best %s, %.6f, is %d evaluations old (train.early_stop)", name, std::fabs(*best_),
                         evaluations_);
}

void EarlyStop::Save(v1::TrainerState* state) const {
  if (!on_) return;
  state->clear_early_stop();
  v1::EarlyStopState* const own = state->mutable_early_stop();
  own->set_metric(name_);
  if (best_.has_value()) own->set_best(*best_);
  own->set_evaluations(evaluations_);
  own->set_step(step_);
}

void EarlyStop::Restore(const v1::TrainerState& state) {
  if (!on_ || !state.has_early_stop()) return;
  const v1::EarlyStopState& own = state.early_stop();
  best_.reset();
  step_ = std::max<int64_t>(own.step(), 0);
  evaluations_ = 0;
  if (own.has_metric() && own.metric() != name_) {
    LOG(WARNING) << "train.early_stop judges by '" << name_ << "', the run before by '" << own.metric()
                 << "': it begins anew";
    return;
  }
  if (own.has_best() && std::isfinite(own.best())) best_ = own.best();
  evaluations_ = std::clamp(own.evaluations(), 0, kMostEvaluations);
}

}  // namespace weir
