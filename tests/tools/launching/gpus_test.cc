#include "tools/launching/gpus.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::string Choose(const std::string& flag, const std::optional<std::string>& visible, int trainers,
                   const std::string& machine = "") {
  const auto chosen = ChooseGpus(flag, visible, trainers, machine);
  return chosen.ok() ? *chosen : std::string(chosen.status().message());
}

TEST(GpusTest, ACountTakesTheFirstDevices) {
  EXPECT_EQ(Choose("4", std::nullopt, 4), "0,1,2,3");
  EXPECT_EQ(Choose("4", std::nullopt, 2), "0,1");
}

TEST(GpusTest, AListGivesTheOrder) {
  EXPECT_EQ(Choose("3,0", std::nullopt, 2), "3,0");
  EXPECT_EQ(Choose("2,", std::nullopt, 1), "2");
  EXPECT_EQ(Choose("GPU-8932f937, GPU-1", std::nullopt, 2), "GPU-8932f937,GPU-1");
}

TEST(GpusTest, NumbersIndexTheDevicesThatAreVisible) {
  EXPECT_EQ(Choose("2", "5,7,6", 2), "5,7");
  EXPECT_EQ(Choose("2,0", "5,7,6", 2), "6,5");
  EXPECT_EQ(Choose("1,0", "GPU-a,GPU-b", 2), "GPU-b,GPU-a");
  EXPECT_EQ(Choose("GPU-b,", "GPU-a,GPU-b", 1), "GPU-b");
}

TEST(GpusTest, MoreTrainersThanDevicesAreRefused) {
  EXPECT_EQ(Choose("2", std::nullopt, 3), "--gpus=2: 2 devices for 3 trainers; every trainer needs one of its own");
  EXPECT_EQ(Choose("0,", std::nullopt, 2, "ps-1"),
            "--gpus=0, on ps-1: 1 device for 2 trainers; every trainer needs one of its own");
  EXPECT_THAT(Choose("0", std::nullopt, 1), HasSubstr("0 devices for 1 trainer;"));
}

TEST(GpusTest, DevicesThatAreNotVisibleAreRefused) {
  EXPECT_THAT(Choose("3", "4,5", 3), HasSubstr("device 2 is not among the 2 of CUDA_VISIBLE_DEVICES=4,5"));
  EXPECT_THAT(Choose("1", "", 1), HasSubstr("device 0 is not among the 0 of CUDA_VISIBLE_DEVICES="));
  EXPECT_THAT(Choose("GPU-c,", "GPU-a", 1), HasSubstr("device GPU-c is not among the 1"));
}

TEST(GpusTest, WrongEntriesAreNamed) {
  EXPECT_THAT(Choose("0,x", std::nullopt, 1), HasSubstr("--gpus=0,x: 'x' is no device; give a count such as 4"));
  EXPECT_THAT(Choose("0,,1", std::nullopt, 1), HasSubstr("'' is no device"));
  EXPECT_THAT(Choose("all", std::nullopt, 1), HasSubstr("'all' is no device"));
  EXPECT_THAT(Choose("-1", std::nullopt, 1), HasSubstr("'-1' is no device"));
  EXPECT_THAT(Choose("1,0,1", std::nullopt, 1), HasSubstr("device 1 is there twice"));
  EXPECT_THAT(Choose("99999", std::nullopt, 1), HasSubstr("at most 1024"));
}

}  // namespace
}  // namespace weir
