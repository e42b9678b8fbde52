// Transforms of floats, and what ids become.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "framework/base/feature_id.h"
#include "framework/graph/program_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/data/features.h"
#include "trainer/data/statistics.h"
#include "trainer/files/record.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// Reads the files of a job in order as one batch.
absl::StatusOr<LaneBatch> ReadAll(const DataSpec& job) {
  DataSpec spec = job;
  spec.lanes = 1;
  spec.config.set_batch_size(1000);
  absl::StatusOr<DataSet> data = DataSet::Open(spec.config.train(), spec.directory, "data.train");
  if (!data.ok()) return data.status();
  DataStatistics statistics;
  LaneReaderOptions options{.spec = spec, .streams = {0, 1}, .one_pass_in_order = true};
  if (NeedsStatistics(spec)) {
    absl::StatusOr<std::string> mine = CollectStatistics(spec, *data, {0, 1}, nullptr);
    if (!mine.ok()) return mine.status();
    absl::StatusOr<DataStatistics> merged = MergeStatistics(spec, {*mine});
    if (!merged.ok()) return merged.status();
    statistics = *std::move(merged);
    options.statistics = &statistics;
  }
  absl::StatusOr<std::unique_ptr<LaneReader>> reader = LaneReader::Create(*data, options);
  if (!reader.ok()) return reader.status();
  std::vector<LaneBatch> batches;
  const absl::Status status = (*reader)->Next(absl::Seconds(60), &batches);
  if (!status.ok()) return status;
  return batches[0];
}

class FeaturesTest : public ::testing::Test {
 protected:
  // "click" and "x" are floats (x has two columns), "a" and "b" slots of one variable "ids", "c" one of its own.
  DataSpec Spec(const std::string& text, const std::string& settings) {
    dir_.Write("f", text);
    DataSpec spec = MakeSpec(absl::StrCat(R"(
        train { files: "f" }
        multi_slot { slot { name: "click" type: FLOAT } slot { name: "x" type: FLOAT dim: 2 }
                     slot { name: "a" output: "ids" } slot { name: "b" output: "ids" } slot { name: "c" } } )",
                                          settings),
                             dir_);
    spec.required = {"click"};
    spec.never_transformed = {"click"};
    return spec;
  }
  LaneBatch Read(const std::string& text, const std::string& settings) {
    auto batch = ReadAll(Spec(text, settings));
    CHECK(batch.ok()) << batch.status();
    return *batch;
  }
  absl::Status Refusal(const std::string& settings) { return ReadAll(Spec("1 1 2 3 4 0 0 0\n", settings)).status(); }

  static absl::Span<const float> Floats(const LaneBatch& batch, size_t column) {
    return std::get<Tensor>(batch.vars[column]).span<float>();
  }
  static const IdBatch& Ids(const LaneBatch& batch, size_t column) { return std::get<IdBatch>(batch.vars[column]); }

  TempDir dir_;
};

TEST_F(FeaturesTest, VariablesHaveTheShapesOfTheirColumns) {
  const LaneBatch batch = Read("1 1 2 3 4 1 5 2 6 7 0\n1 0 2 3 4 0 1 8 1 9\n", "");
  EXPECT_EQ(batch.examples, 2);
  EXPECT_THAT(std::get<Tensor>(batch.vars[0]).dims(), ElementsAre(2, 1));
  EXPECT_THAT(std::get<Tensor>(batch.vars[1]).dims(), ElementsAre(2, 2));
  EXPECT_EQ(Ids(batch, 2).slots, 2);
  EXPECT_EQ(Ids(batch, 2).batch(), 2);
  EXPECT_EQ(Ids(batch, 3).slots, 1);
  EXPECT_EQ(Ids(batch, 3).batch(), 2);
}

TEST_F(FeaturesTest, Log1pKeepsTheSign) {
  const LaneBatch batch = Read("1 1 2 1.718281828 -1.718281828 0 0 0\n", "dense { transform: LOG1P }");
  EXPECT_THAT(Floats(batch, 0), ElementsAre(1));
  EXPECT_THAT(Floats(batch, 1), ElementsAre(FloatNear(1, 1e-6), FloatNear(-1, 1e-6)));
}

TEST_F(FeaturesTest, Log1pHasTheBitsOfTheLibraryRoundedOnce) {
  std::vector<float> xs = {-0.0f, 1e-30f, 0.5f, -0.5f, 1023.5f, -1023.9999f, 1e30f, -1e30f, 16777216.0f};
  for (int i = -1030; i <= 1030; i += i < -20 || i > 20 ? 3 : 1) xs.push_back(static_cast<float>(i));
  std::string lines;
  for (const float x : xs) absl::StrAppend(&lines, "1 1 2 ", absl::StrFormat("%.9g", x), " 0.25 0 0 0\n");
  const LaneBatch batch = Read(lines, "dense { transform: LOG1P }");
  const absl::Span<const float> got = Floats(batch, 1);
  ASSERT_EQ(got.size(), 2 * xs.size());
  for (size_t i = 0; i < xs.size(); ++i) {
    const double x = xs[i];
    const float expected = static_cast<float>(std::copysign(std::log1p(std::fabs(x)), x));
    EXPECT_EQ(std::bit_cast<uint32_t>(got[2 * i]), std::bit_cast<uint32_t>(expected)) << x;
  }
}

