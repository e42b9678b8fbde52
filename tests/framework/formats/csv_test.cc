// Columns of text: with a header and without, in quotes, as lists.

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/stable_hash.h"
#include "framework/formats/derived.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/formats/parser_testing.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/files/line_source.h"

namespace weir {
namespace {

constexpr char kNoNumber[] =
    " is not a finite number; for texts there are classes, learn_classes and type: TEXT, and `missing` names what "
    "stands "
    "for nothing";

constexpr char kNotClosed[] =
    "its quote is not closed; an end of line cannot be in a field, and in text without quotes data.csv.quote is empty";

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::NanSensitiveFloatEq;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

auto Invalid(const std::string& text) { return StatusIs(kInvalid, text); }
int64_t Hash(std::string_view text) { return static_cast<int64_t>(StableHash(text)); }

constexpr char kColumns[] = R"(
    column { name: "label" }
    column { name: "user" type: ID output: "cat" }
    column { name: "comment" type: SKIP }
    column { name: "city" type: TEXT output: "cat" }
    column { name: "position" list: ";" dim: 2 output: "dense" }
    column { name: "age" output: "dense" }
    column { name: "genres" type: TEXT list: "|" }
    column { name: "items" type: ID list: "|" weight: ":" })";

class CsvTest : public ::testing::Test {
 protected:
  void Configure(const std::string& config) {
    auto parser = MakeLineParser(ParseData("csv { " + config + " }"));
    ASSERT_TRUE(parser.ok()) << parser.status();
    parser_ = std::move(parser).value();
    ExampleStream::Prepare(*parser_, &example_);
  }
  void Below(const std::string& header, const std::vector<int64_t>& may_be_absent = {}) {
    auto parser = parser_->ForHeader(header, may_be_absent);
    ASSERT_TRUE(parser.ok()) << parser.status();
    parser_ = std::move(parser).value();
  }
  void SetUp() override { Configure(absl::StrCat("header: false ", kColumns)); }
  absl::Status Parse(const std::string& line) { return ParseBothWays(*parser_, line, &example_); }
  static absl::Status Refusal(const std::string& config) {
    return MakeLineParser(ParseData("csv { " + config + " }")).status();
  }

  std::unique_ptr<LineParser> parser_;
  Example example_;
};

TEST_F(CsvTest, ColumnsWithOneOutputShareAVariable) {
  EXPECT_EQ(parser_->columns(),
            (std::vector<Column>{{.name = "label"},
                                 {.name = "cat", .kind = v1::IDS, .width = 2, .slot_names = {"user", "city"}},
                                 {.name = "dense", .width = 3},
                                 {.name = "genres", .kind = v1::IDS, .width = 1, .slot_names = {"genres"}},
                                 {.name = "items", .kind = v1::IDS, .width = 1, .slot_names = {"items"}}}));
}

TEST_F(CsvTest, FieldsOfALineArriveInTheirColumns) {
  ASSERT_TRUE(Parse("1,-7,whatever,Oslo,0.5;-2,39,Action|Drama,11|12:0.5").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 0.5, -2, 39));
  EXPECT_THAT(example_.ids, ElementsAre(-7, Hash("Oslo"), Hash("Action"), Hash("Drama"), 11, 12));
  EXPECT_THAT(example_.counts, ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(example_.weights, ElementsAre(1, 1, 1, 1, 1, 0.5));
}

TEST_F(CsvTest, WhatIsEmptyIsMissing) {
  ASSERT_TRUE(Parse(",,,,,,,").ok());
  EXPECT_THAT(example_.floats, ElementsAre(NanSensitiveFloatEq(kNan), NanSensitiveFloatEq(kNan),
                                           NanSensitiveFloatEq(kNan), NanSensitiveFloatEq(kNan)));
  EXPECT_THAT(example_.ids, IsEmpty());
  EXPECT_THAT(example_.counts, ElementsAre(0, 0, 0, 0));
  ASSERT_TRUE(Parse("\"\",\"\",\"\",\"\",1;,\"\",|a||b|,\"\"").ok());
  EXPECT_THAT(example_.floats,
              ElementsAre(NanSensitiveFloatEq(kNan), 1, NanSensitiveFloatEq(kNan), NanSensitiveFloatEq(kNan)));
  EXPECT_THAT(example_.ids, ElementsAre(Hash("a"), Hash("b")));
  EXPECT_THAT(example_.counts, ElementsAre(0, 0, 2, 0));
}

TEST_F(CsvTest, AFieldMayStandInQuotes) {
  ASSERT_TRUE(Parse("\"1\",\"7\",\"a,b \"\"c\"\"\",\"Oslo, \"\"Norway\"\"\",\"1;2\",\"3\",\"x,y|z\",\"5\"").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 1, 2, 3));
  EXPECT_THAT(example_.ids, ElementsAre(7, Hash("Oslo, \"Norway\""), Hash("x,y"), Hash("z"), 5));
  // One that does not begin a field is a character.
  ASSERT_TRUE(Parse("1,7,,5\" x 7\",1;2,3,,").ok());
  EXPECT_THAT(example_.ids, ElementsAre(7, Hash("5\" x 7\"")));
}

TEST_F(CsvTest, AListMayUseTheSeparatorInQuotes) {
  Configure("header: false column { name: 'v' list: ',' dim: 3 } column { name: 'tags' type: TEXT list: ',' }");
  ASSERT_TRUE(Parse("\"1,2,3\",\"a,b\"").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 2, 3));
  EXPECT_THAT(example_.ids, ElementsAre(Hash("a"), Hash("b")));
}

