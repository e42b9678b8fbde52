#include "trainer/progress/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weir {

std::string ShortDuration(absl::Duration d) {
  const int64_t s = std::max<int64_t>(0, absl::ToInt64Seconds(d));
  if (s >= 3600) return absl::StrFormat("%dh%02dm", s / 3600, s / 60 % 60);
  if (s >= 60) return absl::StrFormat("%dm%02ds", s / 60, s % 60);
  return absl::StrFormat("%ds", s);
}

Progress::Progress(std::FILE* out, bool live, absl::Duration interval, Clock* clock,
                   std::function<void(const TrainingPoint&)> on_point)
    : out_(out),
      live_(live),
      interval_(interval),
      on_point_(std::move(on_point)),
      clock_(clock),
      start_(clock->Now()),
      last_(start_) {}

Progress::~Progress() {
  if (line_open_) std::fputc('\n', out_);
}

void Progress::Add(const StepProgress& step) {
  if (first_fraction_ < 0) first_fraction_ = step.fraction;
  now_ = step;
  examples_ += step.examples;
  loss_sum_ += step.loss_sum;
  loss_examples_ += step.loss_examples;
  all_loss_sum_ += step.loss_sum;
  all_loss_examples_ += step.loss_examples;
}

bool Progress::Due() const { return clock_->Now() - last_ >= interval_; }

void Progress::Print(const std::vector<Figure>& figures) {
  const absl::Time now = clock_->Now();
  const double rate = static_cast<double>(examples_ - last_examples_) / absl::ToDoubleSeconds(now - last_);
  const double loss = loss_examples_ == 0 ? 0 : loss_sum_ / static_cast<double>(loss_examples_);
  std::string text;
  if (live_) {
    text = absl::StrFormat("step %d  %.0f examples/s  loss %.4f", now_.step, rate, loss);
  } else {
    text = absl::StrFormat("step=%d examples=%d examples_per_s=%.0f loss=%.6f", now_.step, examples_, rate, loss);
  }
  for (const Figure& figure : figures) {
    if (std::isnan(figure.value)) continue;
    if (live_) {
      absl::StrAppendFormat(&text, "  %s %.4f", figure.name, figure.value);
    } else {
      absl::StrAppend(&text, " ", FigureText(figure));
    }
  }
  if (now_.skipped_steps > 0) {
    if (live_) {
      absl::StrAppendFormat(&text, "  %d skipped", now_.skipped_steps);
    } else {
      absl::StrAppendFormat(&text, " skipped_steps=%d", now_.skipped_steps);
    }
  }
  if (now_.loss_scale > 0) {
    if (live_) {
      absl::StrAppendFormat(&text, "  scale %.0f", now_.loss_scale);
    } else {
      absl::StrAppendFormat(&text, " loss_scale=%.0f", now_.loss_scale);
    }
  }
  const double done = now_.fraction - first_fraction_;
  if (done > 0 && now_.fraction <= 1) {
    const absl::Duration left = (now - start_) * ((1 - now_.fraction) / done);
    if (live_) {
      absl::StrAppendFormat(&text, "  %3.0f %%  %s left", 100 * now_.fraction, ShortDuration(left));
    } else {
      absl::StrAppendFormat(&text, " left_s=%.0f", absl::ToDoubleSeconds(left));
    }
  }
  // The escape clears what a longer line left behind.
  std::fprintf(out_, live_ ? "\r%s\033[K" : "%s\n", text.c_str());
  std::fflush(out_);
  line_open_ = live_;
  if (on_point_) {
    on_point_({.step = now_.step,
               .examples = examples_,
               .examples_per_s = rate,
               .loss = loss,
               .fraction = now_.fraction,
               .figures = figures});
  }
  last_ = now;
  last_examples_ = examples_;
  loss_sum_ = 0;
  loss_examples_ = 0;
}

void Progress::Say(const std::string& line) {
  std::fprintf(out_, "%s%s\n", line_open_ ? "\r\033[K" : "", line.c_str());
  std::fflush(out_);
  line_open_ = false;
}

}  // namespace weir
