// Data in an order, or with values, that nobody has prepared: what could ruin a model without a word does not.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/train_in_process.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

constexpr int kLines = 4096, kTestLines = 2000;

class UnpreparedDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/unprepared";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }
  InProcessResult Run(const std::string& job, InProcessRun run) {
    run.job_text = job;
    run.directory = dir_;
    const absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : InProcessResult();
  }
  double Auc(const std::string& job, InProcessRun run) {
    const InProcessResult result = Run(job, std::move(run));
    return result.summary.eval.has_value() ? result.summary.eval->auc : 0;
  }

  std::string dir_;
};

// ------------------------------------------------------------------------------------------------ order of the lines

constexpr char kNormed[] = R"(
name: "alternating"
data {
  train { files: "$FILE" }
  eval { files: "test" }
  csv { header: false column { name: "label" } column { name: "x" } column { name: "z" } }
  shuffle: ALL
  batch_size: 256
}
model {
  layer { name: "in" concat { input: "x" input: "z" } }
  layer { name: "h" fc { input: "in" size: 8 } }
  layer { name: "n" $NORM }
  layer { name: "logit" fc { input: "n" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
optimizer { adam { learning_rate: 0.01 } }
train { seed: 1 epochs: 12 lanes: 8 }
)";

// A negative line behind each positive: with every eighth line a lane would have one label, and its normalisation would
// take the signal away.
TEST_F(UnpreparedDataTest, LinesThatAlternateTrainAsMixedOnes) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  const auto line = [&](int label) {
    const float x = normal(random) + static_cast<float>(label);
    return absl::StrFormat("%d,%.3f,%.3f\n", label, x, normal(random));
  };
  std::vector<std::string> lines;
  for (int i = 0; i < kLines; ++i) lines.push_back(line(1 - i % 2));
  const auto text = [&] {
    std::string all;
    for (const std::string& each : lines) all += each;
    return all;
  };
  Write("plain", text());
  Write("packed.gz", Gzip(text()));
  std::shuffle(lines.begin(), lines.end(), random);
  Write("mixed", text());
  std::string test;
  for (int i = 0; i < kTestLines; ++i) test += line(i % 2);
  Write("test", test);
  for (const char* norm : {"batch_norm { input: \"h\" activation: RELU }", "dice { input: \"h\" }"}) {
    const auto auc = [&](const char* file) {
      return Auc(absl::StrReplaceAll(kNormed, {{"$FILE", file}, {"$NORM", norm}}), {});
    };
    const double mixed = auc("mixed");
    EXPECT_GT(mixed, 0.74) << norm;
    EXPECT_GT(auc("plain"), mixed - 0.01) << norm;
    EXPECT_GT(auc("packed.gz"), mixed - 0.01) << norm;
  }
}

// --------------------------------------------------------------------------------------------------- large gradients

constexpr char kWeighted[] = R"(
name: "large_gradients"
data {
  train { files: "train" }
  eval { files: "test" }
  csv {
    header: false
    column { name: "label" }
    column { name: "weight" }
    column { name: "x" }
    column { name: "id" type: ID }
  }
  batch_size: 64
}
model {
  layer { name: "wide" embedding { ids: "id" table: "rows" pooling: SUM } }
  layer { name: "deep" fc { input: "x" size: 4 activation: TANH } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "logit" add { input: "wide" input: "out" } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" sample_weight: "weight" } }
}
table { name: "rows" width: 1 is_sparse: true is_distributed: true wire { push: $FORMAT } }
optimizer { adam { learning_rate: 0.01 } }
distribute { reproducible: false wire { push: $FORMAT } }
train { seed: 1 epochs: 6 lanes: 2 }
)";

// One example, two or every hundredth has an enormous weight, which costs the model with float32 already. FLOAT16 sends
// its gradients as 65504, and only for that step: with what is left of them as a residual the AUC was .57 and less.
TEST_F(UnpreparedDataTest, LargeGradientsDoNotRuinAModelInANarrowFormat) {
  const auto line = [](std::mt19937_64& random, const std::string& weight) {
    const float x = std::normal_distribution<float>()(random);
    const int64_t id = static_cast<int64_t>(random() % 50);
    const double logit = x + 0.06 * static_cast<double>(id) - 1.5;
    const bool label = std::uniform_real_distribution<>()(random) < 1 / (1 + std::exp(-logit));
    return absl::StrFormat("%d,%s,%.3f,%d\n", label ? 1 : 0, weight, x, id);
  };
  for (const auto& [weight, every] :
       {std::pair{"1e7", kLines}, std::pair{"1e12", kLines / 2}, std::pair{"1e12", 100}}) {
    std::mt19937_64 random(3);
    std::string train, test;
    for (int i = 0; i < kLines; ++i) train += line(random, i % every == 700 % every ? weight : "1");
    for (int i = 0; i < kTestLines; ++i) test += line(random, "1");
    Write("train", train);
    Write("test", test);
    const auto auc = [&](const char* format) {
      return Auc(absl::StrReplaceAll(kWeighted, {{"$FORMAT", format}}), {.trainers = 2});
    };
    const double exact = auc("WIRE_FLOAT32");
    EXPECT_GT(exact, 0.6);
    EXPECT_GT(auc("WIRE_BFLOAT16"), exact - 0.005) << weight << ", 1 of " << every;
    EXPECT_GT(auc("WIRE_INT8"), exact - 0.005) << weight << ", 1 of " << every;
    EXPECT_GT(auc("WIRE_FLOAT16"), exact - 0.07) << weight << ", 1 of " << every;
  }
}

// Gradients of each lane are finite, and their sum is not: no step after that can take effect, and none is skipped to
// the end of the data.
TEST_F(UnpreparedDataTest, ParametersThatAreNotFiniteEndTheRunWhateverThePolicy) {
  std::string text;
  for (int i = 0; i < 256; ++i) absl::StrAppend(&text, i % 2, ",3e38,1,7\n");
  Write("train", text);
  Write("test", text);
  for (const char* policy : {"STOP", "SKIP_STEP"}) {
    const absl::StatusOr<InProcessResult> result =
        TrainInProcess({.job_text = absl::StrReplaceAll(kWeighted, {{"$FORMAT", "WIRE_FLOAT32"}}),
                        .directory = dir_,
                        .overrides = {absl::StrCat("train.nan_policy=", policy), "train.lanes=8", "data.batch_size=8",
                                      "optimizer={ sgd { learning_rate: 1 } }"}});
    ASSERT_FALSE(result.ok()) << policy;
    EXPECT_THAT(std::string(result.status().message()),
                ::testing::HasSubstr(policy == std::string("STOP") ? "is not finite at step" : "can take effect"));
  }
}

}  // namespace
}  // namespace weir
