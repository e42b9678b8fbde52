// Metrics over a catalogue: ties, items that are no candidates, slices, merged parts, and what a plan refuses.
#include "trainer/metrics/catalogue.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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
                               {.name = "word", .kind = v1::IDS, .slot_names = {"word"}, .id_kinds = {IdKind::kText}},
                               {.name = "place", .kind = v1::IDS, .slot_names = {"place"}},
                               {.name = "other", .kind = v1::IDS, .slot_names = {"other"}},
                               {.name = "w"}});
  return *columns;
}

absl::StatusOr<std::shared_ptr<const MetricPlan>> Plan(const std::string& job_text, const Learned* learned = nullptr,
                                                       bool keeps = true) {
  v1::JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(job_text, &job)) << job_text;
  job.mutable_data()->mutable_ids()->add_shared("seen");
  v1::ProgramDesc program;
  program.add_kept("q");
  if (keeps) program.add_kept("vector");
  v1::LossDesc* const loss = program.add_losses();
  loss->set_name("chosen");
  loss->set_var("loss");
  v1::VarDesc* const var = program.add_blocks()->add_vars();
  var->set_name("vector");
  var->add_dims(-1);
  var->add_dims(2);
  return MetricPlan::Create(job, program, Columns(), learned);
}

struct Query {
  std::vector<float> vector;
  int64_t item = 0;
  float label = 1;
  std::vector<int64_t> seen = {};
  int64_t country = 1;
  float weight = 1;
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
  Tensor vectors(v1::FLOAT32, {n, 2}), labels(v1::FLOAT32, {n, 1}), weights(v1::FLOAT32, {n, 1});
  IdBatch items, seen, countries;
  for (IdBatch* ids : {&items, &seen, &countries}) ids->offsets = {0};
  for (int64_t i = 0; i < n; ++i) {
    const Query& query = queries[static_cast<size_t>(i)];
    std::copy(query.vector.begin(), query.vector.end(), vectors.data<float>() + 2 * i);
    labels.data<float>()[i] = query.label;
    weights.data<float>()[i] = query.weight;
    items.values.push_back(SaltId(SlotSalt("item", "item"), query.item));
    seen.values.insert(seen.values.end(), query.seen.begin(), query.seen.end());
    countries.values.push_back(SaltId(SlotSalt("country", "country"), query.country));
    for (IdBatch* ids : {&items, &seen, &countries}) ids->offsets.push_back(static_cast<int64_t>(ids->values.size()));
  }
  LaneBatch batch{.examples = n};
  batch.vars = {labels, items, seen, countries, countries, countries, countries, weights};
  EXPECT_TRUE(metrics.TakeKeys({batch}).ok());
  EXPECT_TRUE(metrics.AddQueries(0, 0, vectors, labels).ok());
  v1::EvaluationPart part;
  metrics.Serialize(&part);
  return part;
}