TEST_F(FeaturesTest, StandardizeUsesMeanAndDeviationOfWhatIsThere) {
  // Column 0: 1, 3 and missing: mean 2, deviation 1. Column 1 is constant.
  const LaneBatch batch = Read("1 1 2 1 7 0 0 0\n1 0 2 3 7 0 0 0\n1 0 0 0 0 0\n", "dense { transform: STANDARDIZE }");
  EXPECT_THAT(Floats(batch, 1), ElementsAre(-1, 0, 1, 0, 0, 0));
  EXPECT_THAT(Floats(batch, 0), ElementsAre(1, 0, 0));
}

TEST_F(FeaturesTest, BucketizeCountsBoundariesBelow) {
  const LaneBatch batch = Read("1 1 2 0 0 0 0 0\n1 1 2 1 0 0 0 0\n1 1 2 1.5 0 0 0 0\n1 1 2 9 0 0 0 0\n1 1 0 0 0 0\n",
                               "dense { column { variable: 'x' index: 0 transform: BUCKETIZE boundaries: [1, 2] } }");
  EXPECT_THAT(Floats(batch, 1), ElementsAre(0, 0, 1, 0, 1, 0, 2, 0, 0, 0));
  // A number that is a boundary in the job is one in the data, too.
  const LaneBatch equal =
      Read("1 1 2 0.7 0 0 0 0\n1 1 2 0.9 0 0 0 0\n",
           "dense { column { variable: 'x' index: 0 transform: BUCKETIZE boundaries: [0.7, 0.9] } }");
  EXPECT_THAT(Floats(equal, 1), ElementsAre(1, 0, 2, 0));
}

TEST_F(FeaturesTest, AColumnMayDifferFromTheRest) {
  const LaneBatch batch = Read("1 1 2 1.718281828 5 0 0 0\n",
                               "dense { transform: LOG1P column { variable: 'x' index: 1 transform: NONE } }");
  EXPECT_THAT(Floats(batch, 1), ElementsAre(FloatNear(1, 1e-6), 5));
}

TEST_F(FeaturesTest, WhatIsExceptedStaysAsItIs) {
  DataSpec spec = Spec("1 1 2 8 5 0 0 0\n", "dense { transform: LOG1P except: 'x' }");
  spec.never_transformed = {"x"};
  const auto batch = ReadAll(spec);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Floats(*batch, 1), ElementsAre(8, 5));
  EXPECT_THAT(Floats(*batch, 0), ElementsAre(FloatNear(0.693147f, 1e-6)));
}

TEST_F(FeaturesTest, IdsAreSaltedBySlot) {
  const LaneBatch batch = Read("1 1 2 0 0 1 5 1 5 1 5\n", "");
  EXPECT_THAT(Ids(batch, 2).values, ElementsAre(SaltId(SlotSalt("ids", "a"), 5), SaltId(SlotSalt("ids", "b"), 5)));
  EXPECT_THAT(Ids(batch, 2).offsets, ElementsAre(0, 1, 2));
  EXPECT_THAT(Ids(batch, 3).values, ElementsAre(SaltId(SlotSalt("c", "c"), 5)));
  EXPECT_NE(Ids(batch, 2).values[0], Ids(batch, 2).values[1]);
}

TEST_F(FeaturesTest, SaltedIdsNeverChange) {
  // Rows of checkpoints are found by them.
  EXPECT_EQ(SaltId(SlotSalt("cat", "C1"), 0x68fd1e64), 4323790104948703207);
  EXPECT_EQ(MissingId(SlotSalt("cat", "C1")), -6958548935140564875);
  EXPECT_EQ(RareId(SlotSalt("cat", "C1")), 1315957216837291717);
  EXPECT_EQ(PaddingId(0), 6775518580633609020);
}

TEST_F(FeaturesTest, SharedSlotsKeepRawIds) {
  const LaneBatch batch = Read("1 1 2 0 0 2 5 -6 1 5 1 5\n", "ids { shared: 'ids' }");
  EXPECT_THAT(Ids(batch, 2).values, ElementsAre(5, -6, 5));
  EXPECT_THAT(Ids(batch, 2).offsets, ElementsAre(0, 2, 3));
  EXPECT_NE(Ids(batch, 3).values[0], 5);
}

TEST_F(FeaturesTest, AnEmptySlotHasItsOwnMissingId) {
  const LaneBatch batch = Read("1 1 2 0 0 0 0 0\n", "ids { shared: 'c' }");
  EXPECT_THAT(Ids(batch, 2).values, ElementsAre(MissingId(SlotSalt("ids", "a")), MissingId(SlotSalt("ids", "b"))));
  EXPECT_THAT(Ids(batch, 3).values, ElementsAre(MissingId(SlotSalt("c", ""))));
}

