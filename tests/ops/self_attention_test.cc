#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

const float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Numbers(int64_t n, int seed) {
  std::vector<float> values;
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(state >> 16 & 255) / 64.0f - 2.0f);
  }
  return values;
}

struct Case {
  int64_t batch, most, heads, width;
  bool causal;
  std::vector<float> lengths;  // empty: all elements count

  int64_t size() const { return heads * width; }
  int64_t Length(int64_t b) const { return lengths.empty() ? most : static_cast<int64_t>(lengths[b]); }
  std::string Text() const {
    return absl::StrCat(batch, " of ", most, ", ", heads, " heads of ", width, causal ? ", causal" : "",
                        lengths.empty() ? "" : ", with lengths");
  }
  // Numbers with NaN behind the length, which nothing may read.
  std::vector<float> Elements(int seed) const {
    std::vector<float> values = Numbers(batch * most * size(), seed);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = (b * most + Length(b)) * size(); i < (b + 1) * most * size(); ++i) {
        values[static_cast<size_t>(i)] = kNan;
      }
    }
    return values;
  }
  OpTest Test() const {
    OpTest t("self_attention", {AttrI("heads", heads), AttrB("causal", causal)});
    int seed = 1;
    for (const char* slot : {"Q", "K", "V"}) t.Batched(slot, {batch, most, size()}, Elements(seed++));
    if (!lengths.empty()) t.Batched("Length", {batch, 1}, lengths);
    return t;
  }
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const bool causal : {false, true}) {
    cases.push_back({2, 1, 1, 1, causal, {}});
    cases.push_back({2, 3, 2, 5, causal, {}});
    cases.push_back({3, 7, 2, 16, causal, {7, 0, 4}});
    cases.push_back({4, 18, 3, 17, causal, {18, 1, 17, 5}});
    cases.push_back({2, 50, 2, 32, causal, {50, 33}});
  }
  return cases;
}

// By the definition, in double. Weights are [batch, heads, most, most].
struct Reference {
  std::vector<double> out, weight, dq, dk, dv;
};
Reference Defined(const Case& c, const std::vector<float>& dout) {
  const std::vector<float> q = c.Elements(1), k = c.Elements(2), v = c.Elements(3);
  Reference r;
  for (auto* of : {&r.out, &r.dq, &r.dk, &r.dv}) of->resize(q.size());
  r.weight.resize(static_cast<size_t>(c.batch * c.heads * c.most * c.most));
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const auto at = [&](int64_t t, int64_t w) {
        return static_cast<size_t>((b * c.most + t) * c.size() + h * c.width + w);
      };
      for (int64_t t = 0; t < c.Length(b); ++t) {
        const int64_t end = c.causal ? t + 1 : c.Length(b);
        double* const row = r.weight.data() + ((b * c.heads + h) * c.most + t) * c.most;
        double sum = 0, weighed = 0;
        std::vector<double> dweight(static_cast<size_t>(end));
        for (int64_t u = 0; u < end; ++u) {
          for (int64_t w = 0; w < c.width; ++w) row[u] += static_cast<double>(q[at(t, w)]) * k[at(u, w)];
          row[u] = std::exp(row[u] / std::sqrt(static_cast<double>(c.width)));
          sum += row[u];
        }
        for (int64_t u = 0; u < end; ++u) {
          row[u] /= sum;
          for (int64_t w = 0; w < c.width; ++w) {
            r.out[at(t, w)] += row[u] * v[at(u, w)];
            r.dv[at(u, w)] += row[u] * dout[at(t, w)];
            dweight[static_cast<size_t>(u)] += static_cast<double>(dout[at(t, w)]) * v[at(u, w)];
          }
          weighed += row[u] * dweight[static_cast<size_t>(u)];
        }
        for (int64_t u = 0; u < end; ++u) {
          const double dscore =
              row[u] * (dweight[static_cast<size_t>(u)] - weighed) / std::sqrt(static_cast<double>(c.width));
          for (int64_t w = 0; w < c.width; ++w) {
            r.dq[at(t, w)] += dscore * k[at(u, w)];
            r.dk[at(u, w)] += dscore * q[at(t, w)];
          }
        }
      }
    }
  }
  return r;
}

std::vector<float> Floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }

TEST(SelfAttentionTest, IsTheDefinitionInDouble) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.Text());
    OpTest t = c.Test();
    ASSERT_OK(t.Run());
    const std::vector<float> dout = c.Elements(4);
    const Reference want = Defined(c, dout);
    t.ExpectOutput("Out", {c.batch, c.most, c.size()}, Floats(want.out), 1e-5);
    t.ExpectOutput("Weight", {c.batch, c.heads * c.most, c.most}, Floats(want.weight), 1e-5);
    for (const auto& [slot, grad] : {std::pair("Q", &want.dq), {"K", &want.dk}, {"V", &want.dv}}) {
      const auto got = t.Gradient(slot, 0, {{"Out", Tensor::Of<float>({c.batch, c.most, c.size()}, dout)}});
      ASSERT_OK(got.status());
      const auto values = std::get<Tensor>(*got).span<float>();
      ASSERT_EQ(values.size(), grad->size());
      for (size_t i = 0; i < values.size(); ++i) {
        // Sums of up to 50 products of numbers below 2.
        ASSERT_NEAR(values[i], (*grad)[i], 5e-5) << slot << " " << i;
      }
    }
  }
}

