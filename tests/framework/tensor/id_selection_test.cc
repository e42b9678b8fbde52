#include "framework/tensor/id_selection.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<std::pair<int64_t, int64_t>> Runs(const IdBatch& ids, const IdSelection& selection) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  ForSelectedIds(ids, selection, [&](int64_t begin, int64_t end) { runs.emplace_back(begin, end); });
  return runs;
}

// Three examples; the last has no ids.
const IdBatch& Batch() {
  static const auto* const batch = new IdBatch{.values = {1, 2, 3, 4, 5}, .offsets = {0, 3, 5, 5}};
  return *batch;
}

TEST(IdSelectionTest, AllIdsAreOneRun) { EXPECT_THAT(Runs(Batch(), {}), ElementsAre(Pair(0, 5))); }

TEST(IdSelectionTest, PaddingIsLeftOut) {
  const IdBatch ids = {.values = {0, 1, 2, 0, 3, 0}, .offsets = {0, 3, 6}};
  EXPECT_THAT(Runs(ids, {.has_padding = true, .padding_id = 0}), ElementsAre(Pair(1, 3), Pair(4, 5)));
  EXPECT_THAT(Runs({.values = {0, 0}, .offsets = {0, 2}}, {.has_padding = true, .padding_id = 0}), IsEmpty());
}

TEST(IdSelectionTest, ASequenceIsTheLastIdsOfEachExample) {
  EXPECT_THAT(Runs(Batch(), {.sequence = 1}), ElementsAre(Pair(2, 3), Pair(4, 5)));
  EXPECT_THAT(Runs(Batch(), {.sequence = 2}), ElementsAre(Pair(1, 3), Pair(3, 5)));
}

TEST(IdSelectionTest, AnExampleThatIsShorterThanTheSequenceIsWhole) {
  for (const int64_t sequence : {int64_t{3}, int64_t{1000}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(Runs(Batch(), {.sequence = sequence}), ElementsAre(Pair(0, 3), Pair(3, 5))) << sequence;
  }
}

TEST(IdSelectionTest, PaddingDoesNotCountInASequence) {
  const IdBatch ids = {.values = {9, 7, 0, 8, 0}, .offsets = {0, 5}};
  EXPECT_THAT(Runs(ids, {.has_padding = true, .padding_id = 0, .sequence = 2}), ElementsAre(Pair(1, 2), Pair(3, 4)));
  EXPECT_THAT(Runs(ids, {.has_padding = true, .padding_id = 0, .sequence = 9}), ElementsAre(Pair(0, 2), Pair(3, 4)));
}

TEST(IdSelectionTest, NoIdsAreNoRuns) {
  EXPECT_THAT(Runs({}, {}), IsEmpty());
  EXPECT_THAT(Runs({.offsets = {0, 0}}, {.has_padding = true, .sequence = 3}), IsEmpty());
}

}  // namespace
}  // namespace weir
