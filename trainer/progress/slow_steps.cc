#include "trainer/progress/slow_steps.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weir {

namespace {

constexpr size_t kSteps = 64;
// With fewer steps a median says little: the first ones wait for files and make most rows.
constexpr size_t kLeastSteps = 8;
// Nobody asks why a step took less.
constexpr absl::Duration kLeast = absl::Milliseconds(500);
constexpr absl::Duration kBetweenLooks = absl::Seconds(1);

std::string TimeText(absl::Duration time) {
  const double s = absl::ToDoubleSeconds(time);
  return s < 1 ? absl::StrFormat("%.0f ms", 1000 * s) : absl::StrFormat("%.2f s", s);
}

}  // namespace

absl::Duration SlowSteps::Median() const {
  if (last_.size() < kLeastSteps) return absl::InfiniteDuration();
  std::vector<absl::Duration> sorted = last_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

std::string SlowSteps::Explain(const StepTimes& times) {
  std::string line;
  if (factor_ > 0 && times.whole >= kLeast) {
    if (const absl::Duration median = Median(); times.whole > factor_ * median) {
      if (times.end - said_ >= between_) {
        line = Line(times, median);
        said_ = times.end;
        unsaid_ = 0;
      } else {
        ++unsaid_;
      }
    }
  }
  if (last_.size() < kSteps) {
    last_.push_back(times.whole);
  } else {
    last_[next_] = times.whole;
    next_ = (next_ + 1) % kSteps;
  }
  if (times.end - looked_ >= kBetweenLooks) {
    machine_.Look();
    looked_ = times.end;
  }
  return line;
}

std::string SlowSteps::Line(const StepTimes& times, absl::Duration median) const {
  const absl::Duration own = std::max(times.whole - times.data - times.servers, absl::ZeroDuration());
  std::string line =
      absl::StrCat("step ", times.step, " took ", TimeText(times.whole), ", ",
                   absl::StrFormat("%.0f", absl::FDivDuration(times.whole, median)), " times the median of the ",
                   last_.size(), " before it (", TimeText(median), "): ", TimeText(times.data), " waiting for data, ",
                   TimeText(times.servers), " for servers, ", TimeText(own),
                   " for the rest, in which time this process used ", TimeText(times.processor), " of processors");
  if (!times.longest_wait_for.empty()) {
    absl::StrAppend(&line, "; longest wait ", TimeText(times.longest_wait), " for ", times.longest_wait_for);
  }
  if (times.late_trainer >= 0) {
    absl::StrAppend(&line, "; trainer ", times.late_trainer, " was the last with its gradients, ", TimeText(times.late),
                    " after the others");
  }
  if (const std::string machine = machine_.Text(); !machine.empty()) absl::StrAppend(&line, "; ", machine);
  if (unsaid_ > 0) absl::StrAppend(&line, "; ", unsaid_, " other slow steps since the last such line");
  return line;
}

}  // namespace weir
