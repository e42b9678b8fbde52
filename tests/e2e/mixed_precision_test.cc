// Loss scaling, products in 16 bits, and what a trainer says of numbers that are not finite: end to end on the real
// train loop, on the CPU and on the emulated device.
#include <cmath>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/checkpoint/directory.h"
#include "framework/tensor/device_memory.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "ops/gemm_bf16.h"
#include "tests/testing/devices/emulated_device.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/jobs/square_job.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// A device for each trainer, whose queues run in an order of their own.
class Devices {
 public:
  explicit Devices(uint64_t seed) {
    for (uint64_t trainer = 0; trainer < 4; ++trainer) {
      devices_.push_back(std::make_unique<EmulatedDevice>(EmulatedDeviceOptions{.seed = seed + 100 * trainer}));
      memory_.push_back(std::make_unique<DeviceMemory>(devices_.back().get()));
    }
  }
  std::function<DeviceMemory*(int)> Of() {
    return [this](int trainer) { return memory_[static_cast<size_t>(trainer)].get(); };
  }

 private:
  std::vector<std::unique_ptr<EmulatedDevice>> devices_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
};

std::vector<std::string> Join(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Collects the lines that are logged during its lifetime.
class Log : public google::LogSink {
 public:
  Log() { google::AddLogSink(this); }
  ~Log() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity, const char*, const char*, int, const google::LogMessageTime&, const char* message,
            size_t length) override {
    text_ += std::string(message, length) + "\n";
  }
  int Count(const std::string& what) const {
    int count = 0;
    for (size_t at = text_.find(what); at != std::string::npos; at = text_.find(what, at + 1)) ++count;
    return count;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class MixedPrecisionTest : public SlotJobTest {};

// ------------------------------------------------------------------------------------------------------ loss scaling

// A power of two changes no bit that neither overflows nor underflows: dense gradients, rows, several batches in a
// step.
TEST_F(MixedPrecisionTest, LossScalingChangesNoBit) {
  const std::vector<std::string> shorter = {"train.epochs=1", "train.digest_every_steps=10"};
  for (const std::vector<std::string>& mode :
       std::vector<std::vector<std::string>>{{}, {"train.accumulate_steps=2"}, {"distribute.memory_optimize=true"}}) {
    const InProcessResult plain = Run({.overrides = Join(shorter, mode)});
    ASSERT_GE(plain.digests.size(), 3u);
    for (const char* scaling : {"train.loss_scaling={}", "train.loss_scaling={ initial: 1024 growth_every: 3 }"}) {
      std::vector<std::string> overrides = Join(shorter, mode);
      overrides.push_back(scaling);
      const InProcessResult scaled = Run({.overrides = overrides, .servers = 2, .trainers = 2});
      EXPECT_EQ(scaled.digests, plain.digests) << scaling;
      EXPECT_EQ(scaled.summary.skipped_steps, 0);
      EXPECT_GE(scaled.summary.loss_scale, 1024);
    }
  }
}

// Running averages travel with the gradients and are none.
TEST_F(MixedPrecisionTest, LossScalingLeavesRunningAveragesAlone) {
  constexpr char kNormed[] = R"(
name: "normed"
data {
  train { files: "train.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 4 } slot { name: "a" }
    slot { name: "b" } }
  batch_size: 32
}
model {
  layer { name: "deep" fc { input: "x" size: 8 } }
  layer { name: "norm" batch_norm { input: "deep" activation: RELU } }
  layer { name: "out" fc { input: "norm" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
optimizer { adam { learning_rate: 0.01 } }
train { digest_every_steps: 10 }
)";
  const InProcessResult plain = Run({.job_text = kNormed});
  const InProcessResult scaled =
      Run({.job_text = kNormed, .overrides = {"train.loss_scaling={}"}, .servers = 2, .trainers = 2});
  ASSERT_GE(plain.digests.size(), 3u);
  EXPECT_EQ(scaled.digests, plain.digests);
}

TEST_F(MixedPrecisionTest, LossScalingInEveryMode) {
  for (const std::vector<std::string>& mode : std::vector<std::vector<std::string>>{
           {"distribute.sync=false"},
           {"distribute.sync=false", "distribute.bounded_staleness={steps: 1}"},
           {"distribute.sync=false", "distribute.prefetch_rows=true"},
           {"distribute.sync=false", "distribute.geo={}"},
           {"distribute.sync=false", "distribute.half_async={}", "train.workers=2"}}) {
    SCOPED_TRACE(mode.back());
    const std::vector<std::string> scaling = {"train.epochs=6", "train.loss_scaling={ growth_every: 10 }"};
    const InProcessResult result = Run({.overrides = Join(mode, scaling), .servers = 2, .trainers = 2});
    ASSERT_TRUE(result.summary.eval.has_value());
    EXPECT_GT(result.summary.eval->Measure("auc"), 0.7);
    for (const TrainSummary& summary : result.summaries) EXPECT_GT(summary.loss_scale, 65536);
  }
}

// The first steps' gradients are beyond float16: all trainers skip them, and training goes on as if they had not been.
const std::vector<std::string>& Overflowing() {
  static const auto* const overrides = new std::vector<std::string>{
      "train.device=CUDA", "train.precision=FP16", "train.loss_scaling={ initial: 16777216 growth_every: 12 }",
      "train.digest_every_steps=5"};
  return *overrides;
}

TEST_F(MixedPrecisionTest, OverflowsAreSkippedByAllAndTheScaleFalls) {
  std::vector<InProcessResult> runs;
  for (const uint64_t seed : {1, 2}) {
    Devices devices(seed);
    runs.push_back(Run({.overrides = Join(Overflowing(), {"train.max_steps=60"}),
                        .servers = 2,
                        .trainers = 2,
                        .device = devices.Of()}));
    ASSERT_EQ(runs.back().summaries.size(), 2u);
    for (const TrainSummary& summary : runs.back().summaries) {
      // From 2^24 at least to 2^17, and up again now and then.
      EXPECT_GE(summary.skipped_steps, 7);
      EXPECT_LE(summary.skipped_steps, 20);
      EXPECT_LT(summary.loss_scale, 1 << 20);
      EXPECT_EQ(summary.skipped_steps, runs.back().summary.skipped_steps);
      EXPECT_EQ(summary.loss_scale, runs.back().summary.loss_scale);
      EXPECT_TRUE(std::isfinite(summary.train_loss));
    }
    EXPECT_THAT(runs.back().summary.DoneLine(),
                HasSubstr(absl::StrCat(" skipped_steps=", runs.back().summary.skipped_steps)));
    EXPECT_THAT(runs.back().summary.DoneLine(), HasSubstr(" loss_scale="));
  }
  ASSERT_EQ(runs[0].digests.size(), 12u);
  EXPECT_EQ(runs[1].digests, runs[0].digests);
  EXPECT_NE(runs[0].digests.back().substr(runs[0].digests.back().find("values=")),
            runs[0].digests.front().substr(runs[0].digests.front().find("values=")));
}

TEST_F(MixedPrecisionTest, AResumedRunGoesOnAtItsScale) {
  const auto run = [&](const std::vector<std::string>& more, bool resume) {
    Devices devices(7);
    return Run({.overrides = Join(Overflowing(), more),
                .servers = 2,
                .trainers = 2,
                .resume = resume,
                .device = devices.Of()});
  };
  const InProcessResult whole = run({"train.max_steps=40"}, false);
  run({"train.max_steps=14", CheckpointIn("scales")}, false);
  const absl::StatusOr<NewestCheckpoint> newest = FindNewestComplete(Path("scales"), "slots");
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_GT(newest->manifest.trainers().loss_scale().scale(), 1);
  EXPECT_LT(newest->manifest.trainers().loss_scale().scale(), 16777216);
  const InProcessResult resumed = run({"train.max_steps=40", CheckpointIn("scales")}, true);
  EXPECT_EQ(resumed.summary.loss_scale, whole.summary.loss_scale);
  ASSERT_FALSE(resumed.digests.empty());
  EXPECT_EQ(resumed.digests.back(), whole.digests.back());
}

TEST_F(MixedPrecisionTest, BothPrecisionsComeCloseToFloat32) {
  const auto auc = [&](const std::vector<std::string>& overrides) {
    Devices devices(3);
    const InProcessResult result = Run({.overrides = Join(overrides, {"train.device=CUDA"}), .device = devices.Of()});
    return result.summary.eval.has_value() ? result.summary.eval->Measure("auc") : 0;
  };
  const double fp32 = auc({});
  EXPECT_GT(fp32, kSlotJobAuc);
  EXPECT_NEAR(auc({"train.precision=BF16"}), fp32, 0.005);
  EXPECT_NEAR(auc({"train.precision=FP16", "train.loss_scaling={}"}), fp32, 0.005);
}

// ----------------------------------------------------------------------------------------- numbers that are not finite

// Lanes have lines in turn, four a step: line 84 is in the third step, the third of lane 4, of the second trainer.
// Products in bfloat16 on the CPU: other bits than those of FP32, and the same on every cluster and number of threads.
TEST_F(MixedPrecisionTest, Bf16OnTheCpuHasTheSameBitsOnEveryCluster) {
  if (!HasBf16Unit(Bf16Unit::kAvx512)) GTEST_SKIP() << "this processor has no products in bfloat16";
  const std::vector<std::string> shorter = {"train.epochs=1", "train.digest_every_steps=10"};
  const std::vector<std::string> bf16 = Join(shorter, {"train.precision=BF16"});
  const InProcessResult fp32 = Run({.overrides = shorter}), alone = Run({.overrides = bf16});
  ASSERT_GE(alone.digests.size(), 3u);
  EXPECT_NE(alone.digests, fp32.digests);
  EXPECT_NEAR(alone.summary.eval->Measure("auc"), fp32.summary.eval->Measure("auc"), 0.01);
  EXPECT_EQ(Run({.overrides = bf16, .servers = 2, .trainers = 2}).digests, alone.digests);
  EXPECT_EQ(Run({.overrides = bf16, .servers = 1, .trainers = 3, .threads = 3}).digests, alone.digests);
  EXPECT_EQ(Run({.overrides = Join(bf16, {"distribute.memory_optimize=true"})}).digests, alone.digests);
  const std::vector<std::string> all_reduce = Join(bf16, {"distribute.dense=ALL_REDUCE"});
  EXPECT_EQ(Run({.overrides = all_reduce, .servers = 0, .trainers = 3}).digests, alone.digests);
  EXPECT_EQ(Run({.overrides = Join(bf16, {"train.loss_scaling={}"})}).digests, alone.digests);
}

TEST_F(MixedPrecisionTest, AStopNamesTheOperatorThatMadeTheNumber) {
  WriteSquares(Path("square.txt"), [](int line) { return line == 84; });
  for (const bool on_device : {false, true}) {
    for (const std::vector<std::string>& mode :
         std::vector<std::vector<std::string>>{{},
                                               {"train.accumulate_steps=2"},
                                               {"distribute.memory_optimize=true"},
                                               {"train.loss_scaling={}"},
                                               {"distribute.sync=false", "distribute.prefetch_rows=true"}}) {
      SCOPED_TRACE(mode.empty() ? "plain" : mode.back());
      Devices devices(5);
      std::vector<absl::Status> ends;
      EXPECT_FALSE(TryRun({.job_text = kSquareJob,
                           .overrides = mode,
                           .servers = 2,
                           .trainers = 2,
                           .device = on_device ? devices.Of() : nullptr,
                           .trainer_ends = &ends})
                       .ok());
      ASSERT_EQ(ends.size(), 2u);
      EXPECT_THAT(std::string(ends[1].message()), HasSubstr("'sigmoid_cross_entropy.loss' is not finite at step "));
      EXPECT_THAT(std::string(ends[1].message()), HasSubstr("; square (op "));
      EXPECT_THAT(
          std::string(ends[1].message()),
          HasSubstr(", layer 'squared') made it: 'squared' is inf in lane 7, element 5, from inputs that are finite"));
    }
  }
}

TEST_F(MixedPrecisionTest, OfSkippedStepsTheFirstIsExplained) {
  WriteSquares(Path("square.txt"), [](int line) { return line / 8 == 8 || line / 8 == 20; });
  const std::vector<std::string> skip = {"train.nan_policy=SKIP_STEP", "train.digest_every_steps=1"};
  const InProcessResult quiet = Run({.job_text = kSquareJob, .overrides = skip, .servers = 2, .trainers = 2});
  Log log;
  const InProcessResult result = Run({.job_text = kSquareJob, .overrides = skip});
  EXPECT_EQ(result.summary.skipped_steps, 2);
  EXPECT_EQ(log.Count("was skipped: "), 2) << log.text();
  EXPECT_EQ(log.Count("square (op "), 1) << log.text();
  EXPECT_EQ(log.Count("further steps that are skipped are only counted"), 1) << log.text();
  // Looking for it changes nothing.
  EXPECT_EQ(result.digests, quiet.digests);
}

// A gradient that no scale helps: the sum over a lane's examples is no float. The scale falls to 1, and then it is no
// overflow of the scale.
TEST_F(MixedPrecisionTest, AtScaleOneThePolicyDecides) {
  constexpr char kGradientJob[] = R"(
name: "gradient"
data {
  train { files: "square.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 2 } slot { name: "id" } }
  shuffle: NO_SHUFFLE
  batch_size: 32
}
model {
  layer { name: "out" fc { input: "x" size: 1 bias: false weight_initializer { constant { value: 0 } } } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
optimizer { adam { learning_rate: 0.01 } }
train { lanes: 8 loss_scaling { initial: 4 } }
)";
  // Alike in every pair of examples, so that nothing cancels.
  std::ofstream out(Path("square.txt"));
  for (int i = 0; i < 256; ++i) out << "1 1 2 0.5 3e38 1 1\n";
  out.close();
  std::vector<absl::Status> ends;
  EXPECT_FALSE(TryRun({.job_text = kGradientJob, .servers = 2, .trainers = 2, .trainer_ends = &ends}).ok());
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_THAT(std::string(ends[0].message()), HasSubstr("'out.w@GRAD' is not finite at step 2"));
  EXPECT_THAT(std::string(ends[0].message()), HasSubstr("fc_grad (op "));
  EXPECT_THAT(std::string(ends[0].message()), HasSubstr("from inputs that are finite"));
  const InProcessResult skipped =
      Run({.job_text = kGradientJob, .overrides = {"train.nan_policy=SKIP_STEP"}, .servers = 2});
  EXPECT_EQ(skipped.summary.skipped_steps, skipped.summary.steps);
  EXPECT_EQ(skipped.summary.loss_scale, 1);
}

}  // namespace
}  // namespace weir
