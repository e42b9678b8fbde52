// in_batch_softmax against its definition in double, for batches of one block and of many.
#include <sys/resource.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

struct Case {
  int64_t rows, width;
  bool probability, ids, weight;
  double temperature = 1;
};

float Number(uint64_t key, int64_t i) {
  return static_cast<float>(Philox(key, static_cast<uint64_t>(i), 0).v[0] / 2147483648.0 - 1);
}

struct Values {
  std::vector<float> query, item, probability, weight;
  std::vector<int64_t> ids;
};
Values ValuesOf(const Case& c) {
  Values v;
  for (int64_t i = 0; i < c.rows * c.width; ++i) {
    v.query.push_back(Number(1, i));
    v.item.push_back(Number(2, i));
  }
  for (int64_t i = 0; i < c.rows; ++i) {
    v.probability.push_back(0.05f + 0.04f * (1 + Number(3, i)));
    v.weight.push_back(static_cast<float>(i % 4) / 2);
    v.ids.push_back(Philox(4, static_cast<uint64_t>(i), 0).v[0] % static_cast<uint32_t>(c.rows / 2 + 1));
  }
  return v;
}

OpTest OpOf(const Case& c, const Values& v) {
  OpTest t("in_batch_softmax", {AttrF("temperature", c.temperature)});
  t.Batched("Query", {c.rows, c.width}, v.query).Batched("Item", {c.rows, c.width}, v.item);
  if (c.probability) t.Batched("Probability", {c.rows, 1}, v.probability);
  if (c.ids) {
    IdBatch ids;
    ids.slots = 1;
    ids.values = v.ids;
    ids.offsets.push_back(0);
    for (int64_t i = 1; i <= c.rows; ++i) ids.offsets.push_back(i);
    t.Ids("ItemId", ids);
  }
  if (c.weight) t.Batched("Weight", {c.rows, 1}, v.weight);
  return t;
}

// s[i, j], minus infinity where j is no negative of i.
double Score(const Case& c, const Values& v, int64_t i, int64_t j) {
  if (c.ids && i != j && v.ids[static_cast<size_t>(i)] == v.ids[static_cast<size_t>(j)]) return -INFINITY;
  double product = 0;
  for (int64_t w = 0; w < c.width; ++w) {
    product += double{v.query[static_cast<size_t>(i * c.width + w)]} * v.item[static_cast<size_t>(j * c.width + w)];
  }
  return product / c.temperature - (c.probability ? std::log(v.probability[static_cast<size_t>(j)]) : 0);
}

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>({
      {.rows = 1, .width = 3},
      {.rows = 7, .width = 4, .temperature = 0.5},
      {.rows = 9, .width = 5, .probability = true, .ids = true, .weight = true, .temperature = 2},
      {.rows = 128, .width = 8, .ids = true},
      // More blocks than groups of the smallest size hold.
      {.rows = 4500, .width = 2, .ids = true, .temperature = 0.5},
      {.rows = 1300, .width = 16, .probability = true, .ids = true, .weight = true, .temperature = 0.3},
  });
  return *cases;
}

TEST(InBatchSoftmaxTest, ValuesAndGradientsAreThoseOfTheDefinition) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(absl::StrCat(c.rows, " rows"));
    const Values v = ValuesOf(c);
    OpTest t = OpOf(c, v);
    ASSERT_OK(t.Run());
    std::vector<float> loss, dloss;
    std::vector<double> dquery(v.query.size()), ditem(v.item.size());
    for (int64_t i = 0; i < c.rows; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < c.rows; ++j) sum += std::exp(Score(c, v, i, j));
      const double factor = c.weight ? v.weight[static_cast<size_t>(i)] : 1;
      loss.push_back(static_cast<float>(factor * (std::log(sum) - Score(c, v, i, i))));
      dloss.push_back(1 + static_cast<float>(i % 3) / 2);
      for (int64_t j = 0; j < c.rows; ++j) {
        const double p = std::exp(Score(c, v, i, j)) / sum;
        const double ds = factor * dloss.back() / c.temperature * (p - (i == j ? 1 : 0));
        for (int64_t w = 0; w < c.width; ++w) {
          const auto q = static_cast<size_t>(i * c.width + w), it = static_cast<size_t>(j * c.width + w);
          dquery[q] += ds * v.item[it];
          ditem[it] += ds * v.query[q];
        }
      }
    }
    t.ExpectOutput("Out", {c.rows, 1}, loss, 1e-5);
    for (const bool of_query : {true, false}) {
      const auto gradient =
          t.Gradient(of_query ? "Query" : "Item", 0, {{"Out", Tensor::Of<float>({c.rows, 1}, dloss)}});
      ASSERT_OK(gradient.status());
      const auto values = std::get<Tensor>(*gradient).span<float>();
      const std::vector<double>& wanted = of_query ? dquery : ditem;
      ASSERT_EQ(values.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(values[i], wanted[i], 2e-5) << of_query << " " << i;
    }
  }
}

