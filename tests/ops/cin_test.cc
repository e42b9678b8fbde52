#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::vector<float> Numbers(int64_t n, uint32_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(seed >> 8) / 8388608.0f - 1);
  }
  return values;
}

struct Sizes {
  int64_t batch, vectors, fields, width, outputs, summed;
};

// A test of the operator with these sizes and random inputs.
OpTest TestOf(const Sizes& n, const std::vector<float>& x, const std::vector<float>& x0, const std::vector<float>& w) {
  OpTest t("cin", {AttrI("summed", n.summed)});
  t.Batched("X", {n.batch, n.vectors, n.width}, x)
      .Batched("X0", {n.batch, n.fields, n.width}, x0)
      .Fixed("W", {n.vectors * n.fields, n.outputs}, w)
      .Outputs("Sum", n.summed > 0 ? 1 : 0)
      .Outputs("Out", n.summed < n.outputs ? 1 : 0);
  return t;
}

TEST(CinTest, AddsProductsOfPairs) {
  // x is one vector, x0 two; the first output is the sum of both products, the second is ten times the second one.
  OpTest t("cin");
  t.Batched("X", {1, 1, 3}, {1, 2, 3})
      .Batched("X0", {1, 2, 3}, {1, 1, 1, 0, 2, 4})
      .Fixed("W", {2, 2}, {1, 0, 1, 10})
      .Outputs("Out", 1);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 2, 3}, {1, 6, 15, 0, 40, 120});
}

TEST(CinTest, EqualsItsDefinition) {
  for (const Sizes& n : std::vector<Sizes>{{1, 1, 1, 1, 1, 0},
                                           {3, 2, 4, 5, 3, 1},
                                           {40, 6, 5, 16, 7, 3},
                                           {70, 30, 20, 4, 9, 9},
                                           {5, 3, 400, 2, 4, 2},
                                           {2, 2, 3, 300, 5, 0},
                                           {130, 9, 9, 3, 1, 0}}) {
    SCOPED_TRACE(absl::StrCat(n.batch, " ", n.vectors, " ", n.fields, " ", n.width, " ", n.outputs, " ", n.summed));
    const std::vector<float> x = Numbers(n.batch * n.vectors * n.width, 1),
                             x0 = Numbers(n.batch * n.fields * n.width, 2),
                             w = Numbers(n.vectors * n.fields * n.outputs, 3);
    std::vector<float> sum, out;
    for (int64_t b = 0; b < n.batch; ++b) {
      for (int64_t h = 0; h < n.outputs; ++h) {
        double all = 0;
        for (int64_t d = 0; d < n.width; ++d) {
          double value = 0;
          for (int64_t i = 0; i < n.vectors; ++i) {
            for (int64_t j = 0; j < n.fields; ++j) {
              value += static_cast<double>(w[static_cast<size_t>((i * n.fields + j) * n.outputs + h)]) *
                       static_cast<double>(x[static_cast<size_t>((b * n.vectors + i) * n.width + d)]) *
                       static_cast<double>(x0[static_cast<size_t>((b * n.fields + j) * n.width + d)]);
            }
          }
          all += value;
          if (h >= n.summed) out.push_back(static_cast<float>(value));
        }
        if (h < n.summed) sum.push_back(static_cast<float>(all));
      }
    }
    OpTest t = TestOf(n, x, x0, w);
    ASSERT_OK(t.Run());
    if (n.summed > 0) t.ExpectOutput("Sum", {n.batch, n.summed}, sum, 2e-4);
    if (n.summed < n.outputs) t.ExpectOutput("Out", {n.batch, n.outputs - n.summed, n.width}, out, 2e-4);
  }
}

TEST(CinTest, Gradients) {
  for (const int64_t summed : {0, 2, 3}) {
    const Sizes n = {3, 2, 4, 3, 3, summed};
    OpTest t = TestOf(n, Numbers(18, 1), Numbers(36, 2), Numbers(24, 3));
    ASSERT_OK(t.Run());
    std::vector<std::string> outputs;
    if (summed > 0) outputs.push_back("Sum");
    if (summed < 3) outputs.push_back("Out");
    t.CheckGradient({.inputs = {"X", "X0", "W"}, .outputs = outputs});
    for (const std::string& output : outputs) t.CheckGradient({.inputs = {"X", "X0", "W"}, .outputs = {output}});
    t.CheckBatchZero(outputs);
  }
}

