// Weighted metrics: against plain references, against examples that are repeated, and with the same bits however
// examples are divided.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/exact_sum.h"
#include "framework/base/feature_id.h"
#include "framework/base/philox.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "trainer/metrics/job_metrics.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Weighted {
  int64_t user = 0;
  float hour = 0;
  float label = 0;
  std::vector<float> prediction = {0.5f};
  float weight = 1;
};
using Examples = std::vector<Weighted>;

std::shared_ptr<const MetricPlan> WeightedPlan(const std::string& metrics) {
  v1::JobConfig job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(metrics, &job)) << metrics;
  v1::ProgramDesc program;
  program.add_losses()->set_var("loss");
  const auto plan = MetricPlan::Create(
      job, program,
      {{.name = "label"}, {.name = "user", .kind = v1::IDS, .slot_names = {"user"}}, {.name = "hour"}, {.name = "w"}});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

Tensor Numbers(const Examples& examples, const std::function<float(const Weighted&)>& number) {
  std::vector<float> numbers;
  for (const Weighted& e : examples) numbers.push_back(number(e));
  return Tensor::Of<float>({static_cast<int64_t>(numbers.size()), 1}, numbers);
}

LaneBatch WeightedBatch(const Examples& examples) {
  IdBatch users = {.offsets = {0}};
  for (const Weighted& e : examples) {
    users.values.push_back(SaltId(SlotSalt("user", "user"), e.user));
    users.offsets.push_back(static_cast<int64_t>(users.values.size()));
  }
  return {.examples = static_cast<int64_t>(examples.size()),
          .vars = {Numbers(examples, [](const Weighted& e) { return e.label; }), users,
                   Numbers(examples, [](const Weighted& e) { return e.hour; }),
                   Numbers(examples, [](const Weighted& e) { return e.weight; })}};
}

// Adds a batch of one lane.
absl::Status AddWeighted(JobMetrics* metrics, const Examples& examples) {
  std::vector<float> predictions;
  for (const Weighted& e : examples) predictions.insert(predictions.end(), e.prediction.begin(), e.prediction.end());
  if (const absl::Status taken = metrics->TakeKeys({WeightedBatch(examples)}); !taken.ok()) return taken;
  const auto n = static_cast<int64_t>(examples.size());
  return metrics->Add(/*lane=*/0, /*loss=*/0,
                      Tensor::Of<float>({n, static_cast<int64_t>(predictions.size()) / n}, predictions),
                      Numbers(examples, [](const Weighted& e) { return e.label; }));
}

std::vector<Figure> WeightedFigures(const std::string& metrics, const Examples& examples) {
  JobMetrics all(WeightedPlan(metrics));
  EXPECT_EQ(AddWeighted(&all, examples), absl::OkStatus());
  return all.Figures();
}
std::map<std::string, double> ByName(const std::vector<Figure>& figures) {
  std::map<std::string, double> values;
  for (const Figure& figure : figures) values[figure.name] = figure.value;
  return values;
}

// Every kind that weights take part in; several classes are below.
constexpr char kWeighted[] = R"(
  metric { auc {} weight: "w" }
  metric { auc {} weight: "w" by: "hour" most_values: 2 }
  metric { gauc { key: "user" } weight: "w" }
  metric { gauc { key: "user" weight: POSITIVES } weight: "w" name: "gauc_clicks" }
  metric { gauc { key: "user" weight: EQUAL } weight: "w" by: "hour" name: "gauc_equal" }
  metric { accuracy {} weight: "w" }
  metric { confusion {} weight: "w" by: "hour" }
  metric { calibration {} weight: "w" }
  metric { normalized_entropy {} weight: "w" by: "hour" most_values: 2 }
  metric { rmse {} weight: "w" }
  metric { mae {} weight: "w" by: "user" }
)";
constexpr char kClasses[] = R"(
  metric { accuracy {} weight: "w" }
  metric { accuracy { k: 2 } weight: "w" by: "hour" }
  metric { confusion {} weight: "w" }
)";

// The same metrics without weights, and a figure's name without one.
std::string WithoutWeights(const std::string& metrics) {
  return absl::StrReplaceAll(metrics, {{" weight: \"w\"", ""}});
}
std::string NameWithout(const std::string& name) { return absl::StrReplaceAll(name, {{"[weight=w]", ""}}); }

