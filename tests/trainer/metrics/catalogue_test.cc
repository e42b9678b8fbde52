// Metrics over a catalogue: ties, items that are no candidates, slices, merged parts, and what a plan refuses.
#include "trainer/metrics/catalogue.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/feature_id.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "trainer/metrics/job_metrics.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// Items of their own salt, seen items of a shared space, texts.
const std::vector<Column>& Columns() {
  static const auto* const columns =
      new std::vector<Column>({{.name = "label"},
                               {.name = "item", .kind = v1::IDS, .slot_names = {"item"}},
                               {.name = "seen", .kind = v1::IDS, .slot_names = {"seen"}},
                               {.name = "country", .kind = v1::IDS, .slot_names = {"country"}},
                               {.name = "word", .kind = v1::IDS, .slot_names = {"word"}, .id_kinds = {IdKind::kText}}});
  return *columns;
}

absl::StatusOr<std::shared_ptr<const MetricPlan>> Plan(const std::string& metrics) {
  v1::JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString("data { ids { shared: 'seen' } }" + metrics, &job));
  v1::ProgramDesc program;
  v1::LossDesc* const loss = program.add_losses();
  loss->set_name("chosen");
  loss->set_var("loss");
  v1::VarDesc* const var = program.add_blocks()->add_vars();
  var->set_name("vector");
  var->add_dims(-1);
  var->add_dims(2);
  return MetricPlan::Create(job, program, Columns());
}

struct Query {
  std::vector<float> vector;
  int64_t item = 0;
  float label = 1;
  std::vector<int64_t> seen = {};
  int64_t country = 1;
};

constexpr char kMetrics[] = R"(
  metric { recall { k: 2 catalogue { query: 'q' item: 'vector' id: 'item' first: 10 items: 5 without: 'seen' } } }
  metric { mrr { k: 0 catalogue { query: 'q' item: 'vector' id: 'item' first: 10 items: 5 without: 'seen' } } }
  metric { ndcg { k: 3 catalogue { query: 'q' item: 'vector' id: 'item' first: 10 items: 5 without: 'seen' } }
           by: 'country' }
)";

// The vectors of the items 10 to 14.
std::unique_ptr<PackedItems> Items() {
  auto items = std::make_unique<PackedItems>(5, 2);
  const std::vector<float> vectors = {1, 0, 2, 0, 2, 0, 3, 0, 0, 1};
  items->Set(0, 5, vectors.data());
  return items;
}

v1::EvaluationPart PartOf(const std::shared_ptr<const MetricPlan>& plan, const std::vector<Query>& queries) {
  JobMetrics metrics(plan);
  metrics.SetItems(0, Items(), nullptr);
  const auto n = static_cast<int64_t>(queries.size());
  Tensor vectors(v1::FLOAT32, {n, 2}), labels(v1::FLOAT32, {n, 1});
  IdBatch items, seen, countries;
  for (IdBatch* ids : {&items, &seen, &countries}) ids->offsets = {0};
  for (int64_t i = 0; i < n; ++i) {
    const Query& query = queries[static_cast<size_t>(i)];
    std::copy(query.vector.begin(), query.vector.end(), vectors.data<float>() + 2 * i);
    labels.data<float>()[i] = query.label;
    items.values.push_back(SaltId(SlotSalt("item", "item"), query.item));
    seen.values.insert(seen.values.end(), query.seen.begin(), query.seen.end());
    countries.values.push_back(SaltId(SlotSalt("country", "country"), query.country));
    for (IdBatch* ids : {&items, &seen, &countries}) ids->offsets.push_back(static_cast<int64_t>(ids->values.size()));
  }
  LaneBatch batch{.examples = n};
  batch.vars = {labels, items, seen, countries, countries};
  EXPECT_TRUE(metrics.TakeKeys({batch}).ok());
  EXPECT_TRUE(metrics.AddQueries(0, 0, vectors, labels).ok());
  v1::EvaluationPart part;
  metrics.Serialize(&part);
  return part;
}

std::vector<Figure> FiguresOf(const std::vector<std::vector<Query>>& parts) {
  const auto plan = Plan(kMetrics);
  EXPECT_TRUE(plan.ok()) << plan.status();
  JobMetrics merged(*plan);
  for (const std::vector<Query>& part : parts) EXPECT_TRUE(merged.Merge(PartOf(*plan, part)).ok());
  return merged.Figures();
}

