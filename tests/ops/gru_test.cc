#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

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
  int64_t batch, most, width, size;
};

OpTest TestOf(const Sizes& n, const std::vector<float>& x, const std::vector<float>& length) {
  OpTest t("gru");
  t.Batched("X", {n.batch, n.most, n.width}, x)
      .Batched("Length", {n.batch, 1}, length)
      .Fixed("W", {n.width, 3 * n.size}, Numbers(n.width * 3 * n.size, 11))
      .Fixed("U", {n.size, 3 * n.size}, Numbers(n.size * 3 * n.size, 12))
      .Fixed("B", {3 * n.size}, Numbers(3 * n.size, 13))
      .Fixed("C", {3 * n.size}, Numbers(3 * n.size, 14));
  return t;
}

// The states behind each element by the definition, in double.
std::vector<float> States(const Sizes& n, const std::vector<float>& x, const std::vector<float>& length) {
  const std::vector<float> w = Numbers(n.width * 3 * n.size, 11), u = Numbers(n.size * 3 * n.size, 12),
                           bias = Numbers(3 * n.size, 13), c = Numbers(3 * n.size, 14);
  const auto at = [](const std::vector<float>& values, int64_t i) {
    return static_cast<double>(values[static_cast<size_t>(i)]);
  };
  std::vector<float> states(static_cast<size_t>(n.batch * n.most * n.size));
  for (int64_t b = 0; b < n.batch; ++b) {
    std::vector<double> h(static_cast<size_t>(n.size));
    for (int64_t t = 0; t < static_cast<int64_t>(length[static_cast<size_t>(b)]); ++t) {
      std::vector<double> next(h.size());
      for (int64_t s = 0; s < n.size; ++s) {
        const auto of_x = [&](int64_t gate) {
          double sum = at(bias, gate * n.size + s);
          for (int64_t k = 0; k < n.width; ++k) {
            sum += at(x, (b * n.most + t) * n.width + k) * at(w, k * 3 * n.size + gate * n.size + s);
          }
          return sum;
        };
        const auto of_h = [&](int64_t gate) {
          double sum = at(c, gate * n.size + s);
          for (int64_t k = 0; k < n.size; ++k) {
            sum += h[static_cast<size_t>(k)] * at(u, k * 3 * n.size + gate * n.size + s);
          }
          return sum;
        };
        const double r = 1 / (1 + std::exp(-(of_x(0) + of_h(0)))), z = 1 / (1 + std::exp(-(of_x(1) + of_h(1))));
        next[static_cast<size_t>(s)] = (1 - z) * std::tanh(of_x(2) + r * of_h(2)) + z * h[static_cast<size_t>(s)];
      }
      h = next;
      for (int64_t s = 0; s < n.size; ++s) {
        states[static_cast<size_t>((b * n.most + t) * n.size + s)] = static_cast<float>(h[static_cast<size_t>(s)]);
      }
    }
  }
  return states;
}

TEST(GruTest, EqualsItsDefinition) {
  for (const Sizes& n : std::vector<Sizes>{{1, 1, 1, 1}, {5, 4, 3, 2}, {40, 7, 5, 20}, {3, 300, 4, 6}}) {
    const std::vector<float> x = Numbers(n.batch * n.most * n.width, 1);
    std::vector<float> length, last;
    for (int64_t b = 0; b < n.batch; ++b) length.push_back(static_cast<float>((b * 5 + n.most) % (n.most + 1)));
    const std::vector<float> states = States(n, x, length);
    for (int64_t b = 0; b < n.batch; ++b) {
      const int64_t t = static_cast<int64_t>(length[static_cast<size_t>(b)]) - 1;
      for (int64_t s = 0; s < n.size; ++s) {
        last.push_back(t < 0 ? 0.0f : states[static_cast<size_t>((b * n.most + t) * n.size + s)]);
      }
    }
    OpTest t = TestOf(n, x, length);
    ASSERT_OK(t.Run());
    t.ExpectOutput("Hidden", {n.batch, n.most, n.size}, states, 2e-5);
    t.ExpectOutput("Last", {n.batch, n.size}, last, 2e-5);
  }
}