TEST_F(FeaturesTest, SlotsWithNoneOneAndSeveralIdsStandSideBySide) {
  const auto salted = [](const char* variable, const char* slot, int64_t id) {
    return SaltId(SlotSalt(variable, slot), id);
  };
  const auto missing = [](const char* variable, const char* slot) { return MissingId(SlotSalt(variable, slot)); };
  // In "ids" no slot has more than one id, in "c" the second example has two.
  const std::string some = "1 1 2 0 0 0 1 5 1 7\n", several = "1 1 2 0 0 1 6 0 2 8 9\n",
                    all = "1 1 2 0 0 1 1 1 2 1 3\n";
  const LaneBatch batch = Read(some + several + all, "");
  EXPECT_THAT(Ids(batch, 2).values, ElementsAre(missing("ids", "a"), salted("ids", "b", 5), salted("ids", "a", 6),
                                                missing("ids", "b"), salted("ids", "a", 1), salted("ids", "b", 2)));
  EXPECT_THAT(Ids(batch, 2).offsets, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Ids(batch, 3).values,
              ElementsAre(salted("c", "c", 7), salted("c", "c", 8), salted("c", "c", 9), salted("c", "c", 3)));
  EXPECT_THAT(Ids(batch, 3).offsets, ElementsAre(0, 1, 3, 4));
  // Several in the first variable, none or one in the other.
  const LaneBatch other = Read("1 1 2 0 0 2 1 2 0 1 3\n" + some, "");
  EXPECT_THAT(Ids(other, 2).values, ElementsAre(salted("ids", "a", 1), salted("ids", "a", 2), missing("ids", "b"),
                                                missing("ids", "a"), salted("ids", "b", 5)));
  EXPECT_THAT(Ids(other, 2).offsets, ElementsAre(0, 2, 3, 4, 5));
  EXPECT_THAT(Ids(other, 3).values, ElementsAre(salted("c", "c", 3), salted("c", "c", 7)));
}

TEST_F(FeaturesTest, AnEmptySlotStaysEmptyWhenTheJobSaysZero) {
  const LaneBatch batch = Read("1 1 2 0 0 0 1 5 0\n1 1 2 0 0 0 0 0\n", "ids { empty: ZERO }");
  EXPECT_EQ(Ids(batch, 2).values.size(), 1u);
  EXPECT_THAT(Ids(batch, 2).offsets, ElementsAre(0, 0, 1, 1, 1));
  EXPECT_THAT(Ids(batch, 3).values, IsEmpty());
  EXPECT_THAT(Ids(batch, 3).offsets, ElementsAre(0, 0, 0));
}

TEST_F(FeaturesTest, RareValuesShareTheirSlotsRareId) {
  // Slot a: 5 twice, 6 once. Slot b: 5 once. min_count 2.
  const LaneBatch batch = Read("1 1 2 0 0 1 5 1 5 0\n1 1 2 0 0 2 5 6 0 0\n", "ids { min_count: 2 empty: ZERO }");
  const uint64_t a = SlotSalt("ids", "a");
  EXPECT_THAT(Ids(batch, 2).values, ElementsAre(SaltId(a, 5), RareId(SlotSalt("ids", "b")), SaltId(a, 5), RareId(a)));
}

TEST_F(FeaturesTest, ValuesOfSharedSlotsAreCountedTogether) {
  const LaneBatch batch =
      Read("1 1 2 0 0 1 5 1 5 0\n1 1 2 0 0 1 6 0 0\n", "ids { min_count: 2 shared: 'ids' empty: ZERO }");
  EXPECT_THAT(Ids(batch, 2).values, ElementsAre(5, 5, RareId(SlotSalt("ids", ""))));
}

TEST_F(FeaturesTest, PaddingIsOneIdInEverySlotAndNeverRare) {
  DataSpec spec = Spec("1 1 2 0 0 1 0 2 0 5 1 0\n", "ids { min_count: 3 shared: 'c' }");
  spec.padding_ids = {{"ids", {0}}, {"c", {0}}};
  const auto batch = ReadAll(spec);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Ids(*batch, 2).values, ElementsAre(PaddingId(0), PaddingId(0), RareId(SlotSalt("ids", "b"))));
  EXPECT_THAT(Ids(*batch, 3).values, ElementsAre(0));
}

TEST_F(FeaturesTest, WeightsOfABatchAreOneWhereALineHasNone) {
  const LaneBatch batch = Read("1 1 2 0 0 1 1 0 1 3\n1 1 2 0 0 2 1:0.5 2 0 0\n1 1 2 0 0 0 1 4 0\n", "");
  EXPECT_THAT(Ids(batch, 2).weights, ElementsAre(1, 1, 0.5, 1, 1, 1, 1));
  EXPECT_EQ(Ids(batch, 2).weights.size(), Ids(batch, 2).values.size());
  EXPECT_EQ(Ids(batch, 3).weights.size(), Ids(batch, 3).values.size());
  EXPECT_THAT(Ids(Read("1 1 2 0 0 1 1 0 1 3\n", ""), 2).weights, IsEmpty());
}

// Gives columns, and no lines.
class ColumnsOnly : public LineParser {
 public:
  explicit ColumnsOnly(std::vector<Column> columns) : LineParser(std::move(columns)) {}
  absl::Status Parse(std::string_view, Example*) const override { return absl::InternalError("gives columns only"); }
};

