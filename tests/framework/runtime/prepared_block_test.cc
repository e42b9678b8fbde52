#include "framework/runtime/prepared_block.h"

#include <memory>
#include <string>
#include <vector>

#include "framework/graph/program_text.h"
#include "framework/runtime/block_variables.h"
#include "framework/runtime/scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

v1::ProgramDesc Program(const std::string& blocks) {
  auto program = ParseProgramText("weir program\n" + blocks, "x.program");
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}

std::unique_ptr<PreparedBlock> Block(const std::string& text, const std::vector<std::string>& fetch = {}) {
  auto block = PreparedBlock::Create(Program("block 0 parent -1 {" + text + "}"), 0, fetch);
  EXPECT_TRUE(block.ok()) << block.status();
  return *std::move(block);
}

BlockOp Add(PreparedBlock& block, int index) {
  const auto op = block.AddOp(index);
  EXPECT_TRUE(op.ok()) << op.status();
  return *op;
}

TEST(PreparedBlockTest, ABlockThatDoesNotExistIsRefused) {
  const auto block = PreparedBlock::Create(Program("block 0 parent -1 {\n}"), 1, {});
  EXPECT_EQ(block.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(block.status().message()), HasSubstr("has 1 blocks; there is no block 1"));
}

TEST(PreparedBlockTest, TheNearestDeclarationCounts) {
  const v1::ProgramDesc program = Program(R"(block 0 parent -1 {
  var a [1]
  var b [2]
}
block 1 parent 0 {
  var a [3]
})");
  const auto block = PreparedBlock::Create(program, 1, {});
  ASSERT_TRUE(block.ok()) << block.status();
  EXPECT_EQ((*block)->Describe("a")->dims(0), 3);
  EXPECT_EQ((*block)->Describe("b")->dims(0), 2);
  EXPECT_EQ((*block)->Describe("c"), nullptr);
}

TEST(PreparedBlockTest, AnOutputOfAStepOpIsTheStepsFromThatOpOn) {
  const auto block = Block(R"(
  var x [1]
  var w [1] persistable: true
  var t [1]
  Out=t <- total(X=x)
  Out=x <- copy(X=t)
)");
  EXPECT_EQ(block->OwnerOf("x"), VariableOwner::kLane);
  EXPECT_EQ(block->OwnerOf("w"), VariableOwner::kPersistable);
  EXPECT_EQ(block->OwnerOf("t"), VariableOwner::kLane);
  EXPECT_EQ(Add(*block, 0).mode, OpMode::kStep);
  EXPECT_EQ(block->OwnerOf("t"), VariableOwner::kStep);
  const BlockOp copy = Add(*block, 1);
  EXPECT_EQ(copy.mode, OpMode::kLane);
  EXPECT_TRUE(copy.per_lane());
}

TEST(PreparedBlockTest, ALaneOpThatWritesWhatLanesShareRunsInTheirOrder) {
  const auto block = Block(R"(
  var x [1]
  var t [1]
  Out=t <- total(X=x)
  Out=t <- copy(X=x)
)");
  EXPECT_FALSE(Add(*block, 0).per_lane());
  const BlockOp copy = Add(*block, 1);
  EXPECT_EQ(copy.mode, OpMode::kLanesInOrder);
  EXPECT_TRUE(copy.per_lane());
}

TEST(PreparedBlockTest, VariablesOfABufferHaveOneStorageUnlessTheyAreFetched) {
  const std::string text = R"(
  var x [-1] stop_gradient: true
  var a [-1]
  var b [-1]
  var c [-1]
  share_buffers() vars=["a", "c"] buffers=[3, 3]
  Out=a <- copy(X=x)
  Out=b <- copy(X=a)
  Out=c <- copy(X=b)
)";
  const auto block = Block(text);
  EXPECT_EQ(block->Storage("a"), "buffer 3");
  EXPECT_EQ(block->Storage("c"), "buffer 3");
  EXPECT_EQ(block->Storage("b"), "b");
  const auto fetching = Block(text, {"c"});
  EXPECT_TRUE(fetching->SharesBuffer("a"));
  EXPECT_EQ(fetching->Storage("c"), "c");
}

class BlockVariablesTest : public ::testing::Test {
 protected:
  Scope scope_;
  std::unique_ptr<PreparedBlock> block_ = Block(R"(
  var x [1]
  var rows [-1, 2] kind: SELECTED_ROWS
  var w [1] persistable: true
  var t [1]
  Out=t <- total(X=[x, w])
  Out=x <- plus(X=t, Y=w)
  Out=x <- copy(Y=t)
  Out=x <- copy(X=nobody)
)");
  BlockVariables vars_{block_.get(), &scope_, /*lanes=*/2};
  StepContext step_;
  int64_t batch_[2] = {5, 7};
};

TEST_F(BlockVariablesTest, AVariableIsFoundOnceItIsLocated) {
  EXPECT_EQ(vars_.Find(0, "x"), nullptr);
  const auto x = vars_.Locate(0, "x");
  ASSERT_TRUE(x.ok());
  EXPECT_EQ(vars_.Find(0, "x"), *x);
  EXPECT_EQ(vars_.Find(1, "x"), nullptr);
  EXPECT_EQ(*vars_.Locate(0, "x"), *x);
  const auto w = vars_.Locate(1, "w");
  ASSERT_TRUE(w.ok());
  EXPECT_EQ(*w, scope_.Find("w"));
}

TEST_F(BlockVariablesTest, AVariableBeginsWithAnEmptyValueOfItsKind) {
  EXPECT_TRUE(std::holds_alternative<SelectedRows>(**vars_.Locate(0, "rows")));
  EXPECT_TRUE(std::holds_alternative<Tensor>(**vars_.Locate(0, "x")));
}

TEST_F(BlockVariablesTest, AStepOpHasOneContextOfAllLanesAndALaneOpOneForEach) {
  const BlockOp total = Add(*block_, 0);
  const auto all = vars_.ContextsOf(total, &step_, batch_);
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), 1u);
  EXPECT_EQ((*all)[0].lanes(), 2);
  EXPECT_EQ(&(*all)[0].lane_input(1, 0, 0), vars_.Find(1, "x"));
  EXPECT_EQ(&(*all)[0].lane_input(1, 0, 1), scope_.Find("w"));

  const BlockOp plus = Add(*block_, 1);
  auto each = vars_.ContextsOf(plus, &step_, batch_);
  ASSERT_TRUE(each.ok()) << each.status();
  ASSERT_EQ(each->size(), 2u);
  EXPECT_EQ((*each)[1].lanes(), 1);
  EXPECT_EQ(*(*each)[1].lane_batch, 7);
  EXPECT_EQ(&(*each)[0].input_var(0), &(*each)[1].input_var(0));
  EXPECT_NE((*each)[0].output_var(0), (*each)[1].output_var(0));
}

TEST_F(BlockVariablesTest, UnknownSlotsAndVariablesAreRefused) {
  (void)Add(*block_, 0);
  const absl::Status slot = vars_.ContextsOf(Add(*block_, 2), &step_, batch_).status();
  EXPECT_EQ(slot.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(slot.message(), "there is no slot 'Y'");
  const absl::Status variable = vars_.ContextsOf(Add(*block_, 3), &step_, batch_).status();
  EXPECT_EQ(variable.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(variable.message(), "variable 'nobody' is not declared");
}

}  // namespace
}  // namespace weir