TEST_F(CsvTest, OfATextWithAWeightTheLastMarkCounts) {
  Configure("header: false column { name: 'tags' type: TEXT list: '|' weight: ':' }");
  ASSERT_TRUE(Parse("a:b:2|c").ok());
  EXPECT_THAT(example_.ids, ElementsAre(Hash("a:b"), Hash("c")));
  EXPECT_THAT(example_.weights, ElementsAre(2, 1));
  EXPECT_THAT(Parse("a:b"), Invalid("field 1 (tags): the weight in 'a:b' is not a finite number"));
  EXPECT_THAT(Parse(":1"), Invalid("field 1 (tags): there is no value before the weight in ':1'"));
}

TEST_F(CsvTest, IdsAreAny64Bits) {
  Configure("header: false separator: '\\t' column { name: 'id' type: ID list: ' ' }");
  ASSERT_TRUE(Parse("-9223372036854775808 9223372036854775807 18446744073709551615 -1").ok());
  EXPECT_THAT(example_.ids,
              ElementsAre(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), -1, -1));
  EXPECT_THAT(Parse("18446744073709551616"), Invalid("field 1 (id): '18446744073709551616' is not a 64-bit integer"));
}

TEST_F(CsvTest, TheHashOfATextNeverChanges) {
  Configure("header: false column { name: 'city' type: TEXT }");
  ASSERT_TRUE(Parse("Oslo").ok());
  EXPECT_THAT(example_.ids, ElementsAre(-804122101376480525));
}

TEST_F(CsvTest, FloatsAreRoundedToFloat32OrRefused) {
  ASSERT_TRUE(Parse("+1,+2,,,3.2e-51;-1e-400,+0.5,,3:1e-51").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 0, 0, 0.5));
  EXPECT_TRUE(std::signbit(example_.floats[2]));
  EXPECT_THAT(example_.ids, ElementsAre(2, 3));
  EXPECT_THAT(example_.weights, ElementsAre(1, 0));
  EXPECT_THAT(Parse("1,2,,,1;1e39,3,,"),
              Invalid("field 5 (position): '1e39' is beyond float32, whose greatest number is 3.4e38"));
  EXPECT_THAT(Parse("1,2,,,1;2,3,,7:1e39"),
              Invalid("field 8 (items): the weight in '7:1e39' is beyond float32, whose greatest number is 3.4e38"));
}

TEST_F(CsvTest, BadLinesAreExplained) {
  EXPECT_THAT(Parse("1,2"), Invalid("expected 8 fields, got 2"));
  EXPECT_THAT(Parse("1,2,,,1;2,3,,,"), Invalid("expected 8 fields, got 9"));
  EXPECT_THAT(Parse("x,2,,,1;2,3,,"), Invalid(absl::StrCat("field 1 (label): 'x'", kNoNumber)));
  EXPECT_THAT(Parse("nan,2,,,1;2,3,,"), Invalid(absl::StrCat("field 1 (label): 'nan'", kNoNumber)));
  EXPECT_THAT(Parse("1, 2,,,1;2,3,,"), Invalid("field 2 (user): ' 2' is not a 64-bit integer"));
  EXPECT_THAT(Parse("1,2,,,1;2;3,3,,"), Invalid("field 5 (position): expected 2 values, got 3"));
  EXPECT_THAT(Parse("1,2,,,1,3,,"), Invalid("field 5 (position): expected 2 values, got 1"));
  EXPECT_THAT(Parse("1,2,,,1;2,3,,7:x"), Invalid("field 8 (items): the weight in '7:x' is not a finite number"));
  EXPECT_THAT(Parse("1,2,\"a"), Invalid(absl::StrCat("field 3: ", kNotClosed)));
  EXPECT_THAT(Parse("1,2,\"a\"b,"),
              Invalid("field 3: 'b,' stands behind its closing quote; a quote in a field is doubled, and "
                      "fields are separated by ',' (data.csv.separator)"));
  const std::string many = absl::StrJoin(std::vector<int>(65536, 1), "|");
  EXPECT_THAT(Parse("1,2,,,1;2,3,," + many), Invalid("field 8 (items): has 65536 values; at most 65535 are possible"));
}

TEST_F(CsvTest, AHeaderSaysWhereColumnsAre) {
  Configure(kColumns);
  EXPECT_TRUE(parser_->has_header());
  Below("items,unknown,genres,age,\"position\",city,user,label");
  ASSERT_TRUE(Parse("11:2,x,Drama,39,0.5;-2,Oslo,7,1").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 0.5, -2, 39));
  EXPECT_THAT(example_.ids, ElementsAre(7, Hash("Oslo"), Hash("Drama"), 11));
  EXPECT_THAT(example_.counts, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(example_.weights, ElementsAre(1, 1, 1, 2));
  EXPECT_THAT(Parse("1,2"), Invalid("expected 8 fields, got 2"));
}

