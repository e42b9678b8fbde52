// Logs of words "slot:sign".
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/formats/derived.h"
#include "framework/formats/line_parser.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/formats/parser_testing.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kSlots[] =
    "slot { name: 'click' type: FLOAT } slot { name: 'dense' type: FLOAT dim: 3 } "
    "slot { name: '6' output: 'cat' } slot { name: '9' output: 'cat' } slot { name: 'a:b' }";

class SlotSignTest : public ::testing::Test {
 protected:
  void Configure(const std::string& settings) {
    auto parser = MakeLineParser(ParseData(absl::StrCat("slot_sign { ", settings, " }")));
    ASSERT_TRUE(parser.ok()) << parser.status();
    parser_ = std::move(parser).value();
    ExampleStream::Prepare(*parser_, &example_);
  }
  absl::Status Parse(const std::string& line) { return ParseBothWays(*parser_, line, &example_); }

  std::unique_ptr<LineParser> parser_;
  Example example_;
};

TEST_F(SlotSignTest, WordsMayStandInAnyOrder) {
  Configure(kSlots);
  ASSERT_EQ(Parse("6:3812 dense:0.5 click:1  9:-1\tdense:2 6:18446744073709551615 dense:-3e1 a:b:7 77:5 x:y"),
            absl::OkStatus());
  EXPECT_THAT(example_.floats, ElementsAre(1, 0.5f, 2, -30));
  EXPECT_THAT(example_.counts, ElementsAre(2, 1, 1));
  EXPECT_THAT(example_.ids, ElementsAre(3812, -1, -1, 7));
  EXPECT_THAT(example_.weights, IsEmpty());
  // Nothing of an earlier line is left.
  ASSERT_EQ(Parse("9:5"), absl::OkStatus());
  EXPECT_THAT(example_.counts, ElementsAre(0, 1, 0));
  EXPECT_THAT(example_.ids, ElementsAre(5));
  for (const float x : example_.floats) EXPECT_TRUE(std::isnan(x));
}

TEST_F(SlotSignTest, LeadingWordsAndSignsInFront) {
  Configure(absl::StrCat(kSlots, " leading: 'log_key' leading: 'click' sign_first: true"));
  ASSERT_EQ(Parse("20191126\t1\t3812:6 77:a:b 0.5:dense 1:dense 2:dense"), absl::OkStatus());
  EXPECT_THAT(example_.floats, ElementsAre(1, 0.5f, 1, 2));
  EXPECT_THAT(example_.counts, ElementsAre(1, 0, 1));
  EXPECT_THAT(example_.ids, ElementsAre(3812, 77));
  EXPECT_THAT(Parse("20191126 "), StatusIs(kInvalid, "the line ends after 1 of 2 leading words"));
  EXPECT_THAT(Parse("20191126 x"), StatusIs(kInvalid, "slot 'click': 'x' is not a finite number"));
}

TEST_F(SlotSignTest, WrongLinesSayWhatIsWrong) {
  Configure(kSlots);
  EXPECT_THAT(Parse("click:1 6"), StatusIs(kInvalid, "'6' is no word \"slot:sign\""));
  EXPECT_THAT(Parse("6:"), StatusIs(kInvalid, "slot '6': '' is not a 64-bit integer"));
  EXPECT_THAT(Parse("6:1.5"), StatusIs(kInvalid, "slot '6': '1.5' is not a 64-bit integer"));
  EXPECT_THAT(Parse("click:1e99"),
              StatusIs(kInvalid, "slot 'click': '1e99' is beyond float32, whose greatest number is 3.4e38"));
  EXPECT_THAT(Parse("click:1 click:0"), StatusIs(kInvalid, "slot 'click': has more than 1 value"));
  EXPECT_THAT(Parse("dense:1 dense:2"),
              StatusIs(kInvalid, "slot 'dense': expected 3 values, or none for missing, got 2"));
  std::string many;
  for (int i = 0; i < Example::kMaxSlotIds; ++i) many += "6:1 ";
  EXPECT_EQ(Parse(many), absl::OkStatus());
  EXPECT_THAT(Parse(many + "6:1"), StatusIs(kInvalid, "slot '6': has more than 65535 ids"));
}

TEST_F(SlotSignTest, ChangedLinesAreReadOrRefused) {
  Configure(absl::StrCat(kSlots, " leading: 'click'"));
  const std::string good = "1 6:3812 6:77 9:21 dense:0.5 dense:2 dense:-3 a:b:4";
  const int refused =
      RefusedOfChanged(good, "0123456789:-. ab\tde", [&](const std::string& line) { return Parse(line); });
  EXPECT_GT(refused, 2000);
  EXPECT_LT(refused, 19000);
}

}  // namespace
}  // namespace weir
