// Metrics of a job over parts that are merged: against plain references, and with the same bits however examples are
// divided.
#include "trainer/metrics/job_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/feature_id.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

struct Example {
  int64_t user = 0;
  int64_t country = 0;
  float hour = 0;
  float label = 0;
  std::vector<float> prediction;
};

// Data of a label, an id of its own salt, a shared id and a float column.
const std::vector<Column>& Columns() {
  static const auto* const columns =
      new std::vector<Column>({{.name = "label"},
                               {.name = "user", .kind = v1::IDS, .slot_names = {"user"}},
                               {.name = "country", .kind = v1::IDS, .slot_names = {"country"}},
                               {.name = "hour"}});
  return *columns;
}

std::shared_ptr<const MetricPlan> PlanOf(const std::string& metrics) {
  v1::JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(metrics, &job)) << metrics;
  v1::ProgramDesc program;
  v1::LossDesc* const loss = program.add_losses();
  loss->set_name("ctr");
  loss->set_var("loss");
  auto plan = MetricPlan::Create(job, program, Columns());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

Tensor Floats(const std::vector<float>& values, int64_t width = 1) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size()) / width, width}, values);
}

IdBatch Ids(const std::vector<int64_t>& raw, const std::string& name, bool salted) {
  IdBatch ids;
  ids.offsets.push_back(0);
  for (const int64_t id : raw) {
    ids.values.push_back(salted ? SaltId(SlotSalt(name, name), id) : id);
    ids.offsets.push_back(static_cast<int64_t>(ids.values.size()));
  }
  return ids;
}

LaneBatch BatchOf(const std::vector<Example>& examples) {
  std::vector<float> labels, hours;
  std::vector<int64_t> users, countries;
  for (const Example& e : examples) {
    labels.push_back(e.label);
    hours.push_back(e.hour);
    users.push_back(e.user);
    countries.push_back(e.country);
  }
  return {.examples = static_cast<int64_t>(examples.size()),
          .vars = {Floats(labels), Ids(users, "user", true), Ids(countries, "country", true), Floats(hours)}};
}

// Adds a batch of one lane.
absl::Status Add(JobMetrics* metrics, const std::vector<Example>& examples) {
  std::vector<float> labels, predictions;
  for (const Example& e : examples) {
    labels.push_back(e.label);
    predictions.insert(predictions.end(), e.prediction.begin(), e.prediction.end());
  }
  if (const absl::Status taken = metrics->TakeKeys({BatchOf(examples)}); !taken.ok()) return taken;
  const auto width = static_cast<int64_t>(examples[0].prediction.size());
  return metrics->Add(/*lane=*/0, /*loss=*/0, Floats(predictions, width), Floats(labels));
}

std::map<std::string, double> FiguresOf(const std::string& metrics, const std::vector<Example>& examples) {
  JobMetrics all(PlanOf(metrics));
  EXPECT_EQ(Add(&all, examples), absl::OkStatus());
  std::map<std::string, double> figures;
  for (const Figure& figure : all.Figures()) figures[figure.name] = figure.value;
  return figures;
}

// Predictions in steps of 1/16, so that there are ties; users of very different numbers of examples.
std::vector<Example> ClickExamples(uint64_t n) {
  std::vector<Example> examples(n);
  for (uint64_t i = 0; i < n; ++i) {
    const auto random = Philox(11, i, 0);
    Example& e = examples[i];
    const double u = random.v[0] / 4294967296.0;
    e.user = static_cast<int64_t>(u * u * u * static_cast<double>(n) / 5);
    e.country = static_cast<int64_t>(random.v[1] % 7);
    e.hour = static_cast<float>(random.v[1] % 3);
    e.prediction = {static_cast<float>(random.v[2] % 17) / 16};
    e.label = random.v[3] / 4294967296.0 < 0.2 + 0.6 * static_cast<double>(e.prediction[0]) ? 1 : 0;
  }
  return examples;
}

