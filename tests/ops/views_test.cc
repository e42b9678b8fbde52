// Ops that give a view of what they read: where the executor lets them, and that nothing else changes by it.

#include <memory>
#include <string>
#include <vector>

#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kLanes = 2;

v1::ProgramDesc Program(const std::string& ops) {
  auto program = ParseProgramText(R"(weir program
block 0 parent -1 {
  var x [-1, 4] stop_gradient: true
  var a [-1, 4]
  var b [-1, 2, 2]
  var c [-1, 1, 4]
  var d [-1, 1, 4]
  var e [-1, 4]
)" + ops + "}\n",
                                  "views.program");
  EXPECT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(VerifyProgram(*program).ok()) << VerifyProgram(*program);
  return *std::move(program);
}

class ViewsTest : public ::testing::Test {
 protected:
  void Make(const std::string& ops, std::vector<std::string> fetch = {}) {
    auto made = Executor::Create(Program(ops), &scope_, {.lanes = kLanes, .fetch = std::move(fetch)});
    ASSERT_TRUE(made.ok()) << made.status();
    executor_ = *std::move(made);
  }
  // Lane l gets examples of four numbers from 100 l + first on.
  void Run(int64_t batch, float first) {
    for (int lane = 0; lane < kLanes; ++lane) {
      Tensor& x = std::get<Tensor>(*executor_->Find(lane, "x"));
      x.Resize(v1::FLOAT32, {batch, 4});
      for (int64_t i = 0; i < x.size(); ++i)
        x.data<float>()[i] = static_cast<float>(100 * lane) + first + static_cast<float>(i);
    }
    const absl::Status status = executor_->Run(StepContext(), std::vector<int64_t>(kLanes, batch));
    ASSERT_TRUE(status.ok()) << status;
  }
  const Tensor& Var(int lane, const std::string& name) { return std::get<Tensor>(*executor_->Find(lane, name)); }

  Scope scope_;
  std::unique_ptr<Executor> executor_;
};

const char kChain[] = R"(
  Out=a <- scale(X=x) scale=2.0
  Out=b <- reshape(X=a) shape=[-1, 2, 2]
  Out=c <- reshape(X=b) shape=[-1, 1, 4]
  Out=d <- scale(X=c) scale=3.0
)";

