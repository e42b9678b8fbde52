// Lists of ids, and numbers drawn by weight.
#include "framework/formats/learned.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/formats/alias_table.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

TEST(IdListTest, LinesAreIdsInTheirOrder) {
  const auto texts = ParseIdList("\xEF\xBB\xBFred\r\nlight blue\ngreen", "v", IdKind::kText, false);
  ASSERT_TRUE(texts.ok()) << texts.status();
  EXPECT_EQ(texts->Find(static_cast<int64_t>(StableHash("light blue"))), 1);
  EXPECT_EQ(texts->Find(static_cast<int64_t>(StableHash("blue"))), -1);
  EXPECT_EQ(texts->ids().size(), 3u);
  EXPECT_THAT(texts->weights(), IsEmpty());
  const auto numbers = ParseIdList("7\n-3\n18446744073709551615\n", "v", IdKind::kInteger, false);
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_THAT(numbers->ids(), ElementsAre(7, -3, -1 - 0)) << "an unsigned number stands for its bits";
}

TEST(IdListTest, HexadecimalIdsAreReadAsTheColumnIs) {
  const auto list = ParseIdList("0a\nff\n", "v", IdKind::kHex, false);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(list->ids(), ElementsAre(10, 255));
}

TEST(IdListTest, AWeightIsBehindTheId) {
  const auto list = ParseIdList("light blue\t 2.5\n  red 1e3\n", "w", IdKind::kText, true);
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->Find(static_cast<int64_t>(StableHash("light blue"))), 0);
  EXPECT_THAT(list->weights(), ElementsAre(2.5, 1000));
  EXPECT_EQ(list->total(), 1002.5);
}

TEST(IdListTest, WrongLinesAreNamed) {
  const auto refusal = [](std::string_view text, IdKind kind, bool weights) {
    return ParseIdList(text, "v.txt", kind, weights).status();
  };
  EXPECT_THAT(refusal("", IdKind::kText, false), StatusIs(kInvalid, "v.txt: has no line"));
  EXPECT_THAT(refusal("a\n\nb\n", IdKind::kText, false),
              StatusIs(kInvalid, "v.txt:2: is empty; an example without a value is missing, and in no list"));
  EXPECT_THAT(refusal("a\nb\na\n", IdKind::kText, false), StatusIs(kInvalid, "v.txt:3: 'a' stands in line 1, too"));
  EXPECT_THAT(refusal("1\n2x\n", IdKind::kInteger, false),
              StatusIs(kInvalid, "v.txt:2: '2x' is no 64-bit integer, as the ids of the column are"));
  EXPECT_THAT(refusal("fg\n", IdKind::kHex, false),
              StatusIs(kInvalid, "v.txt:1: 'fg' is no hexadecimal number, as the ids of the column are"));
  for (const char* const line : {"7", "7 x", "7 0", "7 -1", "7 inf", "7 nan", ""}) {
    EXPECT_THAT(
        refusal(absl::StrCat("1 1\n", line, "\n"), IdKind::kInteger, true),
        StatusIs(kInvalid, absl::StrCat("v.txt:2: expected an id, blanks and a weight above 0, got '", line, "'")));
  }
  EXPECT_THAT(refusal(" 5\n", IdKind::kInteger, true),
              StatusIs(kInvalid, "v.txt:1: expected an id, blanks and a weight above 0, got '5'"));
}

TEST(AliasTableTest, NumbersAreDrawnByTheirWeights) {
  const std::vector<double> weights = {5, 1, 0.5, 3, 1e-3, 40, 0.5};
  double sum = 0;
  for (const double weight : weights) sum += weight;
  const AliasTable table(weights);
  std::vector<double> drawn(weights.size());
  constexpr int kDraws = 400000;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const PhiloxBlock random = Philox(3, i, 0);
    drawn[table.Draw(static_cast<uint64_t>(random.v[1]) << 32 | random.v[0])] += 1.0 / kDraws;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const double p = weights[i] / sum;
    EXPECT_NEAR(drawn[i], p, 5 * std::sqrt(p / kDraws)) << i;
  }
}