constexpr char kAll[] = R"(
  metric { auc {} }
  metric { auc {} by: "country" }
  metric { gauc { key: "user" } }
  metric { gauc { key: "user" weight: POSITIVES } name: "gauc_clicks" }
  metric { ndcg { key: "user" k: 5 } }
  metric { ndcg { key: "user" k: 0 gain: EXPONENTIAL } }
  metric { hit_rate { key: "user" k: 2 } by: "hour" }
  metric { recall { key: "user" k: 3 } }
  metric { mrr { key: "user" k: 0 } }
  metric { accuracy {} }
  metric { confusion {} by: "hour" }
  metric { calibration {} }
  metric { normalized_entropy {} by: "country" most_values: 3 }
  metric { rmse {} }
  metric { mae {} })";

std::string Bits(double value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }

TEST(JobMetricsTest, AreTheSameBitsHoweverExamplesAreDivided) {
  const std::vector<Example> examples = ClickExamples(3000);
  JobMetrics one(PlanOf(kAll));
  ASSERT_EQ(Add(&one, examples), absl::OkStatus());
  const std::vector<Figure> expected = one.Figures();
  ASSERT_GT(expected.size(), 25u);
  for (const size_t trainers : {2, 3, 8}) {
    std::vector<v1::EvaluationPart> parts(trainers);
    for (size_t t = 0; t < trainers; ++t) {
      JobMetrics mine(PlanOf(kAll));
      // Batches of different sizes, the last examples first.
      std::vector<Example> batch;
      for (size_t i = examples.size(); i-- > 0;) {
        if (i * i % trainers == t) batch.push_back(examples[i]);
        if (batch.size() < 17 + t && i > 0) continue;
        if (batch.empty()) continue;
        ASSERT_EQ(Add(&mine, batch), absl::OkStatus());
        batch.clear();
      }
      mine.Serialize(&parts[t]);
      // Over the wire.
      const std::string bytes = parts[t].SerializeAsString();
      ASSERT_TRUE(parts[t].ParseFromString(bytes));
    }
    std::reverse(parts.begin(), parts.end());
    JobMetrics merged(PlanOf(kAll));
    for (const v1::EvaluationPart& part : parts) ASSERT_EQ(merged.Merge(part), absl::OkStatus());
    const std::vector<Figure> figures = merged.Figures();
    ASSERT_EQ(figures.size(), expected.size());
    for (size_t f = 0; f < figures.size(); ++f) {
      EXPECT_EQ(figures[f].name, expected[f].name);
      EXPECT_EQ(Bits(figures[f].value), Bits(expected[f].value)) << figures[f].name << ", " << trainers << " trainers";
    }
  }
}

TEST(JobMetricsTest, GaucIsTheWeightedMeanOverUsersWithBothClasses) {
  const std::vector<Example> examples = ClickExamples(2000);
  std::map<int64_t, std::vector<Example>> users;
  for (const Example& e : examples) users[e.user].push_back(e);
  double by_examples = 0, examples_counted = 0, by_positives = 0, positives_counted = 0;
  int left_out = 0;
  for (const auto& [user, group] : users) {
    double ordered = 0, pairs = 0, positives = 0;
    for (const Example& p : group) {
      positives += p.label;
      for (const Example& n : group) {
        if (p.label != 1 || n.label != 0) continue;
        ++pairs;
        ordered += p.prediction[0] > n.prediction[0] ? 1 : p.prediction[0] == n.prediction[0] ? 0.5 : 0;
      }
    }
    if (pairs == 0) {
      ++left_out;
      continue;
    }
    const auto n = static_cast<double>(group.size());
    by_examples += n * ordered / pairs;
    examples_counted += n;
    by_positives += positives * ordered / pairs;
    positives_counted += positives;
  }
  ASSERT_GT(left_out, 10);
  const auto figures = FiguresOf(kAll, examples);
  EXPECT_NEAR(figures.at("gauc"), by_examples / examples_counted, 1e-12);
  EXPECT_NEAR(figures.at("gauc_clicks"), by_positives / positives_counted, 1e-12);
}

