#include "trainer/loop/step_reports.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "trainer/progress/training_watch.h"

namespace weir {

StepReports::StepReports(const Options& options)
    : skipped_steps_(Counters::Process().Get(absl::StrCat("trainer.", options.trainer_id, ".skipped_steps"), "steps")),
      lone_examples_(*options.main),
      progress_(options.out, options.live, options.interval, options.clock,
                [watch = options.watch](const TrainingPoint& point) {
                  if (watch != nullptr) watch->Point(point);
                }),
      metrics_(options.metrics) {}

void StepReports::Look(int64_t step, const std::vector<std::vector<LaneBatch>>& batches) {
  if (const std::string warning = lone_examples_.Look(step, batches); !warning.empty()) LOG(WARNING) << warning;
}

void StepReports::EndRounds(bool skipped) {
  if (before_.has_value() && skipped) metrics_ = *std::move(before_);
  before_.reset();
}

void StepReports::Done(int64_t steps, const StepResult& result, double fraction, double scale) {
  examples_ = result.examples;
  const bool skipped = result.outcome.skipped;
  if (skipped) {
    ++skipped_;
    skipped_steps_->Add();
  }
  progress_.Step({.step = steps,
                  .examples = result.outcome.samples,
                  // The loss of a skipped step says nothing.
                  .loss_sum = skipped ? 0 : result.loss_sum,
                  .loss_examples = skipped ? 0 : result.examples,
                  .fraction = fraction,
                  .skipped_steps = skipped_,
                  .loss_scale = scale},
                 [this] {
                   MetricResult result = metrics_.Result();
                   if (const double auc = result.Measure("auc"); !std::isnan(auc)) {
                     result.figures.insert(result.figures.begin(), {.name = "auc", .value = auc});
                   }
                   metrics_.Clear();
                   return std::move(result.figures);
                 });
}

}  // namespace weir
