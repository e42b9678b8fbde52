// Gradients of 1e5 to 3e38 in every format of pushes: a model is what it is with float32, or its steps are skipped and
// counted; no run ends well whose parameters or losses are not finite.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
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

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kLines = 2048, kTestLines = 4000;

// The weight of an example multiplies its gradient.
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
table { name: "rows" width: 1 is_sparse: true is_distributed: true wire { push: $ROWS } }
optimizer { adam { learning_rate: 0.01 } }
distribute { reproducible: false wire { push: $DENSE } }
train { seed: 1 epochs: 4 lanes: 2 }
)";

class LargeGradientsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/large_gradients";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }
  // Writes examples whose label can be learned from x and id. `weight`: of an example.
  void WriteData(const std::function<std::string(int)>& weight) {
    std::mt19937_64 random(3);
    const auto lines = [&](int n, const std::function<std::string(int)>& weight_of) {
      std::string all;
      for (int i = 0; i < n; ++i) {
        const float x = std::normal_distribution<float>()(random);
        const int64_t id = static_cast<int64_t>(random() % 50);
        const double logit = x + 0.06 * static_cast<double>(id) - 1.5;
        const bool label = std::uniform_real_distribution<>()(random) < 1 / (1 + std::exp(-logit));
        absl::StrAppendFormat(&all, "%d,%s,%.3f,%d\n", label ? 1 : 0, weight_of(i), x, id);
      }
      return all;
    };
    Write("train", lines(kLines, weight));
    Write("test", lines(kTestLines, [](int) { return "1"; }));
  }
  absl::StatusOr<InProcessResult> Try(const std::string& rows, const std::string& dense, InProcessRun run = {}) {
    run.job_text = absl::StrReplaceAll(kWeighted, {{"$ROWS", rows}, {"$DENSE", dense}});
    run.directory = dir_;
    return TrainInProcess(run);
  }
  TrainSummary Run(const std::string& rows, const std::string& dense, const InProcessRun& run) {
    const absl::StatusOr<InProcessResult> result = Try(rows, dense, run);
    EXPECT_TRUE(result.ok()) << rows << " " << dense << ": " << result.status();
    if (!result.ok() || !result->summary.eval.has_value()) return {};
    EXPECT_TRUE(std::isfinite(result->summary.eval->Measure("loss")));
    return result->summary;
  }
  // Expects of every format the AUC of float32.
  void ExpectTheModelOfFloat32(const InProcessRun& run, const std::string& what) {
    const TrainSummary exact = Run("WIRE_FLOAT32", "WIRE_FLOAT32", run);
    ASSERT_TRUE(exact.eval.has_value()) << what;
    EXPECT_EQ(exact.large_gradients, 0);
    for (const std::string format : {"WIRE_FLOAT16", "WIRE_BFLOAT16", "WIRE_INT8"}) {
      const TrainSummary lossy = Run(format, format, run);
      ASSERT_TRUE(lossy.eval.has_value()) << format << ", " << what;
      EXPECT_NEAR(lossy.eval->Measure("auc"), exact.eval->Measure("auc"), 0.003) << format << ", " << what;
      EXPECT_EQ(lossy.skipped_steps, exact.skipped_steps) << format << ", " << what;
      EXPECT_EQ(lossy.large_gradients > 0, format == "WIRE_FLOAT16") << format << ", " << what;
    }
  }

  std::string dir_;
};

std::string Every(int n, const std::string& weight, int i) { return i % n == 700 % n ? weight : "1"; }

const std::string kSkip = "train.nan_policy=SKIP_STEP", kAsync = "distribute.sync=false",
                  kClip = "optimizer.clip={by_global_norm {max_norm: 1}}";

TEST_F(LargeGradientsTest, OneOfThem) {
  for (const char* weight : {"1e7", "3e38"}) {
    WriteData([&](int i) { return Every(kLines, weight, i); });
    ExpectTheModelOfFloat32({.trainers = 2}, weight);
  }
  ExpectTheModelOfFloat32({.overrides = {kSkip, kClip}, .servers = 2, .trainers = 2}, "3e38, clipped");
}

TEST_F(LargeGradientsTest, TwoOfThem) {
  WriteData([&](int i) { return Every(kLines / 2, "1e12", i); });
  ExpectTheModelOfFloat32({.overrides = {kAsync, kSkip}}, "1e12, async");
}

TEST_F(LargeGradientsTest, Many) {
  WriteData([&](int i) { return Every(3, "1e9", i); });
  ExpectTheModelOfFloat32({.trainers = 2}, "1e9");
  ExpectTheModelOfFloat32({.overrides = {kAsync}}, "1e9, async");
  ExpectTheModelOfFloat32({.overrides = {kClip}}, "1e9, clipped");
}

