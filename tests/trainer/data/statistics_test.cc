// Statistics of the training files: the same bits however streams are dealt to trainers.

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/base/feature_id.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/formats/derived.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/example_stream.h"
#include "trainer/data/features.h"
#include "trainer/data/statistics.h"
#include "trainer/files/record.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;

constexpr char kReader[] = R"(
    train { files: "f" }
    multi_slot { slot { name: "x" type: FLOAT dim: 2 } slot { name: "a" } slot { name: "b" } }
    dense { transform: STANDARDIZE } ids { min_count: 4 } )";

// Odd numbers, so that every order of addition gives other bits.
std::string RandomLines(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    const PhiloxBlock r = Philox(1, static_cast<uint64_t>(i), 0);
    absl::StrAppend(&text, r.v[0] % 10 == 0 ? "0" : absl::StrCat("2 ", r.v[0] % 100003 / 7.0, " ", r.v[1] / 3e5), " 1 ",
                    r.v[2] % 200, " 2 ", r.v[3] % 100, " ", r.v[1] % 100, "\n");
  }
  return text;
}

class StatisticsTest : public ::testing::Test {
 protected:
  void SetUp() override { dir_.Write("f", RandomLines(3000)); }

  DataSpec Spec(int lanes, int trainers) {
    DataSpec spec = MakeSpec(kReader, dir_);
    spec.lanes = lanes;
    spec.trainers = trainers;
    return spec;
  }
  std::vector<std::string> Collect(const DataSpec& spec, ThreadPool* pool = nullptr) {
    std::vector<std::string> contributions;
    for (int t = 0; t < spec.trainers; ++t) {
      auto mine = CollectStatistics(spec, OpenTrain(spec), spec.StreamsOf(t), pool);
      CHECK(mine.ok()) << mine.status();
      contributions.push_back(*mine);
    }
    return contributions;
  }
  std::string Merged(const DataSpec& spec, const std::vector<std::string>& contributions) {
    auto merged = MergeStatistics(spec, contributions);
    CHECK(merged.ok()) << merged.status();
    return merged->Serialize();
  }

  TempDir dir_;
};

TEST_F(StatisticsTest, BitsDoNotDependOnTheNumberOfTrainers) {
  const std::string one = Merged(Spec(8, 1), Collect(Spec(8, 1)));
  for (int trainers = 2; trainers <= 8; ++trainers) {
    EXPECT_EQ(Merged(Spec(8, trainers), Collect(Spec(8, trainers))), one) << trainers;
  }
}

// Of the process so far.
int64_t MostBytes() {
  rusage use = {};
  getrusage(RUSAGE_SELF, &use);
  return use.ru_maxrss * 1024;
}

TEST_F(StatisticsTest, OfManyFilesFewAreInMemory) {
#if defined(WEIR_ASAN) || defined(WEIR_TSAN)
  GTEST_SKIP() << "a sanitizer keeps memory that has been freed";
#endif
  for (const bool packed : {false, true}) {
    // A megabyte each: together three times what may be kept of one file.
    std::string lines;
    for (int i = 0; i < 1000; ++i) absl::StrAppend(&lines, "2 ", i, " 3 1 7 1 8", std::string(1000, ' '), "\n");
    const std::string bytes = packed ? Gzip(lines) : lines;
    for (int f = 0; f < 64; ++f) dir_.Write(absl::StrCat("f", f), bytes);
    DataSpec spec = MakeSpec(absl::StrReplaceAll(kReader, {{"\"f\"", "\"f?*\""}}), dir_);
    spec.lanes = 8;
    spec.trainers = 1;
    const int64_t before = MostBytes();
    Collect(spec);
    EXPECT_LT(MostBytes() - before, int64_t{24} << 20) << packed;
  }
}

TEST_F(StatisticsTest, BitsDoNotDependOnThreadsOrOnWhoIsFirst) {
  ThreadPool pool("test", 3);
  std::vector<std::string> contributions = Collect(Spec(8, 3));
  const std::string one = Merged(Spec(8, 3), contributions);
  EXPECT_EQ(Collect(Spec(8, 3), &pool), contributions);
  std::swap(contributions[0], contributions[2]);
  EXPECT_EQ(Merged(Spec(8, 3), contributions), one);
}

