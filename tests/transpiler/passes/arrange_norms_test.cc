#include "transpiler/passes/arrange_norms.h"

#include <string>
#include <vector>

#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/base/programs.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::OpDesc Of(const std::string& param, v1::OpDesc op) {
  const v1::ParamGrad pair = Pair(param, param + "@GRAD");
  return WithRole(std::move(op), v1::OPTIMIZE, &pair);
}

// The ops of one parameter; without a name it has no norm.
void Add(const std::string& param, const std::string& name, std::vector<v1::OpDesc>* ops) {
  if (!name.empty()) {
    ops->push_back(Of(param, MakeOp("sum_of_squares", {{"X", {param + "@GRAD"}}}, {{"Out", {param + ".s"}}})));
    ops->push_back(
        Of(param, MakeOp("whole_norm", {{"X", {param + ".s"}}}, {{"Out", {param + ".n"}}}, {AttrS("name", name)})));
    ops->push_back(Of(param, MakeOp("clip_by_norm", {{"X", {param + "@GRAD"}}, {"Norm", {param + ".n"}}}, {})));
  }
  ops->push_back(Of(param, MakeOp("sgd", {{"Param", {param}}}, {})));
}

// "whole_norm a b": the type and the parameters.
std::vector<std::string> Lines(const std::vector<v1::OpDesc>& ops) {
  std::vector<std::string> lines;
  for (const v1::OpDesc& op : ops) {
    lines.push_back(op.type());
    for (const v1::ParamGrad& pair : op.param_grads()) lines.back() += " " + pair.param();
  }
  return lines;
}

TEST(ArrangeNormsTest, WhatReadsTheNormOfAGroupStandsBehindAllItsSums) {
  std::vector<v1::OpDesc> ops;
  Add("a", "group", &ops);
  Add("b", "", &ops);
  Add("c", "own", &ops);
  Add("d", "group", &ops);
  ArrangeNorms(&ops);
  EXPECT_THAT(Lines(ops),
              ElementsAre("sum_of_squares a", "sgd b", "sum_of_squares c", "whole_norm c", "clip_by_norm c", "sgd c",
                          "sum_of_squares d", "whole_norm a d", "clip_by_norm a", "sgd a", "clip_by_norm d", "sgd d"));
  const v1::OpDesc& norm = ops[7];
  EXPECT_THAT(std::vector<std::string>(norm.inputs(0).vars().begin(), norm.inputs(0).vars().end()),
              ElementsAre("a.s", "d.s"));
  EXPECT_THAT(std::vector<std::string>(norm.outputs(0).vars().begin(), norm.outputs(0).vars().end()),
              ElementsAre("a.n", "d.n"));
  const std::vector<std::string> once = Lines(ops);
  ArrangeNorms(&ops);
  EXPECT_EQ(Lines(ops), once);
}

TEST(ArrangeNormsTest, TwoGroupsOfTheSameParametersDoNotGetInEachOthersWay) {
  std::vector<v1::OpDesc> ops;
  for (const char* param : {"a", "b"}) {
    Add(param, "first", &ops);
    ops.pop_back();
    Add(param, "second", &ops);
  }
  ArrangeNorms(&ops);
  EXPECT_THAT(Lines(ops), ElementsAre("sum_of_squares a", "sum_of_squares b", "whole_norm a b", "clip_by_norm a",
                                      "sum_of_squares a", "clip_by_norm b", "sum_of_squares b", "whole_norm a b",
                                      "clip_by_norm a", "sgd a", "clip_by_norm b", "sgd b"));
}

TEST(ArrangeNormsTest, WithoutGroupsNothingMoves) {
  std::vector<v1::OpDesc> ops;
  ArrangeNorms(&ops);
  EXPECT_THAT(ops, IsEmpty());
  Add("a", "one", &ops);
  Add("b", "other", &ops);
  const std::vector<std::string> before = Lines(ops);
  ArrangeNorms(&ops);
  EXPECT_EQ(Lines(ops), before);
}

}  // namespace
}  // namespace weir