// What a batch of ids must be, by the definitions of framework/base/feature_id.h, value by value. `first`: the column's
// first slot.
IdBatch IdsByDefinition(const Column& column, size_t first, const std::vector<Example>& examples,
                        const DataSpec& spec) {
  const auto contains = [](const auto& list, const auto& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  const bool shared = contains(spec.config.ids().shared(), column.name);
  const auto padding = spec.padding_ids.find(column.name);
  IdBatch out;
  out.slots = column.width;
  out.offsets.push_back(0);
  std::vector<float> weights;
  bool weighted = false;
  for (const Example& example : examples) {
    size_t id = 0;
    for (size_t s = 0; s < first; ++s) id += example.counts[s];
    for (size_t s = 0; s < static_cast<size_t>(column.width); ++s) {
      const uint64_t salt = SlotSalt(column.name, shared ? "" : column.slot_names[s]);
      const int count = example.counts[first + s];
      for (int i = 0; i < count; ++i, ++id) {
        const int64_t raw = example.ids[id];
        const bool pads = padding != spec.padding_ids.end() && contains(padding->second, raw);
        out.values.push_back(shared ? raw : pads ? PaddingId(raw) : SaltId(salt, raw));
        weights.push_back(example.weights.empty() ? 1 : example.weights[id]);
      }
      if (count == 0 && spec.config.ids().empty() == v1::IdTransform::MISSING_ID) {
        out.values.push_back(MissingId(salt));
        weights.push_back(1);
      }
      out.offsets.push_back(static_cast<int64_t>(out.values.size()));
      weighted = weighted || (!example.weights.empty() && !out.values.empty());
    }
  }
  if (weighted) out.weights = weights;
  return out;
}

// Columns that are made together and those that are not stand side by side in any order, and the variables hold what an
// earlier batch has left in them.
TEST_F(FeaturesTest, AnyMixtureOfColumnsIsWhatTheDefinitionSays) {
  std::mt19937_64 random(7);
  const auto below = [&](uint64_t n) { return random() % n; };
  int made_together = 0;
  for (int round = 0; round < 300; ++round) {
    DataSpec spec = MakeSpec("", dir_);
    std::vector<Column> columns;
    std::vector<uint64_t> lists, gaps;  // by slot: one in how many examples has several ids, or none; 0: never
    for (uint64_t c = 0; c < 1 + below(12); ++c) {
      Column column{.name = absl::StrCat("c", c), .kind = v1::IDS};
      column.width = static_cast<int64_t>(below(4) == 0 ? 6 + below(8) : 1 + below(2));
      const bool has_lists = below(5) == 0;
      for (int64_t s = 0; s < column.width; ++s) {
        column.slot_names.push_back(absl::StrCat("s", s));
        lists.push_back(has_lists && below(3) == 0 ? 1 + below(20) : 0);
        gaps.push_back(below(3) == 0 ? 1 + below(20) : 0);
      }
      if (below(6) == 0) spec.config.mutable_ids()->add_shared(column.name);
      if (below(6) == 0) spec.padding_ids[column.name] = {3, -4};
      columns.push_back(std::move(column));
    }
    if (below(2) == 0) spec.config.mutable_ids()->set_empty(v1::IdTransform::ZERO);
    const ColumnsOnly parser(columns);
    const auto features = Features::Create(spec, parser);
    ASSERT_TRUE(features.ok()) << features.status();
    std::vector<Variable> vars;
    for (int batch = 0; batch < 4; ++batch) {
      const bool plain = below(3) == 0, wide = below(2) == 0;
      const uint64_t weights = below(3) == 0 ? 1 + below(6) : 0;
      std::vector<Example> examples(below(20));
      std::vector<Record> records;
      for (Example& example : examples) {
        const bool weighted = weights > 0 && below(weights) == 0;
        for (size_t s = 0; s < lists.size(); ++s) {
          const uint64_t count = plain                                  ? 1
                                 : lists[s] > 0 && below(lists[s]) == 0 ? 2 + below(3)
                                 : gaps[s] > 0 && below(gaps[s]) == 0   ? 0
                                                                        : 1;
          example.counts.push_back(static_cast<uint16_t>(count));
          for (uint64_t i = 0; i < count; ++i) {
            example.ids.push_back(wide && below(2) == 0 ? static_cast<int64_t>(random())
                                                        : static_cast<int64_t>(below(8)));
            if (below(9) == 0 && wide) example.ids.back() = -4;
            if (weighted) example.weights.push_back(static_cast<float>(below(5)) / 4);
          }
        }
        records.emplace_back(example);
      }
      features->MakeBatch(records, nullptr, &vars);
      ASSERT_EQ(vars.size(), columns.size());
      size_t slot = 0;
      for (size_t c = 0; c < columns.size(); ++c) {
        const IdBatch& got = std::get<IdBatch>(vars[c]);
        const std::string where = absl::StrCat("round ", round, ", batch ", batch, ", column ", c);
        if (examples.empty()) {
          EXPECT_THAT(got.values, IsEmpty()) << where;
          EXPECT_THAT(got.offsets, IsEmpty()) << where;
        } else {
          const IdBatch expected = IdsByDefinition(columns[c], slot, examples, spec);
          ASSERT_EQ(got.slots, expected.slots) << where;
          ASSERT_EQ(got.values, expected.values) << where;
          ASSERT_EQ(got.offsets, expected.offsets) << where;
          ASSERT_EQ(got.weights, expected.weights) << where;
          made_together += c > 0 && got.values.size() == examples.size() * static_cast<size_t>(got.slots);
        }
        slot += static_cast<size_t>(columns[c].width);
      }
    }
  }
  EXPECT_GT(made_together, 1000);
}

TEST_F(FeaturesTest, AMissingLabelIsABadLine) {
  EXPECT_THAT(ReadAll(Spec("1 1 0 0 0 0\n0 0 0 0 0\n", "")).status(), StatusIs(kInvalid, "f:2: 'click' is missing"));
}

TEST_F(FeaturesTest, ALabelOutOfItsRangeIsABadLine) {
  const auto read = [&](const std::string& labels, const LabelRange& range, const std::string& settings = "") {
    std::string text;
    for (const absl::string_view label : absl::StrSplit(labels, ' ')) absl::StrAppend(&text, "1 ", label, " 0 0 0 0\n");
    DataSpec spec = Spec(text, settings);
    spec.label_ranges = {range};
    return ReadAll(spec);
  };
  const LabelRange probability = {.variable = "click", .loss = "log_loss"};
  const LabelRange count = {.variable = "click", .loss = "poisson_loss", .most = std::numeric_limits<float>::max()};
  EXPECT_TRUE(read("0 7.5 30000", count).ok());
  EXPECT_THAT(read("0 -1", count).status(),
              StatusIs(kInvalid, "f:2: 'click' is -1; poisson_loss needs a count, which is not negative"));
  const LabelRange above = {
      .variable = "click", .loss = "in_batch_softmax", .most = std::numeric_limits<float>::max(), .above_zero = true};
  EXPECT_TRUE(read("1e-9 7", above).ok());
  EXPECT_THAT(read("1 0", above).status(),
              StatusIs(kInvalid, "f:2: 'click' is 0; in_batch_softmax needs a probability, a number above 0"));
  EXPECT_THAT(read("2", {.variable = "click", .loss = "bpr_loss"}).status(),
              StatusIs(kInvalid,
                       "f:1: 'click' is 2; bpr_loss needs 0 or 1, or what is between; a factor of another size is for "
                       "sample_weight"));
  const LabelRange weight = {.variable = "click", .most = std::numeric_limits<float>::max(), .weight = true};
  EXPECT_TRUE(read("0 0.5 30000", weight).ok());
  EXPECT_THAT(read("1 -0.5", weight).status(),
              StatusIs(kInvalid,
                       "f:2: 'click' is -0.5; sample_weight needs a number that is not negative: training would move "
                       "away from the label; 0 takes an example out of the loss, and data.train.where out of the "
                       "data"));
  const LabelRange of_metric = {
      .variable = "click", .most = std::numeric_limits<float>::max(), .metric = "metric[1].weight"};
  EXPECT_TRUE(read("0 0.5 3e38", of_metric).ok());
  EXPECT_THAT(read("1 -0.5", of_metric).status(),
              StatusIs(kInvalid,
                       "f:2: 'click' is -0.5; metric[1].weight needs a number that is finite and not negative; 0 takes "
                       "an example out of the metric, and data.eval.where out of the evaluation"));
  const LabelRange klass = {.variable = "click", .loss = "softmax_with_cross_entropy", .most = 9, .whole = true};
  EXPECT_TRUE(read("0 1 0.5", probability).ok());
  EXPECT_THAT(
      read("1 -1", probability).status(),
      StatusIs(kInvalid,
               "f:2: 'click' is -1; log_loss needs 0 or 1, or what is between; a layer scale { scale: 0.5 bias: "
               "0.5 } makes them of -1 and 1"));
  EXPECT_THAT(read("1 1.01", probability).status(), StatusIs(kInvalid, HasSubstr("f:2: 'click' is 1.01; ")));
  EXPECT_TRUE(read("0 9", klass).ok());
  EXPECT_THAT(
      read("0 10", klass).status(),
      StatusIs(kInvalid, "f:2: 'click' is 10; softmax_with_cross_entropy needs a class, a whole number from 0 to 9"));
  EXPECT_THAT(read("0.5", klass).status(), StatusIs(kInvalid, HasSubstr("f:1: 'click' is 0.5; ")));
  const auto skipping = read("0 10 9", klass, "bad_line: SKIP");
  ASSERT_TRUE(skipping.ok()) << skipping.status();
  EXPECT_EQ(skipping->examples, 2);
}

TEST_F(FeaturesTest, BytesThatAreNoTextDoNotReachTheTerminal) {
  const auto message = [&](const std::string& line) {
    return std::string(ReadAll(Spec(line + "\n", "")).status().message());
  };
  EXPECT_THAT(message("1 \u200B\uFEFF7\u00A0 0 0 0 0"), HasSubstr("'\\xe2\\x80\\x8b\\xef\\xbb\\xbf7\u00A0'"));
  const std::string binary = message(std::string("1 \x1b[2J\xff\0 0 0 0 0", 16));
  for (const char c : binary) EXPECT_TRUE(c >= ' ' && c < 0x7f) << static_cast<int>(c);
  EXPECT_THAT(binary, AllOf(HasSubstr("\\x1b[2J\\xff"), HasSubstr("the line holds zero bytes")));
  EXPECT_THAT(message("1 \xc3\xa4 0 0 0 0"), HasSubstr("\xc3\xa4"));
}

TEST_F(FeaturesTest, SettingsThatMakeNoSenseAreRefusedByName) {
  EXPECT_THAT(Refusal("dense { transform: BUCKETIZE }"),
              StatusIs(kInvalid, "data.dense.transform: BUCKETIZE needs boundaries; set it per data.dense.column"));
  EXPECT_THAT(
      Refusal("dense { column { index: 0 } }"),
      StatusIs(kInvalid, "data.dense.column[0].variable: the data has no float variable 'dense'; it has click, x"));
  EXPECT_THAT(Refusal("dense { column { variable: 'x' index: 2 } }"),
              StatusIs(kInvalid, "data.dense.column[0].index: 'x' has columns 0 to 1, got 2"));
  EXPECT_THAT(Refusal("dense { column { variable: 'click' index: 0 transform: LOG1P } }"),
              StatusIs(kInvalid, HasSubstr("'click' is never transformed")));
  EXPECT_THAT(Refusal("dense { column { variable: 'x' transform: BUCKETIZE } }"),
              StatusIs(kInvalid, "data.dense.column[0].boundaries: BUCKETIZE needs at least one"));
  EXPECT_THAT(Refusal("dense { column { variable: 'x' transform: LOG1P boundaries: 1 } }"),
              StatusIs(kInvalid, "data.dense.column[0].boundaries: only BUCKETIZE has boundaries"));
  EXPECT_THAT(Refusal("dense { column { variable: 'x' transform: BUCKETIZE boundaries: [1, 1] } }"),
              StatusIs(kInvalid, "data.dense.column[0].boundaries: must ascend, got 1 before 1"));
  EXPECT_THAT(Refusal("dense { column { variable: 'x' transform: BUCKETIZE boundaries: [1, 1.00000001] } }"),
              StatusIs(kInvalid,
                       "data.dense.column[0].boundaries[1]: 1.0000000099999999 is the same float32 as the boundary "
                       "before, 1: no value is between them"));
  EXPECT_THAT(Refusal("dense { except: 'y' }"),
              StatusIs(kInvalid, "data.dense.except: the data has no float variable 'y'; it has click, x"));
  EXPECT_THAT(Refusal("ids { shared: 'x' }"),
              StatusIs(kInvalid, "data.ids.shared: the data has no ids variable 'x'; it has ids, c"));
}

TEST(DataSpecTest, LabelsAndPaddingComeFromTheJob) {
  v1::JobConfig job;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
      data { criteo {} batch_size: 10 }
      model { layer { name: "e" embedding { ids: "cat" ids: "more" table: "t" padding_id: -3 } }
              layer { name: "f" embedding { ids: "cat" table: "t" padding_id: 0 } }
              layer { name: "g" embedding { ids: "cat" table: "t" } } }
      train { seed: 5 lanes: 4 epochs: 3 } distribute { trainers: 2 })",
                                                            &job));
  v1::ProgramDesc program;
  program.add_losses()->set_label("label");
  program.mutable_losses(0)->set_sample_weight("weight");
  const DataSpec spec = MakeDataSpec(job, "/jobs", program);
  EXPECT_THAT(spec.required, ElementsAre("label", "weight"));
  EXPECT_THAT(spec.never_transformed, ElementsAre("label", "weight"));
  EXPECT_EQ(spec.padding_ids, (std::map<std::string, std::vector<int64_t>>{{"cat", {-3, 0}}, {"more", {-3}}}));
  EXPECT_EQ(spec.seed, 5u);
  EXPECT_EQ(spec.epochs, 3);
  EXPECT_EQ(spec.StreamsOf(1), (LaneRange{2, 2}));
  EXPECT_EQ(spec.StreamBatch(0), 3);
  EXPECT_EQ(spec.StreamBatch(3), 2);
}

