// Metrics of a job, train.early_stop and checkpoint.best_by on real runs: the same figures, the same last step and the
// same best checkpoint on every cluster, and after a resume.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "framework/checkpoint/directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/checkpoint.pb.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr char kMetrics[] = R"(
metric { gauc { key: "b" } }
metric { gauc { key: "b" weight: EQUAL } by: "a" most_values: 2 name: "gauc_by_a" }
metric { ndcg { key: "a" k: 5 } }
metric { hit_rate { key: "b" k: 1 } }
metric { mrr { key: "b" } }
metric { auc {} by: "b" most_values: 3 }
metric { calibration {} }
metric { normalized_entropy {} }
metric { confusion {} }
metric { rmse {} by: "a" most_values: 1 }
)";

class JobMetricsTest : public SlotJobTest {
 protected:
  static std::string Job(const std::string& more) {
    const std::string job = absl::StrReplaceAll(
        kSlotJob,
        {{" output: \"cat\"", ""}, {"shared: \"cat\"", "shared: \"b\""}, {"ids: \"cat\"", "ids: \"a\" ids: \"b\""}});
    return job + more;
  }
};

TEST_F(JobMetricsTest, FiguresAreTheSameOnEveryCluster) {
  const InProcessRun one = {.job_text = Job(kMetrics), .overrides = {"train.epochs=2", "train.eval_every_steps=50"}};
  const InProcessResult result = Run(one);
  const std::vector<std::string> lines = EvalLines(result);
  ASSERT_EQ(lines.size(), 3u) << result.output;
  std::map<std::string, double> figures = Figures(lines.back());
  for (const char* const name : {"gauc", "ndcg@5", "hit_rate@1", "mrr@10", "calibration", "calibration.error",
                                 "normalized_entropy", "confusion.precision", "confusion.tp", "auc", "loss"}) {
    EXPECT_EQ(figures.count(name), 1u) << name << " in " << lines.back();
  }
  EXPECT_GT(figures["gauc"], 0.6);
  EXPECT_LT(figures["normalized_entropy"], 1);
  EXPECT_NEAR(figures["calibration"], 1, 0.15);
  EXPECT_EQ(figures["confusion.tp"] + figures["confusion.fp"] + figures["confusion.tn"] + figures["confusion.fn"],
            1000);
  int of_b = 0, of_a = 0, gauc_of_a = 0;
  for (const auto& [name, value] : figures) {
    of_b += absl::StartsWith(name, "auc[b=1");
    of_a += absl::StartsWith(name, "rmse[a=");
    gauc_of_a += absl::StartsWith(name, "gauc_by_a[a=");
  }
  EXPECT_EQ(of_b, 3) << lines.back();
  EXPECT_EQ(of_a, 1) << lines.back();
  EXPECT_EQ(gauc_of_a, 2) << lines.back();
  for (const char* const in_done : {" gauc=", " ndcg@5=", " calibration.error="}) {
    EXPECT_THAT(result.summary.DoneLine(), HasSubstr(in_done));
  }

  const auto expect_same = [&](const char* what, InProcessRun other) {
    other.job_text = one.job_text;
    other.overrides.insert(other.overrides.begin(), one.overrides.begin(), one.overrides.end());
    EXPECT_EQ(EvalLines(Run(std::move(other))), lines) << what;
  };
  expect_same("1 server, 2 trainers", {.trainers = 2});
  expect_same("2 servers, 8 trainers of 2 threads", {.servers = 2, .trainers = 8, .threads = 2});
  expect_same("all-reduce of 4", {.overrides = {"distribute.mode=COLLECTIVE"}, .servers = 0, .trainers = 4});
}

