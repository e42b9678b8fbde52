#include "framework/graph/op_view.h"

#include <string>
#include <vector>

#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::OpDesc Op() {
  return MakeOp("join", {{"X", {"a", "b", "a"}}, {"Y", {"c"}}, {"None", {}}}, {{"Out", {"d"}}},
                {AttrI("axis", 2), AttrB("flag", true), AttrInts("sizes", {3, 4}), AttrStrings("names", {"p", "q"})});
}

TEST(OpViewTest, SlotVarsAreThoseOfTheSlotInOrder) {
  EXPECT_THAT(SlotVars(Op().inputs(), "X"), ElementsAre("a", "b", "a"));
  EXPECT_THAT(SlotVars(Op().inputs(), "None"), IsEmpty());
  EXPECT_THAT(SlotVars(Op().inputs(), "Out"), IsEmpty());
}

TEST(OpViewTest, OnlyVarWantsExactlyOne) {
  const v1::OpDesc op = Op();
  EXPECT_EQ(OnlyVar(op.inputs(), "Y"), "c");
  EXPECT_EQ(OnlyVar(op.inputs(), "X"), "");
  EXPECT_EQ(OnlyVar(op.inputs(), "None"), "");
  EXPECT_EQ(OnlyVar(op.inputs(), "Z"), "");
}

TEST(OpViewTest, InputOfIsTheFirstOfSeveral) {
  EXPECT_EQ(InputOf(Op(), "X"), "a");
  EXPECT_EQ(InputOf(Op(), "None"), "");
  EXPECT_EQ(InputOf(Op(), "Z"), "");
  EXPECT_EQ(OutputOf(Op(), "Out"), "d");
}

TEST(OpViewTest, EveryNamingIsVisited) {
  const v1::OpDesc op = Op();
  std::vector<std::string> seen;
  ForEachVar(op.inputs(), [&](const std::string& var) { seen.push_back(var); });
  EXPECT_THAT(seen, ElementsAre("a", "b", "a", "c"));
}

TEST(OpViewTest, InputsAreReadAndOutputsWritten) {
  EXPECT_TRUE(Reads(Op(), "c"));
  EXPECT_FALSE(Reads(Op(), "d"));
  EXPECT_TRUE(Writes(Op(), "d"));
  EXPECT_FALSE(Writes(Op(), "c"));
}

TEST(OpViewTest, AttributesHaveTheirValueOrTheGivenOne) {
  const v1::OpDesc op = Op();
  EXPECT_EQ(FindAttr(op, "axis")->i(), 2);
  EXPECT_EQ(FindAttr(op, "other"), nullptr);
  EXPECT_EQ(IntOr(op, "axis", 7), 2);
  EXPECT_EQ(IntOr(op, "other", 7), 7);
  EXPECT_TRUE(BoolOr(op, "flag", false));
  EXPECT_TRUE(BoolOr(op, "other", true));
  EXPECT_THAT(IntsOf(op, "sizes"), ElementsAre(3, 4));
  EXPECT_THAT(IntsOf(op, "other"), IsEmpty());
  EXPECT_THAT(StringsOf(op, "names"), ElementsAre("p", "q"));
  EXPECT_THAT(StringsOf(op, "other"), IsEmpty());
}

}  // namespace
}  // namespace weir
