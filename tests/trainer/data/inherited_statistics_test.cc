// Statistics of the checkpoints that a run starts from: equal names keep what they had, the rest is measured.
#include "trainer/data/inherited_statistics.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/feature_id.h"
#include "framework/base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/statistics.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Reader(const std::string& columns, const std::string& rest) {
  return absl::StrCat("train { files: \"f\" } csv { header: true ", columns, " } ", rest);
}

constexpr char kX[] = "column { name: \"x\" output: \"dense\" } ";
constexpr char kY[] = "column { name: \"y\" output: \"dense\" } ";
constexpr char kA[] = "column { name: \"a\" type: ID output: \"cat\" } ";
constexpr char kB[] = "column { name: \"b\" type: ID output: \"cat\" } ";
constexpr char kKind[] = "column { name: \"kind\" learn_classes: true } ";
constexpr char kWords[] = "column { name: \"word\" type: ID } ";
constexpr char kRest[] =
    R"(dense { transform: STANDARDIZE except: "kind" } ids { min_count: 3 }
       derived { name: "place" vocabulary { of: "word" learned {} unknown_buckets: 1 } })";

class InheritedStatisticsTest : public ::testing::Test {
 protected:
  // Data of which every value moves with `shift`.
  static std::string Lines(int n, int shift) {
    std::string text = "x,y,a,b,kind,word\n";
    for (int i = 0; i < n; ++i) {
      const PhiloxBlock r = Philox(static_cast<uint64_t>(shift), static_cast<uint64_t>(i), 0);
      absl::StrAppend(&text, r.v[0] % 1000 + static_cast<unsigned>(shift), ".5,", r.v[1] % 77, ",",
                      r.v[2] % 300 + static_cast<unsigned>(shift), ",", r.v[3] % 300 + static_cast<unsigned>(shift),
                      ",k", r.v[0] % 3 + static_cast<unsigned>(shift), ",", r.v[1] % 20 + static_cast<unsigned>(shift),
                      "\n");
    }
    return text;
  }
  DataStatistics Measure(DataSpec spec) {
    const DataSet data = OpenTrain(spec);
    std::vector<std::string> all;
    for (int t = 0; t < spec.trainers; ++t) {
      const absl::StatusOr<std::string> mine = CollectStatistics(spec, data, spec.StreamsOf(t), nullptr);
      EXPECT_TRUE(mine.ok()) << mine.status();
      all.push_back(*mine);
    }
    absl::StatusOr<DataStatistics> merged = MergeStatistics(spec, all);
    EXPECT_TRUE(merged.ok()) << merged.status();
    return *std::move(merged);
  }
  static v1::InheritedStatistics Of(const DataSpec& spec, const DataStatistics& statistics) {
    v1::InheritedStatistics inherited;
    inherited.set_data(spec.config.SerializeAsString());
    inherited.set_statistics(statistics.Serialize());
    return inherited;
  }
  DataSpec SpecOf(const std::string& columns, const std::string& rest = kRest) {
    return MakeSpec(Reader(columns, rest).c_str(), dir_);
  }

  TempDir dir_;
};

TEST_F(InheritedStatisticsTest, TheSameColumnsInAnotherOrderKeepAllOfIt) {
  dir_.Write("f", Lines(2000, 0));
  const DataSpec old = SpecOf(absl::StrCat(kX, kY, kA, kB, kKind, kWords));
  const DataStatistics theirs = Measure(old);
  dir_.Write("f", Lines(2000, 50));
  const DataSpec spec = SpecOf(absl::StrCat(kWords, kY, kB, kKind, kA, kX));
  google::protobuf::RepeatedPtrField<v1::InheritedStatistics> inherited;
  *inherited.Add() = Of(old, theirs);
  const absl::StatusOr<StatisticsHeritage> heritage = StatisticsHeritage::Create(spec, inherited);
  ASSERT_TRUE(heritage.ok()) << heritage.status();
  EXPECT_THAT(heritage->missing(), IsEmpty());
  const DataStatistics joined = heritage->Join(nullptr);
  // Floats: of `dense` y and x, and kind.
  ASSERT_EQ(joined.moments().size(), 3);
  EXPECT_EQ(joined.moments()[0].mean, theirs.moments()[1].mean);
  EXPECT_EQ(
      joined.moments()[2].mean == theirs.moments()[0].mean || joined.moments()[1].mean == theirs.moments()[0].mean,
      true);
  EXPECT_EQ(joined.kept(), theirs.kept());
  for (int64_t raw = 0; raw < 400; ++raw) {
    const auto key = static_cast<uint64_t>(SaltId(SlotSalt("cat", "a"), raw));
    EXPECT_EQ(joined.Keeps(key), theirs.Keeps(key)) << raw;
  }
  ASSERT_EQ(joined.learned().lessons.size(), 2);
  EXPECT_EQ(joined.learned().lessons[0].list->ids(), theirs.learned().lessons[0].list->ids());
  EXPECT_THAT(joined.learned().lessons[1].classes, ElementsAre("k0", "k1", "k2"));
  EXPECT_TRUE(joined.learned().IsOf(spec.config));
  const absl::StatusOr<DataStatistics> again = DataStatistics::Parse(joined.Serialize());
  ASSERT_TRUE(again.ok()) << again.status();
}