TEST_F(CsvTest, AHeaderWithoutAColumnIsRefused) {
  Configure("column { name: 'a' } column { name: 'b' type: TEXT }");
  EXPECT_THAT(parser_->ForHeader("b,c", {}).status(), Invalid("the header has no column 'a'; its 2 are b, c"));
  EXPECT_THAT(parser_->ForHeader("a,b,a", {}).status(), Invalid("the header has two columns 'a'"));
  EXPECT_THAT(parser_->ForHeader("a,\"b", {}).status(), Invalid(absl::StrCat("field 2: ", kNotClosed)));
  EXPECT_THAT(parser_->ForHeader("a," + std::string(1000, 'x'), {}).status(), StatusIs(kInvalid, HasSubstr("x ...")));
  // A label of lines to be predicted.
  Below("b,c", {0});
  ASSERT_TRUE(Parse("x,1").ok());
  EXPECT_THAT(example_.floats, ElementsAre(NanSensitiveFloatEq(kNan)));
}

TEST_F(CsvTest, WhateverStandsInALineBothWaysAgree) {
  const std::string good = "1,-7,\"a,\"\"b\",Oslo,0.5;-2.25,39,Action|Drama,11|12:0.5";
  const int refused =
      RefusedOfChanged(good, "0123,;|:\"-.e\xff", [this](const std::string& line) { return Parse(line); });
  EXPECT_GT(refused, 5000);
  EXPECT_LT(refused, 19500);
}

TEST_F(CsvTest, AListNeedsNoWeightsAndWeightsNoList) {
  Configure("header: false column { name: 'v' list: ';' dim: 2 } column { name: 'tags' type: TEXT list: '|' }");
  ASSERT_TRUE(Parse("1;2,a|b").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 2));
  EXPECT_THAT(example_.ids, ElementsAre(Hash("a"), Hash("b")));
  EXPECT_THAT(Parse("1,a|b"), Invalid("field 1 (v): expected 2 values, got 1"));
  Configure("header: false column { name: 'tags' type: TEXT list: '|' }");
  ASSERT_TRUE(Parse("a|b").ok());
  EXPECT_THAT(example_.ids, ElementsAre(Hash("a"), Hash("b")));
  EXPECT_THAT(example_.counts, ElementsAre(2));
  Configure("header: false column { name: 'tag' type: TEXT weight: ':' }");
  ASSERT_TRUE(Parse("a:0.5").ok());
  EXPECT_THAT(example_.ids, ElementsAre(Hash("a")));
  EXPECT_THAT(example_.weights, ElementsAre(0.5));
}

TEST_F(CsvTest, WhateverStandsInALineOfListsWithoutWeightsBothWaysAgree) {
  Configure(
      "header: false column { name: 'label' } column { name: 'v' list: ';' dim: 2 } "
      "column { name: 'tags' type: TEXT list: '|' } column { name: 'items' type: ID list: '|' }");
  const std::string good = "1,0.5;-2.25,\"Action|Drama\",11|-12";
  const int refused =
      RefusedOfChanged(good, "0123,;|:\"-.e\xff", [this](const std::string& line) { return Parse(line); });
  EXPECT_GT(refused, 5000);
  EXPECT_LT(refused, 19500);
}

TEST_F(CsvTest, AClassIsANumberAndAMarkIsMissing) {
  Configure(R"(header: false
      column { name: "income" classes { text: "<=50K" text: "<=50K." } classes { text: ">50K" text: ">50K." } }
      column { name: "age" missing: "?" missing: "NA" }
      column { name: "work" type: TEXT missing: "?" }
      column { name: "place" list: ";" dim: 2 missing: "?" }
      column { name: "tags" type: TEXT list: "|" missing: "none" })");
  ASSERT_TRUE(Parse(">50K,39,Private,1;?,a|none|b").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 39, 1, NanSensitiveFloatEq(kNan)));
  EXPECT_THAT(example_.ids, ElementsAre(Hash("Private"), Hash("a"), Hash("b")));
  EXPECT_THAT(example_.counts, ElementsAre(1, 2));
  ASSERT_TRUE(Parse("<=50K.,?,?,?,none").ok());
  EXPECT_THAT(example_.floats,
              ElementsAre(0, NanSensitiveFloatEq(kNan), NanSensitiveFloatEq(kNan), NanSensitiveFloatEq(kNan)));
  EXPECT_THAT(example_.counts, ElementsAre(0, 0));
  ASSERT_TRUE(Parse("\"<=50K\",\"NA\",\"?\",3;4,").ok());
  EXPECT_THAT(example_.floats, ElementsAre(0, NanSensitiveFloatEq(kNan), 3, 4));
  EXPECT_THAT(Parse("50K,1,a,1;2,b"),
              Invalid("field 1 (income): '50K' is no class; classes are '<=50K', '<=50K.', '>50K', '>50K.'"));
  EXPECT_THAT(Parse(",1,a,1;2,b").ok(), true) << "a label that is missing is found later";
  EXPECT_THAT(Parse(">50K,n/a,a,1;2,b"), Invalid(absl::StrCat("field 2 (age): 'n/a'", kNoNumber)));
}