TEST(GruTest, GradientsThroughTime) {
  const Sizes n = {4, 3, 2, 3};
  OpTest t = TestOf(n, Numbers(24, 1), {3, 0, 2, 3});
  ASSERT_OK(t.Run());
  const std::vector<std::string> inputs = {"X", "W", "U", "B", "C"};
  t.CheckGradient({.inputs = inputs, .outputs = {"Hidden"}});
  t.CheckGradient({.inputs = inputs, .outputs = {"Last"}});
  t.CheckGradient({.inputs = inputs, .outputs = {"Hidden", "Last"}});
  t.CheckBatchZero({"Hidden", "Last"});
}

// The gradient crosses the runs of elements that are multiplied at once.
TEST(GruTest, GradientsOfLongSequences) {
  const Sizes n = {30, 40, 2, 2};
  std::vector<float> length;
  for (int64_t b = 0; b < n.batch; ++b) length.push_back(static_cast<float>(b % 2 == 0 ? 40 : b));
  OpTest t = TestOf(n, Numbers(n.batch * n.most * n.width, 1), length);
  ASSERT_OK(t.Run());
  t.CheckGradient({.inputs = {"U", "C", "B", "W"}, .outputs = {"Hidden", "Last"}, .tolerance = 3e-3});
}

TEST(GruTest, AnExampleHasTheSameBitsAmongAnyOthers) {
  constexpr int64_t kBatch = 60;
  const Sizes all_of = {kBatch, 6, 5, 9};
  const std::vector<float> x = Numbers(kBatch * 6 * 5, 1), d = Numbers(kBatch * 6 * 9, 2);
  std::vector<float> length;
  for (int64_t b = 0; b < kBatch; ++b) length.push_back(static_cast<float>(b * 5 % 7));
  const auto run = [&](int64_t first, int64_t rows, std::vector<std::vector<float>>* results) {
    const auto part = [&](const std::vector<float>& values) { return PartOfBatch(values, kBatch, first, rows); };
    Sizes n = all_of;
    n.batch = rows;
    OpTest t = TestOf(n, part(x), part(length));
    ASSERT_OK(t.Run());
    *results = {t.Values("Hidden"), t.Values("Last")};
    Tensor dout(v1::FLOAT32, {rows, 6, 9});
    const std::vector<float> from = part(d);
    std::copy(from.begin(), from.end(), dout.data<float>());
    const absl::StatusOr<Variable> grad = t.Gradient("X", 0, {{"Hidden", dout}});
    ASSERT_OK(grad.status());
    const absl::Span<const float> values = std::get<Tensor>(*grad).span<float>();
    results->emplace_back(values.begin(), values.end());
  };
  ExpectBitsOfExamplesAlone(kBatch, run);
}

TEST(GruTest, WhatStandsBehindTheLengthIsNotRead) {
  std::vector<float> x = Numbers(12, 1);
  const Sizes n = {2, 3, 2, 2};
  OpTest clean = TestOf(n, x, {1, 2});
  ASSERT_OK(clean.Run());
  for (const size_t i : {2, 3, 4, 5, 10, 11}) x[i] = std::nanf("");
  OpTest t = TestOf(n, x, {1, 2});
  ASSERT_OK(t.Run());
  EXPECT_EQ(t.Values("Hidden"), clean.Values("Hidden"));
  EXPECT_EQ(t.Values("Last"), clean.Values("Last"));
  EXPECT_EQ(t.Values("Hidden")[2], 0);
}

TEST(GruTest, ShapesAndLengthsAreNamed) {
  OpTest narrow("gru");
  narrow.Batched("X", {1, 1, 2}, {1, 2})
      .Batched("Length", {1, 1}, {1})
      .Fixed("W", {2, 3}, Numbers(6, 1))
      .Fixed("U", {1, 4}, Numbers(4, 1))
      .Fixed("B", {3}, {0, 0, 0})
      .Fixed("C", {3}, {0, 0, 0});
  EXPECT_THAT(std::string(narrow.InferShapes().message()), HasSubstr("U must be [1, 3], got [1, 4]"));
  OpTest far = TestOf({1, 2, 1, 1}, {1, 2}, {3});
  EXPECT_THAT(std::string(far.Run().message()), HasSubstr("3"));
}

}  // namespace
}  // namespace weir
