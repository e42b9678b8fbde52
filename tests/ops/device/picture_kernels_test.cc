// Device kernels of conv2d, pool2d, batch_norm and running_average against their CPU twins. Pooling has the CPU's bits;
// products of matrices and what is measured over a batch are within the bounds given.
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

using ::testing::HasSubstr;
using Slots = std::vector<std::pair<std::string, std::vector<std::string>>>;
using Values = DeviceTwin::Values;

class PictureKernelsTest : public DeviceTest {
 protected:
  // Few examples: pictures are large.
  static const std::vector<std::vector<int64_t>>& Batches() {
    static const auto* const batches =
        new std::vector<std::vector<int64_t>>{{0}, {1}, {37}, {5, 5, 5, 5}, {5, 0, 1, 7}, {0, 0}};
    return *batches;
  }
};
INSTANTIATE_DEVICE_TESTS(PictureKernelsTest);

struct ConvCase {
  int64_t channels, height, width, filters, kernel_height, kernel_width;
  std::vector<int64_t> stride = {1, 1}, padding = {0, 0};

  std::vector<int64_t> out() const {
    return {filters, (height + 2 * padding[0] - kernel_height) / stride[0] + 1,
            (width + 2 * padding[1] - kernel_width) / stride[1] + 1};
  }
  std::string text() const {
    return absl::StrCat(ShapeString(std::vector<int64_t>{channels, height, width}), " by ",
                        ShapeString(std::vector<int64_t>{filters, kernel_height, kernel_width}), " stride ",
                        ShapeString(stride), " padding ", ShapeString(padding));
  }
};

// y, and the gradients dx, dw and db.
void AddConv(DeviceTwin* t, const ConvCase& c, const std::string& activation, bool bias,
             Values values = Values::kPlain) {
  const std::vector<v1::OpAttr> attrs = {AttrInts("stride", c.stride), AttrInts("padding", c.padding),
                                         AttrS("activation", activation)};
  t->Batched("x", {c.channels, c.height, c.width}, values)
      .Fixed("w", {c.filters, c.channels, c.kernel_height, c.kernel_width}, values)
      .Fixed("b", {c.filters})
      .Batched("dout", c.out(), values);
  Slots in = {{"X", {"x"}}, {"W", {"w"}}}, out = {{"X@GRAD", {"dx"}}, {"W@GRAD", {"dw"}}};
  if (bias) in.push_back({"Bias", {"b"}});
  if (bias) out.push_back({"Bias@GRAD", {"db"}});
  t->Op(MakeOp("conv2d", in, {{"Out", {"y"}}}, attrs));
  in.push_back({"Out", {"y"}});
  in.push_back({"Out@GRAD", {"dout"}});
  t->Op(MakeOp("conv2d_grad", in, out, attrs));
}

const std::vector<ConvCase>& ConvCases() {
  static const auto* const cases = new std::vector<ConvCase>{
      {1, 1, 1, 1, 1, 1},
      // Several examples side by side in one product, and a last one that is not full.
      {1, 5, 5, 3, 3, 3},
      {3, 7, 4, 2, 3, 2},
      {2, 6, 5, 4, 3, 3, {1, 1}, {1, 1}},
      {2, 9, 8, 2, 3, 5, {2, 3}, {0, 2}},
      {3, 8, 8, 5, 1, 1, {2, 2}},
      {2, 4, 19, 3, 4, 3, {1, 1}, {3, 2}},
      // One example in a product.
      {2, 23, 24, 3, 5, 3, {1, 1}, {2, 1}},
      // The stride is larger than the window.
      {1, 700, 3, 1, 1, 1, {600, 1}},
  };
  return *cases;
}

TEST_P(PictureKernelsTest, Convolution) {
  for (const ConvCase& c : ConvCases()) {
    for (const auto& batches : Batches()) {
      SCOPED_TRACE(absl::StrCat(c.text(), " for ", ShapeString(batches)));
      DeviceTwin t(memory(), batches);
      AddConv(&t, c, "identity", /*bias=*/false);
      t.Compare({"y", "dx", "dw"}, kSum);
    }
  }
}

