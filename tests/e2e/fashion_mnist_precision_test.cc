// The convolutional network of the fashion_mnist example with products of matrices in 16 bits comes as far as with FP32
// on the CPU: on the emulated device, whose products round their factors as CUDA's do, on CUDA where there is one, and
// in bfloat16 on a CPU that has such products.
// On a few of the pictures, once; or, which takes the emulation the better part of an hour, on all of them three times,
// and then to 0.90:
//
//   bazel test --test_env=WEIR_DATA_DIR=DIR --test_env=WEIR_ALL_PICTURES=1 --test_timeout=7200
//   //tests/e2e:fashion_mnist_precision_test
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ops/gemm_bf16.h"
#include "tests/testing/devices/device_twin.h"
#include "tests/testing/jobs/pictures.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

class FashionMnistPrecisionTest : public DeviceTest {};
INSTANTIATE_DEVICE_TESTS(FashionMnistPrecisionTest);

TEST_P(FashionMnistPrecisionTest, AccuracyIsThatOfFloat32) {
  if (!FashionMnistIsThere()) GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (fashion-mnist)";
  const std::string dir = ::testing::TempDir() + "/fashion_mnist_precision";
  const bool all = std::getenv("WEIR_ALL_PICTURES") != nullptr;
  ASSERT_TRUE(all ? PrepareFashionMnist(dir) : PrepareFashionMnist(dir, /*train=*/2048, /*eval=*/1024));
  const auto accuracy = [&](bool on_device, const std::vector<std::string>& precision) {
    std::vector<std::string> overrides = {"checkpoint.dir=\"\"", "checkpoint.every_steps=0",
                                          on_device ? "train.device=CUDA" : "train.device=CPU",
                                          absl::StrCat("train.epochs=", all ? 3 : 1),
                                          absl::StrCat("optimizer.schedule.cosine.decay_steps=", all ? 705 : 8)};
    overrides.insert(overrides.end(), precision.begin(), precision.end());
    InProcessRun options = {.job_text = ContentsOf("examples/fashion_mnist/cnn.textproto"),
                            .directory = dir,
                            .overrides = overrides,
                            .threads = 2};
    if (on_device) options.device = [&](int) { return memory(); };
    const absl::StatusOr<InProcessResult> result = TrainInProcess(options);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok() || !result->summary.eval.has_value()) return 0.0;
    std::printf("%s: %s\n", precision.empty() ? "FP32" : precision[0].c_str(), result->summary.DoneLine().c_str());
    std::fflush(stdout);
    return result->summary.eval->Measure("accuracy");
  };
  // Guessing is 0.1. Of 10,000 pictures two networks that differ by chance see some 50 more or fewer right; of 1,024,
  // and at the beginning of their training, relatively many more.
  const double least = all ? 0.90 : 0.40, near = all ? 0.01 : 0.06;
  const double fp32 = accuracy(false, {});
  EXPECT_GE(fp32, least);
  for (const std::vector<std::string>& precision : std::vector<std::vector<std::string>>{
           {"train.precision=BF16"}, {"train.precision=FP16", "train.loss_scaling={ initial: 1024 }"}}) {
    const double in_16_bits = accuracy(true, precision);
    EXPECT_GE(in_16_bits, least);
    EXPECT_NEAR(in_16_bits, fp32, near);
  }
  if (HasBf16Unit(Bf16Unit::kAvx512)) {
    EXPECT_NEAR(accuracy(false, {"train.precision=BF16"}), fp32, near);
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace weir
