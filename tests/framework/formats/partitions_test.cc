// Variables of directories: their values in the names of files, with the readers of lines in front of them.

#include "framework/formats/partitions.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/formats/derived.h"
#include "framework/formats/row_filter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/formats/parser_testing.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
auto Invalid(const std::string& text) { return StatusIs(kInvalid, text); }
int64_t Hash(std::string_view text) { return static_cast<int64_t>(StableHash(text)); }

constexpr char kPartitions[] =
    "partition { name: 'dt' type: ID } partition { name: 'hour' } partition { name: 'city' type: TEXT } "
    "partition { name: 'at' type: TIME time_format: '%Y-%m-%d' } ";
constexpr char kName[] = "in/dt=20240105/hour=03/city=S%C3%A3o%20Paulo%2FS/at=2024-01-05/part-0.csv";

std::vector<std::string> TextsOf(const std::string& config, const std::string& name) {
  auto texts = PartitionTexts(ParseData(config).partition(), name);
  EXPECT_TRUE(texts.ok()) << texts.status();
  return texts.ok() ? *texts : std::vector<std::string>();
}
absl::Status Refusal(const std::string& config, const std::string& name) {
  return PartitionTexts(ParseData(config).partition(), name).status();
}

class PartitionsTest : public ::testing::Test {
 protected:
  // Makes a parser for the lines of a file.
  void Configure(const std::string& data, const std::string& name = kName, const std::string& header = "") {
    auto parser = MakeLineParser(ParseData(data));
    ASSERT_TRUE(parser.ok()) << parser.status();
    ASSERT_TRUE((*parser)->has_partitions());
    auto of_file = (*parser)->ForFile(name);
    ASSERT_TRUE(of_file.ok()) << of_file.status();
    if (!header.empty()) of_file = (*of_file)->ForHeader(header, {});
    ASSERT_TRUE(of_file.ok()) << of_file.status();
    parser_ = *std::move(of_file);
    ExampleStream::Prepare(*parser_, &example_);
  }
  absl::Status Parse(const std::string& line) { return ParseBothWays(*parser_, line, &example_); }

  std::unique_ptr<LineParser> parser_;
  Example example_;
};