TEST_F(CsvTest, ATimeIsItsSecondsSince1970) {
  Configure(R"(header: false column { name: "a" type: TIME missing: "never" }
      column { name: "b" type: TIME time_format: "%y%m%d%H" }
      column { name: "c" type: TIME time_format: "%Y-%m-%dT%H:%M:%E*S%Ez" })");
  ASSERT_EQ(Parse("2013-01-15 06:30:59,14102103,2024-02-29T23:00:01.75-05:30"), absl::OkStatus());
  EXPECT_THAT(example_.ids, ElementsAre(1358231459, 1413860400, 1709267401));
  ASSERT_EQ(Parse("\"1969-12-31 23:59:59\",,"), absl::OkStatus());
  EXPECT_THAT(example_.ids, ElementsAre(-1));
  EXPECT_THAT(example_.counts, ElementsAre(1, 0, 0));
  ASSERT_EQ(Parse("never,14102103,"), absl::OkStatus());
  EXPECT_THAT(example_.counts, ElementsAre(0, 1, 0));
  for (const char* const wrong : {"2013-02-30 06:30:59", "2013-01-15", "infinite-future", "x"}) {
    EXPECT_THAT(Parse(absl::StrCat(wrong, ",,")),
                StatusIs(kInvalid, absl::StrCat("field 1 (a): '", wrong,
                                                "' is no time of the form '%Y-%m-%d %H:%M:%S' (time_format)")));
  }
}

TEST_F(CsvTest, TextsWhoseClassesAreToBeLearnedAreKept) {
  Configure(R"(header: false column { name: "l" learn_classes: true missing: "?" } column { name: "x" }
      column { name: "m" learn_classes: true })");
  ASSERT_TRUE(Parse("yes,1,\"a, b\"").ok());
  EXPECT_THAT(example_.texts, ElementsAre("yes", "a, b"));
  EXPECT_THAT(example_.floats, ElementsAre(0, 1, 0));
  ASSERT_TRUE(Parse("?,1,\"\"").ok());
  EXPECT_THAT(example_.texts, ElementsAre("", ""));
  EXPECT_THAT(example_.floats, ElementsAre(NanSensitiveFloatEq(kNan), 1, NanSensitiveFloatEq(kNan)));
}

TEST_F(CsvTest, AVariableOfLearnedClassesIsMarked) {
  Configure("header: false column { name: 'l' learn_classes: true classes { text: 'a' } } column { name: 'x' }");
  EXPECT_TRUE(parser_->columns()[0].learned) << "also when they are known";
  EXPECT_FALSE(parser_->columns()[1].learned);
}

TEST_F(CsvTest, ManyClassesAreFound) {
  std::string columns = "header: false column { name: 'l' ";
  for (int i = 0; i < 40; ++i) absl::StrAppend(&columns, "classes { text: 'c", i, "' } ");
  Configure(columns + "}");
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(Parse(absl::StrCat("c", i)).ok());
    EXPECT_EQ(example_.floats[0], i);
  }
  EXPECT_FALSE(Parse("c40").ok());
}

TEST_F(CsvTest, AMarkMayHoldTheCharacterOfTheListAndHaveAWeight) {
  Configure(R"(header: false
      column { name: "tags" type: TEXT list: "/" missing: "n/a" }
      column { name: "items" type: ID list: "|" weight: ":" missing: "?" })");
  ASSERT_TRUE(Parse("n/a,?:0.5|7:2").ok());
  EXPECT_THAT(example_.counts, ElementsAre(0, 1));
  EXPECT_THAT(example_.ids, ElementsAre(7));
  EXPECT_THAT(example_.weights, ElementsAre(2));
  ASSERT_TRUE(Parse("n/b,?").ok());
  EXPECT_THAT(example_.ids, ElementsAre(Hash("n"), Hash("b")));
  EXPECT_THAT(example_.counts, ElementsAre(2, 0));
}

TEST_F(CsvTest, BlanksAroundAFieldAreNoPartOfIt) {
  const std::string columns = R"( column { name: "label" classes { text: "no" } classes { text: "yes" } }
      column { name: "x" missing: "?" } column { name: "city" type: TEXT })";
  Configure("header: false trim: true" + columns);
  ASSERT_TRUE(Parse("yes ,\t 2.5,  New York ").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 2.5));
  EXPECT_THAT(example_.ids, ElementsAre(Hash("New York")));
  ASSERT_TRUE(Parse(" no, ? , \" a, \"\"b\"\" \" ").ok());
  EXPECT_THAT(example_.floats, ElementsAre(0, NanSensitiveFloatEq(kNan)));
  EXPECT_THAT(example_.ids, ElementsAre(Hash(" a, \"b\" "))) << "blanks in quotes are part of a field";
  ASSERT_TRUE(Parse("yes, ,  ").ok());
  EXPECT_THAT(example_.counts, ElementsAre(0));
  Configure("header: true trim: true" + columns);
  Below(" x , label,city");
  ASSERT_TRUE(Parse("1, yes, Oslo").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 1));
  // A tab that separates is no blank.
  Configure("header: false trim: true separator: \"\\t\"" + columns);
  ASSERT_TRUE(Parse(" yes \t\t Oslo").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, NanSensitiveFloatEq(kNan)));
  Configure("header: false" + columns);
  EXPECT_THAT(Parse("yes ,1,a"), Invalid("field 1 (label): 'yes ' is no class; classes are 'no', 'yes'"));
}

