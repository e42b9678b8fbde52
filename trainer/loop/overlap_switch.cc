#include "trainer/loop/overlap_switch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace weir {

namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

}  // namespace

void OverlapSwitch::AsksForStep(absl::Time now) { since_ = now; }

void OverlapSwitch::StepEnds(absl::Time now) { turn_ += now - since_; }

void OverlapSwitch::StepBegins(absl::Time now) {
  constexpr int64_t kTrial = int64_t{2} * kTurns * kTurn;
  news_.clear();
  turn_ += now - since_;
  since_ = now;
  if (!counts_) {
    counts_ = true;
    turn_ = absl::ZeroDuration();
    return;
  }
  ++steps_;
  if (steps_ <= kTrial && steps_ % kTurn == 0) {
    seconds_[on_ ? 1 : 0].push_back(absl::ToDoubleSeconds(std::exchange(turn_, absl::ZeroDuration())));
    on_ = !on_;
    if (steps_ == kTrial) EndTrial();
  }
  if (steps_ == kTrial + kStay) {
    steps_ = 0;
    turn_ = absl::ZeroDuration();
    on_ = true;
    for (std::vector<double>& seconds : seconds_) seconds.clear();
  }
}

void OverlapSwitch::EndTrial() {
  // The median, for something else may have had the processor for a turn.
  const double with = Median(seconds_[1]) / kTurn, without = Median(seconds_[0]) / kTurn;
  on_ = with < without;
  news_ = absl::StrFormat(
      "prefetch_rows: a step takes %.2f ms with rows that are pulled ahead of its version and corrected, %.2f ms with "
      "a "
      "pull that waits for the version; the next %d steps run %s",
      1e3 * with, 1e3 * without, kStay, on_ ? "with the former" : "with the latter");
}

}  // namespace weir
