#include "framework/graph/def_use.h"

#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

v1::BlockDesc Block() {
  v1::BlockDesc block;
  *block.add_ops() = MakeOp("make", {}, {{"Out", {"a", "b"}}});
  *block.add_ops() = MakeOp("add", {{"X", {"a", "a"}}, {"Y", {"b"}}}, {{"Out", {"c"}}});
  *block.add_ops() = MakeOp("scale", {{"X", {"c"}}}, {{"Out", {"c"}}});
  return block;
}

TEST(DefUseTest, PlacesRiseAndStandOnceForEachNaming) {
  const DefUse uses(Block());
  EXPECT_THAT(uses.Writers("c"), ElementsAre(1, 2));
  EXPECT_THAT(uses.Readers("c"), ElementsAre(2));
  EXPECT_THAT(uses.Readers("a"), ElementsAre(1, 1));
  EXPECT_THAT(uses.Writers("x"), IsEmpty());
  EXPECT_THAT(uses.Readers("x"), IsEmpty());
}

TEST(DefUseTest, OneWriterIsTheOnlyOne) {
  const DefUse uses(Block());
  EXPECT_EQ(uses.OnlyWriter("a"), 0);
  EXPECT_EQ(uses.OnlyWriter("c"), -1);
  EXPECT_EQ(uses.OnlyWriter("x"), -1);
}

TEST(DefUseTest, WhatIsReadAloneIsNamedAndNotWritten) {
  v1::BlockDesc block;
  *block.add_ops() = MakeOp("show", {{"X", {"fed"}}}, {});
  const DefUse uses(block);
  EXPECT_TRUE(uses.IsNamed("fed"));
  EXPECT_FALSE(uses.IsWritten("fed"));
  EXPECT_FALSE(uses.IsNamed("other"));
}

TEST(DefUseTest, AnOpThatIsRemovedNeitherReadsNorWrites) {
  const v1::BlockDesc block = Block();
  DefUse uses(block);
  uses.Remove(1, block.ops(1));
  EXPECT_THAT(uses.Readers("a"), IsEmpty());
  EXPECT_THAT(uses.Readers("b"), IsEmpty());
  EXPECT_THAT(uses.Writers("c"), ElementsAre(2));
}

TEST(DefUseTest, AnOpThatIsAddedStandsAtItsPlace) {
  DefUse uses(Block());
  uses.Add(1, MakeOp("add", {{"X", {"c", "a"}}}, {{"Out", {"b"}}}));
  EXPECT_THAT(uses.Readers("c"), ElementsAre(1, 2));
  EXPECT_THAT(uses.Readers("a"), ElementsAre(1, 1, 1));
  EXPECT_THAT(uses.Writers("b"), ElementsAre(0, 1));
}

}  // namespace
}  // namespace weir
