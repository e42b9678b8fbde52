// Variables that a job makes of those of its reader, with any reader.
#include "framework/formats/derived.h"

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/formats/example_input.h"
#include "framework/formats/row_filter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/formats/parser_testing.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kColumns[] = R"(csv { header: false
    column { name: "label" }
    column { name: "user" type: ID output: "cat" }
    column { name: "age" output: "dense" }
    column { name: "city" type: TEXT output: "cat" }
    column { name: "time" type: ID }
    column { name: "height" output: "dense" }
    column { name: "genres" type: TEXT list: "|" }
    column { name: "items" type: ID list: "|" weight: ":" } } )";

int64_t Hash(const std::vector<int64_t>& ids, uint64_t seed = 0) {
  return static_cast<int64_t>(StableHash(ids.data(), ids.size() * sizeof(int64_t), seed));
}
int64_t Text(std::string_view text) { return static_cast<int64_t>(StableHash(text)); }

class DerivedTest : public ::testing::Test {
 protected:
  void Configure(const std::string& derived) {
    auto parser = MakeLineParser(ParseData(kColumns + derived));
    ASSERT_TRUE(parser.ok()) << parser.status();
    parser_ = std::move(parser).value();
    ExampleStream::Prepare(*parser_, &example_);
  }
  absl::Status Parse(const std::string& line) { return ParseBothWays(*parser_, line, &example_); }
  // Ids of a slot, counted over all columns.
  std::vector<int64_t> Ids(size_t slot) const {
    size_t first = 0;
    for (size_t s = 0; s < slot; ++s) first += example_.counts[s];
    return {example_.ids.begin() + static_cast<std::ptrdiff_t>(first),
            example_.ids.begin() + static_cast<std::ptrdiff_t>(first + example_.counts[slot])};
  }
  static absl::Status Refusal(const std::string& derived) {
    return MakeLineParser(ParseData(kColumns + derived)).status();
  }

  // Slots of the reader: user, city, time, genres, items.
  static constexpr size_t kOwn = 5;
  std::unique_ptr<LineParser> parser_;
  Example example_;
};

constexpr char kCross[] = R"(derived { name: "x" cross { of: "user" of: "city" } } )";

TEST_F(DerivedTest, VariablesFollowThoseOfTheReader) {
  Configure(absl::StrCat(kCross, R"(derived { name: "y" hash { of: "x" buckets: 7 } })"));
  ASSERT_EQ(parser_->columns().size(), 8u);
  EXPECT_EQ(parser_->columns()[6], (Column{.name = "x", .kind = v1::IDS, .width = 1, .slot_names = {"x"}}));
  EXPECT_EQ(parser_->columns()[7].name, "y");
  EXPECT_EQ(parser_->slots(), 7);
  ASSERT_TRUE(Parse("1,42,30,Oslo,0,1.8,a|b,5:0.5|6").ok());
  EXPECT_THAT(Ids(0), ElementsAre(42));
  EXPECT_THAT(Ids(kOwn), ElementsAre(Hash({42, Text("Oslo")})));
  // Made of an earlier one.
  EXPECT_THAT(Ids(kOwn + 1),
              ElementsAre(static_cast<int64_t>(static_cast<uint64_t>(Hash({Hash({42, Text("Oslo")})})) % 7)));
  // Those of the reader keep their weights.
  EXPECT_THAT(example_.weights, ElementsAre(1, 1, 1, 1, 1, 0.5f, 1, 1, 1));
}

