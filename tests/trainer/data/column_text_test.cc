// Columns that a command writes, as lines.

#include "trainer/files/column_text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

class FromString : public ByteSource {
 public:
  explicit FromString(std::string bytes, size_t piece = 7) : bytes_(std::move(bytes)), piece_(piece) {}
  absl::StatusOr<size_t> Read(char* out, size_t size) override {
    const size_t some = std::min({size, piece_, bytes_.size() - at_});
    std::memcpy(out, bytes_.data() + at_, some);
    at_ += some;
    return some;
  }

 private:
  const std::string bytes_;
  const size_t piece_;
  size_t at_ = 0;
};

// The format, written value by value.
template <typename T>
std::string Raw(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
std::string Number(uint32_t n) { return Raw<uint32_t>({n}); }
std::string Begin(const std::vector<std::string>& names) {
  std::string bytes = absl::StrCat("WEIRCOL1", Number(static_cast<uint32_t>(names.size())));
  for (const std::string& name : names) absl::StrAppend(&bytes, Number(static_cast<uint32_t>(name.size())), name);
  return bytes;
}
// `valid`: bits of the rows that are there; empty: all.
template <typename T>
std::string Column(uint8_t kind, const std::vector<T>& values, const std::string& valid = "") {
  return absl::StrCat(std::string(1, static_cast<char>(kind)), std::string(1, static_cast<char>(!valid.empty())), valid,
                      Raw(values));
}
std::string Texts(const std::vector<std::string>& texts) {
  std::vector<uint32_t> offsets = {0};
  std::string all;
  for (const std::string& text : texts) {
    all += text;
    offsets.push_back(static_cast<uint32_t>(all.size()));
  }
  return Raw(offsets) + all;
}
std::string TextColumn(const std::vector<std::string>& texts, const std::string& valid = "") {
  return absl::StrCat(Column<char>(11, {}, valid), Texts(texts));
}
std::string ListColumn(const std::vector<uint32_t>& offsets, const std::string& elements) {
  return absl::StrCat(Column<uint32_t>(13, offsets), elements);
}

const ColumnTextForm kCsv = {.separator = ',', .header = true, .quotes = true, .lists = {{"l", ';'}}};
const ColumnTextForm kCriteo = {.separator = '\t'};

absl::StatusOr<std::string> TextOf(const std::string& bytes, const ColumnTextForm& form = kCsv) {
  const std::unique_ptr<ByteSource> source = MakeColumnText(std::make_unique<FromString>(bytes), "a.parquet", form);
  std::string text(1 << 20, '\0');
  ASSIGN_OR_RETURN(const size_t got, source->ReadFully(text.data(), text.size()));
  text.resize(got);
  return text;
}

std::string Error(const std::string& bytes, const ColumnTextForm& form = kCsv) {
  return std::string(TextOf(bytes, form).status().message());
}

TEST(ColumnTextTest, NumbersOfEveryKindAreWrittenAsTheyAre) {
  const std::string bytes =
      absl::StrCat(Begin({"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}), Number(2), Column<int8_t>(1, {-128, 1}),
                   Column<int16_t>(2, {-32768, 2}), Column<int32_t>(3, {std::numeric_limits<int32_t>::min(), 3}),
                   Column<int64_t>(4, {std::numeric_limits<int64_t>::min(), 4}), Column<uint8_t>(5, {255, 5}),
                   Column<uint16_t>(6, {65535, 6}), Column<uint32_t>(7, {4294967295u, 7}),
                   Column<uint64_t>(8, {std::numeric_limits<uint64_t>::max(), 8}), Column<float>(9, {0.1f, -2.5f}),
                   Column<double>(10, {0.1, 1e300}), Number(0));
  EXPECT_EQ(*TextOf(bytes),
            "a,b,c,d,e,f,g,h,i,j\n"
            "-128,-32768,-2147483648,-9223372036854775808,255,65535,4294967295,18446744073709551615,0.1,0.1\n"
            "1,2,3,4,5,6,7,8,-2.5,1e+300\n");
}

TEST(ColumnTextTest, WhatIsMissingIsAnEmptyField) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string bytes =
      absl::StrCat(Begin({"x", "n", "t", "f"}), Number(3), Column<int32_t>(3, {1, 2, 3}, "\x05"), Column<char>(0, {}),
                   TextColumn({"a", "", "c"}, "\x03"), Column<float>(9, {1, nan, 3}), Number(0));
  EXPECT_EQ(*TextOf(bytes), "x,n,t,f\n1,,a,1\n,,,\n3,,,3\n");
}

TEST(ColumnTextTest, TextsAndDictionariesAreQuotedWhereTheyMustBe) {
  const std::string dictionary =
      absl::StrCat(Column<char>(12, {}), Number(2), Texts({"red", "a,b"}), Raw<int32_t>({1, 0, 1}));
  const std::string bytes =
      absl::StrCat(Begin({"t", "d"}), Number(3), TextColumn({"x", "say \"no\"", ""}), dictionary, Number(0));
  EXPECT_EQ(*TextOf(bytes), "t,d\nx,\"a,b\"\n\"say \"\"no\"\"\",red\n,\"a,b\"\n");
}

TEST(ColumnTextTest, AListIsJoinedByTheSeparatorOfItsColumn) {
  const std::string bytes =
      absl::StrCat(Begin({"l", "m", "n"}), Number(2), ListColumn({0, 2, 3}, Column<int64_t>(4, {7, 8, 9})),
                   ListColumn({0, 0, 2}, TextColumn({"a", "b"})),
                   ListColumn({0, 2, 2}, Column<int8_t>(1, {5, 6}, "\x02")), Number(0));
  EXPECT_EQ(*TextOf(bytes), "l,m,n\n7;8,,|6\n9,a|b,\n");
}

TEST(ColumnTextTest, CriteoHasTabsAndNoHeader) {
  const std::string bytes = absl::StrCat(Begin({"label", "C1"}), Number(2), Column<int8_t>(1, {1, 0}),
                                         TextColumn({"68fd1e64", ""}), Number(0));
  EXPECT_EQ(*TextOf(bytes, kCriteo), "1\t68fd1e64\n0\t\n");
  EXPECT_EQ(
      Error(absl::StrCat(Begin({"label", "C1"}), Number(1), Column<int8_t>(1, {1}), TextColumn({"a\tb"})), kCriteo),
      "a.parquet: column 'C1', row 0 from 0: the text has a separator or an end of line, which data.criteo cannot "
      "read");
}

TEST(ColumnTextTest, AMissingValueInTheOnlyColumnIsALine) {
  EXPECT_EQ(*TextOf(absl::StrCat(Begin({"x"}), Number(2), Column<int32_t>(3, {1, 2}, "\x02"), Number(0))),
            "x\n\"\"\n2\n");
}

TEST(ColumnTextTest, ManyBatchesOfUnevenSizesAreOneText) {
  std::string bytes = Begin({"x"}), expected = "x\n";
  int32_t next = 0;
  for (const uint32_t rows : {1u, 100000u, 3u, 70000u}) {
    std::vector<int32_t> values(rows);
    for (int32_t& value : values) absl::StrAppend(&expected, value = next++, "\n");
    absl::StrAppend(&bytes, Number(rows), Column(3, values));
  }
  bytes += Number(0);
  const std::unique_ptr<ByteSource> source =
      MakeColumnText(std::make_unique<FromString>(bytes, 1 << 20), "a.parquet", kCsv);
  std::string text(expected.size() + 100, '\0');
  const absl::StatusOr<size_t> got = source->ReadFully(text.data(), text.size());
  ASSERT_TRUE(got.ok()) << got.status();
  text.resize(*got);
  EXPECT_EQ(text, expected);
}

TEST(ColumnTextTest, ValuesThatALineCannotHoldAreNamed) {
  EXPECT_EQ(Error(absl::StrCat(Begin({"t"}), Number(2), TextColumn({"a", "b\nc"}), Number(0))),
            "a.parquet: column 't', row 1 from 0: the text has an end of line, which a field of data.csv cannot have");
  EXPECT_EQ(Error(absl::StrCat(Begin({"l"}), Number(1), ListColumn({0, 1}, TextColumn({"a;b"})), Number(0))),
            "a.parquet: column 'l', row 0 from 0: an element of the list has ';', which separates elements; give the "
            "column another `list`");
}

TEST(ColumnTextTest, CutColumnsAreDataLossWhereverTheyAreCut) {
  const std::string bytes =
      absl::StrCat(Begin({"x", "t"}), Number(2), Column<int32_t>(3, {1, 2}, "\x03"), TextColumn({"a", "b"}), Number(0));
  ASSERT_TRUE(TextOf(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const absl::Status status = TextOf(bytes.substr(0, size)).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << size;
    EXPECT_THAT(status.message(), HasSubstr("without the end mark")) << size;
  }
}

TEST(ColumnTextTest, DamagedColumnsAreRefused) {
  const std::string begin = Begin({"x"});
  const auto damaged = [&](const std::string& batch) {
    const absl::Status status = TextOf(begin + batch).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(damaged(Number(0) + "more"), HasSubstr("bytes follow the end mark"));
  EXPECT_THAT(damaged(Number(1 << 25)), HasSubstr("a batch has 33554432 rows"));
  EXPECT_THAT(damaged(Number(1) + Column<char>(99, {})), HasSubstr("column 'x' is of kind 99"));
  EXPECT_THAT(damaged(Number(1) + Column<uint32_t>(11, {0, 4000000000u})), HasSubstr("without the end mark"));
  EXPECT_THAT(damaged(Number(2) + Column<uint32_t>(11, {0, 5, 3})), HasSubstr("do not ascend"));
  EXPECT_THAT(damaged(Number(1) + ListColumn({0, 1}, ListColumn({0, 1}, ""))), HasSubstr("is of kind 13"));
  EXPECT_THAT(damaged(absl::StrCat(Number(1), Column<char>(12, {}), Number(1), Texts({"a"}), Raw<int32_t>({1}))),
              HasSubstr("has code 1 of a dictionary of 1"));
  EXPECT_THAT(Error(absl::StrCat("WEIRCOL1", Number(0))), HasSubstr("there are 0 columns"));
}

TEST(ColumnTextTest, RandomDamageIsNeverMoreThanAnError) {
  const std::string good =
      absl::StrCat(Begin({"x", "t", "l"}), Number(3), Column<int32_t>(3, {1, 2, 3}, "\x07"),
                   TextColumn({"a", "b", "c"}), ListColumn({0, 1, 1, 3}, Column<int16_t>(2, {4, 5, 6})), Number(0));
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    bad[random() % bad.size()] = static_cast<char>(random());
    refused += !TextOf(bad).ok();
  }
  EXPECT_GT(refused, 1000);
}

TEST(ColumnTextTest, TheFormIsThatOfTheReader) {
  v1::Data data;
  data.mutable_csv()->set_separator(";");
  v1::Csv::Column* const column = data.mutable_csv()->add_column();
  column->set_name("l");
  column->set_list(" ");
  const std::optional<ColumnTextForm> csv = ColumnTextFormOf(data);
  ASSERT_TRUE(csv.has_value());
  EXPECT_EQ(csv->separator, ';');
  EXPECT_TRUE(csv->header && csv->quotes);
  EXPECT_EQ(csv->lists.at("l"), ' ');
  data.mutable_lib_svm();
  EXPECT_FALSE(ColumnTextFormOf(data).has_value());
}

}  // namespace
}  // namespace weir
