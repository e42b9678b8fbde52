// Lines of MultiSlot text, good and bad; formats from outside the tree.

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/formats/derived.h"
#include "gmock/gmock.h"
#include "google/protobuf/any.pb.h"
#include "gtest/gtest.h"
#include "tests/framework/formats/parser_testing.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::NanSensitiveFloatEq;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

auto Invalid(const char* text) { return StatusIs(absl::StatusCode::kInvalidArgument, text); }

class MultiSlotTest : public ::testing::Test {
 protected:
  void Configure(const std::string& slots) {
    auto parser = MakeLineParser(ParseData("multi_slot { " + slots + " }"));
    ASSERT_TRUE(parser.ok()) << parser.status();
    parser_ = std::move(parser).value();
    ExampleStream::Prepare(*parser_, &example_);
  }
  void SetUp() override {
    Configure(R"(slot { name: "click" type: FLOAT }
                 slot { name: "words" }
                 slot { name: "pos" type: FLOAT dim: 2 }
                 slot { name: "user" })");
  }
  absl::Status Parse(const std::string& line) { return ParseBothWays(*parser_, line, &example_); }
  static absl::Status Refusal(const std::string& slots) {
    return MakeLineParser(ParseData("multi_slot { " + slots + " }")).status();
  }

  std::unique_ptr<LineParser> parser_;
  Example example_;
};

TEST_F(MultiSlotTest, ValuesOfALineArriveInTheirSlots) {
  ASSERT_TRUE(Parse("1 1 3 10 20 10 2 0.5 -1e2 1 7").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 0.5, -100));
  EXPECT_THAT(example_.ids, ElementsAre(10, 20, 10, 7));
  EXPECT_THAT(example_.counts, ElementsAre(3, 1));
  EXPECT_THAT(example_.weights, IsEmpty());
}

TEST_F(MultiSlotTest, ASlotMayBeEmpty) {
  ASSERT_TRUE(Parse("0 0 0 0").ok());
  EXPECT_THAT(example_.floats,
              ElementsAre(NanSensitiveFloatEq(kNan), NanSensitiveFloatEq(kNan), NanSensitiveFloatEq(kNan)));
  EXPECT_THAT(example_.ids, IsEmpty());
  EXPECT_THAT(example_.counts, ElementsAre(0, 0));
}

TEST_F(MultiSlotTest, BlanksAndTabsSeparateInAnyNumber) {
  ASSERT_TRUE(Parse("  1\t1   1  5 0\t0  ").ok());
  EXPECT_THAT(example_.ids, ElementsAre(5));
  EXPECT_THAT(example_.counts, ElementsAre(1, 0));
}

TEST_F(MultiSlotTest, AnIdMayCarryAWeight) {
  ASSERT_TRUE(Parse("1 1 3 10 20:0.5 30 0 2 7:-2 8").ok());
  EXPECT_THAT(example_.ids, ElementsAre(10, 20, 30, 7, 8));
  EXPECT_THAT(example_.weights, ElementsAre(1, 0.5, 1, -2, 1));
  ASSERT_TRUE(Parse("1 1 1 10 0 0").ok());
  EXPECT_THAT(example_.weights, IsEmpty());
}

TEST_F(MultiSlotTest, IdsAreAny64Bits) {
  ASSERT_TRUE(Parse("1 1 4 -9223372036854775808 9223372036854775807 18446744073709551615 -1 0 0").ok());
  EXPECT_THAT(example_.ids,
              ElementsAre(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), -1, -1));
  EXPECT_THAT(Parse("1 1 1 18446744073709551616 0 0"),
              Invalid("slot 'words': '18446744073709551616' is not a 64-bit integer"));
}

TEST_F(MultiSlotTest, BadLinesAreExplained) {
  EXPECT_THAT(Parse("1 1 3 10 20"), Invalid("slot 'words': expected 3 values, the line ends after 2"));
  EXPECT_THAT(Parse("1"), Invalid("slot 'click': expected 1 value, the line ends after 0"));
  EXPECT_THAT(Parse("1 1"), Invalid("slot 'words': the line ends before its count"));
  EXPECT_THAT(Parse("1 1 x 10"), Invalid("slot 'words': count 'x' is not a whole number from 0 on"));
  EXPECT_THAT(Parse("1 1 -1"), Invalid("slot 'words': count '-1' is not a whole number from 0 on"));
  EXPECT_THAT(Parse("2 1 1 0 0 0"), Invalid("slot 'click': expected 1 value, or 0 for missing, got 2"));
  EXPECT_THAT(Parse("1 1 0 3 1 2 3 0"), Invalid("slot 'pos': expected 2 values, or 0 for missing, got 3"));
  EXPECT_THAT(Parse("1 x 0 0 0"), Invalid("slot 'click': 'x' is not a finite number"));
  EXPECT_THAT(Parse("1 1e99 0 0 0"),
              Invalid("slot 'click': '1e99' is beyond float32, whose greatest number is 3.4e38"));
  EXPECT_THAT(Parse("1 nan 0 0 0"), Invalid("slot 'click': 'nan' is not a finite number"));
  EXPECT_THAT(Parse("1 1 1 1.5 0 0"), Invalid("slot 'words': '1.5' is not a 64-bit integer"));
  EXPECT_THAT(Parse("1 1 1 5: 0 0"), Invalid("slot 'words': the weight in '5:' is not a finite number"));
  EXPECT_THAT(Parse("1 1 0 0 1 7 8"), Invalid("'8' is left over behind the last of 4 slots"));
  EXPECT_THAT(Parse("1 1 65536 1"), Invalid("slot 'words': has 65536 values; at most 65535 are possible"));
}