TEST_F(DerivedTest, AnInputThatIsMissingGivesNoId) {
  Configure(absl::StrCat(kCross, R"(derived { name: "b" bucketize { of: "dense[0]" boundaries: 30 } }
      derived { name: "h" hash { of: "user" } } derived { name: "hour" time { of: "time" } })"));
  ASSERT_TRUE(Parse("1,,,Oslo,,1.8,,").ok());
  for (size_t slot = kOwn; slot < kOwn + 4; ++slot) EXPECT_THAT(Ids(slot), IsEmpty()) << slot;
  ASSERT_TRUE(Parse("1,42,30,Oslo,0,1.8,,").ok());
  for (size_t slot = kOwn; slot < kOwn + 4; ++slot) EXPECT_EQ(Ids(slot).size(), 1u) << slot;
}

TEST_F(DerivedTest, ListsAreCrossedEachWithEach) {
  Configure(R"(derived { name: "x" cross { of: "genres" of: "user" of: "items" seed: 9 } })");
  ASSERT_TRUE(Parse("1,42,30,Oslo,0,1.8,a|b,5:0.5|6|7").ok());
  std::vector<int64_t> expected;
  for (const char* const genre : {"a", "b"}) {
    for (const int64_t item : {5, 6, 7}) expected.push_back(Hash({Text(genre), 42, item}, 9));
  }
  EXPECT_EQ(Ids(kOwn), expected);
  std::string long_list(2 * 299 + 1, '1');
  for (size_t i = 1; i < long_list.size(); i += 2) long_list[i] = '|';
  EXPECT_THAT(Parse(absl::StrCat("1,42,30,Oslo,0,1.8,", long_list, ",", long_list)),
              StatusIs(kInvalid, "'x' would have more than 65535 ids: the lists that it crosses are too long"));
}

TEST_F(DerivedTest, BucketsOfAHashAndTheirSeed) {
  Configure(R"(derived { name: "a" hash { of: "genres" buckets: 10 } }
               derived { name: "b" hash { of: "user" buckets: 1000000 seed: 3 } }
               derived { name: "c" cross { of: "user" of: "time" buckets: 100 } })");
  ASSERT_TRUE(Parse("1,42,30,Oslo,17,1.8,a|b,").ok());
  const auto rest = [](int64_t hash, uint64_t by) { return static_cast<int64_t>(static_cast<uint64_t>(hash) % by); };
  EXPECT_THAT(Ids(kOwn), ElementsAre(rest(Hash({Text("a")}), 10), rest(Hash({Text("b")}), 10)));
  EXPECT_THAT(Ids(kOwn + 1), ElementsAre(rest(Hash({42}, 3), 1000000)));
  EXPECT_THAT(Ids(kOwn + 2), ElementsAre(rest(Hash({42, 17}), 100)));
}

// Part of the stored meaning of ids: these must never change.
TEST_F(DerivedTest, HashesAreTheStatedFunction) {
  Configure(absl::StrCat(kCross, R"(derived { name: "h" hash { of: "user" seed: 7 } })"));
  ASSERT_TRUE(Parse("1,42,30,Oslo,0,1.8,,").ok());
  EXPECT_EQ(Ids(kOwn)[0], 3864748288926759887);
  EXPECT_EQ(Ids(kOwn + 1)[0], -5685824711826749659);
}

TEST_F(DerivedTest, BucketsOfNumbersAndOfIds) {
  Configure(R"(derived { name: "a" bucketize { of: "dense[0]" boundaries: 18 boundaries: 30 boundaries: 65 } }
               derived { name: "h" bucketize { of: "dense[1]" boundaries: 1.5 } }
               derived { name: "u" bucketize { of: "user" boundaries: -1 boundaries: 40 } })");
  const std::pair<const char*, int64_t> ages[] = {{"-5", 0}, {"17.9", 0}, {"18", 1},  {"30", 2},
                                                  {"64", 2}, {"65", 3},   {"1e30", 3}};
  for (const auto& [age, bucket] : ages) {
    ASSERT_TRUE(Parse(absl::StrCat("1,42,", age, ",Oslo,0,1.4,,")).ok());
    EXPECT_THAT(Ids(kOwn), ElementsAre(bucket)) << age;
    EXPECT_THAT(Ids(kOwn + 1), ElementsAre(0));
    EXPECT_THAT(Ids(kOwn + 2), ElementsAre(2));
  }
  ASSERT_TRUE(Parse("1,-2,,Oslo,0,1.5,,").ok());
  EXPECT_THAT(Ids(kOwn), IsEmpty());
  EXPECT_THAT(Ids(kOwn + 1), ElementsAre(1));
  EXPECT_THAT(Ids(kOwn + 2), ElementsAre(0));
}

TEST_F(DerivedTest, AFloatOnABoundaryIsInTheBucketAbove) {
  Configure(R"(derived { name: "a" bucketize { of: "dense[0]" boundaries: 0.3 boundaries: 0.7 boundaries: 0.9 } }
               derived { name: "u" bucketize { of: "user" boundaries: 1152921504606846976 } })");
  const std::pair<const char*, int64_t> values[] = {{"0.1", 0}, {"0.3", 1}, {"0.6", 1}, {"0.7", 2}, {"0.9", 3}};
  for (const auto& [value, bucket] : values) {
    ASSERT_TRUE(Parse(absl::StrCat("1,1152921504606846975,", value, ",Oslo,0,1.4,,")).ok());
    EXPECT_THAT(Ids(kOwn), ElementsAre(bucket)) << value;
    EXPECT_THAT(Ids(kOwn + 1), ElementsAre(0)) << "2^60 - 1 is below 2^60";
  }
}

TEST_F(DerivedTest, PartsOfTimesAreThoseOfTheCalendar) {
  const absl::TimeZone zone = absl::FixedTimeZone(-5 * 3600 - 1800);
  Configure(R"(derived { name: "h" time { of: "time" utc_offset_minutes: -330 } }
               derived { name: "w" time { of: "time" part: WEEKDAY utc_offset_minutes: -330 } }
               derived { name: "hw" time { of: "time" part: HOUR_OF_WEEK utc_offset_minutes: -330 } }
               derived { name: "d" time { of: "time" part: DAY utc_offset_minutes: -330 } }
               derived { name: "m" time { of: "time" part: MONTH utc_offset_minutes: -330 } }
               derived { name: "ms" time { of: "time" unit: MILLISECONDS } })");
  for (uint64_t i = 0; i < 2000; ++i) {
    // From 1900 to 2100, and the second before and behind 1970.
    const int64_t seconds =
        i < 3 ? static_cast<int64_t>(i) - 1 : static_cast<int64_t>(Philox(3, i, 0).v[0] % 6311433600ull) - 2208988800;
    ASSERT_TRUE(Parse(absl::StrCat("1,42,30,Oslo,", seconds, ",1.8,,")).ok());
    const absl::CivilSecond local = zone.At(absl::FromUnixSeconds(seconds)).cs;
    const int64_t weekday = static_cast<int64_t>(absl::GetWeekday(local));
    EXPECT_THAT(Ids(kOwn), ElementsAre(local.hour())) << seconds;
    EXPECT_THAT(Ids(kOwn + 1), ElementsAre(weekday)) << seconds;
    EXPECT_THAT(Ids(kOwn + 2), ElementsAre(24 * weekday + local.hour())) << seconds;
    EXPECT_THAT(Ids(kOwn + 3), ElementsAre(local.day())) << seconds;
    EXPECT_THAT(Ids(kOwn + 4), ElementsAre(local.month())) << seconds;
    const absl::CivilSecond utc = absl::UTCTimeZone().At(absl::FromUnixMillis(seconds)).cs;
    EXPECT_THAT(Ids(kOwn + 5), ElementsAre(utc.hour())) << seconds;
  }
  EXPECT_THAT(Parse(absl::StrCat("1,42,30,Oslo,", std::numeric_limits<int64_t>::min(), ",1.8,,")),
              StatusIs(kInvalid,
                       "'h': -9223372036854775808 seconds since 1970 are not in the years 0 to 9999; is the "
                       "unit right?"));
}

// What one line leaves in an example is not seen by the next, also by readers that reorder ids.
TEST(DerivedReadersTest, EveryReaderGivesTheSameInAUsedExampleAndInAFreshOne) {
  const char* const readers[] = {
      "multi_slot { slot { name: 'label' type: FLOAT } slot { name: 'a' output: 'cat' } slot { name: 'x' type: FLOAT } "
      "slot { name: 'b' } slot { name: 'c' output: 'cat' } }",
      "lib_svm { slot { name: 'x' type: FLOAT first: 1 last: 1 } slot { name: 'b' first: 20 } slot { name: 'a' first: "
      "10 last: 19 } }",
      "csv { header: false column { name: 'label' } column { name: 'a' type: ID list: '|' output: 'cat' } column { "
      "name: 'x' } column { name: 'b' type: TEXT list: '|' } column { name: 'c' type: ID list: '|' output: 'cat' } }"};
  for (size_t r = 0; r < 3; ++r) {
    auto parser = MakeLineParser(ParseData(absl::StrCat(
        readers[r],
        " derived { name: 'p' cross { of: 'a' of: 'b' } } derived { name: 'q' hash { of: 'p' buckets: 50 } }"
        " derived { name: 'r' bucketize { of: 'x' boundaries: 3 } }")));
    ASSERT_TRUE(parser.ok()) << parser.status();
    Example used;
    ExampleStream::Prepare(**parser, &used);
    for (uint64_t n = 0; n < 500; ++n) {
      uint64_t draws = 0;
      const auto draw = [&](uint32_t below) { return Philox(r + 5, n, draws++).v[0] % below; };
      const auto list = [&](const char* between, uint32_t from) {
        std::vector<std::string> ids;
        for (uint32_t i = draw(4); i > 0; --i) ids.push_back(absl::StrCat(from + draw(9)));
        return std::pair(ids.size(), absl::StrJoin(ids, between));
      };
      std::string line;
      if (r == 0) {
        line = absl::StrCat("1 ", draw(2));
        for (int slot = 0; slot < 4; ++slot) {
          if (slot == 1) {
            absl::StrAppend(&line, " 1 ", draw(6));
            continue;
          }
          const auto [count, ids] = list(" ", 1);
          absl::StrAppend(&line, " ", count, count > 0 ? " " : "", ids);
        }
      } else if (r == 1) {
        line = absl::StrCat(draw(2), " 1:", draw(6));
        for (uint32_t i = draw(6); i > 0; --i) absl::StrAppend(&line, " ", 10 + draw(20), ":1");
      } else {
        line = absl::StrCat(draw(2), ",", list("|", 1).second, ",", draw(6), ",", list("|", 1).second, ",",
                            list("|", 1).second);
      }
      Example fresh;
      ExampleStream::Prepare(**parser, &fresh);
      ASSERT_TRUE(ParseBothWays(**parser, line, &used).ok()) << line;
      ASSERT_TRUE(ParseBothWays(**parser, line, &fresh).ok()) << line;
      ASSERT_EQ(used.ids, fresh.ids) << line;
      ASSERT_EQ(used.counts, fresh.counts) << line;
      ASSERT_EQ(used.weights, fresh.weights) << line;
    }
  }
}

TEST_F(DerivedTest, WrongOnesAreRefused) {
  const std::pair<const char*, const char*> wrong[] = {
      {"derived { hash { of: 'user' } }", "data.derived[0] needs a name"},
      {"derived { name: 'x' }",
       "data.derived[0] needs one of cross, hash, bucketize, time, negatives, vocabulary, frequency"},
      {"derived { name: 'time' hash { of: 'user' } }", "data.derived[0].name 'time' is a variable of the data already"},
      {"derived { name: 'x' hash { of: 'usr' } }",
       "data.derived[0].hash.of 'usr' is no variable of one column, and no slot, of the data; there are label, user, "
       "city, dense[0], dense[1], time, genres, items"},
      {"derived { name: 'x' hash { of: 'dense' } }",
       "data.derived[0].hash.of 'dense' is no variable of one column, and no slot, of the data; there are label, user, "
       "city, dense[0], dense[1], time, genres, items"},
      {"derived { name: 'x' hash { of: 'label' } }",
       "data.derived[0].hash.of 'label' is a float, not ids; make ids of it first, with bucketize"},
      {"derived { name: 'x' hash { of: 'user' buckets: -1 } }",
       "data.derived[0].hash.buckets must be at least 0, got -1"},
      {"derived { name: 'x' cross { of: 'user' } }", "data.derived[0].cross needs `of` two to 8 times, got 1"},
      {"derived { name: 'x' cross { of: 'user' of: 'dense[0]' } }",
       "data.derived[0].cross.of[1] 'dense[0]' is a float, not ids; make ids of it first, with bucketize"},
      {"derived { name: 'x' cross { of: 'user' of: 'city' buckets: -2 } }",
       "data.derived[0].cross.buckets must be at least 0, got -2"},
      {"derived { name: 'x' bucketize { of: 'label' } }",
       "data.derived[0].bucketize needs boundaries, or the number of quantiles to learn, and not both"},
      {"derived { name: 'x' bucketize { of: 'label' boundaries: 1 quantiles: 4 } }",
       "data.derived[0].bucketize needs boundaries, or the number of quantiles to learn, and not both"},
      {"derived { name: 'x' bucketize { of: 'label' quantiles: 1 } }",
       "data.derived[0].bucketize.quantiles must be from 2 to 10000, got 1"},
      {"derived { name: 'x' bucketize { of: 'city' quantiles: 4 } }",
       "data.derived[0].bucketize.of 'city' is texts, whose ids are hashes: there is no number in them; read the "
       "column "
       "as ids or floats"},
      {"derived { name: 'x' cross { of: 'user' of: 'time' sizes: 3 } }",
       "data.derived[0].cross.sizes needs a size for each of the 2 inputs, got 1"},
      {"derived { name: 'x' cross { of: 'user' of: 'time' sizes: 3 sizes: 0 } }",
       "data.derived[0].cross.sizes[1] must be at least 1, got 0"},
      {"derived { name: 'x' cross { of: 'user' of: 'time' sizes: 4294967296 sizes: 2147483648 } }",
       "data.derived[0].cross.sizes[1] makes more combinations than there are ids, 2^63 - 1; leave sizes out, and ids "
       "are "
       "hashes of 64 bits"},
      {"derived { name: 'x' cross { of: 'user' of: 'time' sizes: 2 sizes: 2 buckets: 5 } }",
       "data.derived[0].cross.buckets is for a hash; with sizes every combination has an id of its own"},
      {"derived { name: 'x' cross { of: 'user' of: 'city' sizes: 2 sizes: 2 } }",
       "data.derived[0].cross.of[1] 'city' is texts, whose ids are hashes and not below a size; give them places "
       "first, "
       "with vocabulary"},
      {"derived { name: 'x' vocabulary { of: 'city' } }",
       "data.derived[0].vocabulary needs a file, or learned {}: the values that have a place"},
      {"derived { name: 'x' vocabulary { of: 'label' learned {} } }",
       "data.derived[0].vocabulary.of 'label' is a float, not ids; make ids of it first, with bucketize"},
      {"derived { name: 'x' vocabulary { of: 'city' learned { min_count: 0 } } }",
       "data.derived[0].vocabulary.learned.min_count must be at least 1, got 0"},
      {"derived { name: 'x' vocabulary { of: 'city' learned { most: -1 } } }",
       "data.derived[0].vocabulary.learned.most must be at least 0, got -1"},
      {"derived { name: 'x' vocabulary { of: 'city' learned {} unknown_buckets: -1 } }",
       "data.derived[0].vocabulary.unknown_buckets must be at least 0, got -1"},
      {"derived { name: 'x' vocabulary { of: 'city' learned {} unknown_buckets: 2 refuse_unknown: true } }",
       "data.derived[0].vocabulary.refuse_unknown leaves nothing for unknown_buckets; set one of them"},
      {"derived { name: 'x' vocabulary { of: 'city' learned {} } } derived { name: 'y' hash { of: 'x' } } "
       "derived { name: 'z' frequency { of: 'y' } }",
       "data.derived[2].frequency.of 'y' is learned from the data itself, or made of what is; one pass cannot learn of "
       "it: name what it is made of"},
      {"derived { name: 'x' bucketize { of: 'label' boundaries: 1 boundaries: 1 } }",
       "data.derived[0].bucketize.boundaries[1] must be above the one before, 1, got 1"},
      {"derived { name: 'x' bucketize { of: 'label' boundaries: 0.7 boundaries: 0.70000001 } }",
       "data.derived[0].bucketize.boundaries[1] 0.70000001000000001 is the same float32 as the boundary before, "
       "0.69999999999999996: no value is between them"},
      {"derived { name: 'x' bucketize { of: 'label' boundaries: nan } }",
       "data.derived[0].bucketize.boundaries[0] is no number"},
      {"derived { name: 'x' time { of: 'label' } }",
       "data.derived[0].time.of 'label' is a float, not ids; a float holds no seconds since 1970 exactly: read the "
       "column as an ID"},
      {"derived { name: 'x' time { of: 'time' utc_offset_minutes: 1440 } }",
       "data.derived[0].time.utc_offset_minutes must be less than a day, got 1440"},
      {"derived { name: 'x' hash { of: 'y' } } derived { name: 'y' hash { of: 'user' } }",
       "data.derived[0].hash.of 'y' is no variable of one column, and no slot, of the data; there are label, user, "
       "city, dense[0], dense[1], time, genres, items"},
  };
  for (const auto& [derived, message] : wrong) EXPECT_THAT(Refusal(derived), StatusIs(kInvalid, message)) << derived;
}

TEST(ExampleInputTest, ANameOfSeveralSlotsIsRefused) {
  EXPECT_THAT(
      MakeLineParser(ParseData("criteo { integers: 1 categoricals: 3 } derived { name: 'C1' hash { of: 'C2' } } "
                               "derived { name: 'x' hash { of: 'C1' } }"))
          .status(),
      StatusIs(kInvalid, "data.derived[1].hash.of 'C1' is the name of several slots of the data"));
}

TEST_F(DerivedTest, NegativesAreIdsThatTheExampleDoesNotHave) {
  Configure(
      "derived { name: 'n' negatives { of: 'items' count: 5 uniform { first: 10 items: 8 } } } "
      "derived { name: 'm' negatives { of: 'user' count: 1 uniform { items: 2 } } }");
  std::map<int64_t, int> drawn;
  std::vector<std::vector<int64_t>> first;
  for (uint64_t draw = 0; draw < 4000; ++draw) {
    example_.draw = draw * 12345;
    ASSERT_EQ(Parse("1,1,30,Rome,7,1.8,a,11|12:2|17"), absl::OkStatus());
    const std::vector<int64_t> ids = Ids(5);
    ASSERT_EQ(ids.size(), 5u);
    for (const int64_t id : ids) ++drawn[id];
    EXPECT_THAT(Ids(6), ElementsAre(0)) << "all that is left";
    first.push_back(ids);
  }
  // Each of the five that are left, as often.
  ASSERT_EQ(drawn.size(), 5u);
  for (const auto& [id, times] : drawn) {
    EXPECT_TRUE(id >= 10 && id < 18 && id != 11 && id != 12 && id != 17) << id;
    EXPECT_NEAR(times, 4000, 300) << id;
  }
  // A function of the draw alone.
  example_.draw = 77 * 12345;
  ASSERT_EQ(Parse("0,1,,Rome,,,,17|12|11"), absl::OkStatus());
  EXPECT_EQ(Ids(5), first[77]);
  EXPECT_NE(first[77], first[78]);
}

TEST_F(DerivedTest, NegativesShareTheIdsOfTheirVariable) {
  Configure(
      "derived { name: 'n' negatives { of: 'user' count: 2 uniform { items: 100 } } } "
      "derived { name: 'h' hash { of: 'user' } }");
  const std::vector<Column>& columns = parser_->columns();
  EXPECT_EQ(columns[columns.size() - 2].ids_of, "cat");
  EXPECT_THAT(columns[columns.size() - 2].slot_names, ElementsAre("user"));
  EXPECT_EQ(columns.back().ids_of, "");
}

// What a job has learned, as the statistics hold it.
std::shared_ptr<const IdList> List(std::vector<int64_t> ids, std::vector<double> weights = {}) {
  return std::make_shared<IdList>(std::move(ids), std::move(weights));
}

TEST_F(DerivedTest, WithSizesEveryCombinationHasItsOwnId) {
  Configure("derived { name: 'x' cross { of: 'user' of: 'items' of: 'time' sizes: 5 sizes: 4 sizes: 3 } }");
  ASSERT_TRUE(Parse("1,4,30,Oslo,2,1.8,,3|0").ok());
  EXPECT_THAT(Ids(kOwn), ElementsAre((4 * 4 + 3) * 3 + 2, (4 * 4 + 0) * 3 + 2));
  ASSERT_TRUE(Parse("1,,30,Oslo,2,1.8,,3|0").ok());
  EXPECT_THAT(Ids(kOwn), IsEmpty());
  EXPECT_THAT(Parse("1,4,30,Oslo,2,1.8,,3|4"), StatusIs(kInvalid, "'x' crosses ids of 'items' from 0 to 3, got 4"));
  EXPECT_THAT(Parse("1,-1,30,Oslo,2,1.8,,3"), StatusIs(kInvalid, "'x' crosses ids of 'user' from 0 to 4, got -1"));
}

TEST_F(DerivedTest, AVocabularyGivesPlaces) {
  const std::string derived =
      "derived { name: 'd' vocabulary { of: 'genres' file: 'f' } } "
      "derived { name: 'b' vocabulary { of: 'genres' file: 'f' unknown_buckets: 10 } } "
      "derived { name: 'after' cross { of: 'b' of: 'user' sizes: 13 sizes: 100 } }";
  // Before the list is known, nothing.
  Configure("derived { name: 'd' vocabulary { of: 'genres' learned {} } }");
  EXPECT_TRUE(parser_->columns().back().learned);
  ASSERT_TRUE(Parse("1,42,30,Oslo,0,1.8,a|b,").ok());
  EXPECT_THAT(Ids(kOwn), IsEmpty());

  const auto list = List({Text("b"), Text("c"), Text("a")});
  const Learned learned = {.lessons = {{.kind = Lesson::kVocabulary, .index = 0, .list = list},
                                       {.kind = Lesson::kVocabulary, .index = 1, .list = list}}};
  auto parser = MakeLineParser(ParseData(kColumns + derived), &learned);
  ASSERT_TRUE(parser.ok()) << parser.status();
  parser_ = std::move(parser).value();
  EXPECT_FALSE(parser_->columns().back().learned) << "a list in a file is known before the data";
  ExampleStream::Prepare(*parser_, &example_);
  ASSERT_TRUE(Parse("1,42,30,Oslo,0,1.8,a|x|b,5:0.5").ok());
  const int64_t bucket = static_cast<int64_t>(static_cast<uint64_t>(Hash({Text("x")})) % 10);
  EXPECT_THAT(Ids(kOwn), ElementsAre(2, 0)) << "an unknown value is missing";
  EXPECT_THAT(Ids(kOwn + 1), ElementsAre(2, 3 + bucket, 0));
  EXPECT_THAT(Ids(kOwn + 2), ElementsAre(242, (3 + bucket) * 100 + 42, 42));
  EXPECT_EQ(example_.weights.size(), example_.ids.size());
  ASSERT_TRUE(Parse("1,42,30,Oslo,0,1.8,y|x,").ok());
  EXPECT_THAT(Ids(kOwn), IsEmpty());
}

TEST_F(DerivedTest, AnUnknownValueIsRefusedWhereTheJobSaysSo) {
  const Learned learned = {.lessons = {{.kind = Lesson::kVocabulary, .index = 0, .list = List({7, 9})}}};
  auto parser =
      MakeLineParser(ParseData(absl::StrCat(
                         kColumns, "derived { name: 'v' vocabulary { of: 'user' learned {} refuse_unknown: true } }")),
                     &learned);
  ASSERT_TRUE(parser.ok()) << parser.status();
  parser_ = std::move(parser).value();
  ExampleStream::Prepare(*parser_, &example_);
  ASSERT_TRUE(Parse("1,9,30,Oslo,0,1.8,,").ok());
  EXPECT_THAT(Ids(kOwn), ElementsAre(1));
  EXPECT_THAT(Parse("1,8,30,Oslo,0,1.8,,"),
              StatusIs(kInvalid,
                       "'v': the vocabulary of 2 values does not have this one, whose id is 8 "
                       "(data.derived.vocabulary.refuse_unknown)"));
}

TEST_F(DerivedTest, AFrequencyIsAFloat) {
  const std::string derived =
      "derived { name: 'h' hash { of: 'user' } } derived { name: 'p' frequency { of: 'user' } } "
      "derived { name: 'q' bucketize { of: 'p' boundaries: 0.15 } }";
  Configure(derived);
  const size_t position = static_cast<size_t>(parser_->floats()) - 1;
  ASSERT_TRUE(Parse("1,42,30,Oslo,0,1.8,a,").ok());
  EXPECT_EQ(example_.floats[position], 1) << "not known yet";
  const Learned learned = {.lessons = {{.kind = Lesson::kFrequency, .index = 1, .list = List({42, 7}, {6, 2})}}};
  auto parser = MakeLineParser(ParseData(kColumns + derived), &learned);
  ASSERT_TRUE(parser.ok()) << parser.status();
  parser_ = std::move(parser).value();
  ExampleStream::Prepare(*parser_, &example_);
  for (const auto& [user, share, bucket] :
       {std::tuple{"42", 0.75f, 1}, {"7", 0.25f, 1}, {"8", 0.125f, 0}, {"", 0.125f, 0}}) {
    ASSERT_TRUE(Parse(absl::StrCat("1,", user, ",30,Oslo,0,1.8,a|b,")).ok());
    EXPECT_EQ(example_.floats[position], share) << user;
    EXPECT_THAT(Ids(kOwn + 1), ElementsAre(bucket)) << user;
  }
  Configure("derived { name: 'p' frequency { of: 'genres' } }");
  EXPECT_THAT(Parse("1,42,30,Oslo,0,1.8,a|b,"), StatusIs(kInvalid, "'p': 'genres' has 2 ids; a frequency is of one"));
}

TEST_F(DerivedTest, NegativesAreDrawnByPopularity) {
  const Learned learned = {
      .lessons = {
          {.kind = Lesson::kPopularity, .index = 0, .list = List({Text("a"), Text("b"), Text("c")}, {16, 81, 1})}}};
  auto parser = MakeLineParser(
      ParseData(absl::StrCat(kColumns, "derived { name: 'n' negatives { of: 'city' count: 2 popularity {} } }")),
      &learned);
  ASSERT_TRUE(parser.ok()) << parser.status();
  parser_ = std::move(parser).value();
  ExampleStream::Prepare(*parser_, &example_);
  EXPECT_TRUE(parser_->columns().back().learned);
  std::map<int64_t, int> drawn;
  for (uint64_t draw = 0; draw < 6000; ++draw) {
    example_.draw = draw * 999;
    ASSERT_TRUE(Parse("1,42,30,Oslo,0,1.8,,").ok());
    for (const int64_t id : Ids(kOwn)) ++drawn[id];
  }
  // 16, 81 and 1 to the power of 3/4 are 8, 27 and 1.
  EXPECT_NEAR(drawn[Text("a")], 12000.0 * 8 / 36, 250);
  EXPECT_NEAR(drawn[Text("b")], 12000.0 * 27 / 36, 250);
  EXPECT_NEAR(drawn[Text("c")], 12000.0 / 36, 100);
  ASSERT_TRUE(Parse("1,42,30,b,0,1.8,,").ok());
  for (const int64_t id : Ids(kOwn)) EXPECT_NE(id, Text("b"));
}

TEST_F(DerivedTest, ALongListOfOwnIdsIsNotDrawn) {
  Configure("derived { name: 'n' negatives { of: 'items' count: 40 uniform { items: 80 } } }");
  std::vector<int64_t> even;
  for (int64_t i = 78; i >= 0; i -= 2) even.push_back(i);
  ASSERT_EQ(Parse(absl::StrCat("1,1,30,Rome,7,1.8,a,", absl::StrJoin(even, "|"))), absl::OkStatus());
  for (const int64_t id : Ids(kOwn)) EXPECT_EQ(id % 2, 1);
}

TEST_F(DerivedTest, NoRuleOfRowsMayUseWhatIsLearned) {
  Configure("derived { name: 'v' vocabulary { of: 'city' learned {} } } derived { name: 'h' hash { of: 'v' } }");
  v1::DataSource source;
  source.add_where()->set_of("h");
  EXPECT_THAT(
      RowFilter::Create(parser_->columns(), source.where(), "data.train.where", PlainSettingErrors("")).status(),
      StatusIs(kInvalid,
               "data.train.where[0].of 'h' is learned from the examples that the rules of data.train keep, or "
               "made of what is: no rule can use it"));
}

TEST_F(DerivedTest, WrongNegativesAreNamed) {
  const auto error = [](const std::string& negatives) {
    return MakeLineParser(ParseData(absl::StrCat(kColumns, "derived { name: 'n' negatives { ", negatives, " } }")))
        .status();
  };
  EXPECT_THAT(error("of: 'user' uniform { items: 100 } count: 0"),
              StatusIs(kInvalid, "data.derived[0].negatives.count must be from 1 to 65535, got 0"));
  EXPECT_THAT(error("of: 'user'"),
              StatusIs(kInvalid, "data.derived[0].negatives needs uniform or popularity: the ids to draw from"));
  EXPECT_THAT(error("of: 'user' popularity { alpha: -1 }"),
              StatusIs(kInvalid, "data.derived[0].negatives.popularity.alpha must be from 0 to 16, got -1"));
  EXPECT_THAT(error("of: 'user' popularity { file: '' }"),
              StatusIs(kInvalid,
                       "data.derived[0].negatives.popularity.file is empty; leave it out to draw as often as "
                       "data.train has the ids"));
  EXPECT_THAT(error("of: 'user' uniform {}"),
              StatusIs(kInvalid,
                       "data.derived[0].negatives.uniform.items must be at least 2, one to be chosen and one to "
                       "be none; got 0"));
  EXPECT_THAT(error("of: 'age' uniform { items: 9 }"),
              StatusIs(kInvalid,
                       "data.derived[0].negatives.of 'age' is no variable of one column, and no slot, of the "
                       "data; there are label, user, city, dense[0], dense[1], time, genres, items"));
  EXPECT_THAT(error("of: 'city' uniform { items: 9 }"),
              StatusIs(kInvalid,
                       "data.derived[0].negatives.of 'city' is texts, whose ids are no range of numbers: read "
                       "the column as ids, or draw them by popularity"));
  Configure("derived { name: 'n' negatives { of: 'items' uniform { items: 2 } } }");
  EXPECT_THAT(Parse("1,1,30,Rome,7,1.8,a,0|1"),
              StatusIs(kInvalid, "'n': 2 ids of the example leave too few of 2 to draw from"));
}

}  // namespace
}  // namespace weir
