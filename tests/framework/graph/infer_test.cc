#include "framework/graph/infer.h"

#include <string>
#include <vector>

#include "framework/graph/program_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::ProgramDesc Program(const std::string& blocks) {
  auto program = ParseProgramText("weir program\n" + blocks, "x.program");
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}

constexpr char kTwoBlocks[] = R"(
block 0 parent -1 {
  var x [-1, 4]
  var y [-1, 4] persistable: true
}
block 1 parent 0 {
  var x [2]
  var w [3]
}
)";

TEST(ProgramIndexTest, TheNearestDeclarationIsFound) {
  const v1::ProgramDesc program = Program(kTwoBlocks);
  const ProgramIndex index(program);
  ASSERT_NE(index.Find(1, "x"), nullptr);
  EXPECT_EQ(index.Find(1, "x")->dims_size(), 1);
  EXPECT_EQ(index.Find(0, "x")->dims_size(), 2);
  EXPECT_EQ(index.Find(1, "y"), index.Find(0, "y"));
  EXPECT_EQ(index.Lookup(1)("y"), index.Find(0, "y"));
}

TEST(ProgramIndexTest, AParentDoesNotSeeItsChildren) {
  const v1::ProgramDesc program = Program(kTwoBlocks);
  const ProgramIndex index(program);
  EXPECT_EQ(index.Find(0, "w"), nullptr);
  EXPECT_THAT(index.Names(0), ElementsAre("x", "y"));
  EXPECT_THAT(index.Names(1), ElementsAre("w", "x", "x", "y"));
}

TEST(ProgramIndexTest, BlocksThatDoNotExistOrAreTheirOwnParentsEndTheSearch) {
  v1::ProgramDesc program = Program(kTwoBlocks);
  program.mutable_blocks(0)->set_parent(1);
  const ProgramIndex index(program);
  EXPECT_EQ(index.Find(0, "nothing"), nullptr);
  EXPECT_EQ(index.Find(1, "nothing"), nullptr);
  EXPECT_EQ(index.Find(2, "x"), nullptr);
  EXPECT_EQ(index.Find(-1, "x"), nullptr);
  EXPECT_THAT(index.Names(2), IsEmpty());
}

TEST(InferTest, AnOpIsNamedWithItsPlace) { EXPECT_EQ(OpPlace(0, 3, MakeOp("half", {}, {})), "block 0, op 3 (half)"); }

TEST(InferTest, OutputsMayBeNewIfTheCallerSaysSo) {
  const v1::ProgramDesc program = Program(kTwoBlocks);
  const ProgramIndex index(program);
  const v1::OpDesc op = MakeOp("half", {{"X", {"x"}}}, {{"Out", {"new"}}});
  EXPECT_TRUE(CheckSignature(op, index.Lookup(0), /*outputs_may_be_new=*/true).ok());
  EXPECT_THAT(CheckSignature(op, index.Lookup(0), /*outputs_may_be_new=*/false).status().message(), HasSubstr("'new'"));
  const v1::OpDesc reads_new = MakeOp("half", {{"X", {"new"}}}, {{"Out", {"y"}}});
  EXPECT_FALSE(CheckSignature(reads_new, index.Lookup(0), /*outputs_may_be_new=*/true).ok());
}

TEST(InferTest, FieldsThatTheRuleDoesNotSetStayAsDeclared) {
  v1::ProgramDesc program = Program(kTwoBlocks);
  program.mutable_blocks(0)->mutable_vars(1)->set_dims(1, 99);
  const ProgramIndex index(program);
  const v1::OpDesc op = MakeOp("half", {{"X", {"x"}}}, {{"Out", {"y"}}});
  const auto outputs = InferOutputs(op, *OpRegistry::Global().Find("half"), index.Lookup(0));
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_EQ(outputs->size(), 1);
  EXPECT_EQ((*outputs)[0].name(), "y");
  EXPECT_THAT((*outputs)[0].dims(), ElementsAre(-1, 4));
  EXPECT_TRUE((*outputs)[0].persistable());
}

TEST(InferTest, DimsAgreeWhereOneOfThemIsUnknown) {
  EXPECT_TRUE(DimsAgree({-1, 4}, {32, 4}));
  EXPECT_TRUE(DimsAgree({32, 4}, {32, -1}));
  EXPECT_TRUE(DimsAgree({}, {}));
  EXPECT_FALSE(DimsAgree({-1, 4}, {32, 5}));
  EXPECT_FALSE(DimsAgree({-1}, {32, 4}));
}

TEST(InferTest, AVariableIsDescribedByKindTypeAndDims) {
  const v1::ProgramDesc program = Program(R"(block 0 parent -1 {
  var x [-1, 4]
  var ids ids int64 [-1, 2]
  var g [-1, 8] kind: SELECTED_ROWS
  var s float16 []
})");
  const ProgramIndex index(program);
  EXPECT_EQ(DescribeVar(*index.Find(0, "x")), "float32 [-1, 4]");
  EXPECT_EQ(DescribeVar(*index.Find(0, "ids")), "ids int64 [-1, 2]");
  EXPECT_EQ(DescribeVar(*index.Find(0, "g")), "selected rows float32 [-1, 8]");
  EXPECT_EQ(DescribeVar(*index.Find(0, "s")), "float16 []");
}

}  // namespace
}  // namespace weir