// Predictions in steps of 1/16, so that there are ties; many users of few examples.
Examples Clicks(uint64_t n, const std::function<float(double)>& weight) {
  Examples examples(n);
  for (uint64_t i = 0; i < n; ++i) {
    const auto random = Philox(13, i, 0), more = Philox(13, i, 1);
    Weighted& e = examples[i];
    e.user = random.v[0] % static_cast<uint32_t>(n / 5 + 1);
    e.hour = static_cast<float>(random.v[1] % 3);
    e.prediction = {static_cast<float>(random.v[2] % 17) / 16};
    e.label = random.v[3] / 4294967296.0 < 0.2 + 0.6 * static_cast<double>(e.prediction[0]) ? 1 : 0;
    e.weight = weight(more.v[0] / 4294967296.0);
  }
  return examples;
}
// Examples of three classes.
Examples Classes(uint64_t n, const std::function<float(double)>& weight) {
  Examples examples = Clicks(n, weight);
  for (uint64_t i = 0; i < n; ++i) {
    const auto random = Philox(14, i, 0);
    examples[i].prediction = {UniformFloat(random.v[0]), UniformFloat(random.v[1]), UniformFloat(random.v[2])};
    examples[i].label = static_cast<float>(random.v[3] % 3);
  }
  return examples;
}
float One(double) { return 1; }
float UpToFive(double random) { return static_cast<float>(std::floor(random * 6)); }
// From 2^-20 to 2^20.
float AnyWeight(double random) { return static_cast<float>(std::exp2(40 * random - 20)); }

void ExpectSameBits(const std::vector<Figure>& weighted, const std::vector<Figure>& plain) {
  ASSERT_EQ(weighted.size(), plain.size());
  for (size_t f = 0; f < plain.size(); ++f) {
    EXPECT_EQ(NameWithout(weighted[f].name), NameWithout(plain[f].name));
    EXPECT_EQ(weighted[f].is_count, plain[f].is_count) << plain[f].name;
    if (std::isnan(plain[f].value)) {
      EXPECT_TRUE(std::isnan(weighted[f].value)) << plain[f].name;
    } else {
      EXPECT_EQ(weighted[f].value, plain[f].value) << plain[f].name;
    }
  }
}

TEST(WeightedMetricsTest, WeightsOfOneGiveTheFiguresWithoutWeights) {
  const Examples clicks = Clicks(2000, One), classes = Classes(500, One);
  const std::vector<Figure> figures = WeightedFigures(kWeighted, clicks);
  EXPECT_GT(figures.size(), 30u);
  ExpectSameBits(figures, WeightedFigures(WithoutWeights(kWeighted), clicks));
  ExpectSameBits(WeightedFigures(kClasses, classes), WeightedFigures(WithoutWeights(kClasses), classes));
}

TEST(WeightedMetricsTest, WholeWeightsGiveTheFiguresOfRepeatedExamples) {
  const auto repeated = [](const Examples& examples) {
    Examples all;
    for (const Weighted& e : examples) all.insert(all.end(), static_cast<size_t>(e.weight), e);
    return all;
  };
  for (const float scale : {1.0f, 7.0f, 1001.0f}) {
    const auto weight = [&](double random) { return scale * UpToFive(random); };
    const uint64_t n = scale > 100 ? 60 : 2000;
    const Examples clicks = Clicks(n, weight), classes = Classes(n, weight);
    ExpectSameBits(WeightedFigures(kWeighted, clicks), WeightedFigures(WithoutWeights(kWeighted), repeated(clicks)));
    ExpectSameBits(WeightedFigures(kClasses, classes), WeightedFigures(WithoutWeights(kClasses), repeated(classes)));
  }
}

TEST(WeightedMetricsTest, FiguresAreTheSameBitsHoweverExamplesAreDivided) {
  for (const auto& [metrics, examples] :
       {std::pair(kWeighted, Clicks(2000, AnyWeight)), std::pair(kClasses, Classes(700, AnyWeight))}) {
    const std::vector<Figure> whole = WeightedFigures(metrics, examples);
    for (const size_t trainers : {2, 5}) {
      std::vector<Examples> dealt(trainers);
      for (size_t i = examples.size(); i-- > 0;) dealt[i * i * i % trainers].push_back(examples[i]);
      JobMetrics merged(WeightedPlan(metrics));
      for (const Examples& own : dealt) {
        JobMetrics mine(WeightedPlan(metrics));
        ASSERT_EQ(AddWeighted(&mine, own), absl::OkStatus());
        v1::EvaluationPart part, read;
        mine.Serialize(&part);
        ASSERT_TRUE(read.ParseFromString(part.SerializeAsString()));
        ASSERT_EQ(merged.Merge(read), absl::OkStatus());
      }
      ExpectSameBits(merged.Figures(), whole);
      EXPECT_EQ(merged.Figures()[0].name, whole[0].name);
    }
  }
}