TEST(CatalogueTest, AnItemIsRankedAmongAllItems) {
  // Products 1, 2, 2, 3, 0.
  const std::vector<Figure> figures = FiguresOf({{{.vector = {1, 0}, .item = 13}, {.vector = {1, 0}, .item = 10}}});
  ASSERT_EQ(figures.size(), 3u);
  EXPECT_EQ(figures[0].name, "recall@2");
  EXPECT_EQ(figures[0].value, 0.5);
  EXPECT_EQ(figures[1].name, "mrr");
  EXPECT_EQ(figures[1].value, (1 + 0.25) / 2);
  EXPECT_EQ(figures[2].name, "ndcg@3[country=1]");
  EXPECT_EQ(figures[2].value, 0.5);
}

TEST(CatalogueTest, EqualProductsAreInNoOrder) {
  // Rank 2 or 3.
  const std::vector<Figure> figures = FiguresOf({{{.vector = {1, 0}, .item = 11}}});
  EXPECT_EQ(figures[0].value, 0.5);
  EXPECT_NEAR(figures[1].value, (1.0 / 2 + 1.0 / 3) / 2, 1e-12);
  EXPECT_NEAR(figures[2].value, (1 / std::log2(3.0) + 1 / std::log2(4.0)) / 2, 1e-12);
  // All five are equal.
  EXPECT_NEAR(FiguresOf({{{.vector = {0, 0}, .item = 12}}})[0].value, 0.4, 1e-12);
}

TEST(CatalogueTest, WhatIsSeenIsNoCandidate) {
  const std::vector<Figure> figures =
      FiguresOf({{{.vector = {1, 0}, .item = 11, .seen = {13, 12, 13, 11, 99}}, {.vector = {0, 1}, .item = 14}}});
  EXPECT_EQ(figures[0].value, 1);
  EXPECT_EQ(figures[1].value, 1);
}

TEST(CatalogueTest, AnItemThatIsNoCandidateIsNotFoundAndALabelOfZeroAsksNothing) {
  const std::vector<Figure> figures = FiguresOf({{{.vector = {1, 0}, .item = 13},
                                                  {.vector = {1, 0}, .item = 15},
                                                  {.vector = {1, 0}, .item = 9},
                                                  {.vector = {1, 0}, .item = 10, .label = 0},
                                                  {.vector = {1, 0}, .item = 10, .label = std::nanf("")}}});
  EXPECT_NEAR(figures[0].value, 1.0 / 3, 1e-12);
}

TEST(CatalogueTest, PartsMergeToTheSameFigures) {
  std::vector<Query> queries;
  for (int i = 0; i < 40; ++i) {
    queries.push_back({.vector = {static_cast<float>(i % 7 - 3), static_cast<float>(i % 5) / 3},
                       .item = 10 + i % 6,
                       .label = i % 4 == 0 ? 0.0f : 1.0f,
                       .country = i % 3});
  }
  const std::vector<Figure> whole = FiguresOf({queries});
  ASSERT_EQ(whole.size(), 5u);
  const std::vector<Query> first(queries.begin(), queries.begin() + 13), rest(queries.begin() + 13, queries.end());
  for (const auto& parts : {std::vector{first, rest}, std::vector{rest, {}, first}}) {
    const std::vector<Figure> merged = FiguresOf(parts);
    ASSERT_EQ(merged.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(merged[i].name, whole[i].name);
      EXPECT_EQ(merged[i].value, whole[i].value) << whole[i].name;
    }
  }
}

TEST(CatalogueTest, WithoutPositivesThereIsNoFigure) {
  const std::vector<Figure> figures = FiguresOf({{{.vector = {1, 0}, .item = 10, .label = 0}}});
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_TRUE(std::isnan(figures[0].value));
  EXPECT_EQ(figures[0].undefined, "no example has a label");
}

TEST(CatalogueTest, ARangeOfTextsAndAHugeCatalogueAreRefused) {
  const auto error = [](const std::string& range) {
    return std::string(
        Plan("metric { recall { catalogue { query: 'q' item: 'vector' " + range + " } } }").status().message());
  };
  EXPECT_EQ(error("id: 'word' items: 5"),
            "metric[0].recall.catalogue.items: 'word' is texts, whose ids are no range of numbers; make a vocabulary "
            "of it (data.derived) and leave `items` out");
  EXPECT_THAT(error("id: 'item' items: 100000000000"),
              HasSubstr("the vectors of 100000000000 candidates, 2 numbers each, would take more than 64 GiB"));
  EXPECT_THAT(error("id: 'item'"), HasSubstr("the vocabulary 'item' is not known"));
}

}  // namespace
}  // namespace weir