TEST(JobMetricsTest, SumsAreThoseOfPlainDoubles) {
  const std::vector<Example> examples = ClickExamples(5000);
  double n = 0, squares = 0, distances = 0, loss = 0, labels = 0, predictions = 0, right = 0;
  std::vector<double> p_of(20), y_of(20);
  for (const Example& e : examples) {
    const double p = e.prediction[0], y = e.label;
    const double kept = std::clamp(p, 1e-7, 1 - 1e-7);
    ++n;
    squares += (p - y) * (p - y);
    distances += std::fabs(p - y);
    labels += y;
    predictions += p;
    right += (p >= 0.5) == (y == 1);
    p_of[static_cast<size_t>(std::min(19.0, p * 20))] += p;
    y_of[static_cast<size_t>(std::min(19.0, p * 20))] += y;
    loss -= y * std::log(kept) + (1 - y) * std::log(1 - kept);
  }
  double error = 0;
  for (size_t b = 0; b < 20; ++b) error += std::fabs(p_of[b] - y_of[b]);
  const double rate = labels / n;
  auto figures = FiguresOf(absl::StrCat(kAll, " metric { normalized_entropy {} name: \"ne\" }"), examples);
  EXPECT_NEAR(figures["rmse"], std::sqrt(squares / n), 1e-12);
  EXPECT_NEAR(figures["mae"], distances / n, 1e-12);
  EXPECT_NEAR(figures["accuracy"], right / n, 1e-15);
  EXPECT_NEAR(figures["calibration"], predictions / labels, 1e-12);
  EXPECT_NEAR(figures["calibration.error"], error / n, 1e-12);
  EXPECT_NEAR(figures["ne"], loss / n / (-rate * std::log(rate) - (1 - rate) * std::log(1 - rate)), 1e-9);
}

TEST(JobMetricsTest, ASliceIsItsExamplesAloneAndTheLargestArePrinted) {
  const std::vector<Example> examples = ClickExamples(2000);
  const auto all = FiguresOf(kAll, examples);
  std::map<int64_t, std::vector<Example>> countries;
  for (const Example& e : examples) countries[e.country].push_back(e);
  std::vector<std::pair<size_t, int64_t>> sizes;
  for (const auto& [country, of_country] : countries) {
    const auto alone = FiguresOf("metric { auc {} } metric { normalized_entropy {} }", of_country);
    const std::string by = absl::StrCat("[country=", country, "]");
    EXPECT_EQ(all.at("auc" + by), alone.at("auc")) << by;
    sizes.emplace_back(of_country.size(), country);
  }
  std::sort(sizes.rbegin(), sizes.rend());
  EXPECT_EQ(all.count(absl::StrCat("normalized_entropy[country=", sizes[0].second, "]")), 1u);
  EXPECT_EQ(all.count(absl::StrCat("normalized_entropy[country=", sizes[6].second, "]")), 0u);
  EXPECT_EQ(all.count("hit_rate@2[hour=2]"), 1u);
  EXPECT_EQ(all.count("confusion.f1[hour=0]"), 1u);
}

TEST(JobMetricsTest, TextsThatTheJobNamesArePrintedByName) {
  std::vector<Example> examples = ClickExamples(40);
  for (Example& e : examples) {
    e.country = static_cast<int64_t>(StableHash(e.country < 3 ? "New York" : "Oslo"));
  }
  const auto figures = FiguresOf("metric { auc {} by: \"country\" value: \"New York\" }", examples);
  EXPECT_EQ(figures.count("auc[country=New_York]"), 1u);
  EXPECT_EQ(figures.size(), 2u);
  EXPECT_EQ(figures.count(absl::StrCat("auc[country=0x", absl::Hex(StableHash("Oslo")), "]")), 1u);
}

