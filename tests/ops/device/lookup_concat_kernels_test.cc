// lookup_concat and its gradient on a device against the CPU (see kernels_test.cc): the same bits forward; sums of
// gradients are taken in runs.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/device_twin.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using Values = DeviceTwin::Values;

class LookupConcatKernelsTest : public DeviceTest {};
INSTANTIATE_DEVICE_TESTS(LookupConcatKernelsTest);

TEST_P(LookupConcatKernelsTest, JoinsLookUpsAndDenseInputsAndCutsTheirGradients) {
  for (const char* pooling : {"none", "sum", "mean", "sqrt_n"}) {
    for (const bool per_slot : {false, true}) {
      // Columns that lie in fours, and such that do not.
      for (const int64_t width : {1, 4, 8}) {
        SCOPED_TRACE(absl::StrCat(pooling, per_slot ? " per slot, width " : ", width ", width));
        const bool one_each = std::string(pooling) == "none";
        const int64_t columns = one_each || per_slot ? 3 * width : width, scalars = width == 1 ? 3 : 4;
        for (const auto& batches : Batches()) {
          DeviceTwin t(memory(), batches);
          t.Lookup("ids", "index", "rows", 3, one_each ? 1 : 0, one_each ? 1 : 4, 40, width, !one_each);
          t.Lookup("more", "more index", "more rows", 2, 0, 3, 9, 4, false);
          t.Batched("x", {scalars}, Values::kSpecial).Batched("y", {4});
          const int64_t total = 4 + columns + scalars + 4;
          t.Batched("dout", {total}, Values::kPlain);
          t.Output("drows", v1::SELECTED_ROWS).Output("dmore", v1::SELECTED_ROWS);
          const std::vector<v1::OpAttr> pool = {AttrStrings("poolings", {"sum", pooling}),
                                                AttrInts("per_slot", {0, per_slot})};
          std::vector<v1::OpAttr> attrs = pool;
          attrs.push_back(AttrInts("dense_at", {1, 3}));
          const std::vector<std::pair<std::string, std::vector<std::string>>> ids = {
              {"Ids", {"more", "ids"}}, {"Index", {"more index", "index"}}, {"Rows", {"more rows", "rows"}}};
          auto in = ids;
          in.emplace_back("X", std::vector<std::string>{"x", "y"});
          t.Op(MakeOp("lookup_concat", in, {{"Out", {"out"}}}, attrs));
          auto grad_in = ids;
          grad_in.emplace_back("Out@GRAD", std::vector<std::string>{"dout"});
          attrs = pool;
          attrs.push_back(AttrInts("lookup_begins", {0, 4 + scalars}));
          attrs.push_back(AttrInts("dense_begins", {4}));
          attrs.push_back(AttrInts("dense_sizes", {scalars}));
          t.Op(MakeOp("lookup_concat_grad", grad_in, {{"Rows@GRAD", {"dmore", "drows"}}, {"X@GRAD", {"dx"}}}, attrs));
          t.Compare({"out", "dx"});
          t.Compare({"dmore", "drows"}, kSum);
        }
      }
    }
  }
}

TEST_P(LookupConcatKernelsTest, WhatDoesNotFitIsRefused) {
  DeviceTwin t(memory(), {2});
  t.Lookup("ids", "index", "rows", 1, 1, 1, 5, 4, false);
  t.Batched("x", {3});
  std::vector<Variable> lanes;
  lanes.push_back(Tensor(v1::FLOAT32, {3, 3}));
  t.Feed("three", v1::DENSE, v1::FLOAT32, {-1, 3}, std::move(lanes));
  t.Op(MakeOp("lookup_concat", {{"Ids", {"ids"}}, {"Index", {"index"}}, {"Rows", {"rows"}}, {"X", {"x", "three"}}},
              {{"Out", {"out"}}}));
  EXPECT_THAT(std::string(t.DeviceStatus({"out"}).message()), HasSubstr("X[1] is [3, 3]"));
}

}  // namespace
}  // namespace weir