TEST_F(InheritedStatisticsTest, WhatIsNewIsMeasuredAndNothingElse) {
  dir_.Write("f", Lines(2000, 0));
  const DataSpec old = SpecOf(absl::StrCat(kX, kA, kKind), R"(dense { transform: STANDARDIZE except: "kind" }
                                                               ids { min_count: 3 })");
  const DataStatistics theirs = Measure(old);
  dir_.Write("f", Lines(2000, 50));
  DataSpec spec = SpecOf(absl::StrCat(kX, kY, kA, kB, kKind, kWords));
  google::protobuf::RepeatedPtrField<v1::InheritedStatistics> inherited;
  *inherited.Add() = Of(old, theirs);
  const absl::StatusOr<StatisticsHeritage> heritage = StatisticsHeritage::Create(spec, inherited);
  ASSERT_TRUE(heritage.ok()) << heritage.status();
  EXPECT_THAT(heritage->missing(), ElementsAre("dense.y", "cat.b", "word.word", "place"));
  const DataStatistics alone = Measure(spec);
  spec.uncounted_slots = heritage->uncounted_slots();
  const DataStatistics measured = Measure(spec);
  const DataStatistics joined = heritage->Join(&measured);
  EXPECT_EQ(joined.moments()[0].mean, theirs.moments()[0].mean);
  EXPECT_NE(joined.moments()[0].mean, alone.moments()[0].mean);
  EXPECT_EQ(joined.moments()[1].mean, alone.moments()[1].mean);
  bool differs = false;
  for (int64_t raw = 0; raw < 400; ++raw) {
    const auto a = static_cast<uint64_t>(SaltId(SlotSalt("cat", "a"), raw));
    const auto b = static_cast<uint64_t>(SaltId(SlotSalt("cat", "b"), raw));
    EXPECT_EQ(joined.Keeps(a), theirs.Keeps(a)) << raw;
    EXPECT_EQ(joined.Keeps(b), alone.Keeps(b)) << raw;
    differs |= alone.Keeps(a) != theirs.Keeps(a);
  }
  EXPECT_TRUE(differs);
  EXPECT_THAT(joined.learned().lessons[1].classes, ElementsAre("k0", "k1", "k2"));
  EXPECT_EQ(joined.learned().lessons[0].list->ids(), alone.learned().lessons[0].list->ids());
}

TEST_F(InheritedStatisticsTest, AnotherMinCountIsMeasured) {
  dir_.Write("f", Lines(500, 0));
  const DataSpec old = SpecOf(kA, "ids { min_count: 3 }"), spec = SpecOf(kA, "ids { min_count: 4 }");
  google::protobuf::RepeatedPtrField<v1::InheritedStatistics> inherited;
  *inherited.Add() = Of(old, Measure(old));
  const absl::StatusOr<StatisticsHeritage> heritage = StatisticsHeritage::Create(spec, inherited);
  ASSERT_TRUE(heritage.ok()) << heritage.status();
  EXPECT_THAT(heritage->missing(), ElementsAre("cat.a"));
  inherited.Mutable(0)->set_statistics("none");
  EXPECT_EQ(StatisticsHeritage::Create(spec, inherited).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace weir
