// The end of a run: parameters are on disk before anything else is done that may fail, and the last evaluation is of
// what was saved.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "trainer/metrics/job_metrics.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Mode {
  const char* name;
  std::vector<std::string> overrides;
  int servers = 2, trainers = 2;
};

std::vector<Mode> Modes() {
  return {{"local", {}, 1, 1},
          {"sync", {}},
          {"async", {"distribute.sync=false"}},
          {"half_async", {"distribute.sync=false", "distribute.half_async={}", "train.workers=2"}},
          {"bounded", {"distribute.sync=false", "distribute.bounded_staleness={ steps: 2 }"}},
          {"geo", {"distribute.sync=false", "distribute.geo={ every_steps: 5 }"}}};
}

class EndOfRunTest : public SlotJobTest {
 protected:
  static void SetUpTestSuite() {
    SlotJobTest::SetUpTestSuite();
    // The last line is in the last trainer's share.
    WriteSlotLines(Path("bad_eval.txt"), 2000, 2500);
    std::ofstream(Path("bad_eval.txt"), std::ios::app) << "this is no line\n";
  }

  static InProcessRun RunOf(const Mode& mode, const std::string& checkpoints, std::vector<std::string> more) {
    InProcessRun run{.overrides = mode.overrides, .servers = mode.servers, .trainers = mode.trainers};
    run.overrides.push_back(CheckpointIn(checkpoints));
    run.overrides.insert(run.overrides.end(), more.begin(), more.end());
    return run;
  }
  // Values in the newest checkpoint; 0 when there is none.
  static uint64_t Values(const std::string& checkpoints) {
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(Path(checkpoints));
    EXPECT_TRUE(newest.ok()) << newest.status();
    return newest.ok() ? newest->manifest.values_digest() : 0;
  }
  static std::vector<int64_t> Steps(const std::string& checkpoints) {
    std::vector<int64_t> steps;
    const auto found = ListCheckpoints(Path(checkpoints));
    EXPECT_TRUE(found.ok()) << found.status();
    if (!found.ok()) return steps;
    for (const CheckpointPath& each : *found) steps.push_back(each.step);
    return steps;
  }
};

TEST_F(EndOfRunTest, ABadLineInTheEvaluationDataCostsNoParameters) {
  for (const Mode& mode : Modes()) {
    SCOPED_TRACE(mode.name);
    const std::string dir = absl::StrCat("bad_", mode.name);
    const absl::Status status =
        TryRun(RunOf(mode, dir, {"data.eval.files=bad_eval.txt", "train.max_steps=20"})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("bad_eval.txt:501: "));
    EXPECT_THAT(Steps(dir), ElementsAre(20));
    if (!mode.overrides.empty()) continue;
    // In sync bits can be compared: it is the model of a run whose evaluation is fine.
    Run(RunOf(mode, dir + "_good", {"train.max_steps=20"}));
    EXPECT_EQ(Values(dir), Values(dir + "_good"));
  }
}

TEST_F(EndOfRunTest, AnEvaluationOnTheWayThatFailsEndsTheRunWithACheckpoint) {
  for (const Mode& mode : Modes()) {
    SCOPED_TRACE(mode.name);
    const std::string dir = absl::StrCat("way_", mode.name);
    std::vector<absl::Status> ends;
    InProcessRun run =
        RunOf(mode, dir, {"data.eval.files=bad_eval.txt", "train.eval_every_steps=10", "train.epochs=1000000"});
    run.trainer_ends = &ends;
    const absl::Status status = TryRun(std::move(run)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    for (const absl::Status& end : ends) EXPECT_THAT(std::string(end.message()), HasSubstr("bad_eval.txt:501: "));
    const std::vector<int64_t> steps = Steps(dir);
    ASSERT_EQ(steps.size(), 1u);
    // In async the number is the chief's, who may be far behind the one that evaluates.
    EXPECT_GE(steps[0], mode.overrides.empty() ? 10 : 0);
  }
}

TEST_F(EndOfRunTest, WithoutACheckpointDirectoryTheErrorComesAtOnce) {
  // Without a directory there is nothing to save, and the error comes at once.
  const absl::Status status =
      TryRun({.overrides = {"data.eval.files=bad_eval.txt", "train.eval_every_steps=10", "train.epochs=1000000"},
              .trainers = 2})
          .status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("bad_eval.txt:501: "));
}

TEST_F(EndOfRunTest, ADigestLogThatCannotBeWrittenCostsNoParameters) {
  InProcessRun run = RunOf(Modes()[1], "digest_log", {"train.digest_every_steps=10", "train.epochs=1000000"});
  run.digest_log = Path("no/such/directory/log");
  const absl::Status status = TryRun(std::move(run)).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("--digest_log="));
  EXPECT_EQ(Steps("digest_log").size(), 1u);
}