TEST_P(PictureKernelsTest, ConvolutionWithBiasAndActivation) {
  for (const char* activation : {"identity", "relu", "sigmoid", "tanh"}) {
    for (const size_t which : {3, 7}) {
      for (const auto& batches : Batches()) {
        SCOPED_TRACE(absl::StrCat(activation, " ", ConvCases()[which].text(), " for ", ShapeString(batches)));
        DeviceTwin t(memory(), batches);
        AddConv(&t, ConvCases()[which], activation, /*bias=*/true);
        t.Compare({"y", "dx", "dw", "db"}, kSum);
      }
    }
  }
}

TEST_P(PictureKernelsTest, OnlyWhatIsAskedForOfAConvolution) {
  for (const char* wanted : {"X", "W", "Bias"}) {
    SCOPED_TRACE(wanted);
    DeviceTwin t(memory(), {5, 0, 1, 7});
    t.Batched("x", {2, 6, 5}).Fixed("w", {4, 2, 3, 3}).Fixed("b", {4}).Batched("dout", {4, 4, 3});
    const std::vector<v1::OpAttr> attrs = {AttrInts("stride", {1, 1}), AttrInts("padding", {0, 0}),
                                           AttrS("activation", "tanh")};
    t.Op(MakeOp("conv2d", {{"X", {"x"}}, {"W", {"w"}}, {"Bias", {"b"}}}, {{"Out", {"y"}}}, attrs));
    t.Op(MakeOp("conv2d_grad", {{"X", {"x"}}, {"W", {"w"}}, {"Bias", {"b"}}, {"Out", {"y"}}, {"Out@GRAD", {"dout"}}},
                {{absl::StrCat(wanted, "@GRAD"), {"grad"}}}, attrs));
    t.Compare({"grad"}, kSum);
  }
}

TEST_P(PictureKernelsTest, ConvolutionPassesOnNanAndInfinity) {
  for (const size_t which : {1, 3, 7}) {
    for (const auto& batches : Batches()) {
      SCOPED_TRACE(absl::StrCat(ConvCases()[which].text(), " for ", ShapeString(batches)));
      DeviceTwin t(memory(), batches);
      AddConv(&t, ConvCases()[which], "relu", /*bias=*/true, Values::kSomeNotFinite);
      t.Compare({"y", "dx", "dw", "db"}, kSum);
    }
  }
}

// More windows than threads of the largest grid; columns in several chunks, one of which ends inside a lane.
TEST_P(PictureKernelsTest, AConvolutionInSeveralChunks) {
  DeviceTwin t(memory(), {29, 0, 30, 2});
  AddConv(&t, {8, 68, 68, 2, 3, 3, {1, 1}, {1, 1}}, "relu", /*bias=*/true);
  // Sums over 140,000 windows.
  t.Compare({"y", "dx"}, kSum);
  t.Compare({"dw", "db"}, {.relative = 1e-4});
}

TEST_P(PictureKernelsTest, WhatDoesNotFitAConvolutionIsRefusedByName) {
  DeviceTwin channels(memory(), {2});
  channels.Batched("x", {3, 5, 5}).Fixed("w", {2, 4, 3, 3});
  const std::vector<v1::OpAttr> attrs = {AttrInts("stride", {1, 1}), AttrInts("padding", {0, 0})};
  channels.Op(MakeOp("conv2d", {{"X", {"x"}}, {"W", {"w"}}}, {{"Out", {"y"}}}, attrs));
  EXPECT_THAT(std::string(channels.DeviceStatus({"y"}).message()),
              HasSubstr("op 0 (conv2d) making y: X [2, 3, 5, 5] has 3 channels, W [2, 4, 3, 3] is for 4"));
  DeviceTwin kernel(memory(), {2});
  kernel.Batched("x", {4, 2, 5}).Fixed("w", {2, 4, 3, 3});
  kernel.Op(MakeOp("conv2d", {{"X", {"x"}}, {"W", {"w"}}}, {{"Out", {"y"}}}, attrs));
  EXPECT_THAT(std::string(kernel.DeviceStatus({"y"}).message()),
              HasSubstr("height: a kernel of 3 does not fit into 2 elements"));
  DeviceTwin bias(memory(), {2});
  bias.Batched("x", {4, 5, 5}).Fixed("w", {2, 4, 3, 3}).Fixed("b", {3});
  bias.Op(MakeOp("conv2d", {{"X", {"x"}}, {"W", {"w"}}, {"Bias", {"b"}}}, {{"Out", {"y"}}}, attrs));
  EXPECT_THAT(std::string(bias.DeviceStatus({"y"}).message()), HasSubstr("Bias must be [2] for all lanes, got [3]"));
}