TEST(JobMetricsTest, ValuesThatTheJobNamesArePrintedHoweverFewExamplesTheyHave) {
  std::vector<Example> examples = ClickExamples(40);
  for (size_t i = 0; i < examples.size(); ++i) {
    examples[i].country = static_cast<int64_t>(StableHash(i < 2 ? "Oslo" : i < 10 ? "Rome" : "New York"));
    examples[i].hour = static_cast<float>(i < 5 ? 7 : i < 15 ? 8 : 9);
  }
  const auto figures = FiguresOf(
      "metric { mae {} by: \"country\" most_values: 1 value: \"Oslo\" value: \"Paris\" }"
      "metric { rmse {} by: \"hour\" most_values: 1 value: \"7\" }"
      "metric { auc {} by: \"hour\" most_values: 1 value: \"7\" }",
      examples);
  std::vector<std::string> names;
  for (const auto& [name, value] : figures) names.push_back(name);
  std::vector<std::string> expected = {
      "auc[hour=7]",       "auc[hour=9]",
      "mae[country=Oslo]", absl::StrCat("mae[country=0x", absl::Hex(StableHash("New York")), "]"),
      "rmse[hour=7]",      "rmse[hour=9]"};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names, expected);
}

TEST(JobMetricsTest, SeveralClassesHaveTopKAndAMatrix) {
  const std::vector<Example> examples = {
      {.label = 0, .prediction = {.5f, .3f, .2f}}, {.label = 1, .prediction = {.5f, .3f, .2f}},
      {.label = 2, .prediction = {.2f, .2f, .6f}}, {.label = 1, .prediction = {.2f, .2f, .6f}},
      {.label = 1, .prediction = {.1f, .8f, .1f}},
  };
  auto figures = FiguresOf("metric { accuracy {} } metric { accuracy { k: 2 } } metric { confusion {} }", examples);
  EXPECT_DOUBLE_EQ(figures["accuracy"], 3.0 / 5);
  // Of the two that have .2, class 0 is before class 1.
  EXPECT_DOUBLE_EQ(figures["accuracy@2"], 4.0 / 5);
  EXPECT_DOUBLE_EQ(figures["confusion.precision"], (1.0 / 2 + 1.0 / 1 + 1.0 / 2) / 3);
  EXPECT_DOUBLE_EQ(figures["confusion.recall"], (1.0 + 1.0 / 3 + 1.0) / 3);
  EXPECT_DOUBLE_EQ(figures["confusion.f1"], (2.0 / 3 + 2.0 / 4 + 2.0 / 3) / 3);
}

TEST(JobMetricsTest, WithoutAFigureItIsNotANumberAndSaysWhy) {
  JobMetrics metrics(PlanOf("metric { gauc { key: \"user\" } } metric { normalized_entropy {} }"));
  ASSERT_EQ(Add(&metrics, {{.user = 1, .label = 1, .prediction = {.5f}}, {.user = 2, .label = 1, .prediction = {.5f}}}),
            absl::OkStatus());
  const std::vector<Figure> figures = metrics.Figures();
  EXPECT_TRUE(std::isnan(figures[0].value));
  EXPECT_EQ(figures[0].undefined, "no group has both classes");
  EXPECT_TRUE(std::isnan(figures[1].value));
  EXPECT_EQ(figures[1].undefined, "all labels are equal, or a prediction is no number");
}

TEST(JobMetricsTest, WithoutALabelEveryFigureIsUndefined) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  JobMetrics metrics(PlanOf(kAll));
  ASSERT_EQ(Add(&metrics, {{.user = 1, .label = kNan, .prediction = {.5f}}}), absl::OkStatus());
  std::vector<std::string> names;
  for (const Figure& figure : metrics.Figures()) {
    names.push_back(figure.name);
    EXPECT_TRUE(std::isnan(figure.value)) << figure.name;
    EXPECT_EQ(figure.undefined, "no example has a label") << figure.name;
  }
  // A metric with `by` has no slices.
  EXPECT_THAT(names, ::testing::ElementsAre("auc", "gauc", "gauc_clicks", "ndcg@5", "ndcg", "recall@3", "mrr",
                                            "accuracy", "calibration", "calibration.error", "rmse", "mae"));
  JobMetrics confusion(PlanOf("metric { confusion {} }"));
  ASSERT_EQ(Add(&confusion, {{.user = 1, .label = kNan, .prediction = {.5f}}}), absl::OkStatus());
  const std::vector<Figure> figures = confusion.Figures();
  ASSERT_EQ(figures.size(), 7u);
  EXPECT_EQ(figures[0].undefined, "no example has a label");
  EXPECT_EQ(figures[3].name, "confusion.tn");
  EXPECT_EQ(figures[3].value, 0);
}