TEST(DataSpecTest, AnEvaluationNeedsTheWeightsOfMetrics) {
  v1::JobConfig job;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
      data { criteo {} }
      metric { auc {} } metric { auc {} weight: "w" } metric { rmse {} weight: "w" } metric { mae {} weight: "seen" })",
                                                            &job));
  v1::ProgramDesc program;
  program.add_losses()->set_label("label");
  program.mutable_losses(0)->set_sample_weight("seen");
  const DataSpec spec = MakeDataSpec(job, "/jobs", program);
  EXPECT_THAT(spec.required, ElementsAre("label", "seen"));
  const DataSpec evaluation = SpecOfEvaluation(spec, job);
  EXPECT_THAT(evaluation.required, ElementsAre("label", "seen", "w"));
  EXPECT_EQ(evaluation.never_transformed, spec.never_transformed);
  std::vector<std::string> metrics;
  for (const LabelRange& range : evaluation.label_ranges) {
    if (!range.metric.empty()) metrics.push_back(range.variable + " " + range.metric);
    EXPECT_FALSE(range.Holds(-1) || range.Holds(std::numeric_limits<float>::infinity()));
  }
  EXPECT_THAT(metrics, ElementsAre("w metric[1].weight", "seen metric[3].weight"));
}

TEST(DataSpecTest, ALabelThatIsMadeOfDataStandsForThatData) {
  v1::JobConfig job;
  job.mutable_data()->mutable_criteo();
  v1::ProgramDesc program;
  v1::BlockDesc* block = program.add_blocks();
  const auto op = [block](const std::string& in, const std::string& out) {
    v1::OpDesc* made = block->add_ops();
    v1::OpSlot* input = made->add_inputs();
    input->set_name("X");
    input->add_vars(in);
    v1::OpSlot* output = made->add_outputs();
    output->set_name("Out");
    output->add_vars(out);
  };
  v1::VarDesc* parameter = block->add_vars();
  parameter->set_name("w");
  parameter->set_persistable(true);
  op("label", "whole");
  op("whole", "class");
  op("w", "learned");
  program.add_losses()->set_label("class");
  EXPECT_THAT(MakeDataSpec(job, "/jobs", program).required, ElementsAre("label"));
  EXPECT_THAT(MakeDataSpec(job, "/jobs", program).never_transformed, ElementsAre("label"));
  program.mutable_losses(0)->set_label("learned");
  EXPECT_THAT(MakeDataSpec(job, "/jobs", program).never_transformed, ElementsAre("learned"));
}