TEST(SelfAttentionTest, GradientAgreesWithDifferences) {
  for (const bool causal : {false, true}) {
    const Case c = {2, 4, 2, 3, causal, {4, 3}};
    OpTest t("self_attention", {AttrI("heads", 2), AttrB("causal", causal)});
    int seed = 1;
    for (const char* slot : {"Q", "K", "V"}) t.Batched(slot, {2, 4, 6}, Numbers(48, seed++));
    t.Batched("Length", {2, 1}, c.lengths);
    t.CheckGradient({.inputs = {"Q", "K", "V"}, .outputs = {"Out"}});
    t.CheckBatchZero();
  }
}

TEST(SelfAttentionTest, AnExamplesBitsAreItsOwn) {
  const Case c = {3, 18, 2, 17, true, {18, 11, 3}};
  OpTest all = c.Test();
  ASSERT_OK(all.Run());
  const size_t size = static_cast<size_t>(c.most * c.size());
  for (size_t b = 0; b < 3; ++b) {
    OpTest one("self_attention", {AttrI("heads", 2), AttrB("causal", true)});
    int seed = 1;
    for (const char* slot : {"Q", "K", "V"}) {
      const std::vector<float> values = c.Elements(seed++);
      one.Batched(slot, {1, c.most, c.size()},
                  std::vector<float>(values.begin() + static_cast<int64_t>(b * size),
                                     values.begin() + static_cast<int64_t>((b + 1) * size)));
    }
    one.Batched("Length", {1, 1}, {c.lengths[b]});
    ASSERT_OK(one.Run());
    const std::vector<float> out = all.Values("Out");
    EXPECT_EQ(std::vector<float>(out.begin() + static_cast<int64_t>(b * size),
                                 out.begin() + static_cast<int64_t>((b + 1) * size)),
              one.Values("Out"))
        << b;
  }
}

// Of the future nothing is read, not even what is no number.
TEST(SelfAttentionTest, CausalElementsDoNotSeeWhatComesBehindThem) {
  std::vector<float> k = Numbers(20 * 4, 2), v = Numbers(20 * 4, 3);
  const auto outputs = [&] {
    OpTest t("self_attention", {AttrB("causal", true)});
    t.Batched("Q", {1, 20, 4}, Numbers(20 * 4, 1)).Batched("K", {1, 20, 4}, k).Batched("V", {1, 20, 4}, v);
    EXPECT_OK(t.Run());
    return t.Values("Out");
  };
  const std::vector<float> before = outputs();
  for (size_t i = 13 * 4; i < 20 * 4; ++i) k[i] = v[i] = i % 2 == 0 ? kNan : std::numeric_limits<float>::infinity();
  const std::vector<float> after = outputs();
  EXPECT_EQ(std::vector<float>(before.begin(), before.begin() + 13 * 4),
            std::vector<float>(after.begin(), after.begin() + 13 * 4));
  EXPECT_TRUE(std::isnan(after[13 * 4]));
}

TEST(SelfAttentionTest, LargeScoresDoNotOverflow) {
  OpTest t("self_attention");
  t.Batched("Q", {1, 2, 1}, {1000, -1000}).Batched("K", {1, 2, 1}, {1000, -1000}).Batched("V", {1, 2, 1}, {3, 5});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 2, 1}, {3, 5}, 0);
  t.ExpectOutput("Weight", {1, 2, 2}, {1, 0, 0, 1}, 0);
}

TEST(SelfAttentionTest, WhatDoesNotFitIsRefusedByName) {
  OpTest heads("self_attention", {AttrI("heads", 2)});
  for (const char* slot : {"Q", "K", "V"}) heads.Batched(slot, {1, 2, 3}, Numbers(6, 1));
  EXPECT_THAT(std::string(heads.InferShapes().message()), HasSubstr("heads must divide the 3 columns of Q, got 2"));
  OpTest keys("self_attention");
  keys.Batched("Q", {1, 2, 3}, Numbers(6, 1))
      .Batched("K", {1, 3, 3}, Numbers(9, 1))
      .Batched("V", {1, 2, 3}, Numbers(6, 1));
  EXPECT_THAT(std::string(keys.InferShapes().message()), HasSubstr("K"));
  OpTest length("self_attention");
  for (const char* slot : {"Q", "K", "V"}) length.Batched(slot, {2, 2, 3}, Numbers(12, 1));
  length.Batched("Length", {2, 1}, {1, 3});
  EXPECT_THAT(std::string(length.Run().message()), HasSubstr("Length of example 1 is 3; Q [2, 2, 3] has sequences"));
}

TEST(SelfAttentionTest, OnlyItsOutputMayBeUsed) {
  OpTest t("self_attention");
  for (const char* slot : {"Q", "K", "V"}) t.Batched(slot, {1, 1, 1}, {1});
  ASSERT_OK(t.Run());
  EXPECT_THAT(std::string(t.Gradient("Q", 0, {{"Weight", Tensor::Of<float>({1, 1, 1}, {1})}}).status().message()),
              HasSubstr("only Out may be used"));
}

}  // namespace
}  // namespace weir
