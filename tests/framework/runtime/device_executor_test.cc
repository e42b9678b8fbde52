// The executor on a device: which operators run where, and what is copied for it.
#include "framework/device/device_executor.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/device_twin.h"
#include "tests/testing/devices/emulated_device.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// x, in two lanes, through relu, sigmoid and tanh, and back into x.
void AddChain(DeviceTwin* t) {
  t->Batched("x", {3});
  t->Op(MakeOp("relu", {{"X", {"x"}}}, {{"Out", {"a"}}}));
  t->Op(MakeOp("sigmoid", {{"X", {"a"}}}, {{"Out", {"b"}}}));
  t->Op(MakeOp("tanh", {{"X", {"b"}}}, {{"Out", {"c"}}}));
  t->Op(MakeOp("elementwise_add", {{"X", {"c"}}, {"Y", {"a"}}}, {{"Out", {"x"}}}));
}

class DeviceExecutorTest : public ::testing::Test {
 protected:
  EmulatedDevice device_;
  DeviceMemory memory_{&device_};
};

// Whatever order the queues run in.
TEST_F(DeviceExecutorTest, OperatorsOnTheCpuBetweenThoseOnTheDevice) {
  for (const std::vector<std::string>& cpu_ops : std::vector<std::vector<std::string>>{
           {}, {"relu"}, {"sigmoid"}, {"tanh"}, {"relu", "tanh"}, {"elementwise_add"}}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      EmulatedDevice device({.seed = seed});
      DeviceMemory memory(&device);
      DeviceTwin t(&memory, {5, 0, 2});
      AddChain(&t);
      t.CpuOps(cpu_ops);
      t.Compare({"a", "b", "c", "x"});
    }
  }
}

TEST_F(DeviceExecutorTest, CopiesAreThoseThatTheOperatorsPlacesAskFor) {
  DeviceTwin t(&memory_, {1});
  AddChain(&t);
  const auto copies = [&](const std::vector<std::string>& cpu_ops) {
    std::vector<std::string> lines;
    for (const DeviceCopy& copy : DeviceCopies(t.program(), 0, cpu_ops)) {
      lines.push_back(
          absl::StrCat(copy.variable, copy.to_host ? " to the host for " : " to the device for ", copy.for_op));
    }
    return lines;
  };
  EXPECT_THAT(copies({"sigmoid"}), ElementsAre("x to the device for relu (op 0)", "a to the host for sigmoid (op 1)",
                                               "b to the device for tanh (op 2)"));
  EXPECT_THAT(copies({"relu"}), ElementsAre("a to the device for sigmoid (op 1)"));
}

TEST_F(DeviceExecutorTest, OperatorsThatNothingCanRunAreNamedTogether) {
  DeviceTwin t(&memory_, {4});
  t.Batched("x", {2});
  // Operators that run on servers, which have no device.
  t.Op(MakeOp("clip", {{"X", {"x"}}}, {{"Out", {"y"}}}, {AttrF("min", -0.5), AttrF("max", 0.5)}));
  t.Op(MakeOp("sum_of_squares", {{"X", {"x"}}}, {{"Out", {"squares"}}}));
  t.Op(MakeOp("relu", {{"X", {"x"}}}, {{"Out", {"z"}}}));
  const absl::Status status = t.DeviceStatus({"z"});
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("operators without a CUDA kernel: clip, sum_of_squares; train.cpu_ops"));
  t.CpuOps({"clip", "sum_of_squares"});
  t.Compare({"y", "squares", "z"});
}

