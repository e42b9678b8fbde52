// Figures of a training in the registry of the process.

#include "trainer/progress/training_watch.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "framework/base/counters.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

std::map<std::string, double> Gauges() {
  std::map<std::string, double> gauges;
  for (const Counters::Entry& entry : Counters::Process().Snapshot()) {
    if (entry.kind == Counters::Kind::kGauge) gauges[entry.name] = entry.gauge;
  }
  return gauges;
}

TEST(TrainingWatchTest, AFigureMayHaveTheNameOfAnyOtherEntry) {
  absl::StatusOr<std::unique_ptr<TrainingWatch>> watch = TrainingWatch::Create({.trainer_id = 7});
  ASSERT_TRUE(watch.ok()) << watch.status();
  (*watch)->Point({.step = 3,
                   .loss = 0.5,
                   .figures = {{.name = "steps", .value = 1.5},
                               {.name = "step_time", .value = 2.5},
                               {.name = "auc", .value = 0.75},
                               {.name = "gauc", .value = std::nan("")}}});
  EXPECT_THAT(Gauges(), Contains(Pair("trainer.7.figure.steps", 1.5)));
  EXPECT_THAT(Gauges(), Contains(Pair("trainer.7.figure.step_time", 2.5)));
  EXPECT_THAT(Gauges(), Contains(Pair("trainer.7.auc", 0.75)));
  EXPECT_THAT(Gauges(), Contains(Pair("trainer.7.loss", 0.5)));
  EXPECT_THAT(Gauges(), Contains(Pair("trainer.7.step", 3)));
  EXPECT_THAT(Gauges(), Not(Contains(Key("trainer.7.figure.gauc"))));
  EXPECT_EQ(Counters::Process().Value("trainer.7.steps"), 0);
}

TEST(TrainingWatchTest, FiguresOfEvaluationsAreApartFromThoseOfTraining) {
  absl::StatusOr<std::unique_ptr<TrainingWatch>> watch = TrainingWatch::Create({.trainer_id = 8});
  ASSERT_TRUE(watch.ok()) << watch.status();
  (*watch)->Evaluation(5, {.samples = 10, .measures = {{"loss", 0.25}, {"auc", 0.875}}});
  EXPECT_THAT(Gauges(), Contains(Pair("trainer.8.eval.loss", 0.25)));
  EXPECT_THAT(Gauges(), Contains(Pair("trainer.8.eval.auc", 0.875)));
  EXPECT_THAT(Gauges(), Not(Contains(Key("trainer.8.loss"))));
}

TEST(TrainingWatchTest, ADirectoryThatCannotBeWrittenIsAnErrorBeforeTheTraining) {
  const absl::Status status = TrainingWatch::Create({.tensorboard = "/proc/none"}).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/proc/none"));
}

}  // namespace
}  // namespace weir