TEST_F(JobMetricsTest, TheProgressLineHasTheFiguresThatNeedNoGroups) {
  const InProcessResult result =
      Run({.job_text = Job(kMetrics), .overrides = {"train.epochs=1", "train.log_every_seconds=0.000001"}});
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(result.output, '\n')) {
    if (absl::StartsWith(line, "step=")) lines.emplace_back(line);
  }
  ASSERT_GT(lines.size(), 10u) << result.output;
  std::map<std::string, double> figures = Figures(lines.back());
  EXPECT_EQ(figures.count("auc"), 1u) << lines.back();
  // Of the training so far, batch by batch: near those of an evaluation.
  EXPECT_NEAR(figures["calibration"], 1, 0.5) << lines.back();
  EXPECT_NEAR(figures["normalized_entropy"], 1, 0.4) << lines.back();
  for (const char* const name : {"gauc", "ndcg@5", "rmse[a=1]", "confusion.tp"}) EXPECT_EQ(figures.count(name), 0u);
}

TEST_F(JobMetricsTest, AnEvaluationInAsyncHasTheFiguresToo) {
  const InProcessResult result =
      Run({.job_text = Job(kMetrics),
           .overrides = {"train.epochs=1", "train.eval_every_steps=50", "distribute.sync=false"},
           .servers = 2,
           .trainers = 2});
  ASSERT_TRUE(result.summary.eval.has_value());
  EXPECT_THAT(result.summary.DoneLine(), HasSubstr(" gauc=0."));
}

// Examples of the slot job with a weight, in files of their own.
class WeightedRunTest : public JobMetricsTest {
 protected:
  static void SetUpTestSuite() {
    JobMetricsTest::SetUpTestSuite();
    // Training needs no weights.
    Write("train_weighted.txt", 0, 2000, [](int64_t) { return " 0"; });
    const auto whole = [](int64_t n) { return n % 4; };
    Write("whole.txt", 2000, 3000, [&](int64_t n) { return absl::StrCat(" 1 ", whole(n)); });
    Write(
        "repeated.txt", 2000, 3000, [](int64_t) { return " 1 1"; }, whole);
    Write("any.txt", 2000, 3000, [](int64_t n) { return absl::StrCat(" 1 ", 0.3 * static_cast<double>(n % 7)); });
    Write("negative.txt", 2000, 2100, [](int64_t n) { return n == 2041 ? " 1 -0.5" : " 1 0.5"; });
    Write("missing.txt", 2000, 2100, [](int64_t n) { return n == 2041 ? " 0" : " 1 0.5"; });
    Write("train_ones.txt", 0, 2000, [](int64_t) { return " 1 1"; });
    Write("ones.txt", 2000, 3000, [](int64_t) { return " 1 1"; });
    Write("twos.txt", 2000, 3000, [](int64_t) { return " 1 2"; });
  }
  // Writes examples [begin, end), each `times` times, with the words of the slot of the weight.
  static void Write(
      const std::string& file, int64_t begin, int64_t end, const std::function<std::string(int64_t)>& weight,
      const std::function<int64_t(int64_t)>& times = [](int64_t) { return 1; }) {
    std::ofstream out(Path(file));
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t i = 0; i < times(n); ++i) out << SlotLine(n) << weight(n) << "\n";
    }
  }
  static InProcessRun RunOn(const std::string& eval, const std::string& metrics, InProcessRun run = {}) {
    run.job_text = absl::StrReplaceAll(
        Job(metrics), {{"train.txt", "train_weighted.txt"},
                       {"eval.txt", eval},
                       {"slot { name: \"b\" }", "slot { name: \"b\" } slot { name: \"w\" type: FLOAT }"}});
    run.overrides.insert(run.overrides.begin(), {"train.epochs=1", "train.eval_every_steps=30"});
    return run;
  }
};

constexpr char kWeightedMetrics[] = R"(
metric { auc {} weight: "w" }
metric { auc {} weight: "w" by: "b" most_values: 3 }
metric { gauc { key: "b" } weight: "w" }
metric { gauc { key: "b" weight: POSITIVES } weight: "w" by: "a" most_values: 2 name: "gauc_by_a" }
metric { accuracy {} weight: "w" }
metric { confusion {} weight: "w" }
metric { calibration {} weight: "w" }
metric { normalized_entropy {} weight: "w" }
metric { rmse {} weight: "w" by: "a" most_values: 1 }
metric { mae {} weight: "w" }
)";

