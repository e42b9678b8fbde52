#include "trainer/metrics.h"

#include <cmath>
#include <string>
#include <vector>

#include "framework/base/philox.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

Tensor Column(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size()), 1}, values);
}

Metrics Binary() { return Metrics(v1::LossDesc::BINARY); }

TEST(MetricsTest, AucIsTheShareOfOrderedPairs) {
  Metrics m = Binary();
  // Positives .9 and .3, negatives .5 and .1: of four pairs one is wrong.
  ASSERT_TRUE(m.Add(0, Column({1, 1, 1, 1}), Column({.9f, .3f, .5f, .1f}), Column({1, 1, 0, 0})).ok());
  EXPECT_DOUBLE_EQ(m.Result().auc, 0.75);
  EXPECT_DOUBLE_EQ(m.Result().auc_error, 0);
  EXPECT_DOUBLE_EQ(m.Result().loss, 1);
}

TEST(MetricsTest, AScalarLossIsTheMeanOverTheExamples) {
  Metrics m = Binary();
  const Tensor mean = Tensor::Of<float>({}, {0.5f});
  ASSERT_TRUE(m.Add(0, mean, Column({.9f, .3f, .5f, .1f}), Column({1, 1, 0, 0})).ok());
  ASSERT_TRUE(m.Add(1, Column({2, 3}), Column({.9f, .2f}), Column({1, 0})).ok());
  EXPECT_EQ(m.Result().samples, 6);
  EXPECT_DOUBLE_EQ(m.Result().loss, (4 * 0.5 + 2 + 3) / 6);
  EXPECT_EQ(m.Add(2, mean, Column({.9f}), Column({1, 0})).code(), absl::StatusCode::kInvalidArgument);
}