TEST_F(DeviceExecutorTest, AnUnknownTypeAmongTheCpuOps) {
  DeviceTwin t(&memory_, {4});
  AddChain(&t);
  t.CpuOps({"rellu"});
  const absl::Status status = t.DeviceStatus({"c"});
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("train.cpu_ops: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("relu"));
}

TEST_F(DeviceExecutorTest, WhatIsMadeFromParametersAloneIsNotOfEachLane) {
  DeviceTwin t(&memory_, {2, 2});
  t.Fixed("w", {3});
  t.Op(MakeOp("scale", {{"X", {"w"}}}, {{"Out", {"y"}}}, {AttrF("scale", 2)}));
  EXPECT_THAT(std::string(t.DeviceStatus({"y"}).message()),
              HasSubstr("op 0 (scale) making y: 'y' is of each lane, and is made from what is one for all; "
                        "train.cpu_ops: \"scale\""));
  t.CpuOps({"scale"});
  t.Compare({"y"});
}

TEST_F(DeviceExecutorTest, MoreLanesThanKernelsCanBeTold) {
  DeviceTwin t(&memory_, std::vector<int64_t>(kMostDeviceLanes + 1, 1));
  AddChain(&t);
  EXPECT_THAT(std::string(t.DeviceStatus({"c"}).message()), HasSubstr("at most 64 lanes, got 65"));
}

// A reshape is another view of the same memory, unless somebody writes there.
TEST_F(DeviceExecutorTest, AReshapeCopiesNothing) {
  const auto kernels = [](bool in_place) {
    EmulatedDevice device;
    DeviceMemory memory(&device);
    DeviceTwin t(&memory, {5, 0, 2});
    t.Batched("x", {6});
    t.Op(MakeOp("relu", {{"X", {"x"}}}, {{"Out", {"a"}}}));
    t.Op(MakeOp("reshape", {{"X", {"a"}}}, {{"Out", {"b"}}}, {AttrInts("shape", {-1, 2, 3})}));
    // Into its own place, or into another.
    t.Op(MakeOp("tanh", {{"X", {"a"}}}, {{"Out", {in_place ? "a" : "c"}}}));
    t.Op(MakeOp("sigmoid", {{"X", {"b"}}}, {{"Out", {"d"}}}));
    t.Compare({"a", "b", "d"});
    return device.ran();
  };
  // In each of the twin's two steps.
  EXPECT_EQ(kernels(true) - kernels(false), 2);
}

// Fed data lies in memory that is reused for the next batch: an operator that writes it in place reads this memory and
// gets other memory for the result.
TEST_F(DeviceExecutorTest, DataThatIsChangedInPlaceIsReadFirst) {
  const std::vector<v1::OpDesc> in_place = {
      MakeOp("relu", {{"X", {"x"}}}, {{"Out", {"x"}}}),
      MakeOp("scale", {{"X", {"x"}}}, {{"Out", {"x"}}}, {AttrF("scale", 2)}),
      MakeOp("scale", {{"X", {"x"}}}, {{"Out", {"x"}}}, {AttrF("scale", 2), AttrF("bias", 1)}),
      MakeOp("softmax", {{"X", {"x"}}}, {{"Out", {"x"}}}),
      MakeOp("dropout", {{"X", {"x"}}}, {{"Out", {"x"}}, {"Mask", {"mask"}}},
             {AttrF("rate", 0.5), AttrS("layer", "d")}),
      MakeOp("elementwise_add", {{"X", {"x"}}, {"Y", {"x"}}}, {{"Out", {"x"}}}),
      MakeOp("sum", {{"X", {"x", "x"}}}, {{"Out", {"x"}}}),
  };
  for (const v1::OpDesc& op : in_place) {
    SCOPED_TRACE(op.type());
    DeviceTwin t(&memory_, {5, 0, 2});
    t.Batched("x", {6});
    t.Op(op);
    t.Compare({"x"});
  }
}

// A value of another shape in each step: memory grows, and shrinks to what is asked for.
TEST_F(DeviceExecutorTest, BatchesOfEverySize) {
  for (const int64_t batch : {1, 1000, 3, 0, 4097}) {
    DeviceTwin t(&memory_, {batch, batch / 2});
    AddChain(&t);
    t.Compare({"c", "x"});
  }
}

}  // namespace
}  // namespace weir