TEST_F(PartitionsTest, TheirValuesStandBehindThoseOfTheLine) {
  Configure(absl::StrCat(
      "csv { header: false column { name: 'x' } column { name: 'u' type: ID list: '|' weight: ':' } } ", kPartitions));
  EXPECT_EQ(parser_->columns(),
            (std::vector<Column>{{.name = "x"},
                                 {.name = "u", .kind = v1::IDS, .width = 1, .slot_names = {"u"}},
                                 {.name = "dt", .kind = v1::IDS, .width = 1, .slot_names = {"dt"}},
                                 {.name = "hour"},
                                 {.name = "city", .kind = v1::IDS, .width = 1, .slot_names = {"city"}},
                                 {.name = "at", .kind = v1::IDS, .width = 1, .slot_names = {"at"}}}));
  ASSERT_TRUE(Parse("2,7|8").ok());
  EXPECT_THAT(example_.floats, ElementsAre(2, 3));
  EXPECT_THAT(example_.ids, ElementsAre(7, 8, 20240105, Hash("São Paulo/S"), 1704412800));
  EXPECT_THAT(example_.counts, ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(example_.weights, IsEmpty());
  ASSERT_TRUE(Parse("2,7:0.5").ok());
  EXPECT_THAT(example_.weights, ElementsAre(0.5, 1, 1, 1));
  EXPECT_THAT(Parse("2"), Invalid("expected 2 fields, got 1"));
  ASSERT_TRUE(Parse(",").ok());
  EXPECT_THAT(example_.ids, ElementsAre(20240105, Hash("São Paulo/S"), 1704412800));
}

TEST_F(PartitionsTest, EveryFormatMayHaveThem) {
  const std::string day = " partition { name: 'dt' type: ID }";
  struct Case {
    const char* reader;
    std::string line;
  };
  const std::string criteo = "1" + std::string(39, '\t');
  for (const Case& each :
       {Case{"criteo {}", criteo}, Case{"multi_slot { slot { name: 'a' } }", "1 5"},
        Case{"lib_svm { slot { name: 'a' } }", "1 5:1"}, Case{"slot_sign { slot { name: 'a' } }", "a:5"},
        Case{"csv { header: false column { name: 'a' type: ID } }", "5"},
        Case{"tf_record { feature { name: 'x' } }", ""}, Case{"idx { values: 2 }", ""}}) {
    auto parser = MakeLineParser(ParseData(each.reader + day));
    ASSERT_TRUE(parser.ok()) << parser.status();
    EXPECT_EQ((*parser)->columns().back().name, "dt") << each.reader;
    auto of_file = (*parser)->ForFile("dt=20240105/f");
    ASSERT_TRUE(of_file.ok()) << of_file.status();
    if (each.line.empty()) continue;
    ExampleStream::Prepare(**of_file, &example_);
    ASSERT_TRUE(ParseBothWays(**of_file, each.line, &example_).ok()) << each.reader;
    EXPECT_EQ(example_.ids.back(), 20240105) << each.reader;
    EXPECT_EQ(example_.counts.back(), 1) << each.reader;
  }
}

TEST_F(PartitionsTest, AHeaderIsReadForTheFile) {
  Configure(absl::StrCat("csv { column { name: 'x' } column { name: 'u' type: ID } } ", kPartitions), kName,
            "u,more,x");
  ASSERT_TRUE(Parse("7,,2").ok());
  EXPECT_THAT(example_.floats, ElementsAre(2, 3));
  EXPECT_THAT(example_.ids, ElementsAre(7, 20240105, Hash("São Paulo/S"), 1704412800));
}

TEST_F(PartitionsTest, DerivedVariablesAndRulesTakeThem) {
  const std::string config = absl::StrCat(
      "csv { header: false column { name: 'u' type: ID } } ", kPartitions,
      "derived { name: 'c' cross { of: 'u' of: 'city' } } derived { name: 'd' bucketize { of: 'dt' boundaries: "
      "20240105 "
      "boundaries: 20240106 } } derived { name: 'w' time { of: 'at' part: WEEKDAY } } train { where { of: 'dt' from: "
      "20240105 below: 20240106 } where { of: 'city' value: 'São Paulo/S' } where { of: 'hour' value: '3' } }");
  Configure(config);
  ASSERT_TRUE(Parse("7").ok());
  EXPECT_EQ(example_.ids.size(), 7u);
  EXPECT_THAT(std::vector<int64_t>(example_.ids.end() - 2, example_.ids.end()), ElementsAre(1, 4));  // a Friday
  const auto rules = [&](const LineParser& parser) {
    auto filter =
        RowFilter::Create(parser.columns(), ParseData(config).train().where(), "train.where", PlainSettingErrors(""));
    EXPECT_TRUE(filter.ok()) << filter.status();
    return *std::move(filter);
  };
  EXPECT_TRUE(rules(*parser_).Keeps(example_));
  Configure(config, "dt=20240106/hour=3/city=S%C3%A3o Paulo%2FS/at=2024-01-05/f");
  ASSERT_TRUE(Parse("7").ok());
  EXPECT_FALSE(rules(*parser_).Keeps(example_));
}

TEST_F(PartitionsTest, WhatHiveHasNoValueOfIsMissing) {
  Configure(absl::StrCat("csv { header: false column { name: 'u' type: ID } } ", kPartitions),
            "dt=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__/city=/at=__HIVE_DEFAULT_PARTITION__/f");
  ASSERT_TRUE(Parse("7").ok());
  EXPECT_TRUE(std::isnan(example_.floats[0]));
  EXPECT_THAT(example_.ids, ElementsAre(7));
  EXPECT_THAT(example_.counts, ElementsAre(1, 0, 0, 0));
}

TEST_F(PartitionsTest, ALineBeforeItsFileIsABug) {
  auto parser =
      MakeLineParser(ParseData("csv { header: false column { name: 'u' type: ID } } partition { name: 'a' }"));
  ASSERT_TRUE(parser.ok());
  ExampleStream::Prepare(**parser, &example_);
  EXPECT_EQ((*parser)->Parse("7", &example_).code(), absl::StatusCode::kInternal);
  parser = MakeLineParser(ParseData("csv { header: false column { name: 'u' type: ID } }"));
  EXPECT_FALSE((*parser)->has_partitions());
  EXPECT_EQ((*parser)->ForFile("a=1/f").status().code(), absl::StatusCode::kInternal);
}

TEST(PartitionTextsTest, AreThoseOfDirectories) {
  EXPECT_THAT(TextsOf(kPartitions, kName), ElementsAre("20240105", "03", "São Paulo/S", "2024-01-05"));
  const std::string a = "partition { name: 'a' type: TEXT }";
  EXPECT_THAT(TextsOf(a, "/x/a=b=c/d"), ElementsAre("b=c"));
  EXPECT_THAT(TextsOf(a, "s3://bucket/t/a=1/f=2"), ElementsAre("1"));
  EXPECT_THAT(TextsOf(a, "%61=1/f"), ElementsAre("1"));
  // What is no two digits stands for itself.
  EXPECT_THAT(TextsOf(a, "a=%zz%4%/f"), ElementsAre("%zz%4%"));
  EXPECT_THAT(TextsOf(a, "a=%e4%41/f"), ElementsAre("\xe4"
                                                    "A"));
  EXPECT_THAT(TextsOf(a, "b=1/a=2/A=3/f"), ElementsAre("2"));
  EXPECT_THAT(TextsOf("", "f"), IsEmpty());
}

TEST(PartitionTextsTest, AFileWithoutTheDirectoryIsNamed) {
  const std::string a = "partition { name: 'a' }";
  EXPECT_THAT(Refusal(a, "in/part-0.csv"),
              Invalid("in/part-0.csv: no directory of its name is 'a=...', from which data.partition takes 'a'; no "
                      "directory there has a value: begin the pattern of `files` above those that have"));
  EXPECT_THAT(Refusal(a, "b=1/c=2/a=3"), StatusIs(kInvalid, HasSubstr("those with a value are of b, c")));
  EXPECT_THAT(Refusal(a, "a=1/a=1/f"),
              Invalid("a=1/a=1/f: two directories of its name are 'a=...', and data.partition takes one value"));
  EXPECT_THAT(Refusal(a, "=1/a/f"), StatusIs(kInvalid, HasSubstr("no directory of its name")));
}

TEST(PartitionTextsTest, ADayIsExactAsAnIdAndRefusedAsAFloat) {
  EXPECT_THAT(
      Refusal("partition { name: 'dt' }", "dt=20240105/f"),
      Invalid("dt=20240105/f: the directory 'dt=20240105': '20240105' cannot be told from 20240104: float32 has "
              "one value for both; `type: ID` of data.partition keeps it exactly"));
  // Its neighbour would be read as this one.
  EXPECT_FALSE(Refusal("partition { name: 'dt' }", "dt=20240104/f").ok());
  EXPECT_THAT(TextsOf("partition { name: 'dt' }", "dt=16777215/f"), ElementsAre("16777215"));
  EXPECT_THAT(TextsOf("partition { name: 'dt' }", "dt=-0.25/f"), ElementsAre("-0.25"));
  EXPECT_THAT(TextsOf("partition { name: 'dt' type: ID }", "dt=20240105/f"), ElementsAre("20240105"));
}

TEST(PartitionTextsTest, ValuesOfAnotherTypeAreRefused) {
  EXPECT_THAT(
      Refusal("partition { name: 'dt' type: ID }", "dt=2024-01-05/f"),
      Invalid("dt=2024-01-05/f: the directory 'dt=2024-01-05': '2024-01-05' is not a 64-bit integer; `type: TEXT` "
              "of data.partition takes any value"));
  EXPECT_THAT(Refusal("partition { name: 'dt' }", "dt=x/f"), StatusIs(kInvalid, HasSubstr("is not a finite number")));
  EXPECT_THAT(Refusal("partition { name: 'dt' }", "dt=1e39/f"), StatusIs(kInvalid, HasSubstr("is beyond float32")));
  for (const char* const wrong : {"20240105", "infinite-future", "2024-13-01"}) {
    EXPECT_THAT(Refusal("partition { name: 'dt' type: TIME }", absl::StrCat("dt=", wrong, "/f")),
                StatusIs(kInvalid, HasSubstr("is no time of the form '%Y-%m-%d' (time_format)")));
  }
}

TEST(PartitionSettingsTest, WrongOnesAreRefused) {
  const auto refusal = [](const std::string& partitions) {
    return MakeLineParser(ParseData("csv { column { name: 'x' } column { name: 'y' output: 'z' } } " + partitions))
        .status();
  };
  EXPECT_THAT(refusal("partition {}"), Invalid("data.partition[0] needs a name, that of directories NAME=VALUE"));
  EXPECT_THAT(refusal("partition { name: 'a' } partition { name: 'x' }"),
              Invalid("data.partition[1].name 'x' is a variable of the data already"));
  EXPECT_THAT(refusal("partition { name: 'a' } partition { name: 'a' }"),
              Invalid("data.partition[1].name 'a' is a variable of the data already"));
  EXPECT_THAT(refusal("partition { name: 'a' time_format: '%Y' }"),
              Invalid("data.partition[0].time_format is for type: TIME"));
  EXPECT_THAT(refusal("partition { name: 'a' type: TIME time_format: 'Y' }"),
              Invalid("data.partition[0].time_format 'Y' has no letter of strftime, as %Y"));
  EXPECT_THAT(refusal("partition { name: 'a' } derived { name: 'a' hash { of: 'a' } }"),
              StatusIs(kInvalid, HasSubstr("'a' is a variable of the data already")));
}

}  // namespace
}  // namespace weir