TEST_F(CsvTest, WhateverStandsInALineOfClassesAndMarksBothWaysAgree) {
  for (const char* trim : {"false", "true"}) {
    Configure(absl::StrCat("header: false trim: ", trim,
                           R"( column { name: "l" classes { text: "a" } classes { text: "b c" } }
        column { name: "x" missing: "?" } column { name: "t" type: TEXT missing: "?" }
        column { name: "i" type: ID list: "|" missing: "?" })"));
    const std::string good = "b c,1.5,\"?\", 12|?|13";
    const int refused =
        RefusedOfChanged(good, "ab c,?|\"1\t.", [this](const std::string& line) { return Parse(line); });
    EXPECT_GT(refused, 1000);
  }
}

TEST_F(CsvTest, BadConfigurationsAreRefused) {
  EXPECT_THAT(Refusal(""), Invalid("data.csv: no column that is not skipped"));
  EXPECT_THAT(Refusal("column {}"), Invalid("data.csv.column[0]: name is empty"));
  EXPECT_THAT(Refusal("separator: '' column { name: 'a' }"),
              Invalid("data.csv.separator must be one character or several, got ''"));
  EXPECT_THAT(Refusal("separator: '1' column { name: 'a' }"), Invalid("data.csv.separator '1' may stand in a number"));
  EXPECT_THAT(Refusal("column { name: 'a' list: 'ab' dim: 2 }"),
              Invalid("data.csv.column[0].list must be one character, got 'ab'"));
  EXPECT_THAT(Refusal("column { name: 'a' dim: 2 }"),
              Invalid("data.csv.column[0].dim: is for a column with a list, got 2"));
}

// ---------------------------------------------------------------------------------------------------------- dialects

TEST_F(CsvTest, WithoutQuotesAQuoteIsACharacter) {
  Configure("header: false quote: '' column { name: 'a' type: TEXT } column { name: 'x' }");
  ASSERT_TRUE(Parse("\"5,2").ok());
  EXPECT_THAT(example_.ids, ElementsAre(Hash("\"5")));
  EXPECT_THAT(example_.floats, ElementsAre(2));
  ASSERT_TRUE(Parse("\"a\",2").ok());
  EXPECT_THAT(example_.ids, ElementsAre(Hash("\"a\"")));
  EXPECT_THAT(Parse("\"a,b\",2"), Invalid("expected 2 fields, got 3"));
}

TEST_F(CsvTest, AnotherCharacterMayQuoteFields) {
  Configure("header: false quote: \"'\" column { name: 'a' type: TEXT } column { name: 'b' type: TEXT }");
  ASSERT_TRUE(Parse("'it''s, \"so\"',\"5").ok());
  EXPECT_THAT(example_.ids, ElementsAre(Hash("it's, \"so\""), Hash("\"5")));
  EXPECT_THAT(Parse("'a,b"), Invalid(absl::StrCat("field 1: ", kNotClosed)));
  Configure("header: false quote: '|' trim: true column { name: 'x' } column { name: 'b' type: ID }");
  ASSERT_TRUE(Parse(" |1.5| ,|7|").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1.5));
  EXPECT_THAT(example_.ids, ElementsAre(7));
}

TEST_F(CsvTest, ASeparatorMayHaveSeveralCharacters) {
  const std::string columns =
      " column { name: 'u' type: ID } column { name: 't' type: TEXT } column { name: 'x' } column { name: 'v' type: ID "
      "}";
  Configure("header: false separator: '::'" + columns);
  ASSERT_TRUE(Parse("1::a:b::2.5::7").ok());
  EXPECT_THAT(example_.ids, ElementsAre(1, Hash("a:b"), 7));
  EXPECT_THAT(example_.floats, ElementsAre(2.5));
  // The first pair of a run separates.
  ASSERT_TRUE(Parse("1:::a::2::7").ok());
  EXPECT_THAT(example_.ids, ElementsAre(1, Hash(":a"), 7));
  ASSERT_TRUE(Parse("::::::").ok());
  EXPECT_THAT(example_.ids, IsEmpty());
  ASSERT_TRUE(Parse("1::\"a::b\"::3::7").ok());
  EXPECT_THAT(example_.ids, ElementsAre(1, Hash("a::b"), 7));
  EXPECT_THAT(Parse("1::2:3"), Invalid("expected 4 fields, got 2"));
  EXPECT_THAT(Parse("1::\"a\":b::3::7"),
              Invalid("field 2: ':b::3::7' stands behind its closing quote; a quote in a field is doubled, and fields "
                      "are separated by '::' (data.csv.separator)"));
  // Blanks of the separator are none of a field.
  Configure("header: false trim: true separator: ' | '" + columns);
  ASSERT_TRUE(Parse("1 |  |   2 | 7 ").ok());
  EXPECT_THAT(example_.ids, ElementsAre(1, 7));
  EXPECT_THAT(example_.floats, ElementsAre(2));
}