TEST_F(StatisticsTest, BitsDoDependOnTheOrderOfAddition) {
  // So that the tests above can fail: without lanes the same numbers are added in another order.
  EXPECT_FALSE(Merged(Spec(8, 1), Collect(Spec(8, 1))) == Merged(Spec(1, 1), Collect(Spec(1, 1))));
}

TEST_F(StatisticsTest, MomentsAreThoseOfTheColumn) {
  dir_.Write("f", "2 1 10 0 0\n2 2 10 0 0\n0 0 0\n2 6 10 0 0\n");
  const DataSpec spec = Spec(2, 1);
  const auto merged = MergeStatistics(spec, Collect(spec));
  ASSERT_TRUE(merged.ok());
  ASSERT_EQ(merged->moments().size(), 2u);
  EXPECT_EQ(merged->moments()[0].count, 3);
  EXPECT_DOUBLE_EQ(merged->moments()[0].mean, 3);
  EXPECT_DOUBLE_EQ(merged->moments()[0].Deviation(), std::sqrt((4.0 + 1.0 + 9.0) / 3));
  EXPECT_EQ(merged->moments()[1].Deviation(), 1);
}

TEST_F(StatisticsTest, TheDictionaryHoldsWhatOccursOftenEnough) {
  // Over all streams: 7 four times in slot a, three times in slot b.
  std::string text;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&text, "0 1 7 ", i < 3 ? "1 7" : "1 8", "\n");
  dir_.Write("f", text);
  const DataSpec spec = Spec(4, 2);
  const auto merged = MergeStatistics(spec, Collect(spec));
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->kept(), 1);
  EXPECT_TRUE(merged->Keeps(static_cast<uint64_t>(SaltId(SlotSalt("a", "a"), 7))));
  EXPECT_FALSE(merged->Keeps(static_cast<uint64_t>(SaltId(SlotSalt("b", "b"), 7))));
  EXPECT_FALSE(merged->Keeps(static_cast<uint64_t>(SaltId(SlotSalt("a", "a"), 8))));
  EXPECT_FALSE(merged->Keeps(0));
  EXPECT_FALSE(merged->Keeps(~uint64_t{0}));
}

TEST_F(StatisticsTest, EveryKeptKeyIsFoundAndNoOther) {
  std::string text;
  for (int i = 0; i < 4000; ++i) absl::StrAppend(&text, "0 1 ", i % 1000, " 1 ", i, "\n");
  dir_.Write("f", text);
  const DataSpec spec = Spec(8, 1);
  const auto merged = MergeStatistics(spec, Collect(spec));
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->kept(), 1000);
  for (int i = 0; i < 2000; ++i) {
    EXPECT_EQ(merged->Keeps(static_cast<uint64_t>(SaltId(SlotSalt("a", "a"), i))), i < 1000) << i;
    EXPECT_FALSE(merged->Keeps(static_cast<uint64_t>(SaltId(SlotSalt("b", "b"), i)))) << i;
  }
}

TEST_F(StatisticsTest, SerializedStatisticsComeBack) {
  const DataSpec spec = Spec(8, 1);
  const auto merged = MergeStatistics(spec, Collect(spec));
  ASSERT_TRUE(merged.ok());
  ASSERT_GT(merged->kept(), 0);
  const auto parsed = DataStatistics::Parse(merged->Serialize());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->Serialize(), merged->Serialize());
  EXPECT_EQ(parsed->min_count(), 4);
}

TEST_F(StatisticsTest, DamagedBytesAreDataLoss) {
  const DataSpec spec = Spec(2, 1);
  const std::vector<std::string> good = Collect(spec);
  const std::string statistics = Merged(spec, good);
  for (size_t cut = 0; cut < statistics.size(); cut += 7) {
    EXPECT_THAT(DataStatistics::Parse(statistics.substr(0, cut)).status(),
                StatusIs(kDataLoss, "data statistics: the bytes are cut or damaged"));
  }
  for (size_t at = 0; at < good[0].size(); at += 11) {
    std::string flipped = good[0];
    flipped[at] ^= 0x40;
    EXPECT_THAT(MergeStatistics(spec, {flipped}).status(),
                StatusIs(kDataLoss, "data statistics: the bytes are cut or damaged"));
  }
}