TEST_F(WeightedRunTest, FiguresAreTheSameOnEveryCluster) {
  const std::vector<std::string> lines = EvalLines(Run(RunOn("any.txt", kWeightedMetrics)));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines.back(), HasSubstr(" gauc[weight=w]=0."));
  const auto expect_same = [&](const char* what, InProcessRun other) {
    EXPECT_EQ(EvalLines(Run(RunOn("any.txt", kWeightedMetrics, std::move(other)))), lines) << what;
  };
  expect_same("1 server, 2 trainers", {.trainers = 2});
  expect_same("2 servers, 8 trainers of 2 threads", {.servers = 2, .trainers = 8, .threads = 2});
  expect_same("all-reduce of 4", {.overrides = {"distribute.mode=COLLECTIVE"}, .servers = 0, .trainers = 4});
}

TEST_F(WeightedRunTest, WholeWeightsGiveTheFiguresOfRepeatedLines) {
  // Batches of one example in each lane: the last bits of a prediction may depend on the size of its batch.
  const std::vector<std::string> small = {"data.batch_size=8", "train.max_steps=60"};
  const InProcessResult weighted =
      Run(RunOn("whole.txt", kWeightedMetrics, {.overrides = small, .servers = 2, .trainers = 3}));
  const InProcessResult repeated =
      Run(RunOn("repeated.txt", absl::StrReplaceAll(kWeightedMetrics, {{" weight: \"w\"", ""}}), {.overrides = small}));
  ASSERT_TRUE(weighted.summary.eval.has_value() && repeated.summary.eval.has_value());
  const std::vector<Figure>& figures = weighted.summary.eval->figures;
  const std::vector<Figure>& expected = repeated.summary.eval->figures;
  ASSERT_EQ(figures.size(), expected.size());
  for (size_t f = 0; f < figures.size(); ++f) {
    EXPECT_EQ(absl::StrReplaceAll(figures[f].name, {{"[weight=w]", ""}}), expected[f].name);
    EXPECT_EQ(figures[f].value, expected[f].value) << figures[f].name;
  }
  EXPECT_EQ(weighted.summary.eval->samples, 1000);
  EXPECT_EQ(repeated.summary.eval->samples, 1500);
}

TEST_F(WeightedRunTest, SampleWeightsMultiplyTheReportedLossAndNoOtherFigure) {
  const auto evaluated = [](const std::string& file) {
    InProcessRun run = RunOn(file, kWeightedMetrics);
    run.job_text = absl::StrReplaceAll(run.job_text, {{"train_weighted.txt", "train_ones.txt"},
                                                      {"label: \"label\"", "label: \"label\" sample_weight: \"w\""}});
    return Run(std::move(run)).summary.eval.value_or(MetricResult());
  };
  const MetricResult ones = evaluated("ones.txt"), twos = evaluated("twos.txt");
  EXPECT_GT(ones.Measure("loss"), 0);
  EXPECT_EQ(twos.Measure("loss"), 2 * ones.Measure("loss")) << "the mean over the examples of weight times loss";
  EXPECT_EQ(twos.Measure("auc"), ones.Measure("auc"));
  EXPECT_EQ(twos.samples, ones.samples);
}

TEST_F(WeightedRunTest, AWrongOrMissingWeightIsABadLineOfTheEvaluation) {
  const auto error = [](const std::string& file) {
    return std::string(TryRun(RunOn(file, kWeightedMetrics)).status().message());
  };
  EXPECT_THAT(
      error("negative.txt"),
      HasSubstr("negative.txt:42: 'w' is -0.5; metric[0].weight needs a number that is finite and not negative; "
                "0 takes an example out of the metric, and data.eval.where out of the evaluation"));
  EXPECT_THAT(error("missing.txt"), HasSubstr("missing.txt:42: 'w' is missing"));
  const InProcessResult skipped = Run(RunOn("negative.txt", kWeightedMetrics, {.overrides = {"data.bad_line=SKIP"}}));
  ASSERT_TRUE(skipped.summary.eval.has_value());
  EXPECT_EQ(skipped.summary.eval->samples, 99);
  EXPECT_TRUE(TryRun(RunOn("missing.txt", "metric { auc {} }")).ok());
}

