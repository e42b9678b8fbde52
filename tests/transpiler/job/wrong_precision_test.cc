// Jobs with impossible precision or loss scaling, each with its whole message.
#include <fstream>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/job/load_job.h"

namespace weir {
namespace {

constexpr char kCluster[] = "distribute { servers: 2 trainers: 2 }";

struct Wrong {
  const char* name;
  // Replaces kCluster.
  const char* text;
  const char* message;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

class WrongPrecisionTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongPrecisionTest, GetsThisMessage) {
  const auto job = ParseJob(Replaced(kDeepFm, kCluster, GetParam().text), "job.textproto", {});
  const absl::Status status = job.ok() ? Transpile(*job).status() : job.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, WrongPrecisionTest,
    ::testing::Values(
        Wrong{"Tf32OnTheCpu", "train { precision: TF32 }",
              "job.textproto:20:9: train.precision TF32 is for device: CUDA, on the CPU products are FP32 or BF16: set "
              "train.device: CUDA, or another precision"},
        Wrong{"Bf16WithoutItsInstructions", "train { precision: BF16 arithmetic: AVX2 }",
              "job.textproto:20:25: train.arithmetic AVX2 has no products in BF16, which train.precision is: set "
              "AVX512_BF16, AMX_BF16 or AUTO"},
        Wrong{
            "InstructionsForBf16InFp32", "train { arithmetic: AMX_BF16 }",
            "job.textproto:20:9: train.arithmetic AMX_BF16 is for precision: BF16, and train.precision is FP32: set it "
            "to BF16, or arithmetic to AVX512 or AUTO"},
        Wrong{
            "InstructionsForTheCpuOnADevice", "train { device: CUDA precision: BF16 arithmetic: AVX512_BF16 }",
            "job.textproto:20:38: train.arithmetic AVX512_BF16 is for products on the CPU: with device: CUDA leave it "
            "out"},
        Wrong{
            "Fp16OnTheCpu", "train { device: CPU precision: FP16 loss_scaling {} }",
            "job.textproto:20:21: train.precision FP16 is for device: CUDA, on the CPU products are FP32 or BF16: set "
            "train.device: CUDA, or another precision"},
        Wrong{"ScaleThatIsNoPowerOfTwo", "train { loss_scaling { initial: 1000 } }",
              "job.textproto:20:24: train.loss_scaling.initial must be a power of two from 1 to 16777216, got 1000"},
        Wrong{"ScaleBelowOne", "train { loss_scaling { initial: 0.5 } }",
              "job.textproto:20:24: train.loss_scaling.initial must be a power of two from 1 to 16777216, got 0.5"},
        Wrong{"ScaleAboveTheMost", "train { loss_scaling { initial: 2048 most: 1024 } }",
              "job.textproto:20:24: train.loss_scaling.initial must be a power of two from 1 to 1024, got 2048"},
        Wrong{"MostBeyondReason", "train { loss_scaling { most: 1e30 } }",
              "job.textproto:20:24: train.loss_scaling.most must be a power of two from 1 to 1099511627776, got 1e+30"},
        Wrong{"ScaleThatIsNoNumber", "train { loss_scaling { initial: nan } }",
              "job.textproto:20:24: train.loss_scaling.initial must be a power of two from 1 to 16777216, got nan"},
        Wrong{"GrowthByAThird", "train { loss_scaling { growth: 1.5 } }",
              "job.textproto:20:24: train.loss_scaling.growth must be a power of two from 2 to 65536, got 1.5"},
        Wrong{"NoGrowth", "train { loss_scaling { growth: 1 } }",
              "job.textproto:20:24: train.loss_scaling.growth must be a power of two from 2 to 65536, got 1"},
        Wrong{"BackoffThatGrows", "train { loss_scaling { backoff: 2 } }",
              "job.textproto:20:24: train.loss_scaling.backoff must be a power of two from 1.52587890625e-05 to 0.5, "
              "got 2"},
        Wrong{"GrowthAtOnce", "train { loss_scaling { growth_every: 0 } }",
              "job.textproto:20:24: train.loss_scaling.growth_every must be at least 1, got 0"},
        Wrong{"EagerPushes", "distribute { sync: false async_apply: EAGER } train { loss_scaling {} }",
              "job.textproto:20:26: distribute.async_apply EAGER contradicts train.loss_scaling: parts that have been "
              "applied "
              "cannot be taken back when a gradient overflows; leave one of the two out"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(PrecisionTest, Bf16FitsTheCpuWithItsInstructions) {
  for (const char* arithmetic : {"AUTO", "AVX512_BF16", "AMX_BF16"}) {
    const auto job = ParseJob(Replaced(kDeepFm, kCluster, "train { precision: BF16 }"), "job.textproto",
                              {std::string("train.arithmetic=") + arithmetic});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_TRUE(Transpile(*job).ok()) << Transpile(*job).status();
  }
}

TEST(PrecisionTest, EveryOneFitsADevice) {
  for (const char* precision : {"FP32", "TF32", "BF16", "FP16"}) {
    const auto job = ParseJob(Replaced(kDeepFm, kCluster, "train { device: CUDA loss_scaling {} }"), "job.textproto",
                              {std::string("train.precision=") + precision});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_TRUE(Transpile(*job).ok()) << Transpile(*job).status();
  }
}

// The program seeds backward in its own way, so its gradients would be divided by a scale that they do not have.
TEST(LossScalingTest, ASeedThatIsNotScaledIsRefused) {
  const std::string path = ::testing::TempDir() + "/seeded.program";
  std::ofstream(path) << Replaced(ProgramText(BuildSingleMachine(JobOf(kDeepFm))->main),
                                  "fill_like_batch(X=ctr.loss) value=1.0 scalar_times_batch=false @BACKWARD",
                                  "scale(X=ctr.loss) scale=0.0 bias=1.0 @BACKWARD");
  const auto job = ParseJob(kDeepFm, "job.textproto", {"train.loss_scaling={}"}, {.program = path});
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::Status status = Transpile(*job).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "--set train.loss_scaling: scales the seeds of backward, and no fill_like_batch of role BACKWARD "
            "reads loss 'ctr.loss': leave backward out of the program, or loss_scaling out of the job");
}

// The input of a running average is not a gradient and must not be divided by the scale.
TEST(LossScalingTest, SendsOfRunningAveragesAreMarked) {
  const std::string text = Replaced(kDeepFm, "layer { name: \"out\" fc { input: \"deep\" size: 1 } }",
                                    "layer { name: \"norm\" batch_norm { input: \"deep\" } }\n"
                                    "  layer { name: \"out\" fc { input: \"norm\" size: 1 } }");
  for (const bool scaled : {false, true}) {
    const auto job = ParseJob(text, "job.textproto",
                              scaled ? std::vector<std::string>{"train.loss_scaling={}"} : std::vector<std::string>{});
    ASSERT_TRUE(job.ok()) << job.status();
    const auto programs = Transpile(*job);
    ASSERT_TRUE(programs.ok()) << programs.status();
    int measured = 0;
    for (const v1::OpDesc& op : programs->trainer().main.blocks(0).ops()) {
      if (op.type() != "send") continue;
      for (const v1::OpAttr& attr : op.attrs()) {
        if (attr.name() != "measured") continue;
        ++measured;
        EXPECT_TRUE(op.param_grads(0).param() == "norm.mean" || op.param_grads(0).param() == "norm.variance")
            << op.param_grads(0).param();
      }
    }
    EXPECT_EQ(measured, scaled ? 2 : 0);
  }
}

}  // namespace
}  // namespace weir
