// Lines of libsvm and libffm text, good and bad.

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/formats/derived.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/formats/parser_testing.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::NanSensitiveFloatEq;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

auto Invalid(const char* text) { return StatusIs(kInvalid, text); }

class LibSvmTest : public ::testing::Test {
 protected:
  void Configure(const std::string& config) {
    auto parser = MakeLineParser(ParseData("lib_svm { " + config + " }"));
    ASSERT_TRUE(parser.ok()) << parser.status();
    parser_ = std::move(parser).value();
    ExampleStream::Prepare(*parser_, &example_);
  }
  void SetUp() override {
    Configure(R"(slot { name: "dense" type: FLOAT first: 1 last: 3 }
                 slot { name: "a" first: 10 last: 19 output: "cat" }
                 slot { name: "b" first: 20 last: 29 output: "cat" }
                 slot { name: "rest" first: 1000 })");
  }
  absl::Status Parse(const std::string& line) { return ParseBothWays(*parser_, line, &example_); }
  static absl::Status Refusal(const std::string& config) {
    return MakeLineParser(ParseData("lib_svm { " + config + " }")).status();
  }

  std::unique_ptr<LineParser> parser_;
  Example example_;
};

TEST_F(LibSvmTest, ColumnsAreTheLabelAndOnePerOutput) {
  EXPECT_EQ(parser_->columns(),
            (std::vector<Column>{{.name = "label"},
                                 {.name = "dense", .width = 3},
                                 {.name = "cat", .kind = v1::IDS, .width = 2, .slot_names = {"a", "b"}},
                                 {.name = "rest", .kind = v1::IDS, .width = 1, .slot_names = {"rest"}}}));
}

TEST_F(LibSvmTest, PairsOfALineArriveInTheirSlots) {
  ASSERT_TRUE(Parse("1 1:0.5 3:-2 10:1 15:1 20:1 1000:1").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 0.5, 0, -2));
  EXPECT_THAT(example_.ids, ElementsAre(10, 15, 20, 1000));
  EXPECT_THAT(example_.counts, ElementsAre(2, 1, 1));
  EXPECT_THAT(example_.weights, IsEmpty());
}

TEST_F(LibSvmTest, AValueOtherThanOneIsAWeight) {
  ASSERT_TRUE(Parse("0 10:1 11:0.25 20:1.0 1000:0").ok());
  EXPECT_THAT(example_.ids, ElementsAre(10, 11, 20, 1000));
  EXPECT_THAT(example_.weights, ElementsAre(1, 0.25, 1, 0));
}

TEST_F(LibSvmTest, PairsMayStandInAnyOrder) {
  ASSERT_TRUE(Parse("-1 1001:1 21:2 3:7 12:1 1:1 20:3 1000:4").ok());
  EXPECT_THAT(example_.floats, ElementsAre(-1, 1, 0, 7));
  EXPECT_THAT(example_.ids, ElementsAre(12, 21, 20, 1001, 1000));
  EXPECT_THAT(example_.counts, ElementsAre(1, 2, 2));
  EXPECT_THAT(example_.weights, ElementsAre(1, 2, 3, 1, 4));
}

TEST_F(LibSvmTest, IndexesThatNoSlotTakesAreSkipped) {
  ASSERT_TRUE(Parse("1 0:3 9:1 19:1 30:1 999:1").ok());
  EXPECT_THAT(example_.ids, ElementsAre(19));
  EXPECT_THAT(example_.floats, ElementsAre(1, 0, 0, 0));
}

TEST_F(LibSvmTest, AnIndexIsAnyUnsigned64Bits) {
  Configure(
      "slot { name: 'low' last: 281474976710655 } slot { name: 'group7' first: 1970324836974592 last: 2251799813685247 "
      "} "
      "slot { name: 'top' first: 18446744073709551615 }");
  ASSERT_TRUE(Parse("1 5:1 1970324836974592:1 2251799813685247:1 18446744073709551615:1").ok());
  EXPECT_THAT(example_.ids, ElementsAre(5, 1970324836974592, 2251799813685247, -1));
  EXPECT_THAT(example_.counts, ElementsAre(1, 2, 1));
  EXPECT_THAT(Parse("1 18446744073709551616:1"),
              Invalid("'18446744073709551616:1' has an index that is no unsigned 64-bit number"));
}