TEST(JobMetricsTest, PredictionsThatAreNoNumbersAreNeverRight) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::string all =
      "metric { accuracy {} } metric { accuracy { k: 2 } } metric { confusion {} } metric { rmse {} } metric { mae {} "
      "} "
      "metric { normalized_entropy {} } metric { calibration {} } metric { auc {} }";
  std::map<std::string, double> figures =
      FiguresOf(all, {{.label = 0, .prediction = {kNan}}, {.label = 1, .prediction = {kNan}}});
  EXPECT_EQ(figures["accuracy"], 0);
  EXPECT_EQ(figures["accuracy@2"], 0);
  EXPECT_EQ(figures["confusion.tn"] + figures["confusion.fp"] + figures["confusion.fn"] + figures["confusion.tp"], 0);
  for (const char* const undefined : {"rmse", "mae", "normalized_entropy", "calibration", "calibration.error"}) {
    EXPECT_TRUE(std::isnan(figures[undefined])) << undefined;
  }
  EXPECT_EQ(figures["auc"], 0.5) << "none is before another";

  figures = FiguresOf("metric { accuracy {} } metric { accuracy { k: 2 } } metric { confusion {} }",
                      {{.label = 1, .prediction = {0, kNan, 0}},
                       {.label = 1, .prediction = {kNan, 0.5f, 0}},
                       {.label = 1, .prediction = {.25f, .5f, .25f}}});
  EXPECT_DOUBLE_EQ(figures["accuracy"], 1.0 / 3);
  EXPECT_DOUBLE_EQ(figures["accuracy@2"], 1.0 / 3);
  EXPECT_EQ(figures["confusion.recall"], 1);
}

TEST(JobMetricsTest, ExamplesWithoutAKeyAndTooManySlicesAreErrors) {
  JobMetrics groups(PlanOf("metric { gauc { key: \"user\" } }"));
  LaneBatch batch = BatchOf({{.user = 4}, {.user = 5}});
  std::get<IdBatch>(batch.vars[1]).values[1] = MissingId(SlotSalt("user", "user"));
  EXPECT_THAT(std::string(groups.TakeKeys({batch}).message()),
              HasSubstr("an example has no 'user', by which a metric groups"));
  std::get<IdBatch>(batch.vars[1]) = {.values = {1, 2, 3}, .offsets = {0, 1, 3}};
  EXPECT_THAT(std::string(groups.TakeKeys({batch}).message()), HasSubstr("an example has 2 ids of 'user'"));

  JobMetrics slices(PlanOf("metric { rmse {} by: \"user\" }"));
  std::vector<Example> examples(MetricPlan::kMostSlices + 1);
  for (size_t i = 0; i < examples.size(); ++i) {
    examples[i].user = static_cast<int64_t>(i);
    examples[i].prediction = {0.5f};
  }
  EXPECT_THAT(std::string(Add(&slices, examples).message()),
              HasSubstr("metric rmse: 'user' has more than 4096 values"));
  // Also if each trainer has fewer.
  const auto plan = PlanOf("metric { rmse {} by: \"user\" }");
  JobMetrics whole(plan);
  for (const size_t begin : {size_t{0}, size_t{2000}}) {
    JobMetrics half(plan);
    ASSERT_EQ(Add(&half, {examples.begin() + static_cast<int64_t>(begin),
                          examples.end() - 2000 + static_cast<int64_t>(begin)}),
              absl::OkStatus());
    v1::EvaluationPart part;
    half.Serialize(&part);
    const absl::Status merged = whole.Merge(part);
    if (begin == 0) {
      EXPECT_EQ(merged, absl::OkStatus());
    } else {
      EXPECT_THAT(std::string(merged.message()), HasSubstr("metric rmse: 'user' has more than 4096 values"));
    }
  }
  JobMetrics one_number(PlanOf("metric { auc {} }"));
  EXPECT_THAT(std::string(Add(&one_number, {{.prediction = {.5f, .5f}}}).message()),
              HasSubstr("metric auc needs a prediction of one number, not [1, 2]"));
}

