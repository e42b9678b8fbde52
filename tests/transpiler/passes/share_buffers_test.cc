// distribute.memory_optimize: which variables share buffers and which do not.

#include "transpiler/passes/share_buffers.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "framework/graph/op_registry.h"
#include "framework/graph/shared_buffers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/passes/passes.h"

namespace weir {
namespace {

using ::testing::Contains;
using ::testing::Not;

const std::vector<std::string>& Optimized() {
  static const auto* const overrides = new std::vector<std::string>{"distribute.memory_optimize=true"};
  return *overrides;
}

TEST(ShareBuffersTest, TheProgramSaysItAndLosesNothingOnDisk) {
  const v1::ProgramDesc main = TranspiledOf(JobOf(kDeepFm, Optimized())).trainer().main;
  EXPECT_EQ(Types(main)[0], "share_buffers");
  const auto buffers = ReadSharedBuffers(main, 0);
  ASSERT_TRUE(buffers.ok()) << buffers.status();
  EXPECT_GE(buffers->size(), 4u);
  const auto read = ParseProgramText(ProgramText(main), "dumped.program");
  ASSERT_TRUE(read.ok()) << read.status();
  const auto again = ReadSharedBuffers(*read, 0);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, *buffers);

  // Nothing else has changed.
  v1::ProgramDesc without = main;
  FilterOps(without.mutable_blocks(0), [](const v1::OpDesc& op) { return op.type() != "share_buffers"; });
  EXPECT_EQ(without.SerializeAsString(), TranspiledOf(JobOf(kDeepFm)).trainer().main.SerializeAsString());
}

TEST(ShareBuffersTest, OnlyWhatIsDeadGivesItsMemoryAway) {
  const v1::ProgramDesc main = TranspiledOf(JobOf(kDeepFm, Optimized())).trainer().main;
  const auto buffers = ReadSharedBuffers(main, 0);
  ASSERT_TRUE(buffers.ok());
  std::set<std::string> sharing;
  for (const auto& [name, buffer] : *buffers) sharing.insert(name);
  // None of these may share: views, data, variables of the loss or of the whole step, other kinds.
  for (const char* name : {"deep.0.w@GRAD.block0", "dense", "label", "ctr.loss", "ctr.prediction", "vectors@ROWS",
                           "vectors@GRAD", "cat@INDEX.vectors", "deep.0.w"}) {
    EXPECT_THAT(sharing, Not(Contains(name)));
  }
  // Variables of one buffer never live at once, from first write to last read.
  std::map<std::string, std::pair<int, int>> lives;
  for (int i = 0; i < main.blocks(0).ops_size(); ++i) {
    for (const std::string& name : sharing) {
      if (Writes(main.blocks(0).ops(i), name)) lives.try_emplace(name, i, i);
      if (Reads(main.blocks(0).ops(i), name)) lives.at(name).second = i;
    }
  }
  // A gradient that is sent, or cut into views that are, may take over a buffer but never gives it away.
  for (const char* name : {"deep.0.w@GRAD", "deep.0.b@GRAD", "out.w@GRAD"}) {
    if (sharing.contains(name)) lives.at(name).second = main.blocks(0).ops_size();
  }
  EXPECT_THAT(sharing, Contains("deep.0.w@GRAD"));
  for (const auto& [a, buffer] : *buffers) {
    for (const auto& [b, other] : *buffers) {
      if (a == b || buffer != other) continue;
      // An in-place op may take over the buffer in the op where the other variable ends.
      EXPECT_TRUE(lives.at(a).second <= lives.at(b).first || lives.at(b).second <= lives.at(a).first)
          << a << " and " << b;
    }
  }
}

TEST(ShareBuffersTest, WhatIsMadeOnceForAllLanesKeepsItsMemory) {
  Programs programs = TranspiledOf(JobOf(kDeepFm)).trainer();
  v1::BlockDesc* const block = programs.main.mutable_blocks(0);
  // `first` is computed from a parameter and `second` from `first`; `mine` from a variable of the lane, `last` from
  // `mine`.
  const auto scale = [&](const char* from, const char* to, const char* like, v1::OpRole role) {
    v1::VarDesc var = *FindVar(*block, like);
    var.set_name(to);
    var.set_persistable(false);
    var.set_is_parameter(false);
    var.clear_initializer();
    *block->add_vars() = var;
    *block->add_ops() = WithRole(MakeOp("scale", {{"X", {from}}}, {{"Out", {to}}}, {}), role);
  };
  scale("deep.0.b", "first", "deep.0.b", v1::DIST);
  scale("first", "second", "deep.0.b", v1::DIST);
  scale("deep", "mine", "deep", v1::DIST);
  scale("mine", "last", "deep", v1::DIST);
  const auto changed = ShareBuffers(JobOf(kDeepFm, Optimized()), &programs);
  ASSERT_TRUE(changed.ok()) << changed.status();
  const auto buffers = ReadSharedBuffers(programs.main, 0);
  ASSERT_TRUE(buffers.ok()) << buffers.status();
  EXPECT_FALSE(buffers->contains("first"));
  EXPECT_FALSE(buffers->contains("second"));
  EXPECT_TRUE(buffers->contains("mine"));
}

TEST(ShareBuffersTest, ASecondRunAndAJobWithoutItChangeNothing) {
  const Job job = JobOf(kDeepFm, Optimized());
  Programs programs = TranspiledOf(job).trainer();
  const std::string before = programs.main.SerializeAsString();
  const auto changed = ShareBuffers(job, &programs);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_FALSE(*changed);
  EXPECT_EQ(programs.main.SerializeAsString(), before);
  EXPECT_THAT(Types(TranspiledOf(JobOf(kDeepFm)).trainer().main), Not(Contains("share_buffers")));
}

TEST(ShareBuffersTest, ServersAreAsTheyWere) {
  const Transpiled with = TranspiledOf(JobOf(kDeepFm, Optimized())), without = TranspiledOf(JobOf(kDeepFm));
  for (int s = 0; s < 2; ++s) {
    EXPECT_EQ(with.Server(s)->main.SerializeAsString(), without.Server(s)->main.SerializeAsString());
    EXPECT_EQ(with.Server(s)->startup.SerializeAsString(), without.Server(s)->startup.SerializeAsString());
  }
  // All processes must agree on the setting nevertheless.
  EXPECT_EQ(
      FirstDifference(PlanText(JobOf(kDeepFm, Optimized()), with.plan()), PlanText(JobOf(kDeepFm), without.plan())),
      "distribute.memory_optimize: true here, false there");
}

TEST(ShareBuffersTest, EvaluationKeepsIt) {
  const v1::ProgramDesc evaluation = EvaluationProgram(TranspiledOf(JobOf(kDeepFm, Optimized())).trainer().main);
  EXPECT_EQ(Types(evaluation)[0], "share_buffers");
  EXPECT_TRUE(ReadSharedBuffers(evaluation, 0).ok()) << ReadSharedBuffers(evaluation, 0).status();
}

}  // namespace
}  // namespace weir
