#include "transpiler/start/element_match.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/elements.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Text(const std::vector<v1::AxisRun>& runs) {
  std::string text;
  for (const v1::AxisRun& run : runs) {
    absl::StrAppend(&text, text.empty() ? "" : " ", run.to(), "<-", run.from(), "x", run.count());
  }
  return text;
}

ElementAxis Slots(const std::vector<std::string>& names) {
  ElementAxis axis;
  for (const std::string& name : names) axis.push_back({.of = name});
  return axis;
}

TEST(ElementMatchTest, PartsAreFoundWhereverTheyStand) {
  const ElementAxis old = FlattenAxes(Slots({"a", "b", "c"}), AxisOf("w", 4));
  EXPECT_EQ(AxisSize(old), 12);
  EXPECT_EQ(Text(MatchAxis(old, old)), "0<-0x12");
  EXPECT_EQ(Text(MatchAxis(FlattenAxes(Slots({"a", "n", "b", "c"}), AxisOf("w", 4)), old)), "0<-0x4 8<-4x8");
  EXPECT_EQ(Text(MatchAxis(FlattenAxes(Slots({"c", "a"}), AxisOf("w", 4)), old)), "0<-8x4 4<-0x4");
  EXPECT_EQ(Text(MatchAxis(FlattenAxes(Slots({"a", "b"}), AxisOf("w", 6)), old)), "0<-0x4 6<-4x4");
  EXPECT_EQ(Text(MatchAxis(FlattenAxes(Slots({"a", "b"}), AxisOf("w", 2)), old)), "0<-0x2 2<-4x2");
  EXPECT_EQ(Text(MatchAxis(Slots({"x"}), old)), "");
}

TEST(ElementMatchTest, TheNthOfANameIsTheNth) {
  const ElementAxis twice = {{.of = "x", .count = 3}, {.of = "x", .count = 3}};
  EXPECT_EQ(Text(MatchAxis(twice, twice)), "0<-0x6");
  EXPECT_EQ(Text(MatchAxis({{.of = "x", .count = 3}}, twice)), "0<-0x3");
  const ElementAxis halves = {{.of = "x", .first = 2, .count = 2}, {.of = "x", .first = 0, .count = 2}};
  EXPECT_EQ(Text(MatchAxis(halves, AxisOf("x", 4))), "0<-2x2 2<-0x2");
}

TEST(ElementMatchTest, Ranges) {
  IndexRanges ranges;
  AddRange({5, 7}, &ranges);
  AddRange({1, 2}, &ranges);
  AddRange({7, 9}, &ranges);
  AddRange({3, 3}, &ranges);
  EXPECT_THAT(ranges, ElementsAre(IndexRange{1, 2}, IndexRange{5, 9}));
  EXPECT_THAT(Complement(ranges, 10), ElementsAre(IndexRange{0, 1}, IndexRange{2, 5}, IndexRange{9, 10}));
  EXPECT_THAT(Complement({}, 3), ElementsAre(IndexRange{0, 3}));
  EXPECT_THAT(Complement({{0, 3}}, 3), IsEmpty());
  EXPECT_EQ(SizeOf(ranges), 5);
}

TEST(ElementMatchTest, NamesOfASetAreFoundAsPartsAndByIndex) {
  const ElementAxis axis = FlattenAxes(Slots({"f/a", "f/b"}), AxisOf("t", 4));
  NameSet set;
  set.Add("b");
  EXPECT_THAT(set.In(axis), ElementsAre(IndexRange{4, 8}));
  set.Add("t", 3, 4);
  EXPECT_THAT(set.In(axis), ElementsAre(IndexRange{3, 8}));
  EXPECT_TRUE(set.HasAll("b"));
  EXPECT_FALSE(set.HasAll("t"));
  // A part in front has its index in brackets.
  NameSet third;
  third.Add("u", 2, 3);
  EXPECT_THAT(third.In(FlattenAxes(AxisOf("u", 4), AxisOf("t", 2))), ElementsAre(IndexRange{4, 6}));
  EXPECT_THAT(NameParts("f/u[3]/t"), ElementsAre("f", "u", "t"));
}

TEST(ElementMatchTest, SlicesAndFlattening) {
  const ElementAxis axis = FlattenAxes(Slots({"a", "b"}), AxisOf("w", 3));
  EXPECT_EQ(SliceAxis(axis, 2, 2), (ElementAxis{{.of = "a/w", .first = 2}, {.of = "b/w"}}));
  EXPECT_EQ(ElementName(axis, 4), "b/w[1]");
  EXPECT_EQ(ElementName(Slots({"a"}), 0), "a");
  EXPECT_EQ(AxisSize(FlattenAxes(std::vector<ElementAxis>{Slots({"a", "b"}), AxisOf("t", 5), AxisOf("w", 3)})), 30);
}

}  // namespace
}  // namespace weir