std::vector<Figure> FiguresOf(const std::vector<std::vector<Query>>& parts, const std::string& metrics = kMetrics) {
  const auto plan = Plan(metrics);
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

TEST(CatalogueTest, AQueryCountsAsOftenAsItsWeightSays) {
  std::vector<Query> queries, repeated;
  for (int i = 0; i < 60; ++i) {
    queries.push_back({.vector = {static_cast<float>(i % 7 - 3), static_cast<float>(i % 5) / 3},
                       .item = 10 + i % 6,
                       .label = i % 4 == 0 ? 0.0f : 1.0f,
                       .country = i % 3,
                       .weight = static_cast<float>(i % 5)});
    repeated.insert(repeated.end(), static_cast<size_t>(i % 5), queries.back());
  }
  const std::string weighted = absl::StrReplaceAll(kMetrics, {{"metric {", "metric { weight: 'w'"}});
  const std::vector<Figure> expected = FiguresOf({repeated});
  // Both share one ranking of the items.
  const std::vector<Figure> figures = FiguresOf({queries}, absl::StrCat(kMetrics, weighted));
  ASSERT_EQ(figures.size(), 2 * expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const Figure& figure = figures[expected.size() + i];
    EXPECT_EQ(absl::StrReplaceAll(figure.name, {{"[weight=w]", ""}}), expected[i].name);
    EXPECT_EQ(figure.value, expected[i].value) << figure.name;
  }
  EXPECT_NE(figures[1].value, expected[1].value) << "each query once";
  for (Query& query : queries) query.weight = 0;
  EXPECT_EQ(FiguresOf({queries}, weighted)[0].undefined, "no example has label 1 and a weight above 0");
}

TEST(CatalogueTest, WithoutPositivesThereIsNoFigure) {
  const std::vector<Figure> figures = FiguresOf({{{.vector = {1, 0}, .item = 10, .label = 0}}});
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_TRUE(std::isnan(figures[0].value));
  EXPECT_EQ(figures[0].undefined, "no example has label 1");
}

// Candidates 40, 20 and 30, in this order.
Learned Words() {
  Learned learned;
  learned.lessons.push_back(
      {.kind = Lesson::kVocabulary,
       .index = 0,
       .name = "place",
       .of = "item",
       .list = std::make_shared<IdList>(std::vector<int64_t>{40, 20, 30}, std::vector<double>())});
  return learned;
}
std::string OfPlaces(const std::string& vocabularies, const std::string& without) {
  return "data { derived { name: 'place' vocabulary { of: 'item' " + vocabularies +
         " } metric { recall { catalogue { query: 'q' item: 'vector' id: 'place' without: '" + without + "' } } }";
}

TEST(CatalogueTest, AVocabularyFindsTheValuesOfOtherLists) {
  const Learned words = Words();
  const auto plan = Plan(OfPlaces("learned {} } }", "seen"), &words);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const CataloguePlan& catalogue = (*plan)->catalogues()[0].plan;
  EXPECT_EQ(catalogue.items, 3);
  const auto place = [&](int64_t raw) {
    return catalogue.CandidateOf(catalogue.id, 0, SaltId(SlotSalt("place", "place"), raw));
  };
  EXPECT_EQ(place(2), 2);
  EXPECT_EQ(place(3), -1);
  const auto seen = [&](int64_t raw) { return catalogue.CandidateOf(catalogue.without[0], 0, raw); };
  EXPECT_EQ(seen(40), 0);
  EXPECT_EQ(seen(30), 2);
  EXPECT_EQ(seen(1), -1) << "no value, but the number of a place";
}

TEST(CatalogueTest, IdsThatDoNotStandForItemsAreRefused) {
  const Learned words = Words();
  const auto error = [&](const std::string& vocabularies, const std::string& without) {
    return std::string(Plan(OfPlaces(vocabularies, without), &words).status().message());
  };
  EXPECT_EQ(error("learned {} } }", "word"),
            "metric[0].recall.catalogue.without: 'word' has texts, and the vocabulary 'place' numbers");
  EXPECT_THAT(error("learned {} } } derived { name: 'other' vocabulary { of: 'seen' learned {} } }", "other"),
              HasSubstr("'other' is a vocabulary of its own, whose places are not those of 'place'; name the variable "
                        "that it is made of, or give both one file"));
  EXPECT_EQ(error("file: 'w' } } derived { name: 'other' vocabulary { of: 'seen' file: 'w' } }", "other"), "");
  EXPECT_THAT(error("learned {} } } derived { name: 'other' hash { of: 'seen' } }", "other"),
              HasSubstr("'other' is derived, and its ids are not those of 'place'"));
  const auto of_range = [](const std::string& without) {
    return std::string(Plan("metric { recall { catalogue { query: 'q' item: 'vector' id: 'item' items: 9 without: '" +
                            without + "' } } }")
                           .status()
                           .message());
  };
  EXPECT_EQ(of_range("seen"), "");
  EXPECT_THAT(of_range("word"), HasSubstr("'word' has ids of another kind than 'item'"));
}

TEST(CatalogueTest, AnIdOfNothingIsNoCandidate) {
  const auto plan = Plan(
      "model { layer { embedding { ids: 'item' padding_id: 12 } } layer { embedding { ids: 'seen' padding_id: 12 } } "
      "} metric { recall { catalogue { query: 'q' item: 'vector' id: 'item' first: 10 items: 5 without: 'seen' } } }");
  ASSERT_TRUE(plan.ok()) << plan.status();
  const CataloguePlan& catalogue = (*plan)->catalogues()[0].plan;
  EXPECT_EQ(catalogue.CandidateOf(catalogue.id, 0, PaddingId(12)), -1);
  EXPECT_EQ(catalogue.CandidateOf(catalogue.id, 0, SaltId(SlotSalt("item", "item"), 13)), 3);
  EXPECT_EQ(catalogue.CandidateOf(catalogue.without[0], 0, 12), -1);
  EXPECT_EQ(catalogue.CandidateOf(catalogue.without[0], 0, 13), 3);
  EXPECT_TRUE(catalogue.IsPadding(2));
}

TEST(CatalogueTest, AProgramThatDoesNotKeepTheItemIsRefused) {
  const auto plan = Plan(kMetrics, nullptr, /*keeps=*/false);
  EXPECT_EQ(std::string(plan.status().message()),
            "metric[0].recall.catalogue: the program does not keep 'vector' for evaluations; transpile the job again");
}

// More queries than wait together, of which most have the same product with every item.
TEST(CatalogueTest, ManyQueriesAndManyEqualProducts) {
  constexpr int64_t kItems = 1000, kQueries = 9001;
  const auto plan = Plan(
      "metric { mrr { k: 0 catalogue { query: 'q' item: 'vector' id: 'item' items: 1000 } } } "
      "metric { recall { k: 700 catalogue { query: 'q' item: 'vector' id: 'item' items: 1000 } } }");
  ASSERT_TRUE(plan.ok()) << plan.status();
  JobMetrics metrics(*plan);
  auto items = std::make_shared<PackedItems>(kItems, 2);
  for (int64_t i = 0; i < kItems; ++i) {
    const float vector[] = {static_cast<float>(i), 0};
    items->Set(i, 1, vector);
  }
  metrics.SetItems(0, items, nullptr);
  Tensor vectors(v1::FLOAT32, {kQueries, 2}), labels(v1::FLOAT32, {kQueries, 1});
  IdBatch ids, none;
  ids.offsets = none.offsets = {0};
  double reciprocals = 0;
  for (int64_t q = 0; q < kQueries; ++q) {
    // One in ten tells items apart.
    vectors.data<float>()[2 * q] = q % 10 == 0 ? 1.0f : 0.0f;
    vectors.data<float>()[2 * q + 1] = 1;
    labels.data<float>()[q] = 1;
    ids.values.push_back(SaltId(SlotSalt("item", "item"), q % kItems));
    ids.offsets.push_back(q + 1);
    none.offsets.push_back(0);
    if (q % 10 == 0) reciprocals += 1.0 / static_cast<double>(kItems - q % kItems);
  }
  double mean = 0;
  for (int64_t r = 1; r <= kItems; ++r) mean += 1.0 / static_cast<double>(r) / static_cast<double>(kItems);
  LaneBatch batch{.examples = kQueries};
  batch.vars = {labels, ids, none, none, none, none, none};
  // The first is ranked before the second comes, which leaves the means as they are.
  for (int times = 0; times < 2; ++times) {
    ASSERT_TRUE(metrics.TakeKeys({batch}).ok());
    ASSERT_TRUE(metrics.AddQueries(0, 0, vectors, labels).ok());
  }
  v1::EvaluationPart part;
  metrics.Serialize(&part);
  ASSERT_EQ(part.slices(2).slice(0).examples(), 2 * kQueries);
  const std::vector<Figure> figures = metrics.Figures();
  const int64_t telling = (kQueries + 9) / 10;
  EXPECT_NEAR(figures[0].value, (reciprocals + mean * static_cast<double>(kQueries - telling)) / kQueries, 1e-9);
  EXPECT_NEAR(figures[1].value, 0.7, 0.01);
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