TEST_F(LargeGradientsTest, OnlyInRowsOrInDenseParameters) {
  WriteData([&](int i) { return Every(3, "1e30", i); });
  const double exact = Run("WIRE_FLOAT32", "WIRE_FLOAT32", {}).eval->Measure("auc");
  EXPECT_NEAR(Run("WIRE_FLOAT16", "WIRE_FLOAT32", {}).eval->Measure("auc"), exact, 0.003);
  EXPECT_NEAR(Run("WIRE_FLOAT32", "WIRE_FLOAT16", {}).eval->Measure("auc"), exact, 0.003);
}

TEST_F(LargeGradientsTest, TheLastLineCountsThoseOfAllTrainers) {
  WriteData([&](int i) { return Every(kLines, "1e9", i); });
  const InProcessRun one_epoch = {.overrides = {"train.epochs=1"}, .trainers = 2};
  const TrainSummary summary = Run("WIRE_FLOAT16", "WIRE_FLOAT16", one_epoch);
  // A row, out.b, and the parameters in front of it.
  EXPECT_GT(summary.large_gradients, 2);
  EXPECT_LT(summary.large_gradients, 15);
  EXPECT_THAT(summary.DoneLine(), HasSubstr(absl::StrCat(" large_gradients=", summary.large_gradients)));
}

// Gradients of each lane are finite, and their sum is not. The step is the last one of the run.
TEST_F(LargeGradientsTest, AParameterThatIsNotFiniteEndsTheRunInItsStep) {
  std::string text;
  for (int i = 0; i < 256; ++i) absl::StrAppend(&text, "1,3e38,1,7\n");
  Write("train", text);
  Write("test", "1,1,1,7\n");
  for (const std::string& policy : {std::string("train.nan_policy=STOP"), kSkip}) {
    for (const std::string& mode : {std::string("distribute.sync=true"), kAsync}) {
      for (const auto& [servers, trainers] : {std::pair{0, 1}, std::pair{2, 1}, std::pair{2, 2}}) {
        if (servers == 0 && mode == kAsync) continue;
        std::vector<absl::Status> ends;
        const absl::Status status = Try("WIRE_FLOAT32", "WIRE_FLOAT32",
                                        {.overrides = {policy, mode, "train.lanes=8", "train.max_steps=1",
                                                       "data.batch_size=8", "optimizer={ sgd { learning_rate: 1 } }"},
                                         .servers = servers,
                                         .trainers = trainers,
                                         .trainer_ends = &ends})
                                        .status();
        for (const absl::Status& end : ends) {
          EXPECT_EQ(end.ok(), false) << policy << " " << mode << " " << servers << " " << trainers;
        }
        EXPECT_THAT(std::string(status.message()),
                    ContainsRegex("(row 7|element [0-9]+) is -?(inf|NaN) after its update"))
            << policy << " " << mode << " " << servers << " " << trainers;
      }
    }
  }
}

// A checkpoint of another program may hold such a value: no update has made it so, and no skipped step makes it finite.
TEST_F(LargeGradientsTest, AParameterThatIsNotFiniteFromTheBeginningEndsTheRunInItsFirstStep) {
  WriteData([](int) { return "1"; });
  for (const std::string mode : {"distribute.sync=true", "distribute.sync=false"}) {
    int edited = 0;
    const absl::Status status = Try("WIRE_FLOAT32", "WIRE_FLOAT32",
                                    {.overrides = {kSkip, mode},
                                     .servers = 2,
                                     .edit =
                                         [&](int server, Programs* programs) {
                                           if (server < 0) return;
                                           for (v1::OpDesc& op : *programs->startup.mutable_blocks(0)->mutable_ops()) {
                                             if (op.outputs(0).vars(0) != "out.b") continue;
                                             for (v1::OpAttr& attr : *op.mutable_attrs()) {
                                               if (attr.name() == "value")
                                                 attr.set_f(std::numeric_limits<double>::infinity());
                                             }
                                             ++edited;
                                           }
                                         }})
                                    .status();
    EXPECT_EQ(edited, 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("step 0: "), HasSubstr("and no step that reads it can take effect")));
  }
}

// All parameters are finite, and the squares of predictions are not.
TEST_F(LargeGradientsTest, ALastEvaluationThatIsNotFiniteIsAnError) {
  WriteData([&](int i) { return Every(kLines, "1e30", i); });
  const absl::Status status =
      Try("WIRE_FLOAT16", "WIRE_FLOAT16",
          {.overrides = {kSkip, "optimizer={ sgd { learning_rate: 1 } }",
                         "model.loss={ square_error { input: 'logit' label: 'label' sample_weight: 'weight' } }"},
           .servers = 2,
           .trainers = 2})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              ContainsRegex("the evaluation after step 128: the loss is not finite for [0-9]+ of 4000 examples, so the "
                            "model is ruined, and [0-9]+ steps were skipped"));
}

}  // namespace
}  // namespace weir