TEST(MetricsTest, SamplesWithoutAFiniteLossAreCounted) {
  Metrics m = Binary();
  ASSERT_TRUE(m.Add(0, Column({1, INFINITY, NAN}), Column({.9f, .3f, .5f}), Column({1, 1, 0})).ok());
  ASSERT_TRUE(m.Add(1, Tensor::Of<float>({}, {NAN}), Column({.9f, .2f}), Column({1, 0})).ok());
  EXPECT_EQ(m.Result().not_finite, 4);
  Metrics other = Binary();
  EXPECT_EQ(other.MergeSerialized(m.Serialize(), -1).code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(other.MergeSerialized(m.Serialize(), m.not_finite()).ok());
  EXPECT_EQ(other.Result().not_finite, 4);
  m.Clear();
  EXPECT_EQ(m.Result().not_finite, 0);
}

TEST(MetricsTest, PairsInOneBucketCountHalfAndAreInTheErrorBound) {
  Metrics m = Binary();
  ASSERT_TRUE(m.Add(0, Column({0, 0}), Column({.5f, .5f}), Column({1, 0})).ok());
  EXPECT_DOUBLE_EQ(m.Result().auc, 0.5);
  EXPECT_DOUBLE_EQ(m.Result().auc_error, 0.5);
}

TEST(MetricsTest, AucOfOneClassIsNotANumber) {
  Metrics m = Binary();
  ASSERT_TRUE(m.Add(0, Column({0}), Column({.5f}), Column({1})).ok());
  EXPECT_TRUE(std::isnan(m.Result().auc));
  EXPECT_EQ(m.Result().ToString(), "loss=0.000000 (auc is undefined: every example has label 1)");
  m.Clear();
  ASSERT_TRUE(m.Add(0, Column({0}), Column({.5f}), Column({0})).ok());
  EXPECT_EQ(m.Result().ToString(), "loss=0.000000 (auc is undefined: no example has label 1)");
  EXPECT_EQ(Binary().Result().ToString(), "(loss is undefined: there are no examples)");
}

TEST(MetricsTest, ALossWithoutALabelHasNoMeasures) {
  v1::ProgramDesc program;
  v1::OpDesc* const ones = program.add_blocks()->add_ops();
  ones->set_type("fill_like_batch");
  ones->add_outputs()->set_name("Out");
  ones->mutable_outputs(0)->add_vars("ones");
  v1::LossDesc loss;
  loss.set_label("ones");
  EXPECT_FALSE(HasLabel(program, loss));
  loss.set_label("label");
  EXPECT_TRUE(HasLabel(program, loss));
  Metrics m(v1::LossDesc::BINARY, /*has_label=*/false), other(v1::LossDesc::BINARY, /*has_label=*/false);
  ASSERT_TRUE(m.Add(0, Column({.5f}), Column({.5f}), Column({1})).ok());
  ASSERT_TRUE(other.MergeSerialized(m.Serialize()).ok());
  EXPECT_EQ(other.Result().ToString(), "loss=0.500000");
  EXPECT_EQ(other.Result().RankBy(""), -0.5);
}

TEST(MetricsTest, ALabelOfOneHalfAndMoreIsPositive) {
  Metrics m = Binary();
  ASSERT_TRUE(m.Add(0, Column({0, 0, 0, 0}), Column({.9f, .8f, .2f, .1f}), Column({.9f, .5f, .4f, -1})).ok());
  EXPECT_EQ(m.Result().positives, 2);
  EXPECT_DOUBLE_EQ(m.Result().auc, 1);
}

TEST(MetricsTest, AucIsWithinItsBoundOfTheExactOne) {
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
  Metrics m = Binary();
  ASSERT_TRUE(m.Add(0, Column(zero), Column(p), Column(label)).ok());
  EXPECT_GT(m.Result().auc_error, 0);
  EXPECT_NEAR(m.Result().auc, ordered / pairs, m.Result().auc_error + 1e-12);
}

TEST(MetricsTest, ProcessesMergeToTheSameBitsInAnyOrderAndDealing) {
  auto add = [](Metrics* m, int lane) {
    std::vector<float> loss, p, label;
    for (int i = 0; i < 50; ++i) {
      const PhiloxBlock r = Philox(3, lane * 1000 + i, 0);
      loss.push_back(UniformFloat(r.v[0]));
      p.push_back(UniformFloat(r.v[1]));
      label.push_back(r.v[2] % 2);
    }
    ASSERT_TRUE(m->Add(lane, Column(loss), Column(p), Column(label)).ok());
  };
  Metrics one = Binary();
  for (int lane = 0; lane < 8; ++lane) add(&one, lane);
  Metrics a = Binary(), b = Binary(), merged = Binary();
  for (int lane = 0; lane < 3; ++lane) add(&a, lane);
  for (int lane = 3; lane < 8; ++lane) add(&b, lane);
  ASSERT_TRUE(merged.MergeSerialized(b.Serialize()).ok());
  ASSERT_TRUE(merged.MergeSerialized(a.Serialize()).ok());
  EXPECT_EQ(one.Result().loss, merged.Result().loss);
  EXPECT_EQ(one.Result().auc, merged.Result().auc);
  EXPECT_EQ(merged.Result().samples, 400);
}

TEST(MetricsTest, AccuracyCountsTheLargestClass) {
  Metrics m(v1::LossDesc::MULTI_CLASS);
  const Tensor p = Tensor::Of<float>({2, 3}, {.1f, .7f, .2f, .5f, .3f, .2f});
  ASSERT_TRUE(m.Add(0, Column({1, 3}), p, Tensor::Of<int64_t>({2, 1}, {1, 2})).ok());
  EXPECT_DOUBLE_EQ(m.Result().accuracy, 0.5);
  EXPECT_DOUBLE_EQ(m.Result().loss, 2);
}

TEST(MetricsTest, ErrorsAreThoseOfThePredictionsWhateverTheLoss) {
  Metrics m(v1::LossDesc::REGRESSION);
  // The loss may be weighted, or not the square.
  ASSERT_TRUE(m.Add(0, Column({100, 100}), Column({1, 5}), Column({2, 3})).ok());
  ASSERT_TRUE(m.Add(1, Column({100}), Column({4}), Tensor::Of<int64_t>({1, 1}, {0})).ok());
  EXPECT_DOUBLE_EQ(m.Result().rmse, std::sqrt((1.0 + 4 + 16) / 3));
  EXPECT_DOUBLE_EQ(m.Result().mae, (1.0 + 2 + 4) / 3);
  EXPECT_EQ(m.Result().ToString(), "loss=100.000000 rmse=2.645751 mae=2.333333");
}

TEST(MetricsTest, PredictionsOfSeveralNumbersHaveNoErrors) {
  Metrics m(v1::LossDesc::REGRESSION);
  ASSERT_TRUE(m.Add(0, Column({1, 3}), Tensor::Of<float>({2, 2}, {1, 2, 3, 4}), Column({1, 2})).ok());
  EXPECT_EQ(m.Result().ToString(), "loss=2.000000");
}

TEST(MetricsTest, ErrorsHaveTheBitsOfOneProcessOnEveryCluster) {
  const auto add = [](Metrics* metrics, int lane) {
    std::vector<float> loss, p, label;
    for (int i = 0; i < 50; ++i) {
      loss.push_back(1);
      p.push_back(std::sin(static_cast<float>(7 * lane + i)));
      label.push_back(std::cos(static_cast<float>(3 * lane + i)) * 1e3f);
    }
    ASSERT_TRUE(metrics->Add(lane, Column(loss), Column(p), Column(label)).ok());
  };
  Metrics one(v1::LossDesc::REGRESSION);
  for (int lane = 0; lane < 8; ++lane) add(&one, lane);
  for (const int first : {1, 3, 5}) {
    Metrics a(v1::LossDesc::REGRESSION), b(v1::LossDesc::REGRESSION), merged(v1::LossDesc::REGRESSION);
    for (int lane = 0; lane < first; ++lane) add(&a, lane);
    for (int lane = first; lane < 8; ++lane) add(&b, lane);
    ASSERT_TRUE(merged.MergeSerialized(b.Serialize()).ok());
    ASSERT_TRUE(merged.MergeSerialized(a.Serialize()).ok());
    EXPECT_EQ(one.Result().rmse, merged.Result().rmse);
    EXPECT_EQ(one.Result().mae, merged.Result().mae);
  }
}

TEST(MetricsTest, DifferentSizesAreRefused) {
  Metrics m = Binary();
  const absl::Status status = m.Add(0, Column({1, 2}), Column({.5f, .5f}), Column({1}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("label [1, 1]"), std::string::npos) << status;
}

TEST(MetricsTest, CutBytesAreDataLossAndChangeNothing) {
  Metrics a = Binary(), b = Binary();
  ASSERT_TRUE(a.Add(0, Column({1}), Column({.5f}), Column({1})).ok());
  const std::string bytes = a.Serialize();
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    const absl::Status status = b.MergeSerialized(std::string_view(bytes).substr(0, cut));
    // A cut right behind the lanes only lacks buckets.
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_EQ(b.Result().samples, 0);
    } else {
      b.Clear();
    }
  }
}

TEST(MetricsTest, CountsThatNobodyCanHaveCountedAreDataLoss) {
  // Lanes; lane, loss, samples and correct ones of it; then bucket, positives and negatives.
  const auto bytes = [](std::vector<int64_t> words) {
    return std::string(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t));
  };
  Metrics m = Binary();
  EXPECT_TRUE(m.MergeSerialized(bytes({1, 0, 0, 4, 2, 7, 3, 1})).ok());
  constexpr int64_t kMany = int64_t{1} << 62;
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{1, 0, 0, kMany, 2},
                                            {1, 0, 0, -1, 2},
                                            {1, 0, 0, 4, kMany},
                                            {1, 0, 0, 4, 2, 7, kMany, 1},
                                            {1, 0, 0, 4, 2, 7, 3, -1},
                                            {1, 0, 0, 4, 2, 7, 3, 1, 7, 3, 1}}) {
    EXPECT_EQ(m.MergeSerialized(bytes(wrong)).code(), absl::StatusCode::kDataLoss) << wrong.size();
  }
  EXPECT_EQ(m.Result().samples, 4);
}

}  // namespace
}  // namespace weir