TEST_F(CsvTest, NumbersMayHaveADecimalComma) {
  Configure(
      "header: false separator: ';' decimal_comma: true column { name: 'x' } column { name: 'v' list: '|' dim: 2 } "
      "column { name: 'i' type: ID list: '|' weight: ':' } column { name: 't' type: TEXT }");
  ASSERT_TRUE(Parse("3,25;1|-0,5;7:0,5|8;a,b").ok());
  EXPECT_THAT(example_.floats, ElementsAre(3.25, 1, -0.5));
  EXPECT_THAT(example_.ids, ElementsAre(7, 8, Hash("a,b")));
  EXPECT_THAT(example_.weights, ElementsAre(0.5, 1, 1));
  ASSERT_TRUE(Parse("1,5e3;,5|2,;;x").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1500, 0.5, 2));
  EXPECT_THAT(Parse("1.5;1|2;;x"),
              Invalid("field 1 (x): '1.5' is not a finite number; data.csv.decimal_comma is set, so "
                      "that numbers have a comma and no point"));
  EXPECT_THAT(Parse("1.234,5;1|2;;x"), Invalid(absl::StrCat("field 1 (x): '1.234,5'", kNoNumber)));
  EXPECT_THAT(Parse("1,2,3;1|2;;x"), Invalid(absl::StrCat("field 1 (x): '1,2,3'", kNoNumber)));
  // Sheets write such numbers between commas in quotes.
  Configure("header: false decimal_comma: true column { name: 'x' } column { name: 'y' }");
  ASSERT_TRUE(Parse("\"1,5\",2").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1.5, 2));
  EXPECT_THAT(Parse("1,5,2"), Invalid("expected 2 fields, got 3"));
  Configure("header: false separator: ';' column { name: 'x' }");
  EXPECT_THAT(Parse("1,5"),
              Invalid("field 1 (x): '1,5' is not a finite number; data.csv.decimal_comma reads numbers with a comma"));
}

TEST_F(CsvTest, AnIdMayBeWrittenWithZerosBehindAPointWhereAsked) {
  Configure(
      "header: false column { name: 'i' type: ID whole_floats: true missing: 'nan' } column { name: 'j' type: ID } "
      "column { name: 'l' type: ID list: '|' weight: ':' whole_floats: true }");
  ASSERT_TRUE(Parse("12.0,3,1.0|2|-3.000:0.5").ok());
  EXPECT_THAT(example_.ids, ElementsAre(12, 3, 1, 2, -3));
  EXPECT_THAT(example_.weights, ElementsAre(1, 1, 1, 1, 0.5));
  // All digits count: such a number is no float.
  ASSERT_TRUE(Parse("9007199254740993.0,,").ok());
  EXPECT_THAT(example_.ids, ElementsAre(9007199254740993));
  ASSERT_TRUE(Parse("nan,,").ok());
  EXPECT_THAT(example_.ids, IsEmpty());
  for (const char* const wrong : {"12.5", "1.2e1", "12.", ".0", "12.0.0", "12.00x", "12,0", "0x1.0"}) {
    EXPECT_THAT(Parse(absl::StrCat("\"", wrong, "\",1,")),
                Invalid(absl::StrCat("field 1 (i): '", wrong, "' is not a 64-bit integer")));
  }
  EXPECT_THAT(Parse("1,12.0,"), Invalid("field 2 (j): '12.0' is not a 64-bit integer; whole_floats of the column takes "
                                        "such numbers"));
  EXPECT_THAT(Parse("1,12.5,"), Invalid("field 2 (j): '12.5' is not a 64-bit integer"));
  Configure("header: false decimal_comma: true separator: ';' column { name: 'i' type: ID whole_floats: true }");
  ASSERT_TRUE(Parse("12,0").ok());
  EXPECT_THAT(example_.ids, ElementsAre(12));
  EXPECT_FALSE(Parse("12.0").ok());
}

TEST_F(CsvTest, OfEveryDialectBothWaysAgree) {
  const std::string columns =
      " header: false column { name: 'x' } column { name: 'i' type: ID whole_floats: true } column { name: 't' type: "
      "TEXT } column { name: 'l' type: ID list: '|' }";
  for (const char* const dialect :
       {"quote: ''", "quote: \"'\" separator: ';'", "quote: \"'\" trim: true", "separator: ';;' trim: true",
        "separator: '; ' trim: true decimal_comma: true", "separator: ';' decimal_comma: true quote: ''"}) {
    Configure(dialect + columns);
    const v1::Data data = ParseData("csv { " + (dialect + columns) + " }");
    const std::string& separator = data.csv().separator();
    const std::string good = absl::StrJoin({std::string(data.csv().decimal_comma() ? "1,5" : "1.5"), std::string("12"),
                                            std::string("'a b'"), std::string("3|4")},
                                           separator);
    ASSERT_TRUE(Parse(good).ok()) << dialect;
    EXPECT_GT(RefusedOfChanged(good, "0.,;'\" |", [this](const std::string& line) { return Parse(line); }), 1000);
  }
}

TEST_F(CsvTest, DialectsThatCannotBeAreRefused) {
  const auto wrong = [](const std::string& dialect) { return Refusal(dialect + " column { name: 'a' }"); };
  EXPECT_THAT(wrong("quote: 'ab'"),
              Invalid("data.csv.quote must be one character, or empty where fields have no quotes, got 'ab'"));
  EXPECT_THAT(wrong("quote: '5'"),
              Invalid("data.csv.quote must be no end of line, no blank and nothing that numbers hold, got '5'"));
  EXPECT_THAT(wrong("separator: ',\"'"), Invalid("data.csv.separator must be no quote and no end of line"));
  EXPECT_THAT(wrong("separator: ';;' quote: ';'"), Invalid("data.csv.separator must be no quote and no end of line"));
  EXPECT_THAT(wrong("separator: ',\\n'"), Invalid("data.csv.separator must be no quote and no end of line"));
  EXPECT_THAT(wrong("separator: '--'"), Invalid("data.csv.separator '--' may stand in a number"));
  EXPECT_THAT(wrong("decimal_comma: true quote: ''"),
              Invalid("data.csv.decimal_comma cannot be told from the separator ',' where fields have no quotes"));
  EXPECT_THAT(wrong("skip_lines: -1"), Invalid("data.csv.skip_lines must not be negative, got -1"));
  EXPECT_THAT(wrong("comment: 'a\\n'"), Invalid("data.csv.comment begins a line, and has no end of line in it"));
  EXPECT_THAT(Refusal("decimal_comma: true separator: ';' column { name: 'a' list: ',' dim: 2 }"),
              Invalid("data.csv.column[0].list ',' may stand in a number"));
  EXPECT_THAT(Refusal("decimal_comma: true separator: ';' column { name: 'a' type: TEXT list: ',' weight: ':' }"),
              Invalid("data.csv.column[0].list ',' may stand in a number"));
  EXPECT_TRUE(Refusal("decimal_comma: true separator: ';' column { name: 'a' type: TEXT list: ',' }").ok());
}

