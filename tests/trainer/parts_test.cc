// Names and groups of the inputs whose importance is measured.

#include "trainer/predict/parts.h"

#include <string>
#include <vector>

#include "framework/base/feature_id.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Column> Columns() {
  return {{.name = "label"},
          {.name = "dense", .width = 3, .value_names = {"age", "", "dense[2]"}},
          {.name = "cat", .kind = v1::IDS, .width = 2, .slot_names = {"C1", "C2"}},
          {.name = "item", .kind = v1::IDS, .width = 1, .slot_names = {"item"}},
          {.name = "history", .kind = v1::IDS, .width = 1, .slot_names = {"history"}}};
}

absl::StatusOr<std::vector<Part>> Parts(const std::vector<std::string>& wanted,
                                        const std::vector<std::string>& together = {}) {
  v1::Data data;
  data.mutable_ids()->add_shared("item");
  return MakeParts(data, Columns(), {1, 2, 3, 4}, wanted, together);
}

std::vector<std::string> Names(const absl::StatusOr<std::vector<Part>>& parts) {
  EXPECT_TRUE(parts.ok()) << parts.status();
  std::vector<std::string> names;
  for (const Part& part : parts.ok() ? *parts : std::vector<Part>()) names.push_back(part.name);
  return names;
}

TEST(PartsTest, EveryValueAndSlotThatIsReadIsOne) {
  EXPECT_THAT(Names(Parts({})),
              ElementsAre("dense.age", "dense[1]", "dense[2]", "cat.C1", "cat.C2", "item", "history"));
}

TEST(PartsTest, AnEmptySlotHasTheIdThatTheReaderGivesIt) {
  const auto parts = Parts({});
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ((*parts)[3].places[0].missing_id, MissingId(SlotSalt("cat", "C1")));
  EXPECT_EQ((*parts)[5].places[0].missing_id, MissingId(SlotSalt("item", "")));
}

TEST(PartsTest, PatternsMatchWholeNames) {
  EXPECT_THAT(Names(Parts({"cat.*", "dense[1]"})), ElementsAre("dense[1]", "cat.C1", "cat.C2"));
  EXPECT_EQ(Parts({"age", "item"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PartsTest, SeveralAreAlteredTogether) {
  const auto parts = Parts({}, {"item+history", "cat"});
  EXPECT_THAT(Names(parts), ElementsAre("dense.age", "dense[1]", "dense[2]", "cat", "item+history"));
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts->back().places.size(), 2u);
  EXPECT_EQ((*parts)[3].places.size(), 2u);
  EXPECT_THAT(Names(Parts({"item.*"}, {"item+history"})), ElementsAre("item+history"));
}

TEST(PartsTest, NamesThatAreNotThereAreRefused) {
  const auto no_pattern = Parts({"cat.C3"});
  EXPECT_EQ(no_pattern.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(no_pattern.status().message(),
              HasSubstr("'cat.C3' matches nothing that the prediction reads: dense.age"));
  EXPECT_THAT(Parts({"cat.("}).status().message(), HasSubstr("--parts: 'cat.(': missing"));
  EXPECT_THAT(Parts({}, {"item+label"}).status().message(), HasSubstr("the prediction reads no 'label'"));
  EXPECT_THAT(Parts({}, {"item+history", "cat.C1+item"}).status().message(),
              HasSubstr("item is in 'cat.C1+item' and in 'item+history'"));
}

}  // namespace
}  // namespace weir