// Bytes with other moments, and a checksum that is right.
std::string Instead(std::string bytes, const Moments& of, const Moments& other) {
  const auto written = [](const Moments& m) {
    std::string text;
    text.append(reinterpret_cast<const char*>(&m.count), sizeof(m.count));
    text.append(reinterpret_cast<const char*>(&m.mean), sizeof(m.mean));
    text.append(reinterpret_cast<const char*>(&m.m2), sizeof(m.m2));
    return text;
  };
  const size_t at = bytes.find(written(of));
  CHECK(at != std::string::npos);
  bytes.replace(at, written(of).size(), written(other));
  const uint64_t sum = StableHash(bytes.data(), bytes.size() - sizeof(sum));
  std::memcpy(bytes.data() + bytes.size() - sizeof(sum), &sum, sizeof(sum));
  return bytes;
}

TEST_F(StatisticsTest, MomentsThatNoColumnHasAreDataLoss) {
  // The mean of the first column is 5.5, the squares of the distances from it have the sum 39.
  dir_.Write("f", "2 1 0 0 0\n2 4 0 0 0\n2 6 0 0 0\n2 7.5 0 0 0\n2 9 0 0 0\n");
  const DataSpec spec = Spec(1, 1);
  const std::vector<std::string> good = Collect(spec);
  const auto merged = MergeStatistics(spec, good);
  ASSERT_TRUE(merged.ok());
  const Moments m = merged->moments()[0];
  EXPECT_TRUE(DataStatistics::Parse(Instead(merged->Serialize(), m, {7, -3, 0})).ok());
  EXPECT_TRUE(MergeStatistics(spec, {Instead(good[0], m, {7, -3, 0})}).ok());
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const Moments& bad : std::vector<Moments>{{-1, 5.5, 39},
                                                 {int64_t{1} << 60, 5.5, 39},
                                                 {5, nan, 39},
                                                 {5, infinity, 39},
                                                 {5, -1e39, 39},
                                                 {5, 5.5, nan},
                                                 {5, 5.5, -1},
                                                 {5, 5.5, 1e95}}) {
    const auto damaged = StatusIs(kDataLoss, "data statistics: the bytes are cut or damaged");
    const std::string what = absl::StrCat(bad.count, " ", bad.mean, " ", bad.m2);
    EXPECT_THAT(DataStatistics::Parse(Instead(merged->Serialize(), m, bad)).status(), damaged) << what;
    EXPECT_THAT(MergeStatistics(spec, {Instead(good[0], m, bad)}).status(), damaged) << what;
  }
}

TEST_F(StatisticsTest, AStreamTwiceOrNeverIsRefused) {
  const DataSpec spec = Spec(4, 2);
  const std::vector<std::string> good = Collect(spec);
  EXPECT_THAT(MergeStatistics(spec, {good[0], good[0]}).status(),
              StatusIs(kDataLoss, "data statistics: stream 0 is there twice"));
  EXPECT_THAT(MergeStatistics(spec, {good[0]}).status(), StatusIs(kDataLoss, "data statistics: stream 2 is missing"));
}

TEST_F(StatisticsTest, ABadLineStopsThePassOrIsSkipped) {
  dir_.Write("f", "2 1 1 0 0\n2 x 1 0 0\n2 3 1 0 0\n");
  DataSpec spec = Spec(1, 1);
  EXPECT_THAT(CollectStatistics(spec, OpenTrain(spec), {0, 1}, nullptr).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "f:2: slot 'x': 'x' is not a finite number"));
  spec.config.set_bad_line(v1::Data::SKIP);
  const auto merged = MergeStatistics(spec, Collect(spec));
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->moments()[0].mean, 2);
}

