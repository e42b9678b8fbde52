// Measures of the first loss over parts that are merged.
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/philox.h"
#include "gtest/gtest.h"
#include "trainer/metrics/job_metrics.h"

namespace weir {
namespace {

Tensor Column(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size()), 1}, values);
}

JobMetrics Of(v1::LossDesc::Kind kind) {
  v1::ProgramDesc program;
  program.add_losses()->set_kind(kind);
  return JobMetrics(MetricPlan::Create({}, program, {}).value());
}
JobMetrics Binary() { return Of(v1::LossDesc::BINARY); }

v1::EvaluationPart PartOf(JobMetrics& metrics) {
  v1::EvaluationPart part;
  metrics.Serialize(&part);
  return part;
}

TEST(MeasuresTest, AucIsTheShareOfOrderedPairs) {
  JobMetrics m = Binary();
  // Positives .9 and .3, negatives .5 and .1: of four pairs one is wrong.
  ASSERT_TRUE(m.AddMeasures(0, Column({1, 1, 1, 1}), Column({.9f, .3f, .5f, .1f}), Column({1, 1, 0, 0})).ok());
  EXPECT_DOUBLE_EQ(m.Result().Measure("auc"), 0.75);
  EXPECT_DOUBLE_EQ(m.Result().measures[1].error.value(), 0);
  EXPECT_DOUBLE_EQ(m.Result().Measure("loss"), 1);
}

TEST(MeasuresTest, AScalarLossIsTheMeanOverTheExamples) {
  JobMetrics m = Binary();
  const Tensor mean = Tensor::Of<float>({}, {0.5f});
  ASSERT_TRUE(m.AddMeasures(0, mean, Column({.9f, .3f, .5f, .1f}), Column({1, 1, 0, 0})).ok());
  ASSERT_TRUE(m.AddMeasures(1, Column({2, 3}), Column({.9f, .2f}), Column({1, 0})).ok());
  EXPECT_EQ(m.Result().samples, 6);
  EXPECT_DOUBLE_EQ(m.Result().Measure("loss"), (4 * 0.5 + 2 + 3) / 6);
  EXPECT_EQ(m.AddMeasures(2, mean, Column({.9f}), Column({1, 0})).code(), absl::StatusCode::kInvalidArgument);
}

TEST(MeasuresTest, SamplesWithoutAFiniteLossAreCounted) {
  JobMetrics m = Binary();
  ASSERT_TRUE(m.AddMeasures(0, Column({1, INFINITY, NAN}), Column({.9f, .3f, .5f}), Column({1, 1, 0})).ok());
  ASSERT_TRUE(m.AddMeasures(1, Tensor::Of<float>({}, {NAN}), Column({.9f, .2f}), Column({1, 0})).ok());
  EXPECT_EQ(m.Result().not_finite, 4);
  JobMetrics other = Binary();
  ASSERT_TRUE(other.Merge(PartOf(m)).ok());
  EXPECT_EQ(other.Result().not_finite, 4);
  m.Clear();
  EXPECT_EQ(m.Result().not_finite, 0);
}

TEST(MeasuresTest, PairsInOneBucketCountHalfAndAreInTheErrorBound) {
  JobMetrics m = Binary();
  ASSERT_TRUE(m.AddMeasures(0, Column({0, 0}), Column({.5f, .5f}), Column({1, 0})).ok());
  EXPECT_DOUBLE_EQ(m.Result().Measure("auc"), 0.5);
  EXPECT_DOUBLE_EQ(m.Result().measures[1].error.value(), 0.5);
}

TEST(MeasuresTest, AucOfOneClassIsNotANumber) {
  JobMetrics m = Binary();
  ASSERT_TRUE(m.AddMeasures(0, Column({0}), Column({.5f}), Column({1})).ok());
  EXPECT_TRUE(std::isnan(m.Result().Measure("auc")));
  EXPECT_EQ(m.Result().ToString(), "loss=0.000000 (auc is undefined: every example has label 1)");
  m.Clear();
  ASSERT_TRUE(m.AddMeasures(0, Column({0}), Column({.5f}), Column({0})).ok());
  EXPECT_EQ(m.Result().ToString(), "loss=0.000000 (auc is undefined: no example has label 1)");
  EXPECT_EQ(Binary().Result().ToString(), "(loss is undefined: there are no examples)");
}