TEST_F(WeightedRunTest, APredictionNeedsNoWeights) {
  const InProcessRun run = RunOn("whole.txt", kWeightedMetrics, {.overrides = {CheckpointIn("scored")}});
  Run(run);
  InProcessRun predicting = run;
  predicting.directory = dir_;
  const absl::StatusOr<int64_t> scored = PredictInProcess(
      predicting, {.checkpoints = Path("scored"), .input = Path("missing.txt"), .output = Path("scores.txt")});
  ASSERT_TRUE(scored.ok()) << scored.status();
  EXPECT_EQ(*scored, 100);
}

TEST_F(WeightedRunTest, AWeightedFigureRanksCheckpointsAndEndsTheTraining) {
  const InProcessResult result =
      Run(RunOn("any.txt", kWeightedMetrics,
                {.overrides = {CheckpointIn("ranked"), "checkpoint.every_steps=30", "checkpoint.keep_best=1",
                               "checkpoint.best_by=\"normalized_entropy[weight=w]\"",
                               "train.early_stop={ metric: \"auc[weight=w]\" patience: 1 min_delta: 0.5 }"}}));
  EXPECT_TRUE(result.summary.early_stopped);
  EXPECT_EQ(result.summary.steps, 60);
  const absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(Path("ranked") + "/" + StepDirectoryName(60));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::map<std::string, double> figures;
  for (const v1::EvalFigure& figure : manifest->eval_figure()) figures[figure.name()] = figure.value();
  EXPECT_EQ(manifest->eval_rank(), -figures.at("normalized_entropy[weight=w]"));
}

class EarlyStopRunTest : public JobMetricsTest {
 protected:
  static void SetUpTestSuite() {
    JobMetricsTest::SetUpTestSuite();
    WriteSlotLines(Path("few.txt"), 0, 300);
  }
  static InProcessRun OverFit(InProcessRun run = {}) {
    run.job_text = Job("metric { gauc { key: \"b\" } } metric { normalized_entropy {} }");
    run.overrides.insert(run.overrides.begin(),
                         {"data.train.files=\"few.txt\"", "train.epochs=40", "train.digest_every_steps=0",
                          "train.eval_every_steps=10", "train.early_stop.patience=2"});
    return run;
  }
};

TEST_F(EarlyStopRunTest, EndsAtTheSameStepOnEveryCluster) {
  const InProcessResult one = Run(OverFit());
  EXPECT_TRUE(one.summary.early_stopped);
  EXPECT_THAT(one.summary.DoneLine(), HasSubstr(" early_stop=1"));
  EXPECT_GE(one.summary.steps, 30);
  EXPECT_LT(one.summary.steps, 300);
  EXPECT_EQ(one.summary.steps % 10, 0);
  const std::vector<std::string> lines = EvalLines(one);
  // The last two are no better than the best before them.
  double best = 0;
  for (size_t i = 0; i + 2 < lines.size(); ++i) best = std::max(best, Figures(lines[i])["auc"]);
  for (size_t i = lines.size() - 2; i < lines.size(); ++i) EXPECT_LE(Figures(lines[i])["auc"], best) << lines[i];

  const auto expect_same = [&](const char* what, InProcessRun other) {
    const InProcessResult result = Run(OverFit(std::move(other)));
    EXPECT_EQ(EvalLines(result), lines) << what;
    EXPECT_EQ(result.summary.steps, one.summary.steps) << what;
    for (const TrainSummary& summary : result.summaries) EXPECT_TRUE(summary.early_stopped) << what;
  };
  expect_same("2 servers, 3 trainers", {.servers = 2, .trainers = 3, .threads = 2});
  // A batch, and its rows, are on their way when the training ends.
  expect_same("rows ahead", {.overrides = {"distribute.prefetch_rows=true"},
                             .servers = 2,
                             .trainers = 2,
                             .threads = 2,
                             .always_ahead = true});
  expect_same("all-reduce of 2", {.overrides = {"distribute.mode=COLLECTIVE"}, .servers = 0, .trainers = 2});
}

