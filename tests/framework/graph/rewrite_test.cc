#include "framework/graph/rewrite.h"

#include <string>
#include <vector>

#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool Nothing(v1::ProgramDesc*) { return false; }

// Registered in another order than that of their places.
REGISTER_REWRITE(third)({.name = "third", .place = 30, .run = Nothing});
REGISTER_REWRITE(first)({.name = "first", .place = 10, .run = Nothing});
REGISTER_REWRITE(second)({.name = "second", .place = 20, .run = Nothing});

TEST(RewriteTest, TheOrderIsThatOfThePlaces) {
  std::vector<std::string> names;
  for (const Rewrite& rewrite : Rewrites()) names.push_back(rewrite.name);
  EXPECT_THAT(names, ElementsAre("first", "second", "third"));
}

TEST(RewriteDeathTest, APlaceOrANameIsTakenOnce) {
  EXPECT_DEATH(RewriteRegistrar({.name = "other", .place = 20, .run = Nothing}),
               "rewrites second and other both have place 20");
  EXPECT_DEATH(RewriteRegistrar({.name = "second", .place = 40, .run = Nothing}), "two rewrites are called second");
  EXPECT_DEATH(RewriteRegistrar({.name = "idle", .place = 50}), "rewrite idle does nothing");
}

// a -> b -> c, and what reads them.
v1::ProgramDesc Program() {
  v1::ProgramDesc program;
  v1::BlockDesc* const block = program.add_blocks();
  for (const char* name : {"a", "b", "c", "loss"}) block->add_vars()->set_name(name);
  *block->add_ops() = MakeOp("make", {}, {{"Out", {"a"}}});
  *block->add_ops() = MakeOp("scale", {{"X", {"a"}}}, {{"Out", {"b"}}});
  *block->add_ops() = MakeOp("scale", {{"X", {"b"}}}, {{"Out", {"c"}}});
  *block->add_ops() = MakeOp("mean", {{"X", {"c"}}}, {{"Out", {"loss"}}});
  *block->add_ops() = MakeOp("show", {{"X", {"c", "loss"}}}, {});
  program.add_losses()->set_var("loss");
  return program;
}

TEST(OpRewriterTest, OnlyVariablesThatOpsAloneWantHavePrivateReaders) {
  v1::ProgramDesc program = Program();
  program.mutable_blocks(0)->mutable_vars(1)->set_persistable(true);
  const OpRewriter ops(&program);
  EXPECT_EQ(ops.OnlyReader("a"), 1);
  EXPECT_THAT(ops.PrivateReaders("c"), ElementsAre(3, 4));
  EXPECT_EQ(ops.OnlyReader("c"), -1);
  EXPECT_THAT(ops.PrivateReaders("b"), IsEmpty()) << "persistable";
  EXPECT_THAT(ops.PrivateReaders("loss"), IsEmpty()) << "a loss";
  EXPECT_THAT(ops.PrivateReaders("x"), IsEmpty()) << "no variable";
}

TEST(OpRewriterTest, AGradientOfAPairIsNotPrivate) {
  v1::ProgramDesc program = Program();
  v1::ParamGrad* const pair = program.mutable_blocks(0)->mutable_ops(1)->add_param_grads();
  pair->set_param("w");
  pair->set_grad("a");
  EXPECT_EQ(OpRewriter(&program).OnlyReader("a"), -1);
}

TEST(OpRewriterTest, AnOpTakesThePlaceOfTwo) {
  v1::ProgramDesc program = Program();
  OpRewriter ops(&program);
  ops.Remove(1);
  ops.DropVar("b");
  ops.Put(2, MakeOp("scale_twice", {{"X", {"a"}}}, {{"Out", {"c"}}}));
  EXPECT_EQ(ops.OnlyReader("a"), 2);
  EXPECT_EQ(ops.uses().OnlyWriter("c"), 2);
  EXPECT_FALSE(ops.uses().IsNamed("b"));
  EXPECT_TRUE(ops.Finish());
  std::vector<std::string> types, vars;
  for (const v1::OpDesc& op : program.blocks(0).ops()) types.push_back(op.type());
  for (const v1::VarDesc& var : program.blocks(0).vars()) vars.push_back(var.name());
  EXPECT_THAT(types, ElementsAre("make", "scale_twice", "mean", "show"));
  EXPECT_THAT(vars, ElementsAre("a", "c", "loss"));
}

TEST(OpRewriterTest, AnOpMayComeBackWhereOneWasRemoved) {
  v1::ProgramDesc program = Program();
  OpRewriter ops(&program);
  ops.Remove(1);
  ops.Put(1, MakeOp("copy", {{"X", {"a"}}}, {{"Out", {"b"}}}));
  EXPECT_FALSE(ops.Finish()) << "no op went";
  EXPECT_EQ(program.blocks(0).ops(1).type(), "copy");
  EXPECT_EQ(program.blocks(0).ops_size(), 5);
}

}  // namespace
}  // namespace weir