TEST(MeasuresTest, ALossWithoutALabelHasNoMeasures) {
  v1::ProgramDesc program;
  v1::OpDesc* const ones = program.add_blocks()->add_ops();
  ones->set_type("fill_like_batch");
  ones->add_outputs()->set_name("Out");
  ones->mutable_outputs(0)->add_vars("ones");
  program.add_losses()->set_label("ones");
  const auto plan = MetricPlan::Create({}, program, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  JobMetrics m(*plan), other(*plan);
  ASSERT_TRUE(m.AddMeasures(0, Column({.5f}), Column({.5f}), Column({1})).ok());
  ASSERT_TRUE(other.Merge(PartOf(m)).ok());
  EXPECT_EQ(other.Result().ToString(), "loss=0.500000");
  EXPECT_EQ(other.Result().RankBy(""), -0.5);
}

TEST(MeasuresTest, ALabelOfOneHalfAndMoreIsPositive) {
  JobMetrics m = Binary();
  ASSERT_TRUE(m.AddMeasures(0, Column({0, 0, 0, 0}), Column({.9f, .8f, .2f, .1f}), Column({.9f, .5f, .4f, -1})).ok());
  EXPECT_DOUBLE_EQ(m.Result().Measure("auc"), 1);
}

TEST(MeasuresTest, AucIsWithinItsBoundOfTheExactOne) {
  std::vector<float> p, label, zero;
  for (int i = 0; i < 4000; ++i) {
    const PhiloxBlock r = Philox(7, i, 0);
    label.push_back(r.v[0] % 4 == 0);
    // Crowded near zero, where buckets are coarse.
    p.push_back(std::pow(UniformFloat(r.v[1]), 8.0f) * 0.01f + 0.002f * label.back());
    zero.push_back(0);
  }
  double ordered = 0, pairs = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    for (size_t j = 0; j < p.size(); ++j) {
      if (label[i] != 1 || label[j] != 0) continue;
      ++pairs;
      ordered += p[i] > p[j] ? 1 : p[i] == p[j] ? 0.5 : 0;
    }
  }
  JobMetrics m = Binary();
  ASSERT_TRUE(m.AddMeasures(0, Column(zero), Column(p), Column(label)).ok());
  EXPECT_GT(m.Result().measures[1].error.value(), 0);
  EXPECT_NEAR(m.Result().Measure("auc"), ordered / pairs, m.Result().measures[1].error.value() + 1e-12);
}

TEST(MeasuresTest, ProcessesMergeToTheSameBitsInAnyOrderAndDealing) {
  auto add = [](JobMetrics* m, int lane) {
    std::vector<float> loss, p, label;
    for (int i = 0; i < 50; ++i) {
      const PhiloxBlock r = Philox(3, lane * 1000 + i, 0);
      loss.push_back(UniformFloat(r.v[0]));
      p.push_back(UniformFloat(r.v[1]));
      label.push_back(r.v[2] % 2);
    }
    ASSERT_TRUE(m->AddMeasures(lane, Column(loss), Column(p), Column(label)).ok());
  };
  JobMetrics one = Binary();
  for (int lane = 0; lane < 8; ++lane) add(&one, lane);
  JobMetrics a = Binary(), b = Binary(), merged = Binary();
  for (int lane = 0; lane < 3; ++lane) add(&a, lane);
  for (int lane = 3; lane < 8; ++lane) add(&b, lane);
  ASSERT_TRUE(merged.Merge(PartOf(b)).ok());
  ASSERT_TRUE(merged.Merge(PartOf(a)).ok());
  EXPECT_EQ(one.Result().Measure("loss"), merged.Result().Measure("loss"));
  EXPECT_EQ(one.Result().Measure("auc"), merged.Result().Measure("auc"));
  EXPECT_EQ(merged.Result().samples, 400);
}

TEST(MeasuresTest, AccuracyCountsTheLargestClass) {
  JobMetrics m = Of(v1::LossDesc::MULTI_CLASS);
  const Tensor p = Tensor::Of<float>({2, 3}, {.1f, .7f, .2f, .5f, .3f, .2f});
  ASSERT_TRUE(m.AddMeasures(0, Column({1, 3}), p, Tensor::Of<int64_t>({2, 1}, {1, 2})).ok());
  EXPECT_DOUBLE_EQ(m.Result().Measure("accuracy"), 0.5);
  EXPECT_DOUBLE_EQ(m.Result().Measure("loss"), 2);
}

TEST(MeasuresTest, ErrorsAreThoseOfThePredictionsWhateverTheLoss) {
  JobMetrics m = Of(v1::LossDesc::REGRESSION);
  // The loss may be weighted, or not the square.
  ASSERT_TRUE(m.AddMeasures(0, Column({100, 100}), Column({1, 5}), Column({2, 3})).ok());
  ASSERT_TRUE(m.AddMeasures(1, Column({100}), Column({4}), Tensor::Of<int64_t>({1, 1}, {0})).ok());
  EXPECT_DOUBLE_EQ(m.Result().Measure("rmse"), std::sqrt((1.0 + 4 + 16) / 3));
  EXPECT_DOUBLE_EQ(m.Result().Measure("mae"), (1.0 + 2 + 4) / 3);
  EXPECT_EQ(m.Result().ToString(), "loss=100.000000 rmse=2.645751 mae=2.333333");
}