TEST_F(EarlyStopRunTest, AResumedRunEndsAtTheStepOfAnUninterruptedOne) {
  const std::string checkpoints = CheckpointIn("interrupted");
  const InProcessResult whole = Run(OverFit());
  // Ends between the best evaluation and the end, at a step and with an evaluation that the whole run does not have.
  const int64_t middle = whole.summary.steps - 7;
  Run(OverFit({.overrides = {checkpoints, absl::StrCat("train.max_steps=", middle)}}));
  const InProcessResult resumed =
      Run(OverFit({.overrides = {checkpoints}, .servers = 2, .trainers = 2, .resume = true}));
  EXPECT_EQ(resumed.summary.steps, whole.summary.steps);
  EXPECT_TRUE(resumed.summary.early_stopped);
  // Nothing is left to do for a run that has ended so.
  const InProcessResult again = Run(OverFit({.overrides = {checkpoints}, .resume = true}));
  EXPECT_EQ(again.summary.steps, whole.summary.steps);
  EXPECT_TRUE(again.summary.early_stopped);
  // With more patience it goes on, and ends where such a run from the beginning does.
  const InProcessResult patient = Run(OverFit({.overrides = {"train.early_stop.patience=4"}}));
  EXPECT_GT(patient.summary.steps, whole.summary.steps);
  const InProcessResult went_on =
      Run(OverFit({.overrides = {checkpoints, "train.early_stop.patience=4"}, .resume = true}));
  EXPECT_EQ(went_on.summary.steps, patient.summary.steps);
}

TEST_F(EarlyStopRunTest, AnEvaluationThatAnInterruptionPreventedIsMadeAfterTheResume) {
  const std::string checkpoints = CheckpointIn("prevented");
  const InProcessResult whole = Run(OverFit({.overrides = {checkpoints, "checkpoint.every_steps=10"}}));
  const int64_t last = whole.summary.steps;
  // Checkpoints are saved before the evaluation of their step: the last one becomes such a one again.
  const auto path_of = [](int64_t step) { return Path("prevented") + "/" + StepDirectoryName(step); };
  const absl::StatusOr<v1::CheckpointManifest> before = ReadManifest(path_of(last - 10));
  absl::StatusOr<v1::CheckpointManifest> newest = ReadManifest(path_of(last));
  ASSERT_TRUE(before.ok() && newest.ok()) << before.status() << newest.status();
  ASSERT_EQ(before->trainers().early_stop().evaluations(), 1);
  ASSERT_EQ(newest->trainers().early_stop().evaluations(), 2);
  *newest->mutable_trainers()->mutable_early_stop() = before->trainers().early_stop();
  newest->clear_eval_loss();
  newest->clear_eval_auc();
  newest->clear_eval_figure();
  ASSERT_TRUE(ReplaceManifest(path_of(last), *newest).ok());

  const InProcessResult resumed = Run(OverFit({.overrides = {checkpoints}, .trainers = 2, .resume = true}));
  EXPECT_EQ(resumed.summary.steps, last);
  EXPECT_TRUE(resumed.summary.early_stopped);
  EXPECT_EQ(EvalLines(resumed), std::vector<std::string>({EvalLines(whole).back()}));
  const absl::StatusOr<v1::CheckpointManifest> judged = ReadManifest(path_of(last));
  ASSERT_TRUE(judged.ok()) << judged.status();
  EXPECT_EQ(judged->trainers().early_stop().evaluations(), 2);
}

