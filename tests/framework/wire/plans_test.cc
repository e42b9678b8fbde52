// Plans of pulls and pushes: where tensors are cut, and what shares a message.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "framework/wire/pull_plan.h"
#include "framework/wire/push_plan.h"
#include "framework/wire/transfer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Each item of a pull as "name [begin, end)".
std::vector<std::string> Pieces(const PlannedPull& pull) {
  std::vector<std::string> pieces;
  for (int i = 0; i < pull.request.items_size(); ++i) {
    const PlannedPull::Piece& piece = pull.pieces[static_cast<size_t>(i)];
    EXPECT_EQ(pull.request.items(i).count(), static_cast<int64_t>(piece.count));
    pieces.push_back(
        absl::StrCat(pull.request.items(i).name(), " [", piece.begin, ", ", piece.begin + piece.count, ")"));
  }
  return pieces;
}

TEST(PullPlanTest, AListOfRowsIsCutIntoCallsOfEqualSize) {
  // 10 rows of 16 bytes, 4 to a call at most: 3 calls of 4, 4 and 2 rows.
  const std::vector<PlannedPull> pulls = PlanRowPulls({{{{"t", 4}}, 10}}, 64);
  ASSERT_THAT(pulls, SizeIs(3));
  EXPECT_THAT(Pieces(pulls[0]), ElementsAre("t [0, 4)"));
  EXPECT_THAT(Pieces(pulls[1]), ElementsAre("t [4, 8)"));
  EXPECT_THAT(Pieces(pulls[2]), ElementsAre("t [8, 10)"));
  EXPECT_EQ(pulls[0].answer_bytes, 64u);
  EXPECT_EQ(pulls[2].pieces[0].bytes, 32u);
  EXPECT_EQ(pulls[2].id_bytes, 64u);  // 16, to the next multiple of 64
}

TEST(PullPlanTest, ARowThatIsTooLargeIsPulledAlone) { EXPECT_THAT(PlanRowPulls({{{{"t", 64}}, 3}}, 64), SizeIs(3)); }

TEST(PullPlanTest, SmallListsShareACallAsLongAsTheyFit) {
  const std::vector<RowsToPull> asked = {{{{"a", 4}}, 2}, {{{"b", 4}}, 2}, {{{"c", 4}}, 1}};
  // a and b take 32 bytes each, from multiples of 64 on.
  const std::vector<PlannedPull> pulls = PlanRowPulls(asked, 96);
  ASSERT_THAT(pulls, SizeIs(2));
  EXPECT_THAT(Pieces(pulls[0]), ElementsAre("a [0, 2)", "b [0, 2)"));
  EXPECT_THAT(Pieces(pulls[1]), ElementsAre("c [0, 1)"));
  EXPECT_EQ(pulls[0].request.items(0).offset(), 0);
  EXPECT_EQ(pulls[0].request.items(1).offset(), 64);
  EXPECT_EQ(pulls[0].id_bytes, 128u);
  EXPECT_EQ(pulls[1].pieces[0].asked, 2u);
}

TEST(PullPlanTest, TablesWithTheSameIdsHaveThemInCommon) {
  const std::vector<PlannedPull> pulls = PlanRowPulls({{{{"a", 4}, {"b", 1}}, 3}}, 1 << 20);
  ASSERT_THAT(pulls, SizeIs(1));
  EXPECT_THAT(Pieces(pulls[0]), ElementsAre("a [0, 3)", "b [0, 3)"));
  EXPECT_EQ(pulls[0].request.items(1).offset(), 0);
  EXPECT_EQ(pulls[0].request.items(1).width(), 1);
  EXPECT_EQ(pulls[0].id_bytes, 64u);
  EXPECT_EQ(pulls[0].answer_bytes, 128u);  // 48 and 12, each to the next multiple of 64
  EXPECT_EQ(pulls[0].pieces[1].tensor, 1u);
}

TEST(PullPlanTest, AFormatChangesTheAnswerButNotTheCuts) {
  const std::vector<PlannedPull> exact = PlanRowPulls({{{{"t", 32}}, 10}}, 640);
  const std::vector<PlannedPull> half = PlanRowPulls({{{{"t", 32, v1::WIRE_FLOAT16}}, 10}}, 640);
  ASSERT_EQ(exact.size(), half.size());
  EXPECT_EQ(exact[0].answer_bytes, 640u);
  EXPECT_EQ(half[0].answer_bytes, 320u);
  EXPECT_FALSE(exact[0].request.items(0).has_format());
  EXPECT_EQ(half[0].request.items(0).format(), v1::WIRE_FLOAT16);
}

TEST(PullPlanTest, NothingIsAskedOfAServerWithoutRowsOrBlocks) {
  EXPECT_THAT(PlanRowPulls({{{{"t", 4}}, 0}}, 64), IsEmpty());
  EXPECT_THAT(PlanBlockPulls({{"w", 0}}, v1::WIRE_FLOAT32, 64), IsEmpty());
}

