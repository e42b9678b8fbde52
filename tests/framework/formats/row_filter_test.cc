#include "framework/formats/row_filter.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

const std::vector<Column>& Columns() {
  static const auto* const columns =
      new std::vector<Column>({{.name = "label"},
                               {.name = "cat", .kind = v1::IDS, .width = 2, .slot_names = {"user", "city"}},
                               {.name = "dense", .width = 2},
                               {.name = "tags", .kind = v1::IDS, .slot_names = {"tags"}}});
  return *columns;
}

absl::StatusOr<RowFilter> FilterOf(const std::string& rules) {
  const v1::Data data = ParseData(absl::StrCat("train { ", rules, " }"));
  return RowFilter::Create(Columns(), data.train().where(), "train.where", PlainSettingErrors("data"));
}

struct Row {
  float label = 0, age = 0;
  std::vector<int64_t> user, city, tags;
};
bool Keeps(const std::string& rules, const Row& row) {
  const absl::StatusOr<RowFilter> filter = FilterOf(rules);
  EXPECT_TRUE(filter.ok()) << filter.status();
  Example example = {.floats = {row.label, row.age, 0}};
  for (const std::vector<int64_t>* ids : {&row.user, &row.city, &row.tags}) {
    example.counts.push_back(static_cast<uint16_t>(ids->size()));
    example.ids.insert(example.ids.end(), ids->begin(), ids->end());
  }
  return filter.ok() && filter->Keeps(example);
}

TEST(RowFilterTest, ModuloOfIds) {
  const char* const rule = "where { of: 'user' modulo: 10 remainder: 3 remainder: 7 }";
  for (int64_t id = -40; id < 40; ++id) {
    const int64_t rest = (id % 10 + 10) % 10;
    EXPECT_EQ(Keeps(rule, {.user = {id}}), rest == 3 || rest == 7) << id;
  }
  EXPECT_FALSE(Keeps(rule, {}));
  EXPECT_TRUE(Keeps(rule, {.user = {1, 3}})) << "one of the list is enough";
  // -2^63 = -922337203685477581 * 10 + 2
  EXPECT_TRUE(Keeps("where { of: 'user' modulo: 10 remainder: 2 }", {.user = {std::numeric_limits<int64_t>::min()}}));
}

TEST(RowFilterTest, ModuloOfHashesDividesEvenly) {
  const char* const rule = "where { of: 'user' hashed: true modulo: 10 remainder: 0 }";
  int kept = 0;
  for (int64_t id = 0; id < 10000; ++id) {
    const bool keeps = Keeps(rule, {.user = {id * 10}});
    EXPECT_EQ(keeps, StableHash(std::vector<int64_t>{id * 10}.data(), sizeof(id)) % 10 == 0);
    kept += keeps;
  }
  EXPECT_NEAR(kept, 1000, 100);
}