// ------------------------------------------------------------------------------------------------ files and streams

// All values of column "x" in the order of streams.
absl::StatusOr<std::vector<std::vector<float>>> ReadStreams(const TempDir& dir, const std::string& data, int lanes,
                                                            bool predicting = false) {
  DataSpec spec = MakeSpec(data, dir);
  spec.lanes = lanes;
  if (predicting) spec.required = {"y"};
  auto numbers =
      ReadNumbers({.spec = spec, .streams = {0, lanes}, .one_pass_in_order = true, .labels_may_be_missing = predicting},
                  OpenTrain(spec));
  if (!numbers.ok()) return numbers.status();
  std::vector<std::vector<float>> streams;
  for (const auto& stream : *numbers) {
    streams.emplace_back();
    for (const auto& batch : stream) streams.back().insert(streams.back().end(), batch.begin(), batch.end());
  }
  return streams;
}

constexpr char kX[] = "train { files: 'f*' } csv { column { name: 'x' } } batch_size: 64";

TEST(CsvFilesTest, TheHeaderOfEveryFileIsSkippedByWhoeverHasIt) {
  for (const bool compressed : {false, true}) {
    for (const int lanes : {1, 2, 4, 8, 64}) {
      TempDir dir;
      float next = 0;
      for (int f = 0; f < 3; ++f) {
        std::string text = f == 1 ? "a,x\n" : "x,a long name, of a column\n";
        for (int i = 0; i < 40; ++i, ++next)
          absl::StrAppend(&text, f == 1 ? absl::StrCat("7,", next) : absl::StrCat(next, ",7,7"), "\n");
        dir.Write(absl::StrCat("f", f), compressed ? Gzip(text) : text);
      }
      const auto streams = ReadStreams(dir, kX, lanes);
      ASSERT_TRUE(streams.ok()) << streams.status();
      std::vector<float> all;
      for (const auto& stream : *streams) all.insert(all.end(), stream.begin(), stream.end());
      ASSERT_EQ(all.size(), 120u) << lanes << " lanes, compressed " << compressed;
      // Headers are no lines: each round of lines, over all files, has one for every stream.
      for (int s = 0; s < lanes; ++s) {
        const std::vector<float>& stream = (*streams)[static_cast<size_t>(s)];
        for (size_t i = 0; i < stream.size(); ++i) {
          ASSERT_EQ(static_cast<int>(stream[i]) / lanes, static_cast<int>(i)) << s << " of " << lanes;
        }
      }
      std::sort(all.begin(), all.end());
      for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<float>(i));
    }
  }
}

TEST(CsvFilesTest, AMissingColumnIsAnErrorThatNamesTheFile) {
  TempDir dir;
  dir.Write("f0", "x\n1\n");
  dir.Write("f1", "y\n1\n");
  EXPECT_THAT(ReadStreams(dir, kX, 1).status(), Invalid("f1:1: the header has no column 'x'; its 1 are y"));
}

TEST(CsvFilesTest, LinesAreCountedWithTheHeader) {
  TempDir dir;
  dir.Write("f", "x\n1\nz\n");
  EXPECT_THAT(ReadStreams(dir, kX, 1).status(), Invalid(absl::StrCat("f:3: field 1 (x): 'z'", kNoNumber)));
}

constexpr char kWithRules[] =
    "train { files: 'f*' } csv { skip_lines: 2 skip_blank_lines: true comment: '#' separator: '\t' column { name: 'x' "
    "} "
    "column { name: 't' type: TEXT } } batch_size: 64";

TEST(CsvFilesTest, SkippedBlankAndCommentedLinesAreNoExamplesOfAnyStream) {
  const std::string below = "#first\n\nt\tx\n# 1\n";
  std::string text = "x,\"\n\r\n" + below, plain = "t\tx\n";
  for (int i = 0; i < 3000; ++i) {
    const std::string line = absl::StrCat("a\t", i, i % 7 == 0 ? "\r\n" : "\n");
    absl::StrAppend(&text, i % 3 == 0 ? " \n" : "", i % 5 == 0 ? "#\n" : "", line, i % 11 == 0 ? "\n\r\n" : "");
    plain += line;
  }
  // More than a block of it, and nothing but comments.
  std::string long_text = text;
  for (int i = 0; i < 60000; ++i) long_text += "# no example\n";
  long_text += "a\t3000\n\n\n";
  const std::string lacks_end = text + "a\t3000";
  plain += "a\t3000\n";
  const std::string wanted = "train { files: 'f*' } csv { separator: '\t' column { name: 'x' } } batch_size: 64";
  for (const int lanes : {1, 2, 4, 8, 64}) {
    TempDir dir;
    dir.Write("f", plain);
    const auto streams = ReadStreams(dir, wanted, lanes);
    ASSERT_TRUE(streams.ok()) << streams.status();
    for (const std::string& each : {text + "a\t3000\n", long_text, lacks_end, lacks_end + "\n#"}) {
      for (const bool compressed : {false, true}) {
        TempDir other;
        other.Write("f", compressed ? Gzip(each) : each);
        const auto same = ReadStreams(other, kWithRules, lanes);
        ASSERT_TRUE(same.ok()) << same.status();
        EXPECT_EQ(*same, *streams) << lanes << " lanes, " << each.size() << " bytes, compressed " << compressed;
      }
    }
  }
}