TEST(PullPlanTest, BlocksAreCutAndGatheredByTheirFloats) {
  const std::vector<PlannedPull> pulls = PlanBlockPulls({{"w", 20}, {"b", 12}, {"c", 1}}, v1::WIRE_FLOAT32, 64);
  ASSERT_THAT(pulls, SizeIs(3));
  EXPECT_THAT(Pieces(pulls[0]), ElementsAre("w [0, 16)"));
  EXPECT_THAT(Pieces(pulls[1]), ElementsAre("w [16, 20)", "b [0, 12)"));
  EXPECT_THAT(Pieces(pulls[2]), ElementsAre("c [0, 1)"));
  EXPECT_EQ(pulls[1].request.items(0).begin(), 16);
  EXPECT_EQ(pulls[1].answer_bytes, 128u);
  EXPECT_EQ(pulls[1].id_bytes, 0u);
  EXPECT_FALSE(pulls[1].request.items(0).has_offset());
}

TEST(PushPlanTest, ADenseGradientIsCutSoThatAllNodesFitInOneMessage) {
  const std::vector<PushNode> nodes = {{0, 2}, {2, 1}};
  const int64_t most = static_cast<int64_t>(kBytesOfOneTensor / 2 / sizeof(float));
  const std::vector<PlannedDense> parts = PlanDensePush("w", most + 1, nodes, v1::WIRE_FLOAT32);
  ASSERT_THAT(parts, SizeIs(2));
  EXPECT_EQ(parts[0].count, most);
  EXPECT_EQ(parts[1].begin, most);
  EXPECT_EQ(parts[1].count, 1);
  const v1::PushItem& item = parts[1].tensors[1].item;
  EXPECT_EQ(item.lane(), 2);
  EXPECT_EQ(item.lanes(), 1);
  EXPECT_EQ(item.begin(), most);
  EXPECT_EQ(item.count(), 1);
  EXPECT_EQ(parts[1].tensors[1].bytes, sizeof(float));
  EXPECT_LT(AlignUp(parts[0].tensors[0].bytes) + AlignUp(parts[0].tensors[1].bytes), kMaxMessageBytes);
}

TEST(PushPlanTest, RowsAreIdsThenValuesThenCounts) {
  const PlannedRows rows = PlanRowsPush("t", {4, 4}, 3, {.width = 1, .counts = true});
  EXPECT_EQ(rows.layout.ids_end, 24u);
  EXPECT_EQ(rows.layout.values_begin, 64u);
  EXPECT_EQ(rows.layout.values_end, 76u);
  EXPECT_EQ(rows.layout.counts_begin, 128u);
  EXPECT_EQ(rows.tensor.bytes, 152u);
  EXPECT_EQ(rows.tensor.item.lane(), 4);
  EXPECT_EQ(rows.tensor.item.count(), 3);
  EXPECT_TRUE(rows.tensor.item.shows_and_clicks());
  EXPECT_EQ(PlanRowsPush("t", {4, 4}, 3, {.width = 1}).tensor.bytes, 76u);
}

TEST(PushPlanTest, RowsOfAllNodesFillOnePart) {
  EXPECT_EQ(RowsPerPush({.width = 16}, 1), kRowBytesPerCall / 72);
  EXPECT_EQ(RowsPerPush({.width = 16}, 2), kRowBytesPerCall / 72 / 2);
  EXPECT_EQ(RowsPerPush({.width = 14, .counts = true}, 1), kRowBytesPerCall / 72);
  EXPECT_EQ(RowsPerPush({.width = 1 << 20}, 1), 1u);
}

TEST(PushPlanTest, SmallTensorsAreGatheredUpToTheBorder) {
  EXPECT_TRUE(PushPart::LeavesAtOnce(kGatherBytes));
  EXPECT_FALSE(PushPart::LeavesAtOnce(kGatherBytes - kAlignment));
  PushPart part;
  EXPECT_EQ(part.Add({}, 65), 0u);
  EXPECT_EQ(part.Add({}, 4), 128u);
  EXPECT_EQ(part.bytes(), 192u);
  EXPECT_TRUE(part.HasRoomFor(kGatherBytes - 192));
  EXPECT_FALSE(part.HasRoomFor(kGatherBytes - 128));
}

TEST(PushPlanTest, OnlyTheLastPartHasACount) {
  PushPart part;
  v1::PushItem item;
  item.set_name("w");
  part.Add(item, 4);
  v1::PushRequest header;
  std::move(part).FillHeader(2, /*last=*/false, &header);
  EXPECT_EQ(header.part(), 2);
  EXPECT_FALSE(header.has_part_count());
  ASSERT_EQ(header.items_size(), 1);
  EXPECT_EQ(header.items(0).name(), "w");
  v1::PushRequest last;
  PushPart().FillHeader(3, /*last=*/true, &last);
  EXPECT_EQ(last.part_count(), 4);
}

}  // namespace
}  // namespace weir
