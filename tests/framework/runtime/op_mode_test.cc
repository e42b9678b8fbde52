#include "framework/runtime/op_mode.h"

#include <string>

#include "gtest/gtest.h"

namespace weir {
namespace {

// An op from "mine" or "shared" to "mine" or "shared"; all lanes share the second.
OpMode ModeOf(v1::OpRole role, const std::string& reads, const std::string& writes, OpScope scope = OpScope::kLane) {
  const OpDef def = {.type = "op", .scope = scope};
  v1::OpDesc op = MakeOp("op", {{"X", {reads}}}, {{"Out", {writes}}});
  op.set_role(role);
  return OpModeOf(op, def, [](std::string_view name) { return name == "shared"; });
}

TEST(OpModeTest, AnOpOfLanesRunsInEachOfThem) {
  EXPECT_EQ(ModeOf(v1::FORWARD, "mine", "mine"), OpMode::kLane);
  EXPECT_EQ(ModeOf(v1::FORWARD, "shared", "mine"), OpMode::kLane);
}

TEST(OpModeTest, AnOpThatWritesWhatLanesShareRunsInTheirOrder) {
  EXPECT_EQ(ModeOf(v1::FORWARD, "mine", "shared"), OpMode::kLanesInOrder);
  EXPECT_EQ(ModeOf(v1::BACKWARD, "shared", "shared"), OpMode::kLanesInOrder);
}

TEST(OpModeTest, UpdatesInitialValuesAndSchedulesRunOnceInAStep) {
  for (const v1::OpRole role : {v1::OPTIMIZE, v1::INIT, v1::LR_SCHEDULE}) {
    EXPECT_EQ(ModeOf(role, "mine", "mine"), OpMode::kStep) << v1::OpRole_Name(role);
  }
}

TEST(OpModeTest, BlocksAreJoinedOnceAndALanesGradientIsCutInTheLane) {
  EXPECT_EQ(ModeOf(v1::DIST, "mine", "mine"), OpMode::kLane);
  EXPECT_EQ(ModeOf(v1::DIST, "shared", "mine"), OpMode::kStep);
  EXPECT_EQ(ModeOf(v1::DIST, "mine", "shared"), OpMode::kStep);
}

TEST(OpModeTest, TheScopeOfADefinitionComesFirst) {
  EXPECT_EQ(ModeOf(v1::OPTIMIZE, "mine", "mine", OpScope::kGate), OpMode::kGate);
  EXPECT_EQ(ModeOf(v1::FORWARD, "mine", "shared", OpScope::kGate), OpMode::kGate);
  EXPECT_EQ(ModeOf(v1::FORWARD, "mine", "mine", OpScope::kStep), OpMode::kStep);
}

TEST(AnnotateOpTest, AnErrorNamesTheOpAndItsFirstOutput) {
  const v1::OpDesc op = MakeOp("fc", {{"X", {"x"}}}, {{"None", {}}, {"Out", {"y", "z"}}});
  EXPECT_EQ(AnnotateOp(absl::NotFoundError("no"), 12, op), absl::NotFoundError("op 12 (fc) making y: no"));
  EXPECT_EQ(AnnotateOp(absl::DataLossError("no"), 0, MakeOp("send", {{"X", {"x"}}}, {})),
            absl::DataLossError("op 0 (send): no"));
}

}  // namespace
}  // namespace weir
