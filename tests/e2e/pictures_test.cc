// Convolution, pooling and batch normalisation in whole jobs: the same bits on every cluster and after a resume,
// running values that are the means of what was seen, and every consistency mode.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "framework/base/philox.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "gtest/gtest.h"
#include "tests/testing/train_in_process.h"
#include "trainer/verify/verify_split.h"
#include "transpiler/job/load_job.h"

namespace weir {
namespace {

// Pictures of 6 x 6; the label says whether the bar in it stands or lies. 330 examples: streams are not equally long,
// the last steps of an epoch have lanes with one example and with none.
constexpr int kExamples = 330;
constexpr char kJob[] = R"(
name: "bars"
data {
  train { files: "train.txt" }
  eval { files: "eval.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 36 } }
  batch_size: 16
}
model {
  layer { name: "picture" reshape { input: "x" dims: [1, 6, 6] } }
  layer { name: "conv" conv2d { input: "picture" filters: 6 kernel: 3 padding: 1 bias: false } }
  layer { name: "norm" batch_norm { input: "conv" activation: RELU } }
  layer { name: "pool" pool2d { input: "norm" kernel: 2 } }
  layer { name: "conv2" conv2d { input: "pool" filters: 8 kernel: [2, 2] activation: RELU } }
  layer { name: "mean" pool2d { input: "conv2" type: AVERAGE } }
  layer { name: "logit" fc { input: "mean" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
optimizer { adam { learning_rate: 0.01 } clip { by_global_norm { max_norm: 5 } } l2_decay: 0.0001 }
train { seed: 3 epochs: 8 digest_every_steps: 40 }
)";

double Uniform(uint64_t what, uint64_t i, uint64_t j) { return Philox(what, i, j).v[0] / 4294967296.0; }

std::vector<double> Picture(int64_t n, bool* stands) {
  *stands = Uniform(1, static_cast<uint64_t>(n), 0) < 0.5;
  const int at = static_cast<int>(6 * Uniform(2, static_cast<uint64_t>(n), 0)),
            begin = static_cast<int>(3 * Uniform(3, static_cast<uint64_t>(n), 0));
  std::vector<double> picture;
  picture.reserve(36);
  for (int i = 0; i < 36; ++i)
    picture.push_back(std::round(100 * Uniform(4, static_cast<uint64_t>(n), static_cast<uint64_t>(i))) / 100);
  for (int i = begin; i < begin + 4; ++i) picture[static_cast<size_t>(*stands ? i * 6 + at : at * 6 + i)] += 1.5;
  return picture;
}

void WritePictures(const std::string& file, int64_t begin, int64_t end) {
  std::ofstream out(file);
  for (int64_t n = begin; n < end; ++n) {
    bool stands = false;
    const std::vector<double> picture = Picture(n, &stands);
    out << "1 " << stands << " 36";
    for (const double v : picture) out << absl::StrFormat(" %.2f", v);
    out << "\n";
  }
}

class PicturesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/pictures";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WritePictures(dir_ + "/train.txt", 0, kExamples);
    WritePictures(dir_ + "/eval.txt", kExamples, kExamples + 400);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  InProcessResult Train(InProcessRun run) {
    if (run.job_text.empty()) run.job_text = kJob;
    run.directory = dir_;
    absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }
  std::string CheckpointDir(const std::string& name) {
    return absl::StrCat("checkpoint.dir=\"", dir_, "/", name, "\"");
  }
  std::vector<float> Saved(const std::string& name, const std::string& variable) {
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(dir_ + "/" + name);
    EXPECT_TRUE(newest.ok()) << newest.status();
    if (!newest.ok()) return {};
    const absl::StatusOr<WholeVariable> whole = ReadWhole(newest->found.path, newest->manifest, variable, "");
    EXPECT_TRUE(whole.ok()) << whole.status();
    return whole.ok() ? whole->values : std::vector<float>();
  }

  std::string dir_;
};

TEST_F(PicturesTest, SameBitsOnEveryClusterAndAfterAResume) {
  const InProcessResult reference = Train({});
  ASSERT_GE(reference.digests.size(), 4u);
  EXPECT_EQ(reference.summary.examples + reference.summary.left_out, 8 * kExamples);
  ASSERT_TRUE(reference.summary.eval.has_value());
  EXPECT_GE(reference.summary.eval->Measure("auc"), 0.97);
  for (const auto& [servers, trainers, threads] :
       {std::tuple{1, 2, 2}, std::tuple{2, 3, 1}, std::tuple{3, 1, 2}, std::tuple{3, 4, 2}}) {
    const InProcessResult result = Train({.servers = servers, .trainers = trainers, .threads = threads});
    EXPECT_EQ(result.digests, reference.digests)
        << servers << " servers, " << trainers << " trainers, " << threads << " threads";
  }
  for (const auto& [servers, trainers] : {std::tuple{0, 3}, std::tuple{2, 4}}) {
    const InProcessResult result = Train({.overrides = {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED"},
                                          .servers = servers,
                                          .trainers = trainers});
    EXPECT_EQ(result.digests, reference.digests) << servers << " servers, " << trainers << " trainers share updates";
    EXPECT_EQ(result.summary.eval->Measure("auc"), reference.summary.eval->Measure("auc"));
  }
  const InProcessResult shared = Train({.overrides = {"distribute.memory_optimize=true"}, .trainers = 2});
  EXPECT_EQ(shared.digests, reference.digests) << "buffers shared";
  const std::string checkpoints = CheckpointDir("resumed");
  Train({.overrides = {checkpoints, "train.max_steps=80"}, .servers = 2, .trainers = 3});
  const InProcessResult resumed = Train({.overrides = {checkpoints}, .servers = 3, .trainers = 2, .resume = true});
  ASSERT_EQ(resumed.digests.size() + 2, reference.digests.size());
  EXPECT_EQ(resumed.digests.back(), reference.digests.back());
  EXPECT_EQ(resumed.summary.eval->Measure("auc"), reference.summary.eval->Measure("auc"));
}

TEST_F(PicturesTest, TheSplitIsTheUnsplitProgram) {
  for (const std::vector<std::string>& corner :
       std::vector<std::vector<std::string>>{{"distribute.dense=SERVERS"},
                                             {"distribute.dense=ALL_REDUCE"},
                                             {"distribute.update=SHARDED", "distribute.dense=ALL_REDUCE"}}) {
    std::vector<std::string> overrides = {"distribute.servers=3", "distribute.trainers=2"};
    overrides.insert(overrides.end(), corner.begin(), corner.end());
    const absl::StatusOr<Job> job = ParseJob(kJob, dir_ + "/job.textproto", overrides);
    ASSERT_TRUE(job.ok()) << job.status();
    const absl::StatusOr<VerifyReport> report = VerifySplit(*job, {.steps = 6});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->equal) << corner[0] << ": " << report->text;
    EXPECT_EQ(report->steps, 6);
  }
}

TEST_F(PicturesTest, RunningAveragesThatAreCutHaveTheBitsOfTheWhole) {
  const std::string job = R"(
name: "wide"
data {
  train { files: "train.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 36 } }
  batch_size: 16
}
model {
  layer { name: "wide" fc { input: "x" size: 20000 } }
  layer { name: "norm" batch_norm { input: "wide" activation: TANH } }
  layer { name: "logit" fc { input: "norm" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
optimizer { sgd { learning_rate: 0.01 } }
train { max_steps: 3 digest_every_steps: 3 }
)";
  const InProcessResult whole = Train({.job_text = job});
  ASSERT_EQ(whole.digests.size(), 1u);
  const InProcessResult cut = Train({.job_text = job, .servers = 2, .trainers = 2});
  int blocks = 0;
  for (const v1::PlacedBlock& block : cut.plan.blocks()) blocks += block.parameter() == "norm.variance";
  EXPECT_EQ(blocks, 2);
  EXPECT_EQ(cut.digests, whole.digests);
}

// Batch normalisation of the data itself, all of it one step, nothing kept of what was before.
TEST_F(PicturesTest, RunningValuesAreWeightedByTheExamplesOfLanes) {
  const std::string job = R"(
name: "one_step"
data {
  train { files: "train.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 36 } }
  batch_size: 400
}
model {
  layer { name: "norm" batch_norm { input: "x" momentum: 0 } }
  layer { name: "logit" fc { input: "norm" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
optimizer { sgd { learning_rate: 0.1 } l2_decay: 0.1 schedule { exponential { decay_steps: 1 decay_rate: 0.1 } } }
train { epochs: 1 lanes: LANES }
)";
  std::vector<double> mean(36), square(36);
  for (int n = 0; n < kExamples; ++n) {
    bool stands = false;
    const std::vector<double> picture = Picture(n, &stands);
    for (size_t i = 0; i < 36; ++i) {
      mean[i] += picture[i] / kExamples;
      square[i] += picture[i] * picture[i] / kExamples;
    }
  }
  const std::string one_lane = absl::StrReplaceAll(job, {{"LANES", "1"}}),
                    lanes = absl::StrReplaceAll(job, {{"LANES", "8"}});
  const InProcessResult alone = Train({.job_text = one_lane, .overrides = {CheckpointDir("alone")}});
  EXPECT_EQ(alone.summary.steps, 1);
  Train({.job_text = lanes, .overrides = {CheckpointDir("lanes")}, .servers = 2, .trainers = 3});
  const std::vector<float> mean_alone = Saved("alone", "norm.mean"), variance_alone = Saved("alone", "norm.variance");
  const std::vector<float> mean_lanes = Saved("lanes", "norm.mean"), variance_lanes = Saved("lanes", "norm.variance");
  ASSERT_EQ(mean_alone.size(), 36u);
  ASSERT_EQ(variance_lanes.size(), 36u);
  for (size_t i = 0; i < 36; ++i) {
    // Means of lanes make the mean of all; variances of lanes are around their own means.
    EXPECT_NEAR(mean_alone[i], mean[i], 1e-5);
    EXPECT_NEAR(mean_lanes[i], mean[i], 1e-5);
    EXPECT_NEAR(variance_alone[i], square[i] - mean[i] * mean[i], 1e-5);
    EXPECT_LT(variance_lanes[i], variance_alone[i]);
    EXPECT_GT(variance_lanes[i], 0.8 * variance_alone[i]);
  }
}

TEST_F(PicturesTest, EveryModeTrains) {
  const std::vector<std::vector<std::string>> modes = {
      {"distribute.sync=false", "optimizer.clip={}"},
      {"distribute.sync=false", "distribute.bounded_staleness.steps=1", "optimizer.clip={}"},
      {"distribute.sync=false", "distribute.delay_compensation.lambda=0.04", "optimizer.clip={}"},
      {"distribute.sync=false", "distribute.half_async={}", "train.workers=2", "optimizer.clip={}"},
      {"distribute.sync=false", "distribute.geo.every_steps=3", "optimizer.clip={}"},
      {"train.accumulate_steps=2"},
      {"distribute.average=BY_TRAINERS", "distribute.reproducible=false"},
      {"distribute.wire.push=WIRE_BFLOAT16", "distribute.wire.pull=WIRE_BFLOAT16", "distribute.reproducible=false"},
      {"distribute.memory_optimize=true"},
  };
  for (const std::vector<std::string>& mode : modes) {
    SCOPED_TRACE(mode.size() > 1 ? absl::StrCat(mode[0], " ", mode[1]) : mode[0]);
    std::vector<std::string> overrides = mode;
    std::string job = kJob;
    if (overrides.back() == "optimizer.clip={}") {
      overrides.pop_back();
      job = absl::StrReplaceAll(job, {{" clip { by_global_norm { max_norm: 5 } }", ""}});
    }
    const std::string name = absl::StrCat("mode", &mode - modes.data());
    overrides.push_back(CheckpointDir(name));
    overrides.push_back("train.epochs=8");
    overrides.push_back("train.digest_every_steps=0");
    const InProcessResult result = Train({.job_text = job, .overrides = overrides, .servers = 2, .trainers = 2});
    ASSERT_TRUE(result.summary.eval.has_value());
    // Evaluation normalises by the running values.
    EXPECT_GE(result.summary.eval->Measure("auc"), 0.95);
    for (const float variance : Saved(name, "norm.variance")) {
      EXPECT_GT(variance, 0);
      EXPECT_LT(variance, 100);
    }
  }
}

TEST_F(PicturesTest, PredictionTakesTheRunningValues) {
  const std::string checkpoints = CheckpointDir("predict");
  Train({.overrides = {checkpoints}, .servers = 2, .trainers = 2});
  const auto predict = [&](const std::string& output, int trainers) {
    const absl::StatusOr<int64_t> scored =
        PredictInProcess({.job_text = kJob, .directory = dir_, .servers = 1, .trainers = trainers},
                         {.checkpoints = dir_ + "/predict", .input = "", .output = dir_ + "/" + output});
    EXPECT_TRUE(scored.ok()) << scored.status();
    std::ifstream in(dir_ + "/" + output);
    return std::vector<double>(std::istream_iterator<double>(in), {});
  };
  // With the statistics of batches an example's score would depend on those beside it, which differ here.
  const std::vector<double> all = predict("all.txt", 1);
  ASSERT_EQ(all.size(), 400u);
  WritePictures(dir_ + "/eval.txt", kExamples, kExamples + 37);
  const std::vector<double> few = predict("few.txt", 2);
  ASSERT_EQ(few.size(), 37u);
  for (size_t i = 0; i < few.size(); ++i) EXPECT_NEAR(few[i], all[i], 1e-6) << i;
}

}  // namespace
}  // namespace weir