// In blocks of examples, and of rows of X.
TEST(CinTest, GradientsOfManyBlocks) {
  const Sizes n = {37, 5, 100, 9, 2, 1};
  const std::vector<float> x = Numbers(n.batch * n.vectors * n.width, 1), x0 = Numbers(n.batch * n.fields * n.width, 2),
                           w = Numbers(n.vectors * n.fields * n.outputs, 3), d = Numbers(n.batch * n.width, 4),
                           dsum = Numbers(n.batch, 5);
  std::vector<double> dx(x.size()), dx0(x0.size()), dw(w.size());
  for (int64_t b = 0; b < n.batch; ++b) {
    for (int64_t i = 0; i < n.vectors; ++i) {
      for (int64_t j = 0; j < n.fields; ++j) {
        const size_t at = static_cast<size_t>((i * n.fields + j) * 2);
        for (int64_t c = 0; c < n.width; ++c) {
          const size_t xi = static_cast<size_t>((b * n.vectors + i) * n.width + c);
          const size_t xj = static_cast<size_t>((b * n.fields + j) * n.width + c);
          const double of_out = d[static_cast<size_t>(b * n.width + c)], of_sum = dsum[static_cast<size_t>(b)];
          const double dz = static_cast<double>(w[at]) * of_sum + static_cast<double>(w[at + 1]) * of_out;
          dx[xi] += dz * static_cast<double>(x0[xj]);
          dx0[xj] += dz * static_cast<double>(x[xi]);
          dw[at] += of_sum * static_cast<double>(x[xi]) * static_cast<double>(x0[xj]);
          dw[at + 1] += of_out * static_cast<double>(x[xi]) * static_cast<double>(x0[xj]);
        }
      }
    }
  }
  OpTest t = TestOf(n, x, x0, w);
  ASSERT_OK(t.Run());
  Tensor dout(v1::FLOAT32, {n.batch, 1, n.width}), dsums(v1::FLOAT32, {n.batch, 1});
  std::copy(d.begin(), d.end(), dout.data<float>());
  std::copy(dsum.begin(), dsum.end(), dsums.data<float>());
  for (const auto& [slot, wanted] :
       std::vector<std::pair<std::string, std::vector<double>>>{{"X", dx}, {"X0", dx0}, {"W", dw}}) {
    const absl::StatusOr<Variable> grad = t.Gradient(slot, 0, {{"Sum", dsums}, {"Out", dout}});
    ASSERT_OK(grad.status());
    const absl::Span<const float> values = std::get<Tensor>(*grad).span<float>();
    ASSERT_EQ(values.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(values[i], wanted[i], 3e-4) << slot << " " << i;
  }
}

TEST(CinTest, AnExampleHasTheSameBitsAmongAnyNumberOfOthers) {
  constexpr int64_t kBatch = 150;
  const Sizes all_of = {kBatch, 12, 11, 7, 6, 2};
  const std::vector<float> x = Numbers(kBatch * 12 * 7, 1), x0 = Numbers(kBatch * 11 * 7, 2), w = Numbers(132 * 6, 3),
                           d = Numbers(kBatch * 4 * 7, 4), dsum = Numbers(kBatch * 2, 5);
  const auto run = [&](int64_t first, int64_t rows, std::vector<std::vector<float>>* results) {
    const auto part = [&](const std::vector<float>& values) { return PartOfBatch(values, kBatch, first, rows); };
    Sizes n = all_of;
    n.batch = rows;
    OpTest t = TestOf(n, part(x), part(x0), w);
    ASSERT_OK(t.Run());
    *results = {t.Values("Sum"), t.Values("Out")};
    Tensor dout(v1::FLOAT32, {rows, 4, 7}), dsums(v1::FLOAT32, {rows, 2});
    const std::vector<float> from = part(d), sums = part(dsum);
    std::copy(from.begin(), from.end(), dout.data<float>());
    std::copy(sums.begin(), sums.end(), dsums.data<float>());
    for (const char* slot : {"X", "X0"}) {
      const absl::StatusOr<Variable> grad = t.Gradient(slot, 0, {{"Sum", dsums}, {"Out", dout}});
      ASSERT_OK(grad.status());
      const absl::Span<const float> values = std::get<Tensor>(*grad).span<float>();
      results->emplace_back(values.begin(), values.end());
    }
  };
  ExpectBitsOfExamplesAlone(kBatch, run);
}

TEST(CinTest, ShapesAreNamed) {
  OpTest narrow("cin");
  narrow.Batched("X", {1, 1, 2}, {1, 2}).Batched("X0", {1, 1, 3}, {1, 2, 3}).Fixed("W", {1, 1}, {1}).Outputs("Out", 1);
  EXPECT_THAT(std::string(narrow.InferShapes().message()),
              HasSubstr("X0 must be vectors of the examples and the width"));
  OpTest rows("cin");
  rows.Batched("X", {1, 2, 1}, {1, 2}).Batched("X0", {1, 2, 1}, {1, 2}).Fixed("W", {3, 1}, {1, 2, 3}).Outputs("Out", 1);
  EXPECT_THAT(std::string(rows.InferShapes().message()),
              HasSubstr("W must have a row for each of 2 times 2 vectors, got [3, 1]"));
  OpTest sums("cin", {AttrI("summed", 2)});
  sums.Batched("X", {1, 1, 1}, {1}).Batched("X0", {1, 1, 1}, {1}).Fixed("W", {1, 1}, {1}).Outputs("Sum", 1);
  EXPECT_THAT(std::string(sums.InferShapes().message()),
              HasSubstr("summed must be from 0 to the 1 columns of W, got 2"));
  OpTest outputs("cin", {AttrI("summed", 1)});
  outputs.Batched("X", {1, 1, 1}, {1}).Batched("X0", {1, 1, 1}, {1}).Fixed("W", {1, 1}, {1}).Outputs("Out", 1);
  EXPECT_THAT(std::string(outputs.InferShapes().message()), HasSubstr("with summed 1 of 1 there is a Sum and no Out"));
}

}  // namespace
}  // namespace weir