TEST_F(StatisticsTest, APassCanBeCancelled) {
  const DataSpec spec = Spec(8, 1);
  EXPECT_THAT(CollectStatistics(spec, OpenTrain(spec), {0, 8}, nullptr, [] { return true; }).status(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
}

TEST_F(StatisticsTest, TheyAreNeededOnlyWhenTheJobAsks) {
  DataSpec spec = Spec(8, 1);
  EXPECT_TRUE(NeedsStatistics(spec));
  spec.config.clear_dense();
  EXPECT_TRUE(NeedsStatistics(spec));
  spec.config.mutable_ids()->set_min_count(1);
  EXPECT_FALSE(NeedsStatistics(spec));
  spec.config.mutable_dense()->add_column()->set_transform(v1::DenseTransform::STANDARDIZE);
  EXPECT_TRUE(NeedsStatistics(spec));
}

// What derived variables learn.

constexpr char kLearning[] = R"(
    train { files: "f" }
    multi_slot { slot { name: "x" type: FLOAT } slot { name: "a" } slot { name: "b" } }
    derived { name: "va" vocabulary { of: "a" learned { min_count: 2 most: 150 } } }
    derived { name: "vb" vocabulary { of: "b" learned {} } }
    derived { name: "pa" frequency { of: "a" } }
    derived { name: "nb" negatives { of: "b" popularity {} } }
    derived { name: "qx" bucketize { of: "x" quantiles: 10 } }
    derived { name: "qb" bucketize { of: "b" quantiles: 7 } }
    derived { name: "fa" vocabulary { of: "a" file: "list" unknown_buckets: 3 } }
    derived { name: "nv" negatives { of: "va" uniform { items: 2 } } }
    derived { name: "hq" hash { of: "qb" buckets: 4 } } )";

// Slot a has ids that grow rare, some lines have no x and no b, others two b.
std::string LearningLines(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    const PhiloxBlock r = Philox(2, static_cast<uint64_t>(i), 0);
    absl::StrAppend(&text, r.v[0] % 10 == 0 ? "0" : absl::StrCat("1 ", r.v[0] % 100003 / 7.0), " 1 ",
                    (r.v[2] % 40) * (r.v[1] % 40), r.v[3] % 7 == 0 ? " 0" : absl::StrCat(" 2 ", r.v[3] % 100, " -5"),
                    "\n");
  }
  return text;
}

class LearningTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_.Write("f", LearningLines(3000));
    dir_.Write("list", "5\n7\n1000000\n");
  }
  DataSpec Spec(int lanes, int trainers, const std::string& config = kLearning) {
    DataSpec spec = MakeSpec(config, dir_);
    spec.lanes = lanes;
    spec.trainers = trainers;
    return spec;
  }
  absl::StatusOr<DataStatistics> Learn(const DataSpec& spec, ThreadPool* pool = nullptr) {
    std::vector<std::string> contributions;
    for (int t = spec.trainers - 1; t >= 0; --t) {
      auto mine = CollectStatistics(spec, OpenTrain(spec), spec.StreamsOf(t), pool);
      if (!mine.ok()) return mine.status();
      contributions.push_back(*mine);
    }
    return MergeStatistics(spec, contributions);
  }
  absl::Status Refusal(const std::string& config) { return Learn(Spec(2, 2, config)).status(); }

  TempDir dir_;
};

TEST_F(LearningTest, BitsDoNotDependOnTrainersOrThreads) {
  const auto one = Learn(Spec(8, 1));
  ASSERT_TRUE(one.ok()) << one.status();
  ThreadPool pool("test", 3);
  for (int trainers = 1; trainers <= 8; ++trainers) {
    const auto other = Learn(Spec(8, trainers), &pool);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(other->Serialize(), one->Serialize()) << trainers;
  }
  const auto parsed = DataStatistics::Parse(one->Serialize());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->Serialize(), one->Serialize());
  EXPECT_TRUE(parsed->learned().IsOf(Spec(8, 1).config));
}