TEST_F(MultiSlotTest, SlotsWithOneOutputStandSideBySideWhateverTheirOrder) {
  Configure(R"(slot { name: "a" output: "ids" } slot { name: "x" type: FLOAT output: "dense" }
               slot { name: "b" } slot { name: "y" type: FLOAT output: "dense" dim: 2 }
               slot { name: "c" output: "ids" })");
  EXPECT_EQ(parser_->columns(),
            (std::vector<Column>{{.name = "ids", .kind = v1::IDS, .width = 2, .slot_names = {"a", "c"}},
                                 {.name = "dense", .width = 3},
                                 {.name = "b", .kind = v1::IDS, .width = 1, .slot_names = {"b"}}}));
  ASSERT_TRUE(Parse("2 1 2:3 1 0.5 1 9 2 0.25 0.125 1 4").ok());
  EXPECT_THAT(example_.floats, ElementsAre(0.5, 0.25, 0.125));
  EXPECT_THAT(example_.ids, ElementsAre(1, 2, 4, 9));
  EXPECT_THAT(example_.counts, ElementsAre(2, 1, 1));
  EXPECT_THAT(example_.weights, ElementsAre(1, 3, 1, 1));
}

TEST_F(MultiSlotTest, ASkippedSlotIsParsedAndThrownAway) {
  Configure(R"(slot { name: "a" } slot { name: "no" skip: true } slot { name: "nor" type: FLOAT dim: 2 skip: true }
               slot { name: "b" })");
  ASSERT_EQ(parser_->columns().size(), 2u);
  ASSERT_TRUE(Parse("1 1 2 5 6:2 2 0.5 0.5 1 3").ok());
  EXPECT_THAT(example_.ids, ElementsAre(1, 3));
  EXPECT_THAT(example_.weights, IsEmpty());
  EXPECT_THAT(Parse("1 1 1 x 0 1 3"), Invalid("slot 'no': 'x' is not a 64-bit integer"));
}

TEST_F(MultiSlotTest, WhateverStandsInALineBothWaysAgree) {
  const std::string good = "1 1 3 10 20:0.5 10 2 0.5 -1e2 1 7";
  const int refused =
      RefusedOfChanged(good, "0123 :-.e\t\xff", [this](const std::string& line) { return Parse(line); });
  EXPECT_GT(refused, 5000);
  EXPECT_LT(refused, 19500);
}

TEST_F(MultiSlotTest, BadConfigurationsAreRefused) {
  EXPECT_THAT(Refusal(""), Invalid("data.multi_slot: no slot that is not skipped"));
  EXPECT_THAT(Refusal("slot {}"), Invalid("data.multi_slot.slot[0]: name is empty"));
  EXPECT_THAT(Refusal("slot { name: 'a' } slot { name: 'a' }"),
              Invalid("data.multi_slot.slot[1]: there are two slots 'a'"));
  EXPECT_THAT(Refusal("slot { name: 'a' type: FLOAT dim: 0 }"),
              Invalid("data.multi_slot.slot[0]: dim must be positive, got 0"));
  EXPECT_THAT(Refusal("slot { name: 'a' dim: 2 }"),
              Invalid("data.multi_slot.slot[0]: dim must be left out for ids, got 2"));
  EXPECT_THAT(Refusal("slot { name: 'a' output: 'o' } slot { name: 'b' output: 'o' type: FLOAT }"),
              Invalid("data.multi_slot.slot[1]: output 'o' has slots of ids and of floats; give them two names"));
}

// A format of somebody else: a line is one number, and the configuration says what to call it.
class OneNumberParser : public LineParser {
 public:
  explicit OneNumberParser(std::string name) : LineParser({{.name = std::move(name)}}) {}
  absl::Status Parse(std::string_view line, Example* example) const override {
    example->floats[0] = std::stof(std::string(line));
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<LineParser>> MakeOneNumberParser(const v1::Input& config) {
  return std::make_unique<OneNumberParser>(config.input());
}
WEIR_REGISTER_LINE_PARSER(v1::Input, MakeOneNumberParser);

TEST(CustomReaderTest, AFormatFromOutsideIsFoundByItsMessage) {
  v1::Input config;
  config.set_input("height");
  v1::Data data;
  data.mutable_custom()->PackFrom(config);
  const auto parser = MakeLineParser(data);
  ASSERT_TRUE(parser.ok()) << parser.status();
  EXPECT_EQ((*parser)->columns()[0].name, "height");
  Example example;
  ExampleStream::Prepare(**parser, &example);
  ASSERT_TRUE((*parser)->Parse("1.5", &example).ok());
  EXPECT_THAT(example.floats, ElementsAre(1.5));
}

TEST(CustomReaderTest, AnUnknownFormatIsRefusedByName) {
  v1::Data data;
  EXPECT_THAT(MakeLineParser(data).status(),
              Invalid("data: no reader; write criteo {}, multi_slot { ... }, csv { ... "
                      "}, lib_svm { ... }, idx { ... }, tf_record { ... }, slot_sign { ... } or custom { ... }"));
  data.mutable_custom()->PackFrom(v1::Scale());
  EXPECT_THAT(
      MakeLineParser(data).status(),
      Invalid("data: no reader is registered for weir.v1.Scale; there are weir.v1.Criteo, weir.v1.Csv, "
              "weir.v1.Idx, weir.v1.Input, weir.v1.LibSvm, weir.v1.MultiSlot, weir.v1.SlotSign, weir.v1.TfRecord"));
  data.mutable_custom()->set_type_url("type.googleapis.com/no.such.Message");
  EXPECT_THAT(MakeLineParser(data).status(),
              Invalid("data.custom: this program knows no message no.such.Message; link the library that registers its "
                      "reader"));
}

}  // namespace
}  // namespace weir
