#include "framework/device/device_values.h"

#include <memory>
#include <string>
#include <vector>

#include "framework/device/device_variables.h"
#include "framework/graph/program_text.h"
#include "framework/tensor/device_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/emulated_device.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<PreparedBlock> Block(const std::string& vars) {
  auto program = ParseProgramText("weir program\nblock 0 parent -1 {" + vars + "}", "x.program");
  EXPECT_TRUE(program.ok()) << program.status();
  auto block = PreparedBlock::Create(*program, 0, {});
  EXPECT_TRUE(block.ok()) << block.status();
  return *std::move(block);
}

class DeviceValuesTest : public ::testing::Test {
 protected:
  DeviceVariable* Var(const std::string& name) {
    const auto var = vars_.Locate(name);
    EXPECT_TRUE(var.ok()) << var.status();
    return *var;
  }
  void Set(const std::string& name, int lane, std::vector<int64_t> dims, std::vector<float> values) {
    *Var(name)->host[static_cast<size_t>(lane)] = Tensor::Of<float>(dims, values);
  }
  static std::vector<float> OnHost(const DeviceVariable& var, int lane) {
    const Tensor& t = std::get<Tensor>(*var.host[static_cast<size_t>(lane)]);
    return {t.span<float>().begin(), t.span<float>().end()};
  }
  std::string Refusal(const std::string& name) {
    const absl::Status status = values_.ToDevice(Var(name));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  EmulatedDevice device_;
  DeviceMemory memory_{&device_};
  DeviceTransfers transfers_{&memory_};
  Scope scope_;
  DeviceScope device_scope_{&scope_};
  std::unique_ptr<PreparedBlock> block_ = Block(R"(
  var x [-1, 2]
  var ids [-1, 1] kind: IDS
  var rows [-1, 3] kind: SELECTED_ROWS
  var w [2] persistable: true
)");
  BlockVariables host_{block_.get(), &scope_, /*lanes=*/2};
  DeviceVariables vars_{block_.get(), &host_, &device_scope_};
  RoundedFactors rounded_;
  DeviceValues values_{&transfers_, &rounded_};
};

TEST_F(DeviceValuesTest, AValueThatAKernelHasWrittenComesBackToEachLane) {
  Set("x", 0, {1, 2}, {1, 2});
  Set("x", 1, {2, 2}, {3, 4, 5, 6});
  DeviceVariable* const x = Var("x");
  ASSERT_TRUE(values_.ToDevice(x).ok());
  EXPECT_THAT(x->device.lane_rows(), ElementsAre(1, 2));
  values_.WrittenOnDevice(x);
  Set("x", 0, {1, 2}, {0, 0});
  Set("x", 1, {0, 2}, {});
  ASSERT_TRUE(values_.ToHost({x}).ok());
  EXPECT_THAT(OnHost(*x, 0), ElementsAre(1, 2));
  EXPECT_THAT(OnHost(*x, 1), ElementsAre(3, 4, 5, 6));
}

TEST_F(DeviceValuesTest, ValuesAreCopiedOnlyWhereTheOtherSideIsNewer) {
  Set("x", 0, {1, 2}, {1, 2});
  Set("x", 1, {1, 2}, {3, 4});
  DeviceVariable* const x = Var("x");
  ASSERT_TRUE(values_.ToDevice(x).ok());
  ASSERT_TRUE(values_.ToDevice(x).ok());
  ASSERT_TRUE(values_.ToHost({x}).ok());
  EXPECT_EQ(transfers_.bytes_in(), 16);
  EXPECT_EQ(transfers_.bytes_out(), 0);
  DeviceValues::WrittenOnHost(x);
  ASSERT_TRUE(values_.ToDevice(x).ok());
  EXPECT_EQ(transfers_.bytes_in(), 32);
}

TEST_F(DeviceValuesTest, OnlyAKernelThatOverwritesALeavingValueWaitsForCopies) {
  Set("x", 0, {1, 2}, {1, 2});
  Set("x", 1, {1, 2}, {3, 4});
  *scope_.FindOrCreate("w") = Tensor::Of<float>({2}, {7, 8});
  DeviceVariable* const x = Var("x");
  DeviceVariable* const w = Var("w");
  ASSERT_TRUE(values_.ToDevice(x).ok());
  ASSERT_TRUE(values_.ToDevice(w).ok());
  values_.CopiedByKernel({x});
  ASSERT_TRUE(values_.BeforeWriting({w}).ok());
  EXPECT_TRUE(x->leaving);
  ASSERT_TRUE(values_.BeforeWriting({w, x}).ok());
  EXPECT_FALSE(x->leaving);
  values_.CopiedByKernel({x, w});
  ASSERT_TRUE(values_.EndRun().ok());
  EXPECT_FALSE(x->leaving);
  EXPECT_FALSE(w->leaving);
}

TEST_F(DeviceValuesTest, LanesThatDoNotFitTogetherAreRefused) {
  Set("x", 0, {1, 2}, {1, 2});
  Set("x", 1, {1, 3}, {3, 4, 5});
  EXPECT_EQ(Refusal("x"), "'x' is [1, 3] in lane 1, unlike in a lane before it");
}

TEST_F(DeviceValuesTest, AScalarMustBeInEveryLane) {
  Set("x", 0, {}, {1});
  EXPECT_EQ(Refusal("x"), "'x' is a scalar in some lanes and absent in others");
}

TEST_F(DeviceValuesTest, AValueThatWasRefusedIsNotOnTheDevice) {
  Set("x", 0, {1, 2}, {1, 2});
  Set("x", 1, {1, 3}, {3, 4, 5});
  EXPECT_EQ(Refusal("x"), "'x' is [1, 3] in lane 1, unlike in a lane before it");
  EXPECT_EQ(Refusal("x"), "'x' is [1, 3] in lane 1, unlike in a lane before it");
}

TEST_F(DeviceValuesTest, IdsAreNotCopied) { EXPECT_EQ(Refusal("ids"), "'ids' holds ids where a dense value is read"); }

TEST_F(DeviceValuesTest, RowsThatNoLaneHasKeepTheirWidth) {
  DeviceVariable* const rows = Var("rows");
  ASSERT_TRUE(values_.ToDevice(rows).ok());
  EXPECT_TRUE(rows->device.initialized());
  EXPECT_EQ(rows->device.width(), 3);
  EXPECT_EQ(rows->device.rows(), 0);
}

TEST_F(DeviceValuesTest, BytesAreThoseOnTheDeviceByOwner) {
  Set("x", 0, {1, 2}, {1, 2});
  *scope_.FindOrCreate("w") = Tensor::Of<float>({2}, {7, 8});
  ASSERT_TRUE(values_.ToDevice(Var("w")).ok());
  EXPECT_EQ(vars_.bytes().lanes, 0);
  EXPECT_EQ(vars_.bytes().persistable, static_cast<int64_t>(Var("w")->device.bytes()));
  ASSERT_TRUE(values_.ToDevice(Var("x")).ok());
  EXPECT_EQ(vars_.bytes().lanes, static_cast<int64_t>(Var("x")->device.bytes()));
  EXPECT_GT(vars_.bytes().lanes, 0);
  EXPECT_EQ(vars_.Find("w"), nullptr);
  EXPECT_EQ(vars_.Find("x"), Var("x"));
}

}  // namespace
}  // namespace weir