TEST(RowFilterTest, RangesOfFloatsAndIds) {
  EXPECT_TRUE(Keeps("where { of: 'dense[0]' from: 18 below: 65 }", {.age = 18}));
  EXPECT_FALSE(Keeps("where { of: 'dense[0]' from: 18 below: 65 }", {.age = 65}));
  EXPECT_FALSE(Keeps("where { of: 'dense[0]' from: 18 }", {.age = 17.5f}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(Keeps("where { of: 'dense[0]' below: 65 }", {.age = nan}));
  EXPECT_TRUE(Keeps("where { of: 'dense[0]' below: 65 invert: true }", {.age = nan}));
  EXPECT_TRUE(Keeps("where { of: 'user' from: 1000000 }", {.user = {1000000}}));
  EXPECT_FALSE(Keeps("where { of: 'user' from: 1000000 }", {.user = {999999}}));
}

TEST(RowFilterTest, FloatsAreComparedAsTheirTextsRead) {
  for (const float x : {0.1f, 0.3f, 0.7f, -0.7f}) {
    const std::string text = absl::StrCat(x);
    EXPECT_TRUE(Keeps(absl::StrCat("where { of: 'label' from: ", text, " }"), {.label = x})) << text;
    EXPECT_FALSE(Keeps(absl::StrCat("where { of: 'label' below: ", text, " }"), {.label = x})) << text;
    EXPECT_TRUE(Keeps(absl::StrCat("where { of: 'label' value: '", text, "' }"), {.label = x})) << text;
  }
  EXPECT_TRUE(Keeps("where { of: 'label' value: '1e-50' }", {.label = 0}));
  EXPECT_TRUE(Keeps("where { of: 'label' below: 1e300 }", {.label = std::numeric_limits<float>::max()}));
}

TEST(RowFilterTest, AWholeNumberThatFloat32DoesNotTellFromItsNeighbourIsRefused) {
  const auto refused = [](const std::string& rule, const std::string& field, int64_t other) {
    EXPECT_THAT(FilterOf(absl::StrCat("where { of: 'label' ", rule, " }")).status(),
                StatusIs(kInvalid, absl::StrCat("data.train.where[0].", field, " cannot be told from ", other,
                                                ": 'label' is a float, and float32 has one value for both; read the "
                                                "column as ids, which are compared exactly")))
        << rule;
  };
  refused("from: 20240105", "from", 20240104);
  refused("from: 20240104", "from", 20240103);
  refused("below: 1.7e9", "below", 1699999999);
  refused("from: -20240104", "from", -20240105);
  refused("value: '20240105'", "value[0]", 20240104);
  refused("value: '1' value: '20240104'", "value[1]", 20240103);
  refused("value: '16777216'", "value[0]", 16777217);
  refused("value: '9007199254740993'", "value[0]", 9007199254740991);
  // float32 tells these from their neighbours, and beyond ids there is no better way to read them.
  EXPECT_TRUE(Keeps("where { of: 'label' from: 16777216 }", {.label = 16777216}));
  EXPECT_FALSE(Keeps("where { of: 'label' from: 20240106 }", {.label = 20240105.0f}));
  EXPECT_TRUE(Keeps("where { of: 'label' from: 20240106 }", {.label = 20240106.0f}));
  EXPECT_TRUE(Keeps("where { of: 'label' value: '16777215' value: '1e30' }", {.label = 1e30f}));
  EXPECT_THAT(FilterOf("where { of: 'label' from: 0.7 below: 0.70000001 }").status(),
              StatusIs(kInvalid, "data.train.where[0].below leaves no number of float32: from 0.7, below 0.7"));
  EXPECT_THAT(FilterOf("where { of: 'label' value: '1e39' }").status(),
              StatusIs(kInvalid,
                       "data.train.where[0].value[0] is beyond float32, whose greatest number is 3.4e38, got '1e39'; "
                       "'label' is a float"));
}

TEST(RowFilterTest, IdsAreComparedExactly) {
  constexpr int64_t kBound = int64_t{1} << 60;
  const std::string rule = absl::StrCat("where { of: 'user' from: ", kBound, " }");
  EXPECT_TRUE(Keeps(rule, {.user = {kBound}}));
  EXPECT_FALSE(Keeps(rule, {.user = {kBound - 1}}));
  EXPECT_FALSE(Keeps("where { of: 'user' below: 1e300 invert: true }", {.user = {kBound}}));
  EXPECT_TRUE(Keeps("where { of: 'user' from: -1e300 below: 0.5 }", {.user = {0}}));
  EXPECT_FALSE(Keeps("where { of: 'user' from: 0.5 }", {.user = {0}}));
  EXPECT_FALSE(Keeps("where { of: 'user' from: 1e19 }", {.user = {std::numeric_limits<int64_t>::max()}}));
}

TEST(RowFilterTest, ValuesOfTextsIntegersAndFloats) {
  const auto oslo = static_cast<int64_t>(StableHash("Oslo"));
  EXPECT_TRUE(Keeps("where { of: 'city' value: 'Oslo' value: 'Rome' }", {.city = {oslo}}));
  EXPECT_FALSE(Keeps("where { of: 'city' value: 'Rome' }", {.city = {oslo}}));
  EXPECT_TRUE(Keeps("where { of: 'city' value: 'Rome' invert: true }", {.city = {oslo}}));
  EXPECT_TRUE(Keeps("where { of: 'user' value: '-7' }", {.user = {-7}}));
  EXPECT_TRUE(Keeps("where { of: 'label' value: '1' }", {.label = 1}));
  EXPECT_FALSE(Keeps("where { of: 'label' value: '1' }", {.label = 0}));
  EXPECT_TRUE(Keeps("where { of: 'tags' value: '5' }", {.user = {1, 2}, .city = {3}, .tags = {4, 5}}));
  EXPECT_FALSE(Keeps("where { of: 'tags' value: '5' }", {.user = {5, 5}, .city = {5}, .tags = {4}}));
}

TEST(RowFilterTest, AllRulesMustHoldAndAllThatIsSetOfOne) {
  const char* const rules = "where { of: 'user' modulo: 2 remainder: 1 below: 10 } where { of: 'label' value: '1' }";
  EXPECT_TRUE(Keeps(rules, {.label = 1, .user = {3}}));
  EXPECT_FALSE(Keeps(rules, {.label = 1, .user = {13}}));
  EXPECT_FALSE(Keeps(rules, {.label = 0, .user = {3}}));
  EXPECT_FALSE(Keeps(rules, {.label = 1, .user = {4}}));
  EXPECT_TRUE(Keeps("", {}));
}

TEST(RowFilterTest, WrongRulesAreRefused) {
  const std::pair<const char*, const char*> wrong[] = {
      {"where { of: 'user' }",
       "data.train.where[0] needs modulo, from, below or value: without them it leaves nothing out"},
      {"where { of: 'label' from: 1 } where { of: 'sex' value: 'm' }",
       "data.train.where[1].of 'sex' is no variable of one column, and no slot, of the data; there are label, user, "
       "city, dense[0], dense[1], tags"},
      {"where { of: 'label' modulo: 2 remainder: 1 }", "data.train.where[0].modulo is for ids; 'label' is a float"},
      {"where { of: 'user' modulo: 1 remainder: 0 }", "data.train.where[0].modulo must be at least 2, got 1"},
      {"where { of: 'user' modulo: 5 }", "data.train.where[0].modulo needs a remainder"},
      {"where { of: 'user' modulo: 5 remainder: 5 }", "data.train.where[0].remainder[0] must be from 0 to 4, got 5"},
      {"where { of: 'user' remainder: 5 from: 1 }", "data.train.where[0].remainder is for a modulo, which is not set"},
      {"where { of: 'user' hashed: true from: 1 }", "data.train.where[0].hashed is for a modulo, which is not set"},
      {"where { of: 'user' from: 5 below: 5 }", "data.train.where[0].below leaves no number: from 5, below 5"},
      {"where { of: 'label' value: 'yes' }",
       "data.train.where[0].value[0] is no number, got 'yes'; 'label' is a float"},
  };
  for (const auto& [rules, message] : wrong) {
    EXPECT_THAT(FilterOf(rules).status(), StatusIs(kInvalid, message)) << rules;
  }
}

// Columns whose reader says what the ids are.
TEST(RowFilterTest, ValuesAreReadAsTheIdsOfTheColumnAre) {
  const std::vector<Column> columns = {
      {.name = "integer", .kind = v1::IDS, .slot_names = {"integer"}, .id_kinds = {IdKind::kInteger}},
      {.name = "hex", .kind = v1::IDS, .slot_names = {"hex"}, .id_kinds = {IdKind::kHex}},
      {.name = "text", .kind = v1::IDS, .slot_names = {"text"}, .id_kinds = {IdKind::kText}}};
  const auto create = [&](const std::string& rules) {
    const v1::Data data = ParseData(absl::StrCat("train { ", rules, " }"));
    return RowFilter::Create(columns, data.train().where(), "train.where", PlainSettingErrors("data"));
  };
  const auto keeps = [&](const std::string& rules, int64_t integer, int64_t hex, int64_t text) {
    const absl::StatusOr<RowFilter> filter = create(rules);
    EXPECT_TRUE(filter.ok()) << filter.status();
    return filter.ok() && filter->Keeps({.ids = {integer, hex, text}, .counts = {1, 1, 1}});
  };
  EXPECT_TRUE(keeps("where { of: 'integer' value: '18446744073709551615' }", -1, 0, 0));
  EXPECT_TRUE(keeps("where { of: 'integer' value: '-9' }", -9, 0, 0));
  EXPECT_TRUE(keeps("where { of: 'hex' value: '10000001' }", 0, 0x10000001, 0));
  EXPECT_FALSE(keeps("where { of: 'hex' value: '10000001' }", 0, 10000001, 0));
  EXPECT_TRUE(keeps("where { of: 'text' value: '7' }", 0, 0, static_cast<int64_t>(StableHash("7"))));
  EXPECT_FALSE(keeps("where { of: 'text' value: '7' }", 0, 0, 7));
  EXPECT_THAT(create("where { of: 'integer' value: 'DE' }").status(),
              StatusIs(kInvalid, "data.train.where[0].value[0] is no integer, as the ids of 'integer' are; got 'DE'"));
  EXPECT_THAT(
      create("where { of: 'hex' value: 'xyz' }").status(),
      StatusIs(kInvalid, "data.train.where[0].value[0] is no hexadecimal number, as the ids of 'hex' are; got 'xyz'"));
  EXPECT_THAT(create("where { of: 'text' from: 20240101 }").status(),
              StatusIs(kInvalid,
                       "data.train.where[0].of 'text' is texts, whose ids are hashes: there is no number in "
                       "them; read the column as ids or floats"));
}

}  // namespace
}  // namespace weir
