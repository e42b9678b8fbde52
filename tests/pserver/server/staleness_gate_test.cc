// Who may begin a step, and who is named when somebody may not.
#include "pserver/consistency/staleness_gate.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(StalenessGateTest, NobodyBeginsMoreThanTheBoundAheadOfTheSlowest) {
  StalenessGate gate(3, 2);
  // Nobody has finished anything: steps 0 to 2.
  EXPECT_TRUE(gate.MayBegin(0, 2));
  EXPECT_FALSE(gate.MayBegin(0, 3));
  EXPECT_THAT(gate.HeldBy(0, 3), ElementsAre(1, 2));
  gate.Finished(1, 0);
  EXPECT_THAT(gate.HeldBy(0, 3), ElementsAre(2));
  gate.Finished(2, 1);
  EXPECT_TRUE(gate.MayBegin(0, 3));
  EXPECT_THAT(gate.HeldBy(0, 4), ElementsAre(1));
}

TEST(StalenessGateTest, ABoundOfZeroKeepsThemInStep) {
  StalenessGate gate(2, 0);
  EXPECT_TRUE(gate.MayBegin(0, 0));
  EXPECT_FALSE(gate.MayBegin(0, 1));
  gate.Finished(0, 0);
  EXPECT_FALSE(gate.MayBegin(0, 1));  // it does not wait for itself, but for the other
  EXPECT_TRUE(gate.MayBegin(1, 1));
  gate.Finished(1, 0);
  EXPECT_TRUE(gate.MayBegin(0, 1));
}

TEST(StalenessGateTest, WhoHasLeftHoldsNobodyUntilItsPlaceIsTaken) {
  StalenessGate gate(2, 1);
  gate.Finished(1, 4);
  gate.Leave(1);
  EXPECT_TRUE(gate.MayBegin(0, 1000));
  gate.Join(1);
  EXPECT_TRUE(gate.MayBegin(0, 6));
  EXPECT_THAT(gate.HeldBy(0, 7), ElementsAre(1));
}

TEST(StalenessGateTest, OneTrainerWaitsForNobody) {
  StalenessGate gate(1, 0);
  EXPECT_TRUE(gate.MayBegin(0, std::numeric_limits<int64_t>::max()));
  EXPECT_THAT(gate.HeldBy(0, 17), IsEmpty());
}

TEST(StalenessGateTest, TheMostThatSomebodyWasAheadIsKept) {
  StalenessGate gate(2, 3);
  EXPECT_EQ(gate.Begin(0, 0), 0);
  EXPECT_EQ(gate.Begin(0, 3), 3);
  gate.Finished(1, 2);
  EXPECT_EQ(gate.Begin(0, 4), 1);
  EXPECT_EQ(gate.Begin(1, 0), 0);
  EXPECT_EQ(gate.most_ahead(), 3);
}

}  // namespace
}  // namespace weir