TEST(InBatchSoftmaxTest, GradientIsThatOfTheKernel) {
  const Case c = {.rows = 6, .width = 3, .probability = true, .ids = true, .weight = true, .temperature = 2};
  OpTest t = OpOf(c, ValuesOf(c));
  t.CheckGradient({.inputs = {"Query", "Item"}, .outputs = {"Out"}});
  t.CheckBatchZero({"Out"});
}

TEST(InBatchSoftmaxTest, ThreadsChangeNoBit) {
  const Case& c = Cases().back();
  const Values v = ValuesOf(c);
  ThreadPool pool("test", 3);
  OpTest alone = OpOf(c, v), together = OpOf(c, v);
  together.step().pool = &pool;
  const Tensor dloss = Tensor::Of<float>({c.rows, 1}, std::vector<float>(static_cast<size_t>(c.rows), 1.0f));
  for (OpTest* const t : {&alone, &together}) ASSERT_OK(t->Run());
  for (const char* const output : {"Out", "LogSum"}) EXPECT_EQ(alone.Values(output), together.Values(output));
  for (const char* const input : {"Query", "Item"}) {
    const auto one = alone.Gradient(input, 0, {{"Out", dloss}}), other = together.Gradient(input, 0, {{"Out", dloss}});
    ASSERT_OK(one.status());
    ASSERT_OK(other.status());
    const auto x = std::get<Tensor>(*one).span<float>(), y = std::get<Tensor>(*other).span<float>();
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << input;
  }
}

// Of the process so far.
int64_t MostBytes() {
  rusage use = {};
  getrusage(RUSAGE_SELF, &use);
  return use.ru_maxrss * 1024;
}

TEST(InBatchSoftmaxTest, MemoryGrowsWithTheBatchAndNotWithItsSquare) {
#if defined(WEIR_ASAN) || defined(WEIR_TSAN)
  GTEST_SKIP() << "a sanitizer keeps memory that has been freed";
#endif
  const Case c = {.rows = 16384, .width = 64, .probability = false, .ids = false, .weight = false};
  OpTest t = OpOf(c, ValuesOf(c));
  ASSERT_OK(t.Run());
  const Tensor dloss = Tensor::Of<float>({c.rows, 1}, std::vector<float>(static_cast<size_t>(c.rows), 1.0f));
  const int64_t before = MostBytes();
  ASSERT_OK(t.Gradient("Item", 0, {{"Out", dloss}}).status());
  // Seven sums [B, W] beside the output are 28 MiB; one for every 512 examples would be 124.
  EXPECT_LT(MostBytes() - before, int64_t{80} << 20);
}

TEST(InBatchSoftmaxTest, WrongInputsAreNamed) {
  const Case c = {.rows = 3, .width = 2, .probability = true, .ids = true, .weight = false};
  Values v = ValuesOf(c);
  v.probability[1] = 0;
  EXPECT_THAT(std::string(OpOf(c, v).Run().message()),
              HasSubstr("Probability of example 1 of a lane's batch is 0; it must be a number above 0: give rare items "
                        "a small one, or leave the probability out"));
  OpTest t("in_batch_softmax", {AttrF("temperature", 0)});
  t.Batched("Query", {1, 2}, {1, 2}).Batched("Item", {1, 2}, {1, 2});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("temperature must be positive and finite, got 0"));
  OpTest wide("in_batch_softmax");
  wide.Batched("Query", {1, 2}, {1, 2}).Batched("Item", {1, 3}, {1, 2, 3});
  EXPECT_THAT(std::string(wide.InferShapes().message()), HasSubstr("Item must be [-1, 2], got [-1, 3]"));
}

TEST(InBatchSoftmaxTest, LargeScoresStayFiniteAndNanShows) {
  OpTest t("in_batch_softmax");
  t.Batched("Query", {2, 1}, {100, 100}).Batched("Item", {2, 1}, {10, -10});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 1}, {0, 2000}, 1e-3);
  OpTest nan("in_batch_softmax");
  nan.Batched("Query", {2, 1}, {1, std::nanf("")}).Batched("Item", {2, 1}, {1, 1});
  ASSERT_OK(nan.Run());
  EXPECT_FALSE(std::isnan(nan.Values("Out")[0]));
  EXPECT_TRUE(std::isnan(nan.Values("Out")[1]));
}

}  // namespace
}  // namespace weir