TEST(DataSpecTest, CrossEntropiesSayWhatTheirLabelsAre) {
  v1::JobConfig job;
  job.mutable_data()->mutable_criteo();
  const auto program = ParseProgramText(R"(weir program 1
block 0 {
  var logits [-1, 10]
  var x [-1, 1]
  var digit [-1, 1] stop_gradient: true
  var click [-1, 1] stop_gradient: true
  var made [-1, 1]
  var price [-1, 1] stop_gradient: true
  Softmax=p, Loss=a <- softmax_with_cross_entropy(Logits=logits, Label=digit)
  Out=b <- sigmoid_cross_entropy_with_logits(X=x, Label=click)
  Out=made <- scale(X=click) scale=2
  Loss=c <- log_loss(Predicted=x, Label=made)
  Out=d <- square_error(X=x, Label=price)
})",
                                        "p");
  ASSERT_TRUE(program.ok()) << program.status();
  const DataSpec spec = MakeDataSpec(job, "/jobs", *program);
  ASSERT_EQ(spec.label_ranges.size(), 2u);
  EXPECT_EQ(spec.label_ranges[0].variable, "digit");
  EXPECT_EQ(spec.label_ranges[0].most, 9);
  EXPECT_TRUE(spec.label_ranges[0].whole);
  EXPECT_EQ(spec.label_ranges[1].variable, "click");
  EXPECT_EQ(spec.label_ranges[1].most, 1);
  EXPECT_FALSE(spec.label_ranges[1].whole);
}