TEST_F(LibSvmTest, LabelsMayHaveASignOrBeAbsent) {
  ASSERT_TRUE(Parse("+1 10:1").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 0, 0, 0));
  ASSERT_TRUE(Parse("3.5").ok());
  EXPECT_THAT(example_.floats, ElementsAre(3.5, 0, 0, 0));
  ASSERT_TRUE(Parse("10:1").ok());
  EXPECT_THAT(example_.floats, ElementsAre(NanSensitiveFloatEq(kNan), 0, 0, 0));
  EXPECT_THAT(Parse("+-1 10:1"), Invalid("the label '+-1' is not a finite number"));
  EXPECT_THAT(Parse("++1 10:1"), Invalid("the label '++1' is not a finite number"));
}

TEST_F(LibSvmTest, FieldsOfLibffmChooseTheSlot) {
  Configure(
      R"(fields: true slot { name: "x" type: FLOAT field: 0 last: 1 } slot { name: "b" field: 2 }
        slot { name: "a" field: 1 })");
  ASSERT_TRUE(Parse("1 0:0:0.5 0:1:2 1:77:1 2:77:1 2:5:0.5 3:77:1").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 0.5, 2));
  EXPECT_THAT(example_.ids, ElementsAre(77, 5, 77));
  EXPECT_THAT(example_.counts, ElementsAre(2, 1));
  EXPECT_THAT(example_.weights, ElementsAre(1, 0.5, 1));
  EXPECT_THAT(Parse("1 5:1"), Invalid("'5:1' is not field:index:value"));
  EXPECT_THAT(Parse("1 5"), Invalid("'5' is not field:index:value"));
  EXPECT_THAT(Parse("1 -5:1:1"), Invalid("'-5:1:1' has a field that is no whole number from 0 on"));
}

TEST_F(LibSvmTest, ASlotWithoutAFieldTakesEveryField) {
  Configure(
      R"(fields: true slot { name: "all" last: 99 } slot { name: "b" field: 2 first: 100 }
        slot { name: "c" field: 3 first: 100 })");
  ASSERT_TRUE(Parse("1 7:99:1 3:100:1 2:100:1 0:0:1 4:100:1").ok());
  EXPECT_THAT(example_.ids, ElementsAre(99, 0, 100, 100));
  EXPECT_THAT(example_.counts, ElementsAre(2, 1, 1));
}

TEST_F(LibSvmTest, BadLinesAreExplained) {
  EXPECT_THAT(Parse("x 10:1"), Invalid("the label 'x' is not a finite number"));
  EXPECT_THAT(Parse("1 10"), Invalid("'10' is not index:value"));
  EXPECT_THAT(Parse("1 10:"), Invalid("'10:' has a value that is not a finite number"));
  EXPECT_THAT(Parse("1 10:1e99"),
              Invalid("'10:1e99' has a value that is beyond float32, whose greatest number is 3.4e38"));
  EXPECT_THAT(Parse("1 -10:1"), Invalid("'-10:1' has an index that is no unsigned 64-bit number"));
  EXPECT_THAT(Parse("1 qid:3 10:1"), Invalid("'qid:3' has an index that is no unsigned 64-bit number"));
  EXPECT_THAT(Parse("1 10:1 # why"), Invalid("'#' is not index:value"));
  EXPECT_THAT(Parse("1 2:1 2:3"), Invalid("'2:3' is there twice"));
  std::string many = "1";
  for (int i = 0; i < 65536; ++i) many += " 10:1";
  EXPECT_THAT(Parse(many), Invalid("'10:1' is one too many: a slot has at most 65535 ids"));
}

TEST_F(LibSvmTest, WhateverStandsInALineBothWaysAgree) {
  const std::string good = "+1 1:0.5 2:-1e2 10:1 25:3 1000:1 18446744073709551615:0.25";
  const int refused =
      RefusedOfChanged(good, "0123 :-+.e\t\xff", [this](const std::string& line) { return Parse(line); });
  EXPECT_GT(refused, 3000);
  EXPECT_LT(refused, 19500);
}

TEST_F(LibSvmTest, WhateverStandsInAShortLineBothWaysAgree) {
  for (const char* good :
       {"+1 1:0.5 2:-12.25 3:7 10:1 15:1 25:1 1000:1", "0 1:3 10:1\t15:1 20:1 21:1 22:1 1000:1 2000:1 3000:1 4000:1"}) {
    const int refused =
        RefusedOfChanged(good, "0123 :-+.e\t\xff", [this](const std::string& line) { return Parse(line); });
    EXPECT_GT(refused, 3000) << good;
    EXPECT_LT(refused, 19500) << good;
  }
}

