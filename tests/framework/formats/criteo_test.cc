// Lines of the Criteo layout, good and bad.

#include <cctype>
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
using ::testing::NanSensitiveFloatEq;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::unique_ptr<LineParser> Parser(const std::string& reader) {
  auto parser = MakeLineParser(ParseData(reader));
  CHECK(parser.ok()) << parser.status();
  return std::move(parser).value();
}

class CriteoTest : public ::testing::Test {
 protected:
  absl::Status Parse(const std::string& line) { return ParseBothWays(*parser_, line, &example_); }

  void SetUp() override { ExampleStream::Prepare(*parser_, &example_); }

  std::unique_ptr<LineParser> parser_ = Parser("criteo { integers: 3 categoricals: 4 }");
  Example example_;
};

TEST_F(CriteoTest, FieldsOfALineArriveInTheirColumns) {
  ASSERT_TRUE(Parse("1\t5\t\t-2\t68fd1e64\t\tF\t00000001").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 5, NanSensitiveFloatEq(kNan), -2));
  EXPECT_THAT(example_.ids, ElementsAre(0x68fd1e64, 0xF, 1));
  EXPECT_THAT(example_.counts, ElementsAre(1, 0, 1, 1));
  EXPECT_TRUE(example_.weights.empty());
}

TEST_F(CriteoTest, ColumnsAreLabelDenseAndCat) {
  ASSERT_EQ(parser_->columns().size(), 3u);
  EXPECT_EQ(parser_->columns()[0], (Column{.name = "label"}));
  EXPECT_EQ(parser_->columns()[1], (Column{.name = "dense", .width = 3}));
  EXPECT_EQ(parser_->columns()[2],
            (Column{.name = "cat", .kind = v1::IDS, .width = 4, .slot_names = {"C1", "C2", "C3", "C4"}}));
  EXPECT_EQ(parser_->floats(), 4);
  EXPECT_EQ(parser_->slots(), 4);
}

TEST_F(CriteoTest, EveryHexadecimalDigitInEveryPlaceIsRead) {
  for (int place = 0; place < 8; ++place) {
    for (const char c : std::string("0123456789abcdefABCDEF")) {
      std::string hex = "13579bdf";
      hex[static_cast<size_t>(place)] = c;
      ASSERT_TRUE(Parse("0\t\t\t\t" + hex + "\t\t\t" + hex).ok()) << hex;
      EXPECT_THAT(example_.ids, ElementsAre(std::stoll(hex, nullptr, 16), std::stoll(hex, nullptr, 16)));
    }
  }
}

TEST_F(CriteoTest, NoOtherByteIsAHexadecimalDigit) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (std::isxdigit(byte) || c == '\t') continue;
    for (int place = 0; place < 8; ++place) {
      std::string hex = "13579bdf";
      hex[static_cast<size_t>(place)] = c;
      EXPECT_FALSE(Parse("0\t\t\t\t" + hex + "\t\t\t").ok()) << byte << " at " << place;
    }
  }
}