TEST(AliasTableTest, ExtremesOfWeightsAndOfRandomNumbers) {
  const uint64_t all = std::numeric_limits<uint64_t>::max();
  const AliasTable one(std::vector<double>{7});
  EXPECT_EQ(one.Draw(0), 0u);
  EXPECT_EQ(one.Draw(all), 0u);
  const AliasTable equal(std::vector<double>(1000, 3e300));
  EXPECT_EQ(equal.Draw(0), 0u);
  EXPECT_EQ(equal.Draw(all), 999u);
  // What is far less than the largest is still drawn, and rarely.
  const AliasTable uneven(std::vector<double>{1e-300, 1e300, 1e-300});
  int rare = 0;
  for (uint64_t i = 0; i < 100000; ++i) {
    const PhiloxBlock random = Philox(4, i, 0);
    rare += uneven.Draw(static_cast<uint64_t>(random.v[1]) << 32 | random.v[0]) != 1;
  }
  EXPECT_LT(rare, 3);
}

TEST(AliasTableTest, PowersAreThoseOfTheLibraryUpToRounding) {
  for (const double x : {0.0, 1.0, 2.0, 17.0, 123456.0, 1e12, 0.3}) {
    for (const double exponent : {0.0, 0.25, 0.5, 0.75, 1.0, 2.0, 3.5}) {
      EXPECT_NEAR(Power(x, exponent), std::pow(x, exponent), 1e-12 * std::pow(x, exponent)) << x << " " << exponent;
    }
    // Rounded to 2^-32.
    EXPECT_NEAR(Power(x, 0.7), std::pow(x, 0.7), 1e-8 * std::pow(x, 0.7)) << x;
  }
  EXPECT_EQ(Power(81, 0.75), 27);
}

TEST(LearnedTest, LessonsAreThoseOfTheJob) {
  v1::Data data;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "csv { column { name: 'l' learn_classes: true } column { name: 'u' type: ID } } "
      "derived { name: 'v' vocabulary { of: 'u' file: 'f' } } derived { name: 'h' hash { of: 'u' } } "
      "derived { name: 'p' frequency { of: 'u' } } derived { name: 'q' bucketize { of: 'u' quantiles: 3 } } "
      "derived { name: 'b' bucketize { of: 'u' boundaries: 3 } } "
      "derived { name: 'n' negatives { of: 'u' uniform { items: 4 } } } "
      "derived { name: 'm' negatives { of: 'u' popularity {} } }",
      &data));
  std::vector<std::string> found;
  for (const Lesson& lesson : Lessons(data)) {
    found.push_back(absl::StrCat(lesson.index, lesson.name, lesson.kind, lesson.of, lesson.file));
  }
  EXPECT_THAT(found, ElementsAre("0v0uf", "2p1u", "3q3u", "6m2u", "0l4l"));
  Learned learned = {.lessons = {{.kind = Lesson::kQuantiles, .index = 3, .boundaries = {1, 2}},
                                 {.kind = Lesson::kClasses, .index = 0, .classes = {"a", "b"}}}};
  EXPECT_FALSE(learned.IsOf(data));
  const v1::Data with = WithLearned(data, learned);
  EXPECT_THAT(with.derived(3).bucketize().boundaries(), ElementsAre(1, 2));
  EXPECT_FALSE(with.derived(3).bucketize().has_quantiles());
  EXPECT_EQ(with.csv().column(0).classes_size(), 2);
  EXPECT_EQ(with.csv().column(0).classes(1).text(0), "b");
  EXPECT_TRUE(with.csv().column(0).learn_classes()) << "that they are learned is still to be seen";
  EXPECT_EQ(Lessons(with).size(), 4u);
  // What another job has learned, of other inputs or under other names, is not this one's.
  Learned all;
  for (const Lesson& lesson : Lessons(data)) {
    all.lessons.push_back({.kind = lesson.kind, .index = lesson.index, .name = lesson.name, .of = lesson.of});
  }
  EXPECT_TRUE(all.IsOf(data));
  data.mutable_derived(0)->mutable_vocabulary()->set_of("w");
  EXPECT_FALSE(all.IsOf(data));
}

}  // namespace
}  // namespace weir