TEST_F(LibSvmTest, NumbersOfUpToEightCharactersAreReadAsPlainly) {
  for (const std::string value :
       {"0",         "1",        "7",        "-0",       "-1",       ".5",       "-.5",      "5.",
        "-5.",       "0.1",      "12345.67", "1.234567", "9.999999", "-1.23456", "0.000001", "00000001",
        "16777215",  "16777216", "16777217", "16777219", "33554433", "33554435", "33554434", "67108866",
        "67108870",  "99999999", "-9999999", "0.300000", "1.0",      "1.000000", "-0.00",    "00.10000",
        "123456789", "1e3",      "+1",       "1..2",     "1.2.3",    ".",        "-",        "-.",
        "--1",       "1-1",      "",         "x",        "/",        ";"}) {
    for (const std::string& line : {"1 2:" + value, "1 1:1 2:2 3:" + value + " 10:1", "1 10:1 11:" + value + " 20:1",
                                    value + " 1:1", "1 " + value + ":1 1000:1", "1 1:3.5 " + value + ":2.5 1000:1"}) {
      (void)Parse(line);
    }
  }
  ASSERT_TRUE(Parse("1 1:16777217 2:33554435 3:0.1").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 16777216, 33554436, 0.1f));
}

// Pairs of lines of any length: some ascend with gaps, some stand in any order, some are there twice, some have
// weights.
TEST_F(LibSvmTest, LinesOfAnyLengthAreReadAsPlainly) {
  Configure(
      R"(slot { name: "dense" type: FLOAT first: 1 last: 40 } slot { name: "late" first: 5000 last: 5999 output: "cat" }
               slot { name: "a" first: 100 last: 199 output: "cat" }
                 slot { name: "b" first: 200 last: 200 output: "cat" }
               slot { name: "more" type: FLOAT first: 300 last: 900 }
                 slot { name: "rest" first: 10000 last: 99999999 })");
  int accepted = 0;
  for (uint64_t n = 0; n < 6000; ++n) {
    const PhiloxBlock how = Philox(3, n, 0);
    const uint32_t pairs = how.v[0] % (n % 10 == 0 ? 1200 : 60), step = 1 + how.v[1] % 300;
    std::string line = absl::StrCat(how.v[2] % 3);
    uint64_t index = 0;
    for (uint32_t i = 0; i < pairs; ++i) {
      const PhiloxBlock r = Philox(4, n, i);
      index =
          how.v[3] % 4 == 0 && r.v[2] % 8 == 0 ? r.v[0] % 12000 : index + r.v[0] % step + (how.v[3] % 5 != 0 ? 1 : 0);
      const bool weight = how.v[3] % 7 == 0 || index <= 40 || (index >= 300 && index <= 900);
      absl::StrAppend(&line, r.v[3] % 50 == 0 ? "\t" : " ", index, ":",
                      weight ? absl::StrCat((r.v[1] % 20001 - 10000.0) / 1000) : "1");
    }
    accepted += Parse(line).ok();
  }
  EXPECT_GT(accepted, 3000);
  EXPECT_LT(accepted, 5900);
}

TEST_F(LibSvmTest, BadConfigurationsAreRefused) {
  EXPECT_THAT(Refusal(""), Invalid("data.lib_svm: no slot that is not skipped"));
  EXPECT_THAT(Refusal("slot {}"), Invalid("data.lib_svm.slot[0]: name is empty"));
  EXPECT_THAT(Refusal("slot { name: 'a' output: 'label' }"),
              Invalid("data.lib_svm.slot[0]: 'label' is a variable of the format itself; give it another output"));
  EXPECT_THAT(Refusal("slot { name: 'a' first: 3 last: 2 }"), Invalid("data.lib_svm.slot[0]: has indexes from 3 to 2"));
  EXPECT_THAT(Refusal("slot { name: 'a' type: FLOAT }"),
              StatusIs(kInvalid, HasSubstr("has indexes from 0 to 1844674407370955161")));
  EXPECT_THAT(Refusal("slot { name: 'a' last: 7 } slot { name: 'b' first: 7 }"),
              Invalid("data.lib_svm.slot[1]: takes indexes that slot[0] takes, too"));
  EXPECT_THAT(Refusal("slot { name: 'a' field: 1 }"),
              Invalid("data.lib_svm.slot[0].field: is for libffm; set data.lib_svm.fields"));
}

}  // namespace
}  // namespace weir