TEST(CsvFilesTest, ALineIsNotBlankWithASeparator) {
  TempDir dir;
  dir.Write("f", "\n\nt\tx\n\t\n \na\t5\n");
  const auto streams = ReadStreams(dir, kWithRules, 1);
  ASSERT_TRUE(streams.ok()) << streams.status();
  EXPECT_THAT(*streams, ElementsAre(ElementsAre(0, 5)));  // NaN becomes 0
}

TEST(CsvFilesTest, NumbersOfLinesCountThoseThatAreNoRecords) {
  for (const bool compressed : {false, true}) {
    TempDir dir;
    const auto write = [&](const std::string& text) { dir.Write("f", compressed ? Gzip(text) : text); };
    write("about\nit\n# c\nx\tt\n\n# d\nz\ta\n");
    EXPECT_THAT(ReadStreams(dir, kWithRules, 1).status(), Invalid(absl::StrCat("f:7: field 1 (x): 'z'", kNoNumber)));
    write("about\nit\n# c\ny\tt\n");
    EXPECT_THAT(ReadStreams(dir, kWithRules, 1).status(), Invalid("f:4: the header has no column 'x'; its 2 are y, t"));
  }
}

TEST(CsvFilesTest, AFileMayHaveFewerLinesThanItSkips) {
  TempDir dir;
  dir.Write("f0", "one line");
  dir.Write("f1", "two\nlines");
  dir.Write("f2", "");
  dir.Write("f3", "\xEF\xBB\xBF#\n\n\xEF\xBB\xBF# no mark\nx\tt\n");
  dir.Write("f4", "1\n2\nx\tt\n7\ta\n");
  // A mark of byte order stands at the start of a file only.
  EXPECT_THAT(ReadStreams(dir, kWithRules, 1).status(),
              StatusIs(kInvalid, HasSubstr("f3:3: the header has no column")));
  dir.Write("f3", "\xEF\xBB\xBF#\n\n# no mark\nx\tt\n");
  const auto streams = ReadStreams(dir, kWithRules, 2);
  ASSERT_TRUE(streams.ok()) << streams.status();
  EXPECT_EQ((*streams)[0].size() + (*streams)[1].size(), 1u);
}

TEST(CsvFilesTest, SkippedLinesBelongToTheFileWhereverItIsCut) {
  TempDir dir;
  const std::string text = "\nskip\tthis\n#\n1\ta\n\n2\tb\n#3\tc\n4\td";
  dir.Write("f", text);
  const std::string data =
      "train { files: 'f' } csv { header: false skip_lines: 2 skip_blank_lines: true comment: '#' separator: '\t' "
      "column "
      "{ name: 'x' } column { name: 't' type: TEXT } }";
  const DataSet set = OpenTrain(MakeSpec(data, dir));
  const auto bytes = static_cast<int64_t>(text.size());
  for (int64_t cut = 0; cut <= bytes; ++cut) {
    std::vector<std::string> lines;
    for (const Segment& segment : {Segment{.begin = 0, .end = cut}, Segment{.begin = cut, .end = bytes}}) {
      const auto source = LineSource::Open(set.files()[0], segment);
      ASSERT_TRUE(source.ok()) << source.status();
      std::string_view line;
      int64_t offset;
      while ((*source)->Next(&line, &offset)) {
        lines.emplace_back(line);
        EXPECT_EQ(text.substr(static_cast<size_t>(offset), line.size()), line);
      }
    }
    EXPECT_THAT(lines, ElementsAre("1\ta", "2\tb", "4\td")) << cut;
  }
}

TEST(CsvFilesTest, AFileOfNothingButAHeaderHasNoExamples) {
  TempDir dir;
  dir.Write("f0", "x");
  dir.Write("f1", Gzip(""));
  dir.Write("f2", "x\n5\n");
  const auto streams = ReadStreams(dir, kX, 1);
  ASSERT_TRUE(streams.ok()) << streams.status();
  EXPECT_THAT(*streams, ElementsAre(ElementsAre(5)));
}

TEST(CsvFilesTest, ALabelMayBeAbsentInPrediction) {
  TempDir dir;
  dir.Write("f", "x\n3\n");
  const std::string data = "train { files: 'f' } csv { column { name: 'x' } column { name: 'y' } } batch_size: 64";
  const auto streams = ReadStreams(dir, data, 1, /*predicting=*/true);
  ASSERT_TRUE(streams.ok()) << streams.status();
  EXPECT_THAT(*streams, ElementsAre(ElementsAre(3)));
  EXPECT_THAT(ReadStreams(dir, data, 1).status(), Invalid("f:1: the header has no column 'y'; its 1 are x"));
}

}  // namespace
}  // namespace weir