TEST_F(EndOfRunTest, FiguresOfEveryEvaluationReachTheManifestsAndTheBestAreKept) {
  const InProcessResult result =
      Run(RunOf(Modes()[1], "best",
                {"train.max_steps=50", "train.eval_every_steps=10", "checkpoint.every_steps=10",
                 "checkpoint.keep_last=1", "checkpoint.keep_best=2", "optimizer.adam.learning_rate=0.05"}));
  std::vector<std::pair<double, int64_t>> judged;  // auc, step
  for (const absl::string_view line : absl::StrSplit(result.output, '\n')) {
    if (!absl::StartsWith(line, "eval step=")) continue;
    int64_t step = 0;
    double auc = 0;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    ASSERT_TRUE(absl::SimpleAtoi(words[1].substr(5), &step)) << line;
    for (const absl::string_view word : words) {
      if (!absl::StartsWith(word, "auc=")) continue;
      ASSERT_TRUE(absl::SimpleAtod(word.substr(4), &auc)) << line;
    }
    judged.emplace_back(auc, step);
  }
  ASSERT_EQ(judged.size(), 5u) << result.output;
  std::sort(judged.rbegin(), judged.rend());
  std::vector<int64_t> kept = {judged[0].second, judged[1].second, 50};
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  EXPECT_EQ(Steps("best"), kept);
  for (const int64_t step : kept) {
    const auto manifest = ReadManifest(Path("best/" + StepDirectoryName(step)));
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_TRUE(manifest->has_eval_auc()) << step;
    EXPECT_TRUE(VerifyCheckpoint(Path("best/" + StepDirectoryName(step))).ok());
  }
}

TEST_F(EndOfRunTest, WithADirectoryPerHostEveryHostHasTheFigures) {
  InProcessRun run = RunOf(Modes()[1], "hosts", {"train.max_steps=20", "checkpoint.per_host=true"});
  run.checkpoint_dir = [](int server) { return Path(server <= 0 ? "hosts" : "other_host"); };
  const InProcessRun again = run;
  const InProcessResult first = Run(std::move(run));
  ASSERT_TRUE(first.summary.eval.has_value());
  for (const char* dir : {"hosts", "other_host"}) {
    const auto manifest = ReadManifest(Path(absl::StrCat(dir, "/", StepDirectoryName(20))));
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(manifest->eval_auc(), first.summary.eval->Measure("auc"));
  }
  InProcessRun resumed = again;
  resumed.resume = true;
  const InProcessResult second = Run(std::move(resumed));
  ASSERT_TRUE(second.summary.eval.has_value());
  EXPECT_EQ(second.summary.eval->Measure("loss"), first.summary.eval->Measure("loss"));
}

TEST_F(EndOfRunTest, TheLastEvaluationIsOfTheParametersThatWereSaved) {
  for (const Mode& mode : Modes()) {
    SCOPED_TRACE(mode.name);
    const std::string dir = absl::StrCat("judged_", mode.name);
    // Large steps: a trainer's own parameters and the saved ones lie far apart.
    const std::vector<std::string> more = {"train.max_steps=40", "optimizer.adam.learning_rate=0.05"};
    const InProcessResult first = Run(RunOf(mode, dir, more));
    InProcessRun again = RunOf(mode, dir, more);
    again.resume = true;
    const InProcessResult resumed = Run(std::move(again));
    ASSERT_TRUE(first.summary.eval.has_value() && resumed.summary.eval.has_value());
    EXPECT_EQ(resumed.summary.steps, first.summary.steps);
    EXPECT_EQ(first.summary.eval->Measure("loss"), resumed.summary.eval->Measure("loss"));
    EXPECT_EQ(first.summary.eval->Measure("auc"), resumed.summary.eval->Measure("auc"));

    InProcessRun predicting{.job_text = kSlotJob,
                            .directory = dir_,
                            .overrides = mode.overrides,
                            .servers = mode.servers,
                            .trainers = mode.trainers};
    const std::string output = Path(dir + ".predictions");
    const auto scored = PredictInProcess(predicting, {.checkpoints = Path(dir), .output = output});
    ASSERT_TRUE(scored.ok()) << scored.status();
    v1::ProgramDesc program;
    program.add_losses();
    JobMetrics metrics(MetricPlan::Create({}, program, {}).value());
    std::ifstream in(output);
    float p = 0;
    for (int64_t example = 2000; in >> p; ++example) {
      ASSERT_TRUE(metrics
                      .AddMeasures(0, Tensor::Of<float>({1, 1}, {0}), Tensor::Of<float>({1, 1}, {p}),
                                   Tensor::Of<float>({1, 1}, {static_cast<float>(SlotLabel(example))}))
                      .ok());
    }
    EXPECT_EQ(metrics.Result().samples, 1000);
    EXPECT_EQ(metrics.Result().Measure("auc"), first.summary.eval->Measure("auc"));
  }
}

// ------------------------------------------------------------------------------------------------------- nothing there

TEST_F(EndOfRunTest, NoExamplesAtAllIsAnErrorAndNothingIsSaved) {
  std::ofstream(Path("junk.txt")) << "no line\nneither is this\n";
  for (const Mode& mode : Modes()) {
    SCOPED_TRACE(mode.name);
    const std::string dir = absl::StrCat("none_", mode.name);
    const absl::Status status = TryRun(RunOf(mode, dir, {"data.train.files=junk.txt", "data.bad_line=SKIP"})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("data.train: there are no examples to train on in 1 file: junk.txt (24 bytes)"),
                      HasSubstr("; 2 lines were skipped (data.bad_line: SKIP)")));
    EXPECT_TRUE(Steps(dir).empty());
  }
}

