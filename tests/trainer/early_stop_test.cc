#include "trainer/metrics/early_stop.h"

#include <cmath>
#include <limits>
#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

v1::JobConfig JobWith(const std::string& text) {
  v1::JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

Figure Loss(double loss) { return {.name = "loss", .value = loss, .lower_is_better = true}; }
MetricResult Auc(double auc) { return {.samples = 10, .measures = {Loss(1 - auc), {.name = "auc", .value = auc}}}; }

v1::TrainerState SavedBy(const EarlyStop& stop) {
  v1::TrainerState state;
  stop.Save(&state);
  return state;
}

// Judges the evaluation 10 steps after the last one.
void Judge(EarlyStop* stop, const MetricResult& result) {
  stop->Judge(SavedBy(*stop).early_stop().step() + 10, result);
}

TEST(EarlyStopTest, EndsWhenAsManyEvaluationsInARowAreNoBetter) {
  EarlyStop stop(JobWith("train { eval_every_steps: 10 early_stop { patience: 2 } }"));
  for (const double auc : {.6, .7, .65, .71}) {
    Judge(&stop, Auc(auc));
    EXPECT_FALSE(stop.Ends()) << auc;
  }
  Judge(&stop, Auc(.71));
  EXPECT_FALSE(stop.Ends());
  Judge(&stop, Auc(.7));
  EXPECT_TRUE(stop.Ends());
  EXPECT_EQ(stop.Why(), "the best figure of the evaluations, 0.710000, is 2 evaluations old (train.early_stop)");
}

TEST(EarlyStopTest, ABetterOneIsBetterByMoreThanTheDelta) {
  EarlyStop stop(JobWith("train { eval_every_steps: 10 early_stop { metric: \"loss\" patience: 2 min_delta: 0.05 } }"));
  Judge(&stop, Auc(.6));   // loss .4
  Judge(&stop, Auc(.64));  // .36
  EXPECT_FALSE(stop.Ends());
  Judge(&stop, Auc(.64));
  EXPECT_TRUE(stop.Ends());
  EXPECT_EQ(stop.Why(), "the best loss, 0.400000, is 2 evaluations old (train.early_stop)");
}

TEST(EarlyStopTest, AFigureThatIsMissingOrNoNumberIsNoBetter) {
  EarlyStop stop(JobWith("train { eval_every_steps: 10 early_stop { metric: \"gauc\" patience: 3 } }"));
  MetricResult result = Auc(.7);
  Judge(&stop, result);
  result.figures = {{.name = "gauc", .value = std::numeric_limits<double>::quiet_NaN()}};
  Judge(&stop, result);
  EXPECT_FALSE(stop.Ends());
  Judge(&stop, result);
  EXPECT_TRUE(stop.Ends());
  EXPECT_EQ(stop.Why(), "none of 3 evaluations had the gauc (train.early_stop)");
}

TEST(EarlyStopTest, ALossWithoutALabelIsJudgedByItself) {
  EarlyStop stop(JobWith("train { eval_every_steps: 10 early_stop { patience: 2 } }"));
  MetricResult result = {.samples = 10};
  for (const double loss : {.5, .4, .3, .2}) {
    result.measures = {Loss(loss)};
    Judge(&stop, result);
  }
  EXPECT_FALSE(stop.Ends());
  Judge(&stop, result);
  Judge(&stop, result);
  EXPECT_TRUE(stop.Ends());
}

TEST(EarlyStopTest, TheFigureOfBestByIsTheDefault) {
  EarlyStop stop(JobWith("train { eval_every_steps: 10 early_stop { patience: 1 } } checkpoint { best_by: \"mae\" }"));
  MetricResult result = Auc(.7);
  result.figures = {{.name = "mae", .value = 2, .lower_is_better = true}};
  Judge(&stop, result);
  result.figures[0].value = 1;
  Judge(&stop, result);
  EXPECT_FALSE(stop.Ends());
  Judge(&stop, result);
  EXPECT_TRUE(stop.Ends());
}

TEST(EarlyStopTest, ARestoredOneGoesOn) {
  const v1::JobConfig job = JobWith("train { eval_every_steps: 10 early_stop { patience: 2 } }");
  EarlyStop first(job);
  Judge(&first, Auc(.7));
  Judge(&first, Auc(.6));
  EarlyStop second(job);
  second.Restore(SavedBy(first));
  EXPECT_FALSE(second.Ends());
  Judge(&second, Auc(.7));
  EXPECT_TRUE(second.Ends());
}

TEST(EarlyStopTest, AStateOfAnotherFigureOrADamagedOneIsNotTakenOver) {
  EarlyStop first(JobWith("train { eval_every_steps: 10 early_stop { metric: \"auc\" patience: 2 } }"));
  Judge(&first, Auc(.7));
  Judge(&first, Auc(.6));
  EarlyStop second(JobWith("train { eval_every_steps: 10 early_stop { metric: \"loss\" patience: 2 } }"));
  second.Restore(SavedBy(first));
  EXPECT_EQ(SavedBy(second).early_stop().step(), 20);
  Judge(&second, Auc(.6));
  Judge(&second, Auc(.5));
  EXPECT_FALSE(second.Ends()) << "the first of them is the best so far";

  v1::TrainerState damaged = SavedBy(first);
  damaged.mutable_early_stop()->set_best(std::numeric_limits<double>::quiet_NaN());
  damaged.mutable_early_stop()->set_evaluations(std::numeric_limits<int>::min());
  damaged.mutable_early_stop()->set_step(-5);
  first.Restore(damaged);
  first.Save(&damaged);
  EXPECT_EQ(damaged.early_stop().evaluations(), 0);
  EXPECT_EQ(damaged.early_stop().step(), 0);
  EXPECT_FALSE(damaged.early_stop().has_best());
}

TEST(EarlyStopTest, AnEvaluationWithoutExamplesIsNoBetter) {
  EarlyStop stop(JobWith("train { eval_every_steps: 10 early_stop { metric: \"loss\" patience: 1 } }"));
  Judge(&stop, {.samples = 0, .measures = {Loss(0)}});
  EXPECT_TRUE(stop.Ends());
  EXPECT_EQ(stop.Why(), "none of 1 evaluations had the loss (train.early_stop)");
}

TEST(EarlyStopTest, EvaluationsOfOtherStepsAndRepeatedOnesDoNotCount) {
  EarlyStop stop(JobWith("train { eval_every_steps: 10 early_stop { patience: 2 } }"));
  stop.Judge(10, Auc(.7));
  stop.Judge(10, Auc(.6));
  stop.Judge(17, Auc(.6));
  EXPECT_EQ(SavedBy(stop).early_stop().evaluations(), 0);
  EXPECT_EQ(SavedBy(stop).early_stop().step(), 10);
  EXPECT_FALSE(stop.Awaits(10));
  EXPECT_FALSE(stop.Awaits(17));
  EXPECT_TRUE(stop.Awaits(20));
  stop.Judge(20, Auc(.6));
  EXPECT_EQ(SavedBy(stop).early_stop().evaluations(), 1);
}

TEST(EarlyStopTest, WithoutTheSettingItNeverEnds) {
  EarlyStop stop(JobWith(""));
  for (int i = 1; i < 100; ++i) stop.Judge(10 * i, Auc(.5));
  EXPECT_FALSE(stop.Ends() || stop.Awaits(1000) || SavedBy(stop).has_early_stop());

  EarlyStop before(JobWith("train { eval_every_steps: 10 early_stop { metric: \"auc\" patience: 2 } }"));
  Judge(&before, Auc(.7));
  testing::internal::CaptureStderr();
  stop.Restore(SavedBy(before));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "what a run before judged by is nothing to this one";
}

}  // namespace
}  // namespace weir