// On the emulated device, whose memory is as small as we like.
TEST(ConvolutionMemoryTest, ColumnsThatFindNoRoomAreNamed) {
  EmulatedDevice device({.memory = size_t{1} << 20});
  DeviceMemory memory(&device);
  DeviceTwin t(&memory, {4});
  AddConv(&t, {8, 40, 40, 2, 5, 5, {1, 1}, {2, 2}}, "identity", /*bias=*/false);
  const absl::Status status = t.DeviceStatus({"y"});
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("columns of convolutions"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("op 0 (conv2d) making y"));
}

struct PoolCase {
  int64_t height, width;
  std::vector<int64_t> kernel, stride = {1, 1}, padding = {0, 0};
};

TEST_P(PictureKernelsTest, Pooling) {
  const std::vector<PoolCase> cases = {
      {1, 1, {1, 1}},        {6, 8, {2, 2}, {2, 2}},         {7, 5, {2, 2}, {2, 2}},
      {7, 7, {7, 7}},        {5, 6, {3, 3}, {1, 1}, {1, 1}}, {9, 7, {3, 2}, {2, 3}, {2, 1}},
      {8, 3, {1, 1}, {3, 2}}};
  for (const char* type : {"max", "average"}) {
    for (const PoolCase& c : cases) {
      for (const auto& batches : Batches()) {
        SCOPED_TRACE(absl::StrCat(type, " of ", ShapeString(c.kernel), " over ", c.height, " x ", c.width, " stride ",
                                  ShapeString(c.stride), " padding ", ShapeString(c.padding), " for ",
                                  ShapeString(batches)));
        DeviceTwin t(memory(), batches);
        const int64_t rows = (c.height + 2 * c.padding[0] - c.kernel[0]) / c.stride[0] + 1;
        const int64_t columns = (c.width + 2 * c.padding[1] - c.kernel[1]) / c.stride[1] + 1;
        t.Batched("x", {3, c.height, c.width}, Values::kSpecial).Batched("dout", {3, rows, columns}, Values::kSpecial);
        const std::vector<v1::OpAttr> attrs = {AttrS("type", type), AttrInts("kernel", c.kernel),
                                               AttrInts("stride", c.stride), AttrInts("padding", c.padding)};
        t.Op(MakeOp("pool2d", {{"X", {"x"}}}, {{"Out", {"y"}}}, attrs));
        t.Op(MakeOp("pool2d_grad", {{"X", {"x"}}, {"Out@GRAD", {"dout"}}}, {{"X@GRAD", {"dx"}}}, attrs));
        t.Compare({"y"});
        // Windows side by side pass -0 on as it is on the CPU; elsewhere it is added to 0.
        t.Compare({"dx"}, {.relative = 1e-7});
      }
    }
  }
}

// Elements of several windows that are all the greatest: the first takes it.
TEST_P(PictureKernelsTest, PoolingOfEqualElements) {
  DeviceTwin t(memory(), {3, 4});
  t.Batched("x", {2, 6, 6}, Values::kBits).Batched("dout", {2, 6, 6});
  const std::vector<v1::OpAttr> attrs = {AttrS("type", "max"), AttrInts("kernel", {3, 3}), AttrInts("stride", {1, 1}),
                                         AttrInts("padding", {1, 1})};
  t.Op(MakeOp("pool2d_grad", {{"X", {"x"}}, {"Out@GRAD", {"dout"}}}, {{"X@GRAD", {"dx"}}}, attrs));
  t.Compare({"dx"});
}