TEST(MeasuresTest, PredictionsOfSeveralNumbersHaveNoErrors) {
  JobMetrics m = Of(v1::LossDesc::REGRESSION);
  ASSERT_TRUE(m.AddMeasures(0, Column({1, 3}), Tensor::Of<float>({2, 2}, {1, 2, 3, 4}), Column({1, 2})).ok());
  EXPECT_EQ(m.Result().ToString(), "loss=2.000000");
}

TEST(MeasuresTest, ErrorsHaveTheBitsOfOneProcessOnEveryCluster) {
  const auto add = [](JobMetrics* metrics, int lane) {
    std::vector<float> loss, p, label;
    for (int i = 0; i < 50; ++i) {
      loss.push_back(1);
      p.push_back(std::sin(static_cast<float>(7 * lane + i)));
      label.push_back(std::cos(static_cast<float>(3 * lane + i)) * 1e3f);
    }
    ASSERT_TRUE(metrics->AddMeasures(lane, Column(loss), Column(p), Column(label)).ok());
  };
  JobMetrics one = Of(v1::LossDesc::REGRESSION);
  for (int lane = 0; lane < 8; ++lane) add(&one, lane);
  for (const int first : {1, 3, 5}) {
    JobMetrics a = Of(v1::LossDesc::REGRESSION), b = a, merged = a;
    for (int lane = 0; lane < first; ++lane) add(&a, lane);
    for (int lane = first; lane < 8; ++lane) add(&b, lane);
    ASSERT_TRUE(merged.Merge(PartOf(b)).ok());
    ASSERT_TRUE(merged.Merge(PartOf(a)).ok());
    EXPECT_EQ(one.Result().Measure("rmse"), merged.Result().Measure("rmse"));
    EXPECT_EQ(one.Result().Measure("mae"), merged.Result().Measure("mae"));
  }
}

TEST(MeasuresTest, DifferentSizesAreRefused) {
  JobMetrics m = Binary();
  const absl::Status status = m.AddMeasures(0, Column({1, 2}), Column({.5f, .5f}), Column({1}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("label [1, 1]"), std::string::npos) << status;
}

TEST(MeasuresTest, SumsThatNobodyCanHaveMadeAreDataLoss) {
  JobMetrics m = Binary();
  ASSERT_TRUE(m.AddMeasures(3, Column({1}), Column({.5f}), Column({1})).ok());
  const v1::EvaluationPart good = PartOf(m);
  const auto refused = [&](const std::function<void(v1::EvaluationPart::Slice * loss)>& damage) {
    v1::EvaluationPart part = good;
    damage(part.mutable_slices(0)->mutable_slice(0));
    return Binary().Merge(part).code() == absl::StatusCode::kDataLoss;
  };
  EXPECT_FALSE(refused([](v1::EvaluationPart::Slice*) {}));
  EXPECT_TRUE(refused([](v1::EvaluationPart::Slice* loss) { loss->set_examples(-1); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart::Slice* loss) { loss->set_examples(int64_t{1} << 62); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart::Slice* loss) { loss->set_counts(0, -1); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart::Slice* loss) { loss->clear_counts(); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart::Slice* loss) { loss->clear_doubles(); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart::Slice* loss) { loss->add_doubles(0); }));
  EXPECT_TRUE(refused([](v1::EvaluationPart::Slice* loss) { loss->set_value(~uint64_t{0}); })) << "no lane";
  const auto refused_auc = [&](const std::vector<int>& places, const std::vector<int64_t>& counts) {
    v1::EvaluationPart part = good;
    v1::EvaluationPart::Slice* const auc = part.mutable_slices(1)->mutable_slice(0);
    auc->mutable_count_at()->Assign(places.begin(), places.end());
    auc->mutable_counts()->Assign(counts.begin(), counts.end());
    return Binary().Merge(part).code() == absl::StatusCode::kDataLoss;
  };
  EXPECT_FALSE(refused_auc({3, 131071}, {1, 1}));
  EXPECT_TRUE(refused_auc({3, 3}, {1, 1}));
  EXPECT_TRUE(refused_auc({-1, 3}, {1, 1}));
  EXPECT_TRUE(refused_auc({3, 131072}, {1, 1}));
  EXPECT_TRUE(refused_auc({3, 4}, {1}));
  EXPECT_TRUE(refused_auc({3}, {int64_t{1} << 62}));
  v1::EvaluationPart without = good;
  without.clear_slices();
  EXPECT_EQ(Binary().Merge(without).code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace weir