// A death between the checkpoint and the evaluation of its step.
TEST_F(JobMetricsTest, AnEvaluationThatADeathPreventedIsMadeAfterTheResume) {
  const std::vector<std::string> settings = {CheckpointIn("died"), "checkpoint.every_steps=10",
                                             "checkpoint.keep_last=100", "train.eval_every_steps=10",
                                             "train.max_steps=40"};
  const InProcessResult whole = Run({.job_text = Job(kMetrics), .overrides = settings});
  const std::vector<std::string> lines = EvalLines(whole);
  ASSERT_EQ(lines.size(), 4u);
  const auto path_of = [](int64_t step) { return Path("died") + "/" + StepDirectoryName(step); };
  for (const int64_t later : {30, 40}) std::filesystem::remove_all(path_of(later));
  const auto resume = [&] {
    return EvalLines(
        Run({.job_text = Job(kMetrics), .overrides = settings, .servers = 2, .trainers = 2, .resume = true}));
  };
  EXPECT_EQ(resume(), std::vector<std::string>(lines.begin() + 2, lines.end())) << "step 20 was evaluated";
  for (const int64_t later : {30, 40}) std::filesystem::remove_all(path_of(later));
  absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(path_of(20));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->clear_eval_loss();
  manifest->clear_eval_auc();
  manifest->clear_eval_figure();
  ASSERT_TRUE(ReplaceManifest(path_of(20), *manifest).ok());
  EXPECT_EQ(resume(), std::vector<std::string>(lines.begin() + 1, lines.end()));
}

TEST_F(EarlyStopRunTest, AnEvaluationMadeAfterTheResumeIsWrittenToTheCheckpointOfItsStep) {
  const std::vector<std::string> settings = {CheckpointIn("late"), "checkpoint.every_steps=10",
                                             "checkpoint.keep_last=100"};
  const InProcessResult whole = Run(OverFit({.overrides = settings}));
  const std::string path = Path("late") + "/" + StepDirectoryName(whole.summary.steps);
  absl::StatusOr<v1::CheckpointManifest> newest = ReadManifest(path);
  ASSERT_TRUE(newest.ok()) << newest.status();
  const double loss = newest->eval_loss();
  newest->mutable_trainers()->mutable_early_stop()->set_step(whole.summary.steps - 10);
  newest->clear_eval_loss();
  ASSERT_TRUE(ReplaceManifest(path, *newest).ok());
  // More patience, so that training goes on and later checkpoints are written.
  std::vector<std::string> patient = settings;
  patient.push_back("train.early_stop.patience=6");
  const InProcessResult resumed = Run(OverFit({.overrides = patient, .trainers = 2, .resume = true}));
  EXPECT_GT(resumed.summary.steps, whole.summary.steps);
  newest = ReadManifest(path);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->eval_loss(), loss);
}

TEST_F(EarlyStopRunTest, TheBestCheckpointIsKeptByTheFigureOfTheJob) {
  const InProcessResult result =
      Run(OverFit({.overrides = {CheckpointIn("best"), "checkpoint.every_steps=10", "checkpoint.keep_last=1",
                                 "checkpoint.keep_best=1", "checkpoint.best_by=\"normalized_entropy\"",
                                 "train.early_stop.patience=3"}}));
  std::map<double, std::string> by_figure;
  for (const std::string& line : EvalLines(result)) by_figure[Figures(line)["normalized_entropy"]] = line;
  const absl::StatusOr<std::vector<CheckpointPath>> listed = ListCheckpoints(Path("best"));
  ASSERT_TRUE(listed.ok()) << listed.status();
  std::vector<std::string> kept;
  for (const CheckpointPath& checkpoint : *listed) {
    const absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(checkpoint.path);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    kept.push_back(absl::StrCat("eval step=", manifest->step(), " "));
    ASSERT_EQ(manifest->eval_figure_size(), 2);
    EXPECT_EQ(manifest->eval_figure(0).name(), "gauc");
    EXPECT_EQ(manifest->eval_figure(1).name(), "normalized_entropy");
    EXPECT_EQ(manifest->eval_rank(), -manifest->eval_figure(1).value());
    EXPECT_TRUE(manifest->trainers().has_early_stop());
  }
  ASSERT_EQ(kept.size(), 2u) << "the best and the last";
  EXPECT_THAT(by_figure.begin()->second, HasSubstr(kept[0]));
}

}  // namespace
}  // namespace weir