// A program with one loss whose prediction has `classes` numbers.
absl::Status CreatedFor(const std::string& metrics, int64_t classes, v1::LossDesc::Kind kind) {
  v1::JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(metrics, &job)) << metrics;
  v1::ProgramDesc program;
  v1::LossDesc* const loss = program.add_losses();
  loss->set_name("ctr");
  loss->set_var("loss");
  loss->set_prediction("p");
  loss->set_kind(kind);
  v1::VarDesc* const prediction = program.add_blocks()->add_vars();
  prediction->set_name("p");
  prediction->add_dims(-1);
  prediction->add_dims(classes);
  return MetricPlan::Create(job, program, Columns()).status();
}

TEST(JobMetricsTest, WhatCannotJudgeALossIsRefusedBeforeTraining) {
  const auto classes = v1::LossDesc::MULTI_CLASS;
  EXPECT_EQ(CreatedFor("metric { confusion {} }", 1000, classes), absl::OkStatus());
  EXPECT_EQ(std::string(CreatedFor("metric { confusion {} }", 50000, classes).message()),
            "metric[0]: confusion of 50000 classes would take 19073 MiB; at most 256 are possible");
  EXPECT_EQ(std::string(CreatedFor("metric { accuracy {} } metric { auc {} }", 10, classes).message()),
            "metric[1]: auc judges a prediction of one number; that of ctr has 10");
  EXPECT_EQ(std::string(CreatedFor("metric { normalized_entropy {} }", 1, v1::LossDesc::REGRESSION).message()),
            "metric[0]: normalized_entropy judges probabilities of two classes; ctr does not predict them");
}

TEST(JobMetricsTest, DamagedPartsAreDataLoss) {
  JobMetrics metrics(PlanOf(kAll));
  ASSERT_EQ(Add(&metrics, ClickExamples(50)), absl::OkStatus());
  v1::EvaluationPart good;
  metrics.Serialize(&good);
  const auto refused = [&](const std::function<void(v1::EvaluationPart*)>& damage) {
    v1::EvaluationPart part = good;
    damage(&part);
    return !JobMetrics(PlanOf(kAll)).Merge(part).ok();
  };
  EXPECT_FALSE(refused([](v1::EvaluationPart*) {}));
  const auto slice_with_counts = [](v1::EvaluationPart* part) {
    for (v1::EvaluationPart::Slices& slices : *part->mutable_slices()) {
      if (slices.slice_size() > 0 && slices.slice(0).counts_size() > 0) return slices.mutable_slice(0);
    }
    return static_cast<v1::EvaluationPart::Slice*>(nullptr);
  };
  EXPECT_TRUE(refused([&](v1::EvaluationPart* part) { slice_with_counts(part)->set_counts(0, -1); }));
  EXPECT_TRUE(refused([&](v1::EvaluationPart* part) { slice_with_counts(part)->set_counts(0, int64_t{1} << 62); }));
  EXPECT_TRUE(refused([&](v1::EvaluationPart* part) { slice_with_counts(part)->set_examples(int64_t{1} << 62); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart* part) { part->clear_groups(); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart* part) { part->mutable_groups(0)->add_key(1); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart* part) { part->mutable_groups(0)->add_score(1); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart* part) { part->mutable_groups(0)->set_examples(0, int64_t{1} << 40); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart* part) { part->mutable_groups(0)->set_examples(0, -1); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart* part) {
    v1::EvaluationPart::Groups* const groups = part->mutable_groups(0);
    groups->set_score(0, groups->score(groups->score_size() - 1) - 1);
  })) << "out of order";
  EXPECT_TRUE(
      refused([](v1::EvaluationPart* part) { part->mutable_slices(6)->mutable_slice(0)->set_sums(0, "no sum"); }));
}

}  // namespace
}  // namespace weir