TEST_F(ViewsTest, AReshapeSharesTheMemoryOfWhatItReads) {
  Make(kChain);
  Run(1, 1);
  for (int lane = 0; lane < kLanes; ++lane) {
    EXPECT_EQ(Var(lane, "b").raw(), Var(lane, "a").raw());
    EXPECT_EQ(Var(lane, "c").raw(), Var(lane, "a").raw());
  }
  EXPECT_THAT(Var(0, "b").dims(), ElementsAre(1, 2, 2));
  EXPECT_THAT(Var(0, "c").span<float>(), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(Var(1, "d").span<float>(), ElementsAre(606, 612, 618, 624));
  // x, a and d in each of two lanes: views take nothing.
  EXPECT_EQ(executor_->bytes().lanes, kLanes * 3 * 16);
}

TEST_F(ViewsTest, AStepThatRepeatsShapesAllocatesNothing) {
  Make(kChain);
  Run(3, 1);
  const void* const first = Var(0, "a").raw();
  for (const int64_t batch : {int64_t{3}, int64_t{1}, int64_t{0}, int64_t{3}}) {
    Run(batch, 5);
    EXPECT_EQ(Var(0, "a").raw(), first) << batch;
    EXPECT_EQ(Var(0, "c").raw(), first) << batch;
    EXPECT_THAT(Var(0, "c").dims(), ElementsAre(batch, 1, 4));
  }
  EXPECT_EQ(Var(0, "d").data<float>()[0], 30);
}

TEST_F(ViewsTest, AGradientIsReshapedWithoutACopy) {
  Make(R"(
  Out=a <- scale(X=x) scale=2.0
  Out=c <- reshape(X=x) shape=[-1, 1, 4]
  X@GRAD=d <- reshape_grad(X=c, Out@GRAD=a) shape=[-1, 4]
)");
  Run(1, 1);
  EXPECT_EQ(Var(0, "d").raw(), Var(0, "a").raw());
  EXPECT_THAT(Var(0, "d").dims(), ElementsAre(1, 1, 4));
  EXPECT_THAT(Var(0, "d").span<float>(), ElementsAre(2, 4, 6, 8));
}

TEST_F(ViewsTest, DataIsCopied) {
  Make(R"(
  Out=b <- reshape(X=x) shape=[-1, 2, 2]
  Out=a <- scale(X=x) scale=2.0
)");
  Run(1, 1);
  EXPECT_NE(Var(0, "b").raw(), Var(0, "x").raw());
  EXPECT_THAT(Var(0, "b").span<float>(), ElementsAre(1, 2, 3, 4));
}

TEST_F(ViewsTest, WhatIsWrittenTwiceIsCopied) {
  // The whole in place, behind the view; then the view.
  Make(R"(
  Out=a <- scale(X=x) scale=2.0
  Out=b <- reshape(X=a) shape=[-1, 2, 2]
  Out=a <- scale(X=a) scale=2.0
)");
  Run(1, 1);
  EXPECT_THAT(Var(0, "a").span<float>(), ElementsAre(4, 8, 12, 16));
  EXPECT_THAT(Var(0, "b").span<float>(), ElementsAre(2, 4, 6, 8));
  Make(R"(
  Out=a <- scale(X=x) scale=2.0
  Out=b <- reshape(X=a) shape=[-1, 2, 2]
  Out=b <- scale(X=b) scale=2.0
)");
  Run(1, 1);
  EXPECT_THAT(Var(0, "a").span<float>(), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(Var(0, "b").span<float>(), ElementsAre(4, 8, 12, 16));
}

TEST_F(ViewsTest, WhatSharesABufferIsCopied) {
  const char ops[] = R"(
  share_buffers() vars=["a", "e"] buffers=[0, 0]
  Out=a <- scale(X=x) scale=2.0
  Out=b <- reshape(X=a) shape=[-1, 2, 2]
  Out=e <- scale(X=a) scale=2.0
)";
  for (int step = 0; step < 2; ++step) {
    Make(ops);
    Run(1, 1);
    EXPECT_THAT(Var(0, "b").span<float>(), ElementsAre(2, 4, 6, 8));
    EXPECT_THAT(Var(0, "e").span<float>(), ElementsAre(4, 8, 12, 16));
  }
  // Two variables share a buffer, and one of them is fetched: the other then shares with none.
  Make(ops, {"a"});
  Run(1, 1);
  EXPECT_EQ(Var(0, "b").raw(), Var(0, "a").raw());
  EXPECT_THAT(Var(0, "b").span<float>(), ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(Var(0, "e").span<float>(), ElementsAre(4, 8, 12, 16));
}

TEST_F(ViewsTest, APartOfABlockLeavesTheViewsOfTheOther) {
  // share_buffers is an op of the step, so lane ops stand on both sides of a border.
  Make(R"(
  Out=a <- scale(X=x) scale=2.0
  Out=b <- reshape(X=a) shape=[-1, 2, 2]
  share_buffers() vars=strings[] buffers=ints[]
  Out=c <- reshape(X=b) shape=[-1, 1, 4]
)");
  Run(1, 1);
  ASSERT_TRUE(executor_->RunOps(StepContext(), std::vector<int64_t>(kLanes, 1), 0, 2).ok());
  ASSERT_TRUE(executor_->RunOps(StepContext(), std::vector<int64_t>(kLanes, 1), 2, 4).ok());
  EXPECT_THAT(Var(0, "c").span<float>(), ElementsAre(2, 4, 6, 8));
}

TEST(ReshapeMemoryTest, AProgramCannotSayWhoSharesMemory) {
  const auto program = ParseProgramText(R"(weir program
block 0 parent -1 {
  var x [-1, 4] stop_gradient: true
  var b [-1, 2, 2]
  Out=b <- reshape(X=x) shape=[-1, 2, 2] by_reference=true
}
)",
                                        "views.program");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(std::string(VerifyProgram(*program).message()), HasSubstr("by_reference is for the executor to say"));
}

}  // namespace
}  // namespace weir