TEST_F(EndOfRunTest, AResumeWithNothingLeftIsFine) {
  const std::vector<std::string> more = {"train.epochs=1"};
  const InProcessResult first = Run(RunOf(Modes()[1], "nothing_left", more));
  InProcessRun again = RunOf(Modes()[1], "nothing_left", more);
  again.resume = true;
  EXPECT_EQ(Run(std::move(again)).summary.steps, first.summary.steps);
}

TEST_F(EndOfRunTest, AnAucOfOneClassIsSaidToBeUndefinedAndPrintsNoNan) {
  std::ofstream out(Path("one_class.txt"));
  for (int64_t i = 2000; i < 2200; ++i) {
    if (SlotLabel(i) == 0) out << SlotLine(i) << "\n";
  }
  out.close();
  const InProcessResult result =
      Run(RunOf(Modes()[1], "one_class", {"data.eval.files=one_class.txt", "train.max_steps=10"}));
  EXPECT_THAT(result.output, AllOf(HasSubstr("(auc is undefined: no example has label 1)"), Not(HasSubstr("nan"))));
  EXPECT_THAT(result.summary.DoneLine(), AllOf(HasSubstr(" loss="), Not(HasSubstr("nan")), Not(HasSubstr("auc"))));
  const auto manifest = ReadManifest(Path("one_class/" + StepDirectoryName(10)));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_TRUE(manifest->has_eval_loss());
  EXPECT_FALSE(manifest->has_eval_auc());
}

TEST_F(EndOfRunTest, AnEvaluationOfNoExamplesHasNoFigures) {
  std::ofstream(Path("junk_eval.txt")) << "no line\n";
  const InProcessResult result = Run(
      RunOf(Modes()[1], "junk_eval", {"data.eval.files=junk_eval.txt", "data.bad_line=SKIP", "train.max_steps=10"}));
  EXPECT_THAT(result.output, HasSubstr("eval step=10 examples=0 (loss is undefined: there are no examples)"));
  EXPECT_FALSE(result.summary.eval.has_value());
  const auto manifest = ReadManifest(Path("junk_eval/" + StepDirectoryName(10)));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_FALSE(manifest->has_eval_loss());
}

// -------------------------------------------------------------------------------------------------------------- labels

TEST_F(EndOfRunTest, APredictionOfAGeoCheckpointWithoutGeoSaysSo) {
  Run({.overrides = {"distribute.sync=false", "distribute.geo={ every_steps: 5 }", "train.max_steps=10",
                     CheckpointIn("of_geo")}});
  const auto scored = PredictInProcess({.job_text = kSlotJob, .directory = dir_},
                                       {.checkpoints = Path("of_geo"), .output = Path("of_geo.out")});
  EXPECT_THAT(std::string(scored.status().message()),
              HasSubstr("was trained with distribute.geo and holds no optimizer state"));
}

TEST_F(EndOfRunTest, ALabelThatTheLossCannotUseIsNamedWithFileAndLine) {
  const auto with_label = [](const char* file, const char* label) {
    std::ofstream out(Path(file));
    for (int64_t i = 0; i < 99; ++i) out << SlotLine(i) << "\n";
    out << "1 " << label << SlotLine(99).substr(3) << "\n";
  };
  const auto message = [](const char* file, std::vector<std::string> more) {
    more.push_back(absl::StrCat("data.train.files=", file));
    return std::string(TryRun({.overrides = std::move(more), .trainers = 2}).status().message());
  };
  with_label("minus.txt", "-1");
  with_label("two.txt", "2");
  with_label("soft.txt", "0.25");
  EXPECT_THAT(message("minus.txt", {}),
              HasSubstr("minus.txt:100: 'label' is -1; sigmoid_cross_entropy_with_logits needs 0 or 1"));
  EXPECT_THAT(message("two.txt", {}),
              HasSubstr("two.txt:100: 'label' is 2; sigmoid_cross_entropy_with_logits needs 0 or 1"));
  // Soft labels are labels.
  EXPECT_EQ(message("soft.txt", {}), "");
  EXPECT_EQ(message("two.txt", {"data.bad_line=SKIP"}), "");
  // Where they are judged they must be labels, too; predictions do not look at them.
  EXPECT_THAT(std::string(TryRun({.overrides = {"data.eval.files=two.txt", "train.max_steps=1"}}).status().message()),
              HasSubstr("two.txt:100: 'label' is 2"));
  Run({.overrides = {"train.max_steps=1", CheckpointIn("labels")}});
  const auto scored =
      PredictInProcess({.job_text = kSlotJob, .directory = dir_},
                       {.checkpoints = Path("labels"), .input = Path("two.txt"), .output = Path("labels.out")});
  ASSERT_TRUE(scored.ok()) << scored.status();
  EXPECT_EQ(*scored, 100);
}

}  // namespace
}  // namespace weir