DataSpec SpecOf(const std::string& program_text, const std::vector<v1::LossDesc>& losses) {
  v1::JobConfig job;
  job.mutable_data()->mutable_criteo();
  auto program = ParseProgramText("weir program 1\nblock 0 {\n" + program_text + "}", "p");
  EXPECT_TRUE(program.ok()) << program.status();
  if (!program.ok()) return {};
  program->clear_losses();
  for (const v1::LossDesc& loss : losses) *program->add_losses() = loss;
  return MakeDataSpec(job, "/jobs", *program);
}

v1::LossDesc LossOf(const std::string& var, const std::string& label, const std::string& sample_weight = "") {
  v1::LossDesc loss;
  loss.set_var(var);
  loss.set_label(label);
  loss.set_sample_weight(sample_weight);
  return loss;
}

TEST(DataSpecTest, ALabelOfOnesStandsForNothing) {
  // The scores are made of features, and of rows that the trainer has fetched.
  const std::string program = R"(
  var x [-1, 1] stop_gradient: true
  var ids ids int64 [-1, 1] stop_gradient: true
  var rows selected_rows [-1, 1]
  var index int64 [-1]
  var row [-1, 1]
  var positive [-1, 1]
  var negative [-1, 2]
  var ones [-1, 1]
  var loss [-1, 1]
  Rows=rows, Index=index <- prefetch(Ids=ids) @RPC
  Out=row <- lookup_rows(Ids=ids, Rows=rows, Index=index)
  Out=positive <- elementwise_add(X=row, Y=x)
  Out=negative <- concat(X=[positive, x])
  Out=ones <- fill_like_batch(X=positive) value=1
  Out=loss <- bpr_loss(Positive=positive, Negative=negative) @LOSS
)";
  const DataSpec none = SpecOf(program, {LossOf("loss", "ones")});
  EXPECT_THAT(none.required, IsEmpty());
  EXPECT_THAT(none.never_transformed, IsEmpty());
  EXPECT_TRUE(none.label_ranges.empty());
  // What a table takes part in is no label of the data either.
  EXPECT_THAT(SpecOf(program, {LossOf("loss", "positive")}).never_transformed, ElementsAre("positive"));
}