TEST(WeightedMetricsTest, AucCountsAPairAsOftenAsTheProductOfItsWeights) {
  const Examples examples = Clicks(700, AnyWeight);
  std::map<int64_t, Examples> users;
  for (const Weighted& e : examples) users[e.user].push_back(e);
  const auto auc = [](const Examples& group) {
    double ordered = 0, pairs = 0;
    for (const Weighted& p : group) {
      for (const Weighted& n : group) {
        if (p.label != 1 || n.label != 0) continue;
        const double both = static_cast<double>(p.weight) * static_cast<double>(n.weight);
        pairs += both;
        ordered += both * (p.prediction[0] > n.prediction[0] ? 1 : p.prediction[0] == n.prediction[0] ? 0.5 : 0);
      }
    }
    return ordered / pairs;
  };
  double sum = 0, of_all = 0, by_positives = 0, of_positives = 0;
  for (const auto& [user, group] : users) {
    if (std::isnan(auc(group))) continue;
    double weight = 0, positives = 0;
    for (const Weighted& e : group) {
      weight += e.weight;
      positives += e.weight * e.label;
    }
    sum += weight * auc(group);
    of_all += weight;
    by_positives += positives * auc(group);
    of_positives += positives;
  }
  auto figures = ByName(WeightedFigures(kWeighted, examples));
  EXPECT_NEAR(figures["auc[weight=w]"], auc(examples), 1e-12);
  EXPECT_NEAR(figures["gauc[weight=w]"], sum / of_all, 1e-12);
  EXPECT_NEAR(figures["gauc_clicks"], by_positives / of_positives, 1e-12);
}

TEST(WeightedMetricsTest, SumsAreThoseOfPlainDoubles) {
  const Examples examples = Clicks(3000, AnyWeight);
  double n = 0, squares = 0, loss = 0, labels = 0, predictions = 0, right = 0;
  std::vector<double> p_of(20), y_of(20);
  for (const Weighted& e : examples) {
    const double w = e.weight, p = e.prediction[0], y = e.label, kept = std::clamp(p, 1e-7, 1 - 1e-7);
    n += w;
    squares += w * (p - y) * (p - y);
    labels += w * y;
    predictions += w * p;
    right += w * ((p >= 0.5) == (y == 1));
    p_of[static_cast<size_t>(std::min(19.0, p * 20))] += w * p;
    y_of[static_cast<size_t>(std::min(19.0, p * 20))] += w * y;
    loss -= w * (y * std::log(kept) + (1 - y) * std::log(1 - kept));
  }
  double error = 0;
  for (size_t b = 0; b < 20; ++b) error += std::fabs(p_of[b] - y_of[b]);
  const double rate = labels / n;
  auto figures =
      ByName(WeightedFigures(absl::StrCat(kWeighted, " metric { normalized_entropy {} weight: \"w\" }"), examples));
  EXPECT_NEAR(figures["rmse[weight=w]"], std::sqrt(squares / n), 1e-12);
  EXPECT_NEAR(figures["accuracy[weight=w]"], right / n, 1e-12);
  EXPECT_NEAR(figures["calibration[weight=w]"], predictions / labels, 1e-12);
  EXPECT_NEAR(figures["calibration.error[weight=w]"], error / n, 1e-12);
  EXPECT_NEAR(figures["normalized_entropy[weight=w]"],
              loss / n / (-rate * std::log(rate) - (1 - rate) * std::log(1 - rate)), 1e-9);
}

TEST(WeightedMetricsTest, WeightsOfEverySizeCount) {
  constexpr float kSmall = std::numeric_limits<float>::denorm_min(), kGreat = std::numeric_limits<float>::max();
  // Of the two pairs one is right; the weight of the wrong one is three times as large.
  auto figures = ByName(WeightedFigures("metric { auc {} weight: \"w\" } metric { rmse {} weight: \"w\" }",
                                        {{.label = 1, .prediction = {.5f}, .weight = kGreat},
                                         {.label = 0, .prediction = {.25f}, .weight = kSmall},
                                         {.label = 0, .prediction = {.75f}, .weight = 3 * kSmall}}));
  EXPECT_EQ(figures["auc[weight=w]"], 0.25);
  EXPECT_EQ(figures["rmse[weight=w]"], 0.5);
}

