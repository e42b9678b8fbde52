// Real data: the flights example, one epoch, with products of matrices in 16 bits, beside the same in FP32: on the CPU,
// where it can, and on the emulated device, whose products round their factors as CUDA's do.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/tensor/device_memory.h"
#include "gtest/gtest.h"
#include "ops/gemm_bf16.h"
#include "tests/testing/devices/emulated_device.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

TEST(FlightsPrecisionTest, AucIsThatOfFloat32) {
  const char* data = std::getenv("WEIR_DATA_DIR");
  if (data == nullptr || !std::filesystem::exists(absl::StrCat(data, "/nycflights-late/flights.csv.gz"))) {
    GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (nycflights-late)";
  }
  const std::string dir = ::testing::TempDir() + "/flights_precision";
  std::filesystem::create_directories(dir);
  const std::string prepare = absl::StrCat("examples/flights/prepare --output=", dir, "/data > /dev/null");
  ASSERT_EQ(std::system(prepare.c_str()), 0) << prepare;
  std::ifstream in("examples/flights/job.textproto");
  const std::string job(std::istreambuf_iterator<char>(in), {});
  const auto auc = [&](const std::vector<std::string>& more, bool on_cpu = false) {
    EmulatedDevice device;
    DeviceMemory memory(&device);
    std::vector<std::string> overrides = {"checkpoint.dir=\"\"", "checkpoint.every_steps=0"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    InProcessRun run = {.job_text = job, .directory = dir, .overrides = overrides, .threads = 2};
    if (!on_cpu) {
      run.overrides.push_back("train.device=CUDA");
      run.device = [&](int) { return &memory; };
    }
    const absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok() || !result->summary.eval.has_value()) return 0.0;
    std::printf("%s: %s\n", more.empty() ? "FP32" : more[0].c_str(), result->summary.DoneLine().c_str());
    return result->summary.eval->Measure("auc");
  };
  const double fp32 = auc({});
  EXPECT_GE(fp32, 0.766);
  EXPECT_NEAR(auc({"train.precision=BF16"}), fp32, 0.001);
  EXPECT_NEAR(auc({"train.precision=FP16", "train.loss_scaling={}"}), fp32, 0.001);
  if (HasBf16Unit(Bf16Unit::kAvx512)) {
    EXPECT_NEAR(auc({"train.precision=BF16"}, /*on_cpu=*/true), fp32, 0.001);
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace weir
