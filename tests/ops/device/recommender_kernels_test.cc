// Device kernels of recommender models against their CPU twins (see kernels_test.cc): the same bits but for products of
// matrices and sums that a device takes in an order of its own.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/device_twin.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using Values = DeviceTwin::Values;
using Slots = std::vector<std::pair<std::string, std::vector<std::string>>>;

class RecommenderKernelsTest : public DeviceTest {
 protected:
  // Nothing, one, odd; lanes alike, short, without examples.
  static const std::vector<std::vector<int64_t>>& Batches() {
    static const auto* const batches =
        new std::vector<std::vector<int64_t>>{{0}, {1}, {37}, {300}, {5, 5, 5, 5}, {5, 0, 1, 7}, {0, 0}};
    return *batches;
  }
  static constexpr TwinBound kSum = {.relative = 2e-5};
};
INSTANTIATE_DEVICE_TESTS(RecommenderKernelsTest);

TEST_P(RecommenderKernelsTest, FcOverTheElementsOfASequence) {
  for (const char* activation : {"identity", "relu", "sigmoid", "tanh"}) {
    for (const bool bias : {true, false}) {
      SCOPED_TRACE(absl::StrCat(activation, bias ? " with bias" : ""));
      for (const auto& batches : Batches()) {
        DeviceTwin t(memory(), batches);
        t.Batched("x", {3, 2, 2}).Fixed("w", {4, 5}).Fixed("b", {5}).Batched("dout", {3, 5});
        const std::vector<v1::OpAttr> attrs = {AttrS("activation", activation), AttrI("row_dims", 2)};
        Slots in = {{"X", {"x"}}, {"W", {"w"}}}, out = {{"X@GRAD", {"dx"}}, {"W@GRAD", {"dw"}}};
        if (bias) in.push_back({"Bias", {"b"}});
        if (bias) out.push_back({"Bias@GRAD", {"db"}});
        t.Op(MakeOp("fc", in, {{"Out", {"y"}}}, attrs));
        in.push_back({"Out", {"y"}});
        in.push_back({"Out@GRAD", {"dout"}});
        t.Op(MakeOp("fc_grad", in, out, attrs));
        t.Compare({"y", "dx", "dw"}, kSum);
        if (bias) t.Compare({"db"}, kSum);
      }
    }
  }
}

TEST_P(RecommenderKernelsTest, FcOverMoreDimsThanThereAreIsAnError) {
  DeviceTwin t(memory(), {3});
  t.Batched("x", {4}).Fixed("w", {4, 2});
  t.Op(MakeOp("fc", {{"X", {"x"}}, {"W", {"w"}}}, {{"Out", {"out"}}}, {AttrI("row_dims", 2)}));
  EXPECT_THAT(std::string(t.DeviceStatus({"out"}).message()),
              HasSubstr("op 0 (fc) making out: X [3, 4] cannot be multiplied by W [4, 2]"));
}

}  // namespace
}  // namespace weir