TEST(DataSpecTest, LengthsAndProbabilitiesAreNeverTransformed) {
  const DataSpec spec = SpecOf(R"(
  var scores [-1, 4]
  var relevance [-1, 4] stop_gradient: true
  var length [-1, 1] stop_gradient: true
  var query [-1, 4]
  var p [-1, 1] stop_gradient: true
  Softmax=s, Out=list <- listwise_softmax(Scores=scores, Label=relevance, Length=length) @LOSS
  LogSum=l, Out=batch <- in_batch_softmax(Query=query, Item=query, Probability=p) @LOSS
)",
                               {LossOf("list", "relevance"), LossOf("batch", "")});
  EXPECT_THAT(spec.never_transformed, ElementsAre("relevance", "p", "length"));
  EXPECT_THAT(spec.required, ElementsAre("relevance", "p"));
  ASSERT_EQ(spec.label_ranges.size(), 2u);
  EXPECT_EQ(spec.label_ranges[0].variable, "relevance");
  EXPECT_EQ(spec.label_ranges[1].variable, "p");
  EXPECT_TRUE(spec.label_ranges[1].above_zero);
}

TEST(DataSpecTest, LabelsThatAreFactorsAreFromZeroToOne) {
  const DataSpec spec =
      SpecOf(R"(
  var a [-1, 1]
  var n [-1, 2]
  var click [-1, 1] stop_gradient: true
  var buy [-1, 1] stop_gradient: true
  var like [-1, 1] stop_gradient: true
  var w [-1, 1] stop_gradient: true
  Out=l1 <- bpr_loss(Positive=a, Negative=n, Weight=click) @LOSS
  Out=product <- elementwise_mul(X=like, Y=w)
  Out=l2 <- sampled_softmax(Positive=a, Negative=n, Weight=product) @LOSS
  Out=known, Mask=mask <- known_label(X=buy)
  Out=l3 <- pairwise_hinge_loss(Positive=a, Negative=n, Weight=known) margin=1 @LOSS
  LogSum=sum, Out=l4 <- in_batch_softmax(Query=n, Item=n, Weight=w) @LOSS
)",
             {LossOf("l1", "click"), LossOf("l2", "like", "w"), LossOf("l3", "buy"), LossOf("l4", "", "w")});
  std::vector<std::string> variables;
  for (const LabelRange& range : spec.label_ranges) {
    variables.push_back(range.variable);
    EXPECT_EQ(range.weight, range.most > 1);
  }
  EXPECT_THAT(variables, ElementsAre("click", "like", "buy", "w"));

  // Where training minimises something else in place of the loss, too.
  const DataSpec weighed = SpecOf(R"(
  var a [-1, 1]
  var n [-1, 2]
  var click [-1, 1] stop_gradient: true
  var s [1] persistable: true
  Out=l1 <- bpr_loss(Positive=a, Negative=n, Weight=click) @LOSS
  Out=counted <- learned_weight(X=l1, LogVariance=s) @LOSS
)",
                                  {LossOf("counted", "click")});
  ASSERT_EQ(weighed.label_ranges.size(), 1u);
  EXPECT_EQ(weighed.label_ranges[0].variable, "click");
}

TEST(DataSpecTest, SampleWeightsOfTheDataAreNotNegative) {
  const DataSpec spec = SpecOf(R"(
  var x [-1, 1]
  var y [-1, 1] stop_gradient: true
  var w [-1, 1] stop_gradient: true
  var v [-1, 1] stop_gradient: true
  var made [-1, 1]
  Out=made <- scale(X=v) scale=-1
  Out=a <- square_error(X=x, Label=y, Weight=w) @LOSS
  Out=b <- square_error(X=x, Label=y, Weight=w) @LOSS
  Out=c <- square_error(X=x, Label=y, Weight=made) @LOSS
)",
                               {LossOf("a", "y", "w"), LossOf("b", "y", "w"), LossOf("c", "y", "made")});
  ASSERT_EQ(spec.label_ranges.size(), 1u);
  const LabelRange& range = spec.label_ranges[0];
  EXPECT_EQ(range.variable, "w");
  EXPECT_TRUE(range.Holds(0) && range.Holds(1e30f));
  EXPECT_FALSE(range.Holds(-1e-30f) || range.Holds(std::numeric_limits<float>::infinity()));
}

TEST(DataSpecTest, WithoutLanesEveryTrainerIsAStream) {
  DataSpec spec;
  spec.config.set_batch_size(9);
  spec.lanes = 0;
  spec.trainers = 2;
  EXPECT_EQ(spec.streams(), 2);
  EXPECT_EQ(spec.StreamsOf(1), (LaneRange{1, 1}));
  EXPECT_EQ(spec.StreamBatch(0), 5);
  EXPECT_EQ(spec.StreamBatch(1), 4);
}

}  // namespace
}  // namespace weir
