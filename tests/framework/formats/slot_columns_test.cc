#include "framework/formats/slot_columns.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Refusal(std::vector<DataSlot> slots, std::vector<Column> before = {}) {
  const auto columns = LayOutSlots("data.multi_slot.slot", std::move(before), &slots);
  return columns.ok() ? "accepted" : std::string(columns.status().message());
}

TEST(LayOutSlotsTest, ColumnsStandInOrderOfTheirFirstSlots) {
  std::vector<DataSlot> slots = {{.name = "a", .output = "ids"},
                                 {.name = "price", .is_float = true, .dim = 3},
                                 {.name = "left", .skip = true},
                                 {.name = "b", .output = "ids"},
                                 {.name = "c"}};
  const auto columns = LayOutSlots("slot", {{.name = "label"}}, &slots);
  ASSERT_TRUE(columns.ok()) << columns.status();
  EXPECT_THAT(*columns, ElementsAre(Column{.name = "label"},
                                    Column{.name = "ids", .kind = v1::IDS, .width = 2, .slot_names = {"a", "b"}},
                                    Column{.name = "price", .width = 3},
                                    Column{.name = "c", .kind = v1::IDS, .width = 1, .slot_names = {"c"}}));
  // Slots of ids: a, b, c. Floats: the label, then three prices.
  EXPECT_EQ(slots[0].position, 0);
  EXPECT_EQ(slots[3].position, 1);
  EXPECT_EQ(slots[4].position, 2);
  EXPECT_EQ(slots[1].position, 1);
}

TEST(LayOutSlotsTest, WrongSlotsAreRefusedWithTheirPlace) {
  EXPECT_EQ(Refusal({{.name = "a"}, {.name = ""}}), "data.multi_slot.slot[1]: name is empty");
  EXPECT_EQ(Refusal({{.name = "a"}, {.name = "a"}}), "data.multi_slot.slot[1]: there are two slots 'a'");
  EXPECT_EQ(Refusal({{.name = "a", .is_float = true, .dim = 0}}),
            "data.multi_slot.slot[0]: dim must be positive, got 0");
  EXPECT_EQ(Refusal({{.name = "a", .dim = 2}}), "data.multi_slot.slot[0]: dim must be left out for ids, got 2");
  EXPECT_EQ(Refusal({{.name = "a", .output = "o"}, {.name = "b", .output = "o", .is_float = true}}),
            "data.multi_slot.slot[1]: output 'o' has slots of ids and of floats; give them two names");
  EXPECT_EQ(Refusal({{.name = "label"}}, {{.name = "label"}}),
            "data.multi_slot.slot[0]: 'label' is a variable of the format itself; give it another output");
}

TEST(LayOutSlotsTest, SomeSlotIsNotSkipped) {
  EXPECT_EQ(Refusal({}), "data.multi_slot: no slot that is not skipped");
  EXPECT_EQ(Refusal({{.name = "a", .skip = true}}), "data.multi_slot: no slot that is not skipped");
}

TEST(OrderIdsTest, IdsComeIntoTheOrderOfTheCounts) {
  // Read slot 2 (one id), slot 0 (two), slot 1 (none).
  Example example = {.ids = {7, 1, 2}, .counts = {2, 0, 1}, .weights = {0.7f, 0.1f, 0.2f}};
  OrderIds({2, 0, 1}, &example);
  EXPECT_THAT(example.ids, ElementsAre(1, 2, 7));
  EXPECT_THAT(example.weights, ElementsAre(0.1f, 0.2f, 0.7f));
}

TEST(OrderIdsTest, WithoutWeightsThereAreNone) {
  Example example = {.ids = {7, 1}, .counts = {1, 1}};
  OrderIds({1, 0}, &example);
  EXPECT_THAT(example.ids, ElementsAre(1, 7));
  EXPECT_THAT(example.weights, IsEmpty());
}

TEST(SortIdsTest, IdsOfASlotKeepTheirOrder) {
  Example example = {.ids = {5, 9, 4, 8}, .counts = {2, 0, 2}, .weights = {0.5f, 0.9f, 0.4f, 0.8f}};
  SortIds({2, 0, 2, 0}, &example);
  EXPECT_THAT(example.ids, ElementsAre(9, 8, 5, 4));
  EXPECT_THAT(example.weights, ElementsAre(0.9f, 0.8f, 0.5f, 0.4f));
}

TEST(SortIdsTest, NoIdsStayNone) {
  Example example = {.counts = {0, 0}};
  SortIds({}, &example);
  EXPECT_THAT(example.ids, IsEmpty());
}

}  // namespace
}  // namespace weir
