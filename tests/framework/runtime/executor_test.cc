#include "framework/runtime/executor.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/testing/toy_ops.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ToyLog;
using ::testing::UnorderedElementsAre;

v1::ProgramDesc Program(const std::string& block) {
  auto program = ParseProgramText("weir program\nblock 0 parent -1 {" + block + "}", "x.program");
  EXPECT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(VerifyProgram(*program).ok()) << VerifyProgram(*program);
  return *std::move(program);
}

// An executor with its scope, and short words for what tests do with it.
struct Rig {
  Scope scope;
  std::unique_ptr<Executor> executor;
  int lanes;

  Rig(const std::string& block, int lane_count) : lanes(lane_count) {
    auto made = Executor::Create(Program(block), &scope, {.lanes = lane_count});
    EXPECT_TRUE(made.ok()) << made.status();
    executor = *std::move(made);
    ToyLog::Get().Take();
  }
  void Feed(int lane, const std::string& name, std::vector<float> values) {
    Variable* var = executor->Find(lane, name);
    ASSERT_NE(var, nullptr) << name;
    *var = Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
  }
  std::vector<float> Value(int lane, const std::string& name) {
    const Tensor& t = std::get<Tensor>(*executor->Find(lane, name));
    return {t.span<float>().begin(), t.span<float>().end()};
  }
  absl::Status Run(ThreadPool* pool = nullptr, int64_t step = 0, std::vector<int64_t> batch = {}) {
    StepContext context;
    context.step = step;
    context.first_lane = 4;
    context.pool = pool;
    if (batch.empty()) batch.assign(static_cast<size_t>(lanes), 1);
    return executor->Run(context, batch);
  }
};

TEST(ExecutorTest, LanesHaveVariablesOfTheirOwnAndShareParameters) {
  Rig rig(R"(
  var x [-1] stop_gradient: true
  var w [-1] persistable: true
  var y [-1]
  Out=y <- times(X=x, Y=w)
)",
          2);
  *rig.scope.FindOrCreate("w") = Tensor::Of<float>({1}, {10});
  rig.Feed(0, "x", {1});
  rig.Feed(1, "x", {2});
  ASSERT_TRUE(rig.Run().ok());
  EXPECT_THAT(rig.Value(0, "y"), ElementsAre(10));
  EXPECT_THAT(rig.Value(1, "y"), ElementsAre(20));
  EXPECT_EQ(rig.executor->Find(0, "w"), rig.executor->Find(1, "w"));
  EXPECT_EQ(rig.executor->Find(0, "w"), rig.scope.Find("w"));
  EXPECT_EQ(rig.executor->Find(0, "nobody"), nullptr);
}

TEST(ExecutorTest, StepOpsSeeAllLanesAndLanesSeeTheirOutputs) {
  Rig rig(R"(
  var x [1] stop_gradient: true
  var y [1]
  var t [1]
  var z [1]
  Out=y <- times(X=x, Y=x)
  Out=t <- total(X=[x, y])
  Out=z <- plus(X=t, Y=x)
)",
          3);
  for (int l = 0; l < 3; ++l) rig.Feed(l, "x", {static_cast<float>(l + 1)});
  for (int threads : {0, 1, 2}) {
    ThreadPool pool("test", threads);
    ASSERT_TRUE(rig.Run(&pool).ok());
    EXPECT_THAT(rig.Value(0, "t"), ElementsAre(1 + 2 + 3 + 1 + 4 + 9));
    EXPECT_THAT(rig.Value(1, "z"), ElementsAre(20 + 2));
    EXPECT_EQ(rig.executor->Find(0, "t"), rig.executor->Find(2, "t"));
  }
}

TEST(ExecutorTest, GatesFireOnceWithAllLanesAndStepOpsWaitForThem) {
  Rig rig(R"(
  var x [1] stop_gradient: true
  var y [1]
  post(X=x) note="a"
  Out=y <- plus(X=x, Y=x)
  post(X=y) note="b"
  mark() note="end"
)",
          2);
  rig.Feed(0, "x", {1});
  rig.Feed(1, "x", {2});
  for (int threads : {0, 1, 3}) {
    ThreadPool pool("test", threads);
    for (int step = 0; step < 20; ++step) {
      ASSERT_TRUE(rig.Run(&pool, step, {5, 0}).ok());
      std::vector<std::string> log = ToyLog::Get().Take();
      ASSERT_EQ(log.size(), 3u);
      // Two gates may overtake each other; nothing overtakes the step op.
      EXPECT_EQ(log[2], "mark end lanes 2");
      std::sort(log.begin(), log.end());
      EXPECT_THAT(log, ElementsAre("mark end lanes 2", "post a 1/5 2/0", "post b 2/5 4/0"));
    }
  }
}