TEST(WeightedMetricsTest, CountsOfConfusionAreSumsOfWeights) {
  const std::vector<Figure> figures =
      WeightedFigures("metric { confusion {} weight: \"w\" }", {{.label = 1, .prediction = {.9f}, .weight = 2.5f},
                                                                {.label = 0, .prediction = {.9f}, .weight = 0.5f},
                                                                {.label = 1, .prediction = {.1f}, .weight = 2},
                                                                {.label = 0, .prediction = {.1f}, .weight = 0}});
  std::vector<std::string> texts;
  for (const Figure& figure : figures) texts.push_back(FigureText(figure));
  EXPECT_THAT(texts, ElementsAre("confusion.precision[weight=w]=0.833333", "confusion.recall[weight=w]=0.555556",
                                 "confusion.f1[weight=w]=0.666667", "confusion.tn[weight=w]=0",
                                 "confusion.fp[weight=w]=0.500000", "confusion.fn[weight=w]=2",
                                 "confusion.tp[weight=w]=2.500000"));
}

TEST(WeightedMetricsTest, AnExampleWithoutWeightIsAbsent) {
  JobMetrics metrics(
      WeightedPlan("metric { gauc { key: \"user\" } weight: \"w\" by: \"hour\" }"
                   "metric { mae {} weight: \"w\" by: \"hour\" most_values: 1 }"));
  const Examples examples = {{.user = 1, .hour = 7, .label = 1, .prediction = {.5f}, .weight = 0.25f},
                             {.user = 1, .hour = 7, .label = 0, .prediction = {.25f}, .weight = 0.25f},
                             {.user = 1, .hour = 8, .label = 0, .prediction = {1}, .weight = 1},
                             {.user = 0, .hour = 9, .label = 1, .prediction = {0}, .weight = 0},
                             {.user = 0, .hour = 9, .label = 0, .prediction = {1}, .weight = -0.0f}};
  LaneBatch batch = WeightedBatch(examples);
  // Nor does it need a key.
  std::get<IdBatch>(batch.vars[1]).values[3] = MissingId(SlotSalt("user", "user"));
  ASSERT_EQ(metrics.TakeKeys({batch}), absl::OkStatus());
  ASSERT_EQ(metrics.Add(0, 0, Numbers(examples, [](const Weighted& e) { return e.prediction[0]; }),
                        Numbers(examples, [](const Weighted& e) { return e.label; })),
            absl::OkStatus());
  std::vector<std::string> names;
  for (const Figure& figure : metrics.Figures()) names.push_back(figure.name);
  // The hour 8 has most weight, the hour 7 most examples.
  EXPECT_THAT(names, ElementsAre("gauc[weight=w][hour=8]", "gauc[weight=w][hour=7]", "mae[weight=w][hour=8]"));
  std::get<Tensor>(batch.vars[3]).data<float>()[3] = 1;
  EXPECT_THAT(std::string(metrics.TakeKeys({batch}).message()), HasSubstr("an example has no 'user'"));
}

TEST(WeightedMetricsTest, WithoutAnyWeightEveryFigureIsUndefined) {
  for (const Figure& figure : WeightedFigures(kWeighted, {{.label = 1, .weight = 0}})) {
    EXPECT_TRUE(std::isnan(figure.value)) << figure.name;
    EXPECT_EQ(figure.undefined, "no example has a label and a weight above 0") << figure.name;
  }
}

TEST(WeightedMetricsTest, MetricsWithAndWithoutWeightsStandSideBySide) {
  const Examples examples = {{.label = 1, .prediction = {.5f}, .weight = 3}, {.label = 1, .prediction = {0}}};
  const auto figures = ByName(WeightedFigures(
      "metric { mae {} } metric { mae {} weight: \"w\" } metric { mae {} weight: \"hour\" name: \"by_hour\" }",
      examples));
  EXPECT_EQ(figures.at("mae"), 0.75);
  EXPECT_EQ(figures.at("mae[weight=w]"), 0.625);
  EXPECT_TRUE(std::isnan(figures.at("by_hour")));
}