TEST_F(LearningTest, ListsAreInTheOrderOfTheirCounts) {
  std::map<int64_t, int> a, b;
  for (const auto& line : absl::StrSplit(LearningLines(3000), '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    size_t at = words[0] == "0" ? 1 : 2;
    ++a[std::stoll(words[at + 1])];
    for (at += 3; at < words.size(); ++at) ++b[std::stoll(words[at])];
  }
  const auto learned = Learn(Spec(8, 3));
  ASSERT_TRUE(learned.ok()) << learned.status();
  const auto expect = [&](size_t lesson, const std::map<int64_t, int>& counts, int min_count, size_t most) {
    std::vector<std::pair<int, int64_t>> order;
    for (const auto& [id, count] : counts) {
      if (count >= min_count) order.emplace_back(-count, id);
    }
    std::sort(order.begin(), order.end());
    if (order.size() > most) order.resize(most);
    const IdList& list = *learned->learned().lessons[lesson].list;
    ASSERT_EQ(list.ids().size(), order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      EXPECT_EQ(list.ids()[i], order[i].second) << i;
      EXPECT_EQ(list.weights()[i], -order[i].first) << i;
      EXPECT_EQ(list.Find(order[i].second), static_cast<int64_t>(i));
    }
  };
  ASSERT_EQ(learned->learned().lessons.size(), 7u);
  ASSERT_GT(a.size(), 150u) << "so that `most` leaves some out";
  expect(0, a, 2, 150);
  expect(1, b, 1, 1000000);
  expect(2, a, 1, 1000000);
  expect(3, b, 1, 1000000);
  EXPECT_THAT(learned->learned().lessons[6].list->ids(), ::testing::ElementsAre(5, 7, 1000000));
}

TEST_F(LearningTest, QuantilesOfFewValuesAreExact) {
  dir_.Write("f", "1 5 1 0 0\n1 1 1 0 0\n1 2 1 0 0\n1 4 1 0 0\n0 1 0 0\n1 3 1 0 0\n1 1 1 0 0\n1 1 1 0 0\n");
  const auto learned = Learn(Spec(2, 2,
                                  "train { files: \"f\" } multi_slot { slot { name: \"x\" type: FLOAT } slot { name: "
                                  "\"a\" } slot { name: \"b\" } } derived { name: \"q\" bucketize { of: \"x\" "
                                  "quantiles: 3 } }"));
  ASSERT_TRUE(learned.ok()) << learned.status();
  // Of 1 1 1 2 3 4 5 the values at 7 / 3 and 14 / 3, from 0 on, are 1 and 3; below 1 there is nothing.
  EXPECT_THAT(learned->learned().lessons[0].boundaries, ::testing::ElementsAre(3));
}

TEST_F(LearningTest, QuantilesOfManyValuesAreWithinTheirBound) {
  std::string text;
  constexpr int kValues = 300000;
  for (int i = 0; i < kValues; ++i) {
    // Every value from 0 on once, in an order that nothing follows.
    absl::StrAppend(&text, "1 ", (int64_t{i} * 7919) % kValues, " 1 0 0\n");
  }
  dir_.Write("f", text);
  const DataSpec spec =
      Spec(8, 2,
           "train { files: \"f\" } multi_slot { slot { name: \"x\" type: FLOAT } slot { name: \"a\" } slot { name: "
           "\"b\" } } derived { name: \"q\" bucketize { of: \"x\" quantiles: 8 } }");
  const auto learned = Learn(spec);
  ASSERT_TRUE(learned.ok()) << learned.status();
  const std::vector<double>& boundaries = learned->learned().lessons[0].boundaries;
  ASSERT_EQ(boundaries.size(), 7u);
  for (size_t i = 0; i < boundaries.size(); ++i) {
    // Five times 0.2 %.
    EXPECT_NEAR(boundaries[i] / kValues, static_cast<double>(i + 1) / 8, 0.01) << i;
  }
}

TEST_F(LearningTest, WhatCannotBeLearnedIsNamed) {
  const std::string reader =
      "train { files: \"f\" } multi_slot { slot { name: \"x\" type: FLOAT } slot { name: \"a\" } slot { name: \"b\" } "
      "} ";
  dir_.Write("f", "1 3 0 1 5\n1 3 0 1 6\n0 0 1 5\n");
  EXPECT_THAT(
      Refusal(reader + "derived { name: \"q\" bucketize { of: \"x\" quantiles: 3 } }"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "data.derived[0]: 'q': 'x' has one value, 3, in data.train, and so no quantiles; take the variable "
               "out of the job, or give boundaries"));
  EXPECT_THAT(Refusal(reader + "derived { name: \"q\" bucketize { of: \"a\" quantiles: 3 } }"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'a' has no value in data.train")));
  EXPECT_THAT(Refusal(reader + "derived { name: \"n\" negatives { of: \"a\" popularity {} } }"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "data.derived[0]: 'n': data.train has no value of 'a': there is nothing to draw"));
  EXPECT_THAT(Refusal(reader + "derived { name: \"v\" vocabulary { of: \"b\" learned { min_count: 3 } } }"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "data.derived[0]: 'v': data.train has no value of 'b' that is there 3 times (min_count): the "
                       "vocabulary would be empty"));
  EXPECT_THAT(Refusal(reader + "derived { name: \"v\" vocabulary { of: \"b\" file: \"none\" } }"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("data.derived[0]: 'v': ")));
  dir_.Write("list", "5\nfive\n");
  EXPECT_THAT(Refusal(reader + "derived { name: \"v\" vocabulary { of: \"b\" file: \"list\" } }"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "data.derived[0]: 'v': list:2: 'five' is no 64-bit integer, as the ids of the column are"));
}

TEST_F(LearningTest, TrainersMustHaveTheSameList) {
  const std::string config =
      "train { files: \"f\" } multi_slot { slot { name: \"x\" type: FLOAT } slot { name: \"a\" } slot { name: \"b\" } "
      "} "
      "derived { name: \"v\" vocabulary { of: \"b\" file: \"list\" } }";
  const DataSpec spec = Spec(2, 2, config);
  const auto first = CollectStatistics(spec, OpenTrain(spec), spec.StreamsOf(0), nullptr);
  dir_.Write("list", "5\n8\n1000000\n");
  const auto second = CollectStatistics(spec, OpenTrain(spec), spec.StreamsOf(1), nullptr);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_THAT(MergeStatistics(spec, {*first, *second}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "data.derived[0]: 'v': trainers have different contents of the file list; give all of them the "
                       "same"));
  EXPECT_THAT(MergeStatistics(spec, {*second}).status(), StatusIs(kDataLoss, "data statistics: stream 0 is missing"));
}

TEST_F(LearningTest, ClassesAreLearnedInTheOrderOfTheirBytes) {
  dir_.Write("f", "l,x\nno,1\nYes,2\n?,3\nmaybe,4\nno,5\n\"a, b\",6\n");
  const DataSpec spec = Spec(2, 2,
                             "train { files: \"f\" } csv { column { name: \"l\" learn_classes: true missing: \"?\" } "
                             "column { name: \"x\" } }");
  EXPECT_TRUE(NeedsStatistics(spec));
  const auto learned = Learn(spec);
  ASSERT_TRUE(learned.ok()) << learned.status();
  EXPECT_THAT(learned->learned().lessons[0].classes, ::testing::ElementsAre("Yes", "a, b", "maybe", "no"));
  const auto parsed = DataStatistics::Parse(learned->Serialize());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->Serialize(), learned->Serialize());
  // A column that is switched off learns nothing; nothing is done with numbers that are not known in the pass.
  const std::string reader = "train { files: \"f\" } csv { column { name: \"x\" } column { name: \"l\" ";
  EXPECT_FALSE(NeedsStatistics(Spec(2, 2, reader + "type: SKIP learn_classes: true } }")));
  EXPECT_THAT(Refusal(reader + "learn_classes: true } } derived { name: \"b\" bucketize { of: \"l\" quantiles: 2 } }"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'l' is learned from the data itself")));
  DataSpec where = Spec(2, 2, reader + "learn_classes: true missing: \"?\" } }");
  where.config.mutable_train()->add_where()->set_of("l");
  where.config.mutable_train()->mutable_where(0)->add_value("1");
  EXPECT_THAT(CollectStatistics(where, OpenTrain(where), {0, 2}, nullptr).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'l' is learned from the examples")));
  dir_.Write("f", "l,x\n?,1\n");
  EXPECT_THAT(Learn(spec).status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                             "data.csv.column[0]: 'l': data.train has no text to make a class of"));
}

TEST_F(LearningTest, MinCountLeavesLearnedVariablesAlone) {
  DataSpec spec = Spec(4, 1);
  spec.config.mutable_ids()->set_min_count(1000000);
  const auto learned = Learn(spec);
  ASSERT_TRUE(learned.ok()) << learned.status();
  const auto parser = MakeLineParser(spec.config, &learned->learned());
  ASSERT_TRUE(parser.ok()) << parser.status();
  const auto features = Features::Create(spec, **parser);
  ASSERT_TRUE(features.ok()) << features.status();
  Example example;
  ExampleStream::Prepare(**parser, &example);
  ASSERT_TRUE((*parser)->Parse(std::string_view("1 3 1 0 1 -5                ", 12), &example).ok());
  RecordPool pool;
  std::vector<Record> records;
  records.emplace_back(example, &pool);
  std::vector<Variable> vars;
  features->MakeBatch(records, &*learned, &vars);
  const auto ids = [&](const std::string& name) {
    for (size_t c = 0; c < features->columns().size(); ++c) {
      if (features->columns()[c].name == name) return std::get<IdBatch>(vars[c]).values;
    }
    return std::vector<int64_t>();
  };
  EXPECT_THAT(ids("a"), ::testing::ElementsAre(RareId(SlotSalt("a", "a"))));
  EXPECT_THAT(ids("va"), ::testing::ElementsAre(SaltId(SlotSalt("va", "va"), 0))) << "0 is the most frequent of all";
  // All that is made of what is learned, boundaries included.
  ASSERT_EQ(ids("qb").size(), 1u);
  EXPECT_NE(ids("qb")[0], RareId(SlotSalt("qb", "qb")));
  EXPECT_NE(ids("hq")[0], RareId(SlotSalt("hq", "hq")));
  EXPECT_THAT(ids("nv"), ::testing::ElementsAre(SaltId(SlotSalt("va", "va"), 1))) << "of the id space of va";
  EXPECT_THAT(ids("fa"), ::testing::ElementsAre(RareId(SlotSalt("fa", "fa"))))
      << "a list in a file is no lesson of the data";
}

TEST_F(LearningTest, DamagedBytesOfLearnedStatisticsAreDataLoss) {
  const DataSpec spec = Spec(2, 1);
  const auto mine = CollectStatistics(spec, OpenTrain(spec), {0, 2}, nullptr);
  ASSERT_TRUE(mine.ok());
  const auto merged = MergeStatistics(spec, {*mine});
  ASSERT_TRUE(merged.ok());
  const std::string statistics = merged->Serialize();
  for (size_t cut = 0; cut < statistics.size(); cut += 97) {
    EXPECT_FALSE(DataStatistics::Parse(statistics.substr(0, cut)).ok()) << cut;
  }
  const auto with_checksum = [](std::string bytes) {
    const uint64_t sum = StableHash(bytes.data(), bytes.size() - sizeof(sum));
    std::memcpy(bytes.data() + bytes.size() - sizeof(sum), &sum, sizeof(sum));
    return bytes;
  };
  // Whatever a byte is, with a checksum that is right: refused, or statistics.
  for (size_t at = 4; at + 8 < statistics.size(); at += 31) {
    for (const char change : {char{1}, static_cast<char>(0x80), static_cast<char>(0xff)}) {
      std::string changed = statistics;
      changed[at] = static_cast<char>(changed[at] ^ change);
      const auto parsed = DataStatistics::Parse(with_checksum(changed));
      EXPECT_TRUE(!parsed.ok() || DataStatistics::Parse(parsed->Serialize()).ok());
    }
  }
  for (size_t at = 4; at + 8 < mine->size(); at += 173) {
    std::string changed = *mine;
    changed[at] = static_cast<char>(changed[at] ^ 0x81);
    const auto again = MergeStatistics(spec, {with_checksum(changed)});
    EXPECT_TRUE(!again.ok() || DataStatistics::Parse(again->Serialize()).ok());
  }
}

}  // namespace
}  // namespace weir