TEST(ExecutorTest, EveryRunOfAKernelIsRecordedForAStepThatIsProfiled) {
  Rig rig(R"(
  var x [1] stop_gradient: true
  var y [1]
  var t [1]
  Out=y <- times(X=x, Y=x)
  post(X=y) note="a"
  Out=t <- total(X=[x, y])
)",
          3);
  for (int l = 0; l < 3; ++l) rig.Feed(l, "x", {static_cast<float>(l + 1)});
  ThreadPool pool("test", 2);
  Profiler::Process().Start(20, 40);
  ASSERT_TRUE(rig.Run(&pool, /*step=*/20).ok());
  {
    const ProfiledStep step(19);
    ASSERT_TRUE(rig.Run(&pool, /*step=*/19).ok());
  }
  for (const auto& thread : Profiler::Process().Collect().threads) EXPECT_TRUE(thread.events.empty());
  {
    const ProfiledStep step(20);
    ASSERT_TRUE(rig.Run(&pool, /*step=*/20).ok());
  }
  const Profiler::Recorded recorded = Profiler::Process().Collect();
  Profiler::Process().Stop();
  std::vector<std::string> seen;
  for (const auto& thread : recorded.threads) {
    for (const ProfileEvent& event : thread.events) {
      EXPECT_EQ(event.step, 20);
      EXPECT_LE(event.begin_ns, event.end_ns);
      seen.push_back(
          absl::StrCat(recorded.names[event.name.id()], " ", recorded.names[event.detail.id()], " ", event.lane));
    }
  }
  EXPECT_THAT(seen,
              UnorderedElementsAre("times y 4", "times y 5", "times y 6", "post y -1", "total t -1", "lanes  -1"));
}

TEST(ExecutorTest, KernelsKnowStepLaneOfTheJobAndBatch) {
  Rig rig(R"(
  var x [1] stop_gradient: true
  var y [1]
  Out=y <- stamp(X=x)
)",
          2);
  ThreadPool pool("test", 2);
  ASSERT_TRUE(rig.Run(&pool, /*step=*/3, {7, 0}).ok());
  // first_lane is 4; a lane without examples runs too.
  EXPECT_THAT(rig.Value(0, "y"), ElementsAre(40307));
  EXPECT_THAT(rig.Value(1, "y"), ElementsAre(50300));
}

TEST(ExecutorTest, AnyNumberOfThreadsGivesTheSameBits) {
  std::string block =
      "\n  var x [-1] stop_gradient: true\n  var w [-1] persistable: true\n  var v0 [-1]\n  var t [1]\n";
  std::string ops = "  Out=v0 <- times(X=x, Y=w)\n";
  for (int i = 1; i < 30; ++i) {
    block += absl::StrCat("  var v", i, " [-1]\n");
    ops += absl::StrCat("  Out=v", i, " <- ", i % 3 == 0 ? "plus" : "times", "(X=v", i - 1, ", Y=x)\n");
  }
  Rig rig(block + ops + "  post(X=v29) note=\"n\"\n  Out=t <- total(X=v29)\n", 8);
  std::vector<std::vector<float>> results;
  for (int threads : {0, 1, 2}) {
    ThreadPool pool("test", threads);
    *rig.scope.FindOrCreate("w") = Tensor::Of<float>({100}, std::vector<float>(100, 0.7f));
    for (int l = 0; l < 8; ++l) {
      std::vector<float> x;
      for (int i = 0; i < 100; ++i) x.push_back(0.9f + 0.001f * static_cast<float>(i * (l + 1)));
      rig.Feed(l, "x", x);
    }
    for (int step = 0; step < 10; ++step) ASSERT_TRUE(rig.Run(&pool, step).ok());
    std::vector<float> all = rig.Value(0, "t");
    for (int l = 0; l < 8; ++l) {
      const std::vector<float> lane = rig.Value(l, "v29");
      all.insert(all.end(), lane.begin(), lane.end());
    }
    results.push_back(all);
  }
  ToyLog::Get().Take();
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(ExecutorTest, IndependentOpsOfALaneRunAtTheSameTimeWhereThreadsAreLeft) {
  Rig rig(R"(
  var x [1] stop_gradient: true
  var a [1]
  var b [1]
  var y [1]
  Out=a <- meet(X=x)
  Out=b <- meet(X=x)
  post(X=a) note="a"
  Out=y <- plus(X=a, Y=b)
)",
          1);
  rig.Feed(0, "x", {3});
  for (int threads : {1, 3}) {
    ThreadPool pool("test", threads);
    for (int step = 0; step < 5; ++step) {
      const absl::Status status = rig.Run(&pool, step);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_THAT(rig.Value(0, "y"), ElementsAre(6));
      EXPECT_THAT(ToyLog::Get().Take(), ElementsAre("post a 3/1"));
    }
  }
}