TEST_F(CriteoTest, NumbersMayBeLongOrDecimal) {
  ASSERT_TRUE(Parse("0\t12345678901\t-0.25\t1e3\t\t\t\t").ok());
  EXPECT_THAT(example_.floats, ElementsAre(0, 12345678901.0f, -0.25f, 1000));
  ASSERT_TRUE(Parse("+1\t3.2e-51\t+0.5\t\t\t\t\t").ok());
  EXPECT_THAT(example_.floats, ElementsAre(1, 0, 0.5, NanSensitiveFloatEq(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_THAT(Parse("1\t1e39\t\t\t\t\t\t"),
              StatusIs(kInvalid, "field 2 (I1): '1e39' is beyond float32, whose greatest number is 3.4e38"));
}

TEST_F(CriteoTest, AShortLineIsReportedWithItsFields) {
  EXPECT_THAT(Parse("1\t5\t\t-2\t68fd1e64\t\tF"), StatusIs(kInvalid, "expected 8 tab-separated fields, got 7"));
  EXPECT_THAT(Parse("1"), StatusIs(kInvalid, "expected 8 tab-separated fields, got 1"));
}

TEST_F(CriteoTest, ALongLineIsReportedWithItsFields) {
  EXPECT_THAT(Parse("1\t5\t\t-2\t68fd1e64\t\tF\t\t"), StatusIs(kInvalid, "expected 8 tab-separated fields, got 9"));
}

TEST_F(CriteoTest, ABadFieldIsNamed) {
  EXPECT_THAT(Parse("x\t\t\t\t\t\t\t"), StatusIs(kInvalid, "field 1 (label): 'x' is not a finite number"));
  EXPECT_THAT(Parse("1\t\t7a\t\t\t\t\t"), StatusIs(kInvalid, "field 3 (I2): '7a' is not a finite number"));
  EXPECT_THAT(Parse("1\t-\t\t\t\t\t\t"), StatusIs(kInvalid, "field 2 (I1): '-' is not a finite number"));
  EXPECT_THAT(Parse("1\tinf\t\t\t\t\t\t"), StatusIs(kInvalid, "field 2 (I1): 'inf' is not a finite number"));
  EXPECT_THAT(Parse("1\tnan\t\t\t\t\t\t"), StatusIs(kInvalid, "field 2 (I1): 'nan' is not a finite number"));
  EXPECT_THAT(Parse("1\t\t\t\t\tabc-ef01\t\t"),
              StatusIs(kInvalid, "field 6 (C2): 'abc-ef01' is not a hexadecimal number of up to 8 digits"));
  EXPECT_THAT(Parse("1\t\t\t\t\t\t\t123456789"),
              StatusIs(kInvalid, "field 8 (C4): '123456789' is not a hexadecimal number of up to 8 digits"));
}

TEST_F(CriteoTest, WhateverStandsInALineItIsParsedOrRefused) {
  const std::string good = "1\t5\t\t-2\t68fd1e64\t\tF\t00000001";
  int refused = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    std::string line = good;
    const PhiloxBlock r = Philox(7, i, 0);
    for (uint32_t change = 0; change <= r.v[0] % 3; ++change) {
      const PhiloxBlock c = Philox(7, i, change + 1);
      const size_t at = c.v[0] % line.size();
      if (c.v[1] % 3 == 0) {
        line.erase(at, 1 + c.v[2] % 5);
      } else {
        line[at] = "\t-.0f \xff"[c.v[2] % 7];
      }
      if (line.empty()) line = "\t";
    }
    const absl::Status status = Parse(line);
    refused += !status.ok();
    ASSERT_TRUE(status.ok() || status.code() == kInvalid) << line << ": " << status;
    ASSERT_EQ(example_.floats.size(), 4u);
    ASSERT_EQ(example_.counts.size(), 4u);
    if (status.ok()) {
      ASSERT_EQ(static_cast<int>(example_.ids.size()),
                example_.counts[0] + example_.counts[1] + example_.counts[2] + example_.counts[3]);
    }
  }
  EXPECT_GT(refused, 5000);
  EXPECT_LT(refused, 19000);
}

// The AVX-512 parser takes up to 256 fields; the last case has more.
TEST(CriteoConfigTest, LinesOfAnyNumberOfFieldsAreParsedAlike) {
  for (const auto& [integers, categoricals] : {std::pair(13, 26), std::pair(0, 1), std::pair(1, 0), std::pair(7, 8),
                                               std::pair(130, 125), std::pair(200, 100)}) {
    const auto parser = Parser(absl::StrCat("criteo { integers: ", integers, " categoricals: ", categoricals, " }"));
    Example example;
    ExampleStream::Prepare(*parser, &example);
    int parsed = 0;
    for (uint64_t n = 0; n < 300; ++n) {
      std::string line = absl::StrCat(n % 2);
      for (int i = 0; i < integers; ++i) {
        const PhiloxBlock r = Philox(5, n, static_cast<uint64_t>(i));
        const uint32_t digits = r.v[1] % 60 == 0 ? 9 : r.v[1] % 9;  // nine are rare
        line += '\t';
        if (digits > 0 && r.v[2] % 3 == 0) line += '-';
        line += std::to_string(100000000 + r.v[0] % 899999999).substr(0, digits);
        if (r.v[3] % 2000 == 0) line += '.';
      }
      for (int i = 0; i < categoricals; ++i) {
        const PhiloxBlock r = Philox(6, n, static_cast<uint64_t>(i));
        absl::StrAppend(&line, "\t", std::string(absl::StrCat(absl::Hex(r.v[0], absl::kZeroPad8))).substr(r.v[1] % 9));
      }
      parsed += ParseBothWays(*parser, line, &example).ok();
    }
    EXPECT_GT(parsed, 200) << integers << " and " << categoricals;
  }
}

TEST(CriteoConfigTest, TheUsualLayoutHasFortyFields) {
  const auto parser = Parser("criteo {}");
  EXPECT_EQ(parser->floats(), 14);
  EXPECT_EQ(parser->slots(), 26);
  Example example;
  ExampleStream::Prepare(*parser, &example);
  const std::string line = "1" + std::string(38, '\t');
  EXPECT_THAT(parser->Parse(line, &example), StatusIs(kInvalid, "expected 40 tab-separated fields, got 39"));
}

TEST(CriteoConfigTest, ANegativeNumberOfFieldsIsRefused) {
  EXPECT_THAT(MakeLineParser(ParseData("criteo { integers: -1 }")).status(),
              StatusIs(kInvalid, "data.criteo: integers -1 and categoricals 26 must not be negative, nor both 0"));
}

}  // namespace
}  // namespace weir
