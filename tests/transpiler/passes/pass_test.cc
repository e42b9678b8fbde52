// The order of passes follows from their places.
#include "transpiler/passes/pass.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/passes/passes.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

absl::StatusOr<bool> Nothing(const Job&, Programs*) { return false; }

Pass At(const char* name, const char* after, const char* before = "", Phase phase = Phase::kPlacement) {
  return {.name = name, .run = Nothing, .phase = phase, .after = after, .before = before};
}

std::vector<std::string> Names(const std::vector<Pass>& passes) {
  std::vector<std::string> names;
  for (const Pass& pass : passes) names.emplace_back(pass.name);
  return names;
}

TEST(PassTest, TheOrderIsThatOfTheDocuments) {
  EXPECT_THAT(PassNames(),
              ElementsAre("build_forward", "keep_judged", "freeze_parameters", "append_backward", "append_optimizer",
                          "build_startup", "slice_variables", "choose_fetch", "place_blocks", "shard_updates",
                          "keep_updates", "prefetch_tables", "fuse_lookups", "send_gradients", "assign_buckets",
                          "receive_parameters", "share_buffers"));
}

TEST(PassTest, TheOrderOfLinkingDoesNotMatter) {
  std::vector<Pass> passes = AllPasses();
  const std::vector<std::string> names = Names(passes);
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    std::shuffle(passes.begin(), passes.end(), random);
    EXPECT_EQ(Names(InOrder(passes)), names);
  }
}

TEST(PassTest, OneThatIsAddedBetweenTwoChangesNeither) {
  EXPECT_THAT(Names(InOrder({At("new", "a", "b"), At("b", "a"), At("a", "")})), ElementsAre("a", "new", "b"));
}

TEST(PassTest, PhasesFollowEachOther) {
  EXPECT_THAT(
      Names(InOrder({At("c", "", "", Phase::kTrainer), At("a", "", "", Phase::kSingleMachine), At("b", "", "")})),
      ElementsAre("a", "b", "c"));
}

TEST(PassDeathTest, APlaceIsTakenOnce) {
  EXPECT_DEATH(InOrder({At("a", ""), At("b", "a"), At("c", "a")}), "passes b and c have the same place");
  EXPECT_DEATH(InOrder({At("a", ""), At("b", "")}), "passes a and b have the same place");
}

TEST(PassDeathTest, ANeighbourIsAPassOfThePhase) {
  EXPECT_DEATH(InOrder({At("a", ""), At("b", "x")}), "pass b is placed beside x, which is no pass of its phase");
  EXPECT_DEATH(InOrder({At("a", "", "x")}), "pass a is placed beside x, which is no pass of its phase");
  EXPECT_DEATH(InOrder({At("a", "", "", Phase::kTrainer), At("b", "a")}), "pass b is placed beside a");
}

TEST(PassDeathTest, PassesThatWaitForEachOtherAreNamed) {
  EXPECT_DEATH(InOrder({At("a", "b"), At("b", "a")}), "passes wait for each other, among them a");
}

TEST(PassDeathTest, ALateRegistrationIsRefused) {
  ASSERT_FALSE(AllPasses().empty());
  EXPECT_DEATH(PassRegistrar(At("late", "place_blocks")), "pass late is registered after the passes have been ordered");
}

TEST(PassDeathTest, ANameIsRegisteredOnceWithSomethingToRun) {
  EXPECT_DEATH(InOrder({At("a", ""), At("a", "a")}), "pass a is registered twice");
  EXPECT_DEATH(InOrder({{.name = "idle"}}), "pass idle does nothing");
}

}  // namespace
}  // namespace weir