TEST(ExecutorTest, AnOutputThatIsComputedApartRunsAtTheSameTimeAsTheOthers) {
  Rig rig(R"(
  var x [1] stop_gradient: true
  var a [1]
  var b [1]
  var y [1]
  Left=a, Right=b <- pair(X=x)
  post(X=a) note="a"
  Out=y <- times(X=a, Y=b)
)",
          1);
  rig.Feed(0, "x", {3});
  for (int threads : {0, 1, 3}) {
    ThreadPool pool("test", threads);
    for (int step = 0; step < 5; ++step) {
      const absl::Status status = rig.Run(threads == 0 ? nullptr : &pool, step);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_THAT(rig.Value(0, "y"), ElementsAre(20));
      EXPECT_THAT(ToyLog::Get().Take(), ElementsAre("post a 4/1"));
      EXPECT_EQ(rig.executor->bytes().lanes, 4 * 4);
    }
  }
}

// Left replaces what Right is made from: nobody may run before the other.
TEST(ExecutorTest, AnOpInPlaceIsNotCutApart) {
  Rig rig(R"(
  var x [1] stop_gradient: true
  var a [1]
  var b [1]
  var c [1]
  var y [1]
  Out=a <- copy(X=x)
  Out=c <- copy(X=x)
  Left=a, Right=b <- pair(X=a)
  Out=y <- times(X=a, Y=b)
)",
          1);
  rig.Feed(0, "x", {3});
  ThreadPool pool("test", 2);
  const absl::Status status = rig.Run(&pool);
  ASSERT_TRUE(status.ok()) << status;
}

// Programs whose ops depend on one another in many ways, with variables that are written anew.
TEST(ExecutorTest, AGraphOfOpsGivesTheBitsOfOneAfterTheOther) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const int vars = 12;
    std::string block = "\n  var x [-1] stop_gradient: true\n  var w [-1] persistable: true\n";
    for (int v = 0; v < vars; ++v) block += absl::StrCat("  var v", v, " [-1]\n");
    std::vector<std::string> there = {"x", "w"};
    const auto any = [&] { return there[random() % there.size()]; };
    std::string ops;
    for (int i = 0; i < 60; ++i) {
      const std::string to = absl::StrCat("v", i < vars ? i : static_cast<int>(random() % vars));
      absl::StrAppend(&ops, "  Out=", to, " <- ", random() % 3 == 0 ? "times" : "plus", "(X=", any(), ", Y=", any(),
                      ")\n");
      if (std::find(there.begin(), there.end(), to) == there.end()) there.push_back(to);
    }
    // Gates read what no op writes behind them.
    for (int v = 0; v < 3; ++v) absl::StrAppend(&ops, "  post(X=v", v, ") note=\"", v, "\"\n");
    Rig rig(block + ops, 2);
    *rig.scope.FindOrCreate("w") = Tensor::Of<float>({1}, {0.75f});
    std::vector<std::vector<float>> want;
    for (int threads : {0, 2, 3, 5}) {
      ThreadPool pool("test", threads);
      for (int step = 0; step < 5; ++step) {
        for (int lane = 0; lane < 2; ++lane) rig.Feed(lane, "x", {0.5f + 0.25f * static_cast<float>(lane)});
        ASSERT_TRUE(rig.Run(threads == 0 ? nullptr : &pool, step).ok());
        EXPECT_EQ(ToyLog::Get().Take().size(), 3u);
        std::vector<std::vector<float>> got;
        for (int lane = 0; lane < 2; ++lane) {
          for (int v = 0; v < vars; ++v) got.push_back(rig.Value(lane, absl::StrCat("v", v)));
        }
        if (want.empty()) want = got;
        for (size_t k = 0; k < want.size(); ++k) {
          // Their bits: some are infinite, or no number.
          ASSERT_EQ(got[k].size(), 1u);
          EXPECT_EQ(std::bit_cast<uint32_t>(got[k][0]), std::bit_cast<uint32_t>(want[k][0]))
              << seed << " " << threads << " " << k;
        }
      }
    }
  }
}

