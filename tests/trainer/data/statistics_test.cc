// Statistics of the training files: the same bits however streams are dealt to trainers.

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/feature_id.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/statistics.h"

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

}  // namespace
}  // namespace weir