TEST_P(PictureKernelsTest, PoolingOfMoreElementsThanThreads) {
  DeviceTwin t(memory(), {36, 37});
  t.Batched("x", {5, 77, 77}).Batched("dout", {5, 38, 38});
  const std::vector<v1::OpAttr> attrs = {AttrS("type", "max"), AttrInts("kernel", {2, 2}), AttrInts("stride", {2, 2}),
                                         AttrInts("padding", {0, 0})};
  t.Op(MakeOp("pool2d", {{"X", {"x"}}}, {{"Out", {"y"}}}, attrs));
  t.Op(MakeOp("pool2d_grad", {{"X", {"x"}}, {"Out@GRAD", {"dout"}}}, {{"X@GRAD", {"dx"}}}, attrs));
  t.Compare({"y", "dx"});
}

// y, what was measured, and the gradients.
void AddNorm(DeviceTwin* t, const std::vector<int64_t>& row_dims, const std::string& activation,
             Values values = Values::kPlain) {
  const std::vector<int64_t> channels = {row_dims[0]};
  // The less a batch varies, the more rounding weighs.
  const std::vector<v1::OpAttr> attrs = {AttrF("epsilon", 1e-2), AttrS("activation", activation)};
  t->Batched("x", row_dims, values).Batched("dout", row_dims, values);
  t->Fixed("scale", channels)
      .Fixed("shift", channels)
      .Fixed("mean", channels)
      .Fixed("variance", channels, Values::kPositive);
  t->Op(
      MakeOp("batch_norm",
             {{"X", {"x"}}, {"Scale", {"scale"}}, {"Shift", {"shift"}}, {"Mean", {"mean"}}, {"Variance", {"variance"}}},
             {{"Out", {"y"}}, {"BatchMean", {"m"}}, {"BatchVariance", {"v"}}}, attrs));
  t->Op(MakeOp("batch_norm_grad",
               {{"X", {"x"}},
                {"Scale", {"scale"}},
                {"BatchMean", {"m"}},
                {"BatchVariance", {"v"}},
                {"Out", {"y"}},
                {"Out@GRAD", {"dout"}}},
               {{"X@GRAD", {"dx"}},
                {"Scale@GRAD", {"dscale"}},
                {"Shift@GRAD", {"dshift"}},
                {"Mean@GRAD", {"dmean"}},
                {"Variance@GRAD", {"dvariance"}}},
               attrs));
}

TEST_P(PictureKernelsTest, BatchNormMeasuresEachLane) {
  for (const char* activation : {"identity", "relu", "sigmoid", "tanh"}) {
    for (const std::vector<int64_t>& row_dims :
         std::vector<std::vector<int64_t>>{{1}, {7}, {3, 1, 1}, {2, 5, 7}, {3, 40}}) {
      for (const auto& batches : Batches()) {
        SCOPED_TRACE(absl::StrCat(activation, " of ", ShapeString(row_dims), " for ", ShapeString(batches)));
        DeviceTwin t(memory(), batches);
        AddNorm(&t, row_dims, activation);
        t.Compare({"m", "v", "y", "dmean", "dvariance"}, kSum);
        t.Compare({"dx", "dscale", "dshift"}, {.relative = 1e-4});
      }
    }
  }
}

TEST_P(PictureKernelsTest, BatchNormOutsideOfTrainingTakesTheRunningValues) {
  for (const std::vector<int64_t>& row_dims : std::vector<std::vector<int64_t>>{{7}, {2, 5, 7}}) {
    for (const auto& batches : Batches()) {
      SCOPED_TRACE(absl::StrCat(ShapeString(row_dims), " for ", ShapeString(batches)));
      DeviceTwin t(memory(), batches);
      t.step().training = false;
      AddNorm(&t, row_dims, "relu", Values::kSpecial);
      t.Compare({"m", "v", "y"});
    }
  }
}