TEST(ExecutorTest, AStepThatRepeatsItsShapesKeepsItsMemory) {
  Rig rig(R"(
  var x [-1] stop_gradient: true
  var y [-1]
  Out=y <- copy(X=x)
)",
          1);
  rig.Feed(0, "x", {1, 2, 3});
  ASSERT_TRUE(rig.Run().ok());
  const void* before = std::get<Tensor>(*rig.executor->Find(0, "y")).raw();
  ASSERT_TRUE(rig.Run().ok());
  EXPECT_EQ(std::get<Tensor>(*rig.executor->Find(0, "y")).raw(), before);
}

TEST(ExecutorTest, AnErrorNamesTheOpAndEndsTheStepButNotTheNextOne) {
  Rig rig(R"(
  var x [1] stop_gradient: true
  var y [1]
  var z [1]
  var free [1]
  Out=y <- fail(X=x) step=1 lane=5
  Out=z <- copy(X=y)
  Out=free <- copy(X=x)
  post(X=z) note="g"
  mark() note="end"
)",
          2);
  rig.Feed(0, "x", {1});
  rig.Feed(1, "x", {2});
  // On one thread, on as many as lanes, and as a graph.
  for (int threads : {0, 1, 3}) {
    ThreadPool pool("test", threads);
    EXPECT_TRUE(rig.Run(&pool, 0).ok());
    ToyLog::Get().Take();
    const absl::Status status = rig.Run(&pool, 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(status.message()), HasSubstr("told to fail"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("op 0 (fail)"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("y"));
    // Neither the gate, which needs both lanes, nor what comes behind it.
    EXPECT_THAT(ToyLog::Get().Take(), IsEmpty());
    EXPECT_TRUE(rig.Run(&pool, 2).ok());
    EXPECT_EQ(ToyLog::Get().Take().size(), 2u);
  }
}

TEST(ExecutorTest, LaneOpsOfInitialisationAndUpdatesRunOnce) {
  Rig rig(R"(
  var a [1] persistable: true
  var b [1] persistable: true
  Out=b <- plus(X=a, Y=b) @OPTIMIZE
)",
          4);
  *rig.scope.FindOrCreate("a") = Tensor::Of<float>({1}, {1});
  *rig.scope.FindOrCreate("b") = Tensor::Of<float>({1}, {0});
  ThreadPool pool("test", 2);
  ASSERT_TRUE(rig.Run(&pool).ok());
  EXPECT_THAT(rig.Value(0, "b"), ElementsAre(1));
}

TEST(ExecutorTest, OtherBlocksRunTooAndSeeTheirParents) {
  auto program = ParseProgramText(R"(weir program
block 0 parent -1 {
  var a [1] persistable: true
}
block 1 parent 0 {
  var b [1] persistable: true
  Out=b <- plus(X=a, Y=a) @OPTIMIZE
})",
                                  "x.program");
  ASSERT_TRUE(program.ok());
  Scope scope;
  auto executor = Executor::Create(*program, &scope, {.block = 1});
  ASSERT_TRUE(executor.ok()) << executor.status();
  *scope.FindOrCreate("a") = Tensor::Of<float>({1}, {3});
  ASSERT_TRUE((*executor)->Run(StepContext(), {1}).ok());
  EXPECT_EQ(std::get<Tensor>(*scope.Find("b")).data<float>()[0], 6);
}

TEST(ExecutorTest, WhatCannotRunIsRefusedWhenItIsPrepared) {
  Scope scope;
  const auto create = [&](const std::string& ops) {
    auto program = ParseProgramText(
        "weir program\nblock 0 parent -1 {\n  var x [1] stop_gradient: true\n  var y [1]\n" + ops + "}", "x");
    return Executor::Create(*program, &scope, {}).status();
  };
  const absl::Status no_kernel = create("  Out=y <- half(X=x)\n");
  EXPECT_EQ(no_kernel.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(no_kernel.message()), HasSubstr("half"));
  EXPECT_THAT(std::string(no_kernel.message()), HasSubstr("kernel"));
  const absl::Status no_variable = create("  Out=y <- copy(X=nobody)\n");
  EXPECT_EQ(no_variable.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(no_variable.message()), HasSubstr("nobody"));
  EXPECT_FALSE(Executor::Create(v1::ProgramDesc(), &scope, {}).ok());
}

}  // namespace
}  // namespace weir