TEST(WeightedMetricsTest, WeightsThatNoReaderGivesAreRefused) {
  for (const float weight : {-1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    JobMetrics metrics(WeightedPlan("metric { mae {} weight: \"w\" }"));
    EXPECT_EQ(std::string(metrics.TakeKeys({WeightedBatch({{.weight = weight}})}).message()),
              absl::StrCat("an example has the weight ", weight,
                           " in 'w'; metric mae needs a number that is finite and not negative"));
  }
}

TEST(WeightedMetricsTest, ManyClassesTakeMoreMemoryThanWithoutWeights) {
  v1::JobConfig job;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString("metric { confusion {} weight: 'w' }", &job));
  v1::ProgramDesc program;
  program.add_losses()->set_prediction("p");
  v1::VarDesc* const p = program.add_blocks()->add_vars();
  p->set_name("p");
  p->add_dims(-1);
  p->add_dims(5000);
  EXPECT_EQ(std::string(MetricPlan::Create(job, program, {{.name = "w"}}).status().message()),
            "metric[0]: confusion of 5000 classes would take 4196 MiB; at most 256 are possible");
}

TEST(WeightedMetricsTest, DamagedPartsAreDataLoss) {
  JobMetrics metrics(WeightedPlan(kWeighted));
  ASSERT_EQ(AddWeighted(&metrics, Clicks(50, UpToFive)), absl::OkStatus());
  v1::EvaluationPart good;
  metrics.Serialize(&good);
  const auto refused = [&](const std::function<void(v1::EvaluationPart*)>& damage) {
    v1::EvaluationPart part = good;
    damage(&part);
    return JobMetrics(WeightedPlan(kWeighted)).Merge(part).code() == absl::StatusCode::kDataLoss;
  };
  EXPECT_FALSE(refused([](v1::EvaluationPart*) {}));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float weight : {0.0f, -1.0f, kInfinity, std::nanf("")}) {
    EXPECT_TRUE(refused([&](v1::EvaluationPart* part) { part->mutable_groups(0)->set_weight(0, weight); })) << weight;
  }
  EXPECT_TRUE(refused([](v1::EvaluationPart* part) { part->mutable_groups(0)->clear_weight(); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart* part) { part->mutable_groups(0)->add_weight(1); }));
  // The first metric without groups, behind the loss: accuracy.
  const auto with_sums = [&](const std::function<void(v1::EvaluationPart::Slice*)>& damage) {
    return refused([&](v1::EvaluationPart* part) { damage(part->mutable_slices(2)->mutable_slice(0)); });
  };
  ASSERT_EQ(good.slices(2).slice(0).weights_size(), 2);
  const auto sum_of = [](float term) {
    ExactSum sum;
    sum.AddProduct(term, 1);
    return sum.ToBytes();
  };
  for (const float sum : {-1.0f, kInfinity, std::nanf("")}) {
    EXPECT_TRUE(with_sums([&](v1::EvaluationPart::Slice* slice) { slice->set_weights(1, sum_of(sum)); })) << sum;
  }
  EXPECT_FALSE(with_sums([&](v1::EvaluationPart::Slice* slice) { slice->set_weights(1, ""); }));
  EXPECT_TRUE(with_sums([&](v1::EvaluationPart::Slice* slice) { slice->set_weights(0, ""); })) << "no example";
  EXPECT_TRUE(with_sums([&](v1::EvaluationPart::Slice* slice) { slice->set_weights(0, "no sum"); }));
  EXPECT_TRUE(with_sums([&](v1::EvaluationPart::Slice* slice) { slice->add_weights(""); }));
  EXPECT_TRUE(with_sums([&](v1::EvaluationPart::Slice* slice) { slice->clear_weights(); }));
  EXPECT_TRUE(with_sums([&](v1::EvaluationPart::Slice* slice) { slice->add_counts(1); }));
  // Weights of a metric that has none.
  JobMetrics plain(WeightedPlan("metric { auc {} } metric { accuracy {} }"));
  ASSERT_EQ(AddWeighted(&plain, Clicks(50, One)), absl::OkStatus());
  v1::EvaluationPart part;
  plain.Serialize(&part);
  const auto refused_plain = [&](const v1::EvaluationPart& damaged) {
    return !JobMetrics(WeightedPlan("metric { auc {} } metric { accuracy {} }")).Merge(damaged).ok();
  };
  EXPECT_FALSE(refused_plain(part));
  v1::EvaluationPart with_weights = part;
  with_weights.mutable_groups(0)->mutable_weight()->Resize(part.groups(0).score_size(), 1);
  EXPECT_TRUE(refused_plain(with_weights));
  with_weights = part;
  with_weights.mutable_slices(2)->mutable_slice(0)->add_weights(sum_of(1));
  EXPECT_TRUE(refused_plain(with_weights));
}

}  // namespace
}  // namespace weir
