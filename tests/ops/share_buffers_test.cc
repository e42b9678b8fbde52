// Variables that share a buffer: what a program may say, and that the executor obeys it.

#include <memory>
#include <string>
#include <vector>

#include "framework/graph/program_text.h"
#include "framework/graph/shared_buffers.h"
#include "framework/graph/verifier.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// x -> a -> b -> c -> d, each twice the one before, and what is said of them.
std::string Chain(const std::string& share) {
  return R"(weir program
loss l { var: "d" }
block 0 parent -1 {
  var x [-1, 4] stop_gradient: true
  var a [-1, 4]
  var b [-1, 4]
  var c [-1, 4]
  var d [-1, 4]
  var rows [-1, 4] kind: SELECTED_ROWS
  var w [4] persistable: true
  share_buffers() )" +
         share + R"(
  Out=a <- scale(X=x) scale=2.0
  Out=b <- scale(X=a) scale=2.0
  Out=c <- scale(X=b) scale=2.0
  Out=d <- scale(X=c) scale=2.0
}
)";
}

v1::ProgramDesc Program(const std::string& share) {
  std::string text = Chain(share);
  text.erase(text.find("loss l"), text.find("block 0") - text.find("loss l"));
  auto program = ParseProgramText(text, "chain.program");
  EXPECT_TRUE(program.ok()) << program.status();
  v1::ProgramDesc made = program.ok() ? *std::move(program) : v1::ProgramDesc();
  made.add_losses()->set_var("d");
  return made;
}

std::string Refusal(const std::string& share) {
  const auto read = ReadSharedBuffers(Program(share), 0);
  return read.ok() ? "accepted" : std::string(read.status().message());
}

TEST(SharedBuffersTest, ABufferGoesFromOneVariableToTheNext) {
  const v1::ProgramDesc program = Program("vars=[\"a\", \"c\"] buffers=[0, 0]");
  ASSERT_TRUE(VerifyProgram(program).ok()) << VerifyProgram(program);
  const auto read = ReadSharedBuffers(program, 0);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(*read, ElementsAre(Pair("a", 0), Pair("c", 0)));

  Scope scope, own_scope;
  const auto shared = Executor::Create(program, &scope, {.lanes = 2});
  ASSERT_TRUE(shared.ok()) << shared.status();
  const auto own = Executor::Create(Program("vars=strings[] buffers=ints[]"), &own_scope, {.lanes = 2});
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ((*shared)->Find(0, "a"), (*shared)->Find(0, "c"));
  EXPECT_NE((*shared)->Find(0, "a"), (*shared)->Find(1, "a")) << "lanes keep separate buffers";
  EXPECT_NE((*shared)->Find(0, "a"), (*shared)->Find(0, "b"));
  for (Executor* executor : {shared->get(), own->get()}) {
    for (int lane = 0; lane < 2; ++lane) {
      *executor->Find(lane, "x") = Tensor::Of<float>({1, 4}, {1, 2, 3, static_cast<float>(lane)});
    }
    ASSERT_TRUE(executor->Run(StepContext(), {1, 1}).ok());
    EXPECT_THAT(std::get<Tensor>(*executor->Find(1, "d")).span<float>(), ElementsAre(16, 32, 48, 16));
  }
  // Five vectors of 16 bytes in each of two lanes, or four.
  EXPECT_EQ((*own)->bytes().lanes, 2 * 5 * 16);
  EXPECT_EQ((*shared)->bytes().lanes, 2 * 4 * 16);
}

TEST(SharedBuffersTest, AnOpInPlaceMayWriteWhereItReads) {
  EXPECT_EQ(Refusal("vars=[\"a\", \"b\", \"c\"] buffers=[3, 3, 3]"), "accepted");
}

TEST(SharedBuffersTest, WhatIsFetchedKeepsItsMemory) {
  Scope scope;
  const auto executor =
      Executor::Create(Program("vars=[\"a\", \"c\"] buffers=[0, 0]"), &scope, {.lanes = 1, .fetch = {"a"}});
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_NE((*executor)->Find(0, "a"), (*executor)->Find(0, "c"));
}

TEST(SharedBuffersTest, WhatWouldChangeAResultIsRefusedWithOpAndNames) {
  EXPECT_THAT(Refusal("vars=[\"a\"] buffers=[0, 1]"), HasSubstr("1 vars need as many buffers, got 2"));
  EXPECT_THAT(Refusal("vars=[\"a\", \"a\"] buffers=[0, 1]"), HasSubstr("names 'a' twice"));
  EXPECT_THAT(Refusal("vars=[\"w\"] buffers=[0]"), HasSubstr("'w' is persistable"));
  EXPECT_THAT(Refusal("vars=[\"rows\"] buffers=[0]"), HasSubstr("'rows' is selected rows"));
  EXPECT_THAT(Refusal("vars=[\"d\"] buffers=[0]"), HasSubstr("'d' belongs to a loss"));
  EXPECT_THAT(Refusal("vars=[\"x\", \"c\"] buffers=[0, 0]"),
              HasSubstr("op 1 (scale): reads 'x', which nothing has written"));
  // A variable that the program does not declare is no error: an evaluation program has fewer variables.
  EXPECT_EQ(Refusal("vars=[\"a\", \"gone\"] buffers=[0, 0]"), "accepted");
}

TEST(SharedBuffersTest, ATakenBufferIsNotReadAndASentOneNotTaken) {
  const auto refusal = [](const std::string& ops) {
    auto program = ParseProgramText(R"(weir program
block 0 parent -1 {
  var x [4] stop_gradient: true
  var a [4]
  var b [4]
  var c [4]
  var d [2]
  var e [2]
  share_buffers() vars=["a", "b"] buffers=[7, 7]
)" + ops + "}\n",
                                    "x.program");
    EXPECT_TRUE(program.ok()) << program.status();
    const auto read = ReadSharedBuffers(*program, 0);
    return read.ok() ? "accepted" : std::string(read.status().message());
  };
  EXPECT_THAT(refusal(R"(
  Out=a <- scale(X=x)
  Out=b <- scale(X=x)
  Out=c <- scale(X=a)
)"),
              HasSubstr("op 3 (scale): reads 'a', but 'b' has taken its buffer 7"));
  EXPECT_THAT(refusal(R"(
  Out=a <- scale(X=x)
  send(X=a) blocks=["p"] servers=[0] @RPC
  Out=b <- scale(X=x)
)"),
              HasSubstr("op 3 (scale): writes 'b' into buffer 7, from which 'a' is being sent"));
  EXPECT_THAT(refusal(R"(
  Out=a <- scale(X=x)
  Out=[d, e] <- split_byref(X=a) sections=[2, 2] @DIST
  Out=b <- scale(X=a)
)"),
              HasSubstr("writes 'b' into buffer 7, from which 'a' is being sent"));
  EXPECT_THAT(refusal(R"(
  Out=a <- scale(X=x)
  Out=b <- elementwise_add(X=x, Y=a)
)"),
              HasSubstr("reads 'a' and writes 'b' in one buffer, 7"));
}

}  // namespace
}  // namespace weir
