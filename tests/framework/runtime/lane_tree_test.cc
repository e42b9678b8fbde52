#include "framework/runtime/lane_tree.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {

void PrintTo(const LaneRange& range, std::ostream* os) { *os << "{" << range.begin << ", " << range.count << "}"; }

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LaneTreeTest, LanesAreDealtInRunsAsEvenAsPossible) {
  EXPECT_EQ(LanesOfTrainer(8, 3, 0), (LaneRange{0, 3}));
  EXPECT_EQ(LanesOfTrainer(8, 3, 1), (LaneRange{3, 3}));
  EXPECT_EQ(LanesOfTrainer(8, 3, 2), (LaneRange{6, 2}));
  // Without lanes each trainer has one.
  EXPECT_EQ(LanesOfTrainer(0, 3, 2), (LaneRange{2, 1}));
}

TEST(LaneTreeTest, NodesAreTheLargestAlignedOnes) {
  EXPECT_THAT(AlignedNodes({0, 3}), ElementsAre(LaneRange{0, 2}, LaneRange{2, 1}));
  EXPECT_THAT(AlignedNodes({3, 3}), ElementsAre(LaneRange{3, 1}, LaneRange{4, 2}));
  EXPECT_THAT(AlignedNodes({0, 8}), ElementsAre(LaneRange{0, 8}));
  EXPECT_THAT(AlignedNodes({5, 0}), IsEmpty());
}

// For all numbers of lanes and trainers: runs tile the lanes and differ by at most one; nodes tile their run, are
// aligned, and no two could be merged.
TEST(LaneTreeTest, RunsAndNodesTileTheLanes) {
  for (int lanes = 1; lanes <= 64; lanes *= 2) {
    for (int trainers = 1; trainers <= lanes; ++trainers) {
      int next = 0, longest = 0, shortest = lanes;
      for (int t = 0; t < trainers; ++t) {
        const LaneRange run = LanesOfTrainer(lanes, trainers, t);
        ASSERT_EQ(run.begin, next);
        next += run.count;
        longest = std::max(longest, run.count);
        shortest = std::min(shortest, run.count);
        int lane = run.begin;
        LaneRange last{0, 0};
        for (const LaneRange& node : AlignedNodes(run)) {
          ASSERT_EQ(node.begin, lane);
          ASSERT_EQ(node.count & (node.count - 1), 0);
          ASSERT_EQ(node.begin % node.count, 0);
          ASSERT_FALSE(last.count == node.count && last.begin % (2 * node.count) == 0 && last.count > 0);
          lane += node.count;
          last = node;
        }
        ASSERT_EQ(lane, run.begin + run.count);
      }
      EXPECT_EQ(next, lanes);
      EXPECT_LE(longest - shortest, 1);
    }
  }
}

// Formats the additions with brackets: "((0+1)+(2+3))".
std::string Sum(std::vector<std::string> terms, const std::vector<LaneRange>& present, int lanes) {
  for (const LaneAdd& add : TreeAdds(present, lanes)) {
    auto& left = terms[static_cast<size_t>(add.left)];
    left = absl::StrCat("(", left, "+", terms[static_cast<size_t>(add.right)], ")");
  }
  return terms.empty() ? "" : terms[0];
}

// Formats the sum over lanes [begin, begin + count) as the tree defines it; `has` tells which lanes are present.
std::string Definition(int begin, int count, const std::vector<bool>& has) {
  if (count == 1) return has[static_cast<size_t>(begin)] ? absl::StrCat(begin) : "";
  const std::string left = Definition(begin, count / 2, has);
  const std::string right = Definition(begin + count / 2, count / 2, has);
  if (left.empty() || right.empty()) return left + right;
  return absl::StrCat("(", left, "+", right, ")");
}

// Reproducibility rests on this: trainers add their nodes, the server adds the rest, and every number of trainers gives
// the same brackets, whichever lanes are absent.
TEST(LaneTreeTest, AnyNumberOfTrainersAddsInTheSameOrder) {
  for (int lanes : {1, 2, 4, 8}) {
    for (int absent = 0; absent < (1 << lanes); ++absent) {
      std::vector<bool> has;
      for (int l = 0; l < lanes; ++l) has.push_back(((absent >> l) & 1) == 0);
      const std::string expected = Definition(0, lanes, has);
      for (int trainers = 1; trainers <= lanes; ++trainers) {
        std::vector<LaneRange> nodes;
        std::vector<std::string> sums;
        for (int t = 0; t < trainers; ++t) {
          for (const LaneRange& node : AlignedNodes(LanesOfTrainer(lanes, trainers, t))) {
            std::vector<LaneRange> leaves;
            std::vector<std::string> names;
            for (int l = node.begin; l < node.begin + node.count; ++l) {
              if (!has[static_cast<size_t>(l)]) continue;
              leaves.push_back({l, 1});
              names.push_back(absl::StrCat(l));
            }
            if (leaves.empty()) continue;
            nodes.push_back(node);
            sums.push_back(Sum(names, leaves, lanes));
          }
        }
        ASSERT_EQ(Sum(sums, nodes, lanes), expected)
            << lanes << " lanes, " << trainers << " trainers, absent " << absent;
      }
    }
  }
}

TEST(LaneTreeTest, AddsEndInTheFirstNode) {
  const std::vector<LaneRange> present = {{0, 2}, {2, 1}, {3, 1}, {4, 4}};
  EXPECT_EQ(Sum({"a", "b", "c", "d"}, present, 8), "((a+(b+c))+d)");
  EXPECT_THAT(TreeAdds({{3, 1}}, 8), IsEmpty());
  EXPECT_THAT(TreeAdds({}, 8), IsEmpty());
}

}  // namespace
}  // namespace weir