TEST_P(PictureKernelsTest, BatchNormPassesOnNanAndInfinity) {
  for (const std::vector<int64_t>& row_dims : std::vector<std::vector<int64_t>>{{7}, {9, 3, 2}}) {
    for (const auto& batches : Batches()) {
      SCOPED_TRACE(absl::StrCat(ShapeString(row_dims), " for ", ShapeString(batches)));
      DeviceTwin t(memory(), batches);
      AddNorm(&t, row_dims, "relu", Values::kSomeNotFinite);
      t.Compare({"m", "v", "y", "dx", "dscale", "dshift", "dmean", "dvariance"}, {.relative = 1e-4});
    }
  }
}

TEST_P(PictureKernelsTest, BatchNormOfMoreElementsThanThreads) {
  DeviceTwin t(memory(), {40, 0, 31});
  AddNorm(&t, {16, 44, 44}, "relu");
  t.Compare({"m", "v", "y", "dmean", "dvariance"}, kSum);
  t.Compare({"dx"}, {.relative = 1e-4});
  // Sums over 80,000 elements.
  t.Compare({"dscale", "dshift"}, {.relative = 1e-3});
}

TEST_P(PictureKernelsTest, BatchNormGradientInThePlaceOfThatOfOut) {
  DeviceTwin t(memory(), {5, 0, 1, 7});
  t.Batched("x", {3, 4})
      .Batched("dout", {3, 4})
      .Fixed("scale", {3})
      .Fixed("zero", {3})
      .Fixed("one", {3}, Values::kPositive);
  const std::vector<v1::OpAttr> attrs = {AttrF("epsilon", 1e-2), AttrS("activation", "tanh")};
  t.Op(MakeOp("batch_norm",
              {{"X", {"x"}}, {"Scale", {"scale"}}, {"Shift", {"zero"}}, {"Mean", {"zero"}}, {"Variance", {"one"}}},
              {{"Out", {"y"}}, {"BatchMean", {"m"}}, {"BatchVariance", {"v"}}}, attrs));
  t.Op(MakeOp("batch_norm_grad",
              {{"X", {"x"}},
               {"Scale", {"scale"}},
               {"BatchMean", {"m"}},
               {"BatchVariance", {"v"}},
               {"Out", {"y"}},
               {"Out@GRAD", {"dout"}}},
              {{"X@GRAD", {"dout"}}}, attrs));
  t.Compare({"dout"}, {.relative = 1e-4});
}

TEST_P(PictureKernelsTest, WhatDoesNotFitABatchNormIsRefusedByName) {
  DeviceTwin t(memory(), {2});
  t.Batched("x", {4, 5, 5}).Fixed("c", {4}).Fixed("other", {3});
  t.Op(MakeOp("batch_norm",
              {{"X", {"x"}}, {"Scale", {"c"}}, {"Shift", {"other"}}, {"Mean", {"c"}}, {"Variance", {"c"}}},
              {{"Out", {"y"}}, {"BatchMean", {"m"}}, {"BatchVariance", {"v"}}}));
  EXPECT_THAT(std::string(t.DeviceStatus({"y"}).message()), HasSubstr("Shift must be [4] for all lanes, got [3]"));
}

TEST_P(PictureKernelsTest, RunningAverage) {
  for (const int64_t n : {0, 1, 37, 3'000'000}) {
    SCOPED_TRACE(n);
    DeviceTwin t(memory(), {1});
    const Values values = n == 37 ? Values::kSpecial : Values::kPlain;
    t.Fixed("w", {n}, values).EachLane("g", {n}, values).Fixed("rate", {1}, Values::kPositive);
    v1::OpDesc op = MakeOp("running_average", {{"Param", {"w"}}, {"Grad", {"g"}}, {"LearningRate", {"rate"}}},
                           {{"ParamOut", {"w"}}});
    op.set_role(v1::OPTIMIZE);
    t.Op(op);
    // A persistent value cannot be fetched: read it through an operator.
    t.Op(MakeOp("elementwise_add", {{"X", {"g"}}, {"Y", {"w"}}}, {{"Out", {"sum"}}}));
    t.Compare({"sum"});
  }
}

}  // namespace
}  // namespace weir
