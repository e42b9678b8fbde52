#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

struct Case {
  int64_t batch, channels, height, width, filters, kernel_height, kernel_width;
  std::vector<int64_t> stride = {1, 1}, padding = {0, 0};

  int64_t out_height() const { return (height + 2 * padding[0] - kernel_height) / stride[0] + 1; }
  int64_t out_width() const { return (width + 2 * padding[1] - kernel_width) / stride[1] + 1; }
  Shape x() const { return {batch, channels, height, width}; }
  Shape w() const { return {filters, channels, kernel_height, kernel_width}; }
  Shape out() const { return {batch, filters, out_height(), out_width()}; }
  std::string text() const {
    return absl::StrCat("X ", ShapeString(x()), " W ", ShapeString(w()), " stride ", ShapeString(stride), " padding ",
                        ShapeString(padding));
  }
};

// Numbers without a pattern that a wrong index would fit, exact enough for sums of many.
std::vector<float> Numbers(int64_t n, int seed) {
  std::vector<float> values;
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(state >> 16 & 255) / 128.0f - 1.0f);
  }
  return values;
}

// Every product of an element of x, one of w and one of out: fn(index of x, of w, of out).
template <typename Fn>
void ForProducts(const Case& c, Fn fn) {
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t f = 0; f < c.filters; ++f)
      for (int64_t i = 0; i < c.out_height(); ++i)
        for (int64_t j = 0; j < c.out_width(); ++j)
          for (int64_t ch = 0; ch < c.channels; ++ch)
            for (int64_t k = 0; k < c.kernel_height; ++k)
              for (int64_t l = 0; l < c.kernel_width; ++l) {
                const int64_t h = i * c.stride[0] + k - c.padding[0], v = j * c.stride[1] + l - c.padding[1];
                if (h < 0 || h >= c.height || v < 0 || v >= c.width) continue;
                fn(((b * c.channels + ch) * c.height + h) * c.width + v,
                   ((f * c.channels + ch) * c.kernel_height + k) * c.kernel_width + l,
                   ((b * c.filters + f) * c.out_height() + i) * c.out_width() + j);
              }
}

OpTest Conv(const Case& c, const std::vector<float>& x, const std::vector<float>& w, const std::vector<float>& bias,
            const std::string& activation = "identity") {
  OpTest t("conv2d", {AttrInts("stride", c.stride), AttrInts("padding", c.padding), AttrS("activation", activation)});
  t.Batched("X", c.x(), x).Fixed("W", c.w(), w);
  if (!bias.empty()) t.Fixed("Bias", {c.filters}, bias);
  return t;
}

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {1, 1, 1, 1, 1, 1, 1},
      {2, 1, 5, 5, 3, 3, 3},
      {1, 3, 7, 4, 2, 3, 2},
      {2, 2, 6, 5, 4, 3, 3, {1, 1}, {1, 1}},
      {3, 2, 9, 8, 2, 3, 5, {2, 3}, {0, 2}},
      {2, 3, 8, 8, 5, 1, 1, {2, 2}},
      {1, 2, 4, 19, 3, 4, 3, {1, 1}, {3, 2}},
      // Several examples in a block, and a last one that is not full.
      {13, 3, 14, 14, 8, 3, 3, {1, 1}, {1, 1}},
      // Rows of one example in a block, the last one not full, with and without a stride.
      {2, 40, 24, 24, 3, 5, 5, {1, 1}, {2, 2}},
      {2, 40, 37, 37, 3, 5, 5, {2, 2}, {1, 1}},
      // More filters than taps.
      {5, 1, 9, 9, 20, 3, 3, {1, 1}, {1, 1}},
      // The stride is larger than the window.
      {3, 1, 700, 3, 1, 1, 1, {600, 1}},
      {2, 1, 3, 4000, 2, 2, 1, {1, 900}},
  };
  return *cases;
}

TEST(Conv2dTest, IsTheSumOverTheWindow) {
  // Windows 1 2 4 5, 2 3 5 6, 4 5 7 8, 5 6 8 9, weighed 1, 10, 100, 1000.
  OpTest t = Conv({1, 1, 3, 3, 1, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 10, 100, 1000}, {0.5f});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 1, 2, 2}, {5421.5f, 6532.5f, 8754.5f, 9865.5f}, 0);
}

TEST(Conv2dTest, ElementsBeyondTheEdgesAreZero) {
  OpTest t = Conv({1, 1, 2, 2, 1, 3, 3, {1, 1}, {1, 1}}, {1, 2, 3, 4}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 1, 2, 2}, {10, 10, 10, 10}, 0);
}

TEST(Conv2dTest, IsThePlainLoop) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.text());
    const std::vector<float> x = Numbers(ElementCount(c.x()), 1), w = Numbers(ElementCount(c.w()), 2),
                             bias = Numbers(c.filters, 3);
    OpTest t = Conv(c, x, w, bias);
    ASSERT_OK(t.Run());
    std::vector<double> sums(static_cast<size_t>(ElementCount(c.out())));
    ForProducts(c, [&](int64_t of_x, int64_t of_w, int64_t of_out) {
      sums[static_cast<size_t>(of_out)] += double{x[static_cast<size_t>(of_x)]} * w[static_cast<size_t>(of_w)];
    });
    std::vector<float> want;
    for (size_t i = 0; i < sums.size(); ++i) {
      const size_t f = i / static_cast<size_t>(c.out_height() * c.out_width()) % static_cast<size_t>(c.filters);
      want.push_back(static_cast<float>(sums[i] + bias[f]));
    }
    t.ExpectOutput("Out", c.out(), want, 1e-4);
  }
}

TEST(Conv2dTest, GradientsAreThoseOfThePlainLoop) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.text());
    const std::vector<float> x = Numbers(ElementCount(c.x()), 1), w = Numbers(ElementCount(c.w()), 2),
                             bias = Numbers(c.filters, 3);
    const std::vector<float> dout = Numbers(ElementCount(c.out()), 4);
    std::vector<double> dx(x.size()), dw(w.size()), dbias(bias.size());
    ForProducts(c, [&](int64_t of_x, int64_t of_w, int64_t of_out) {
      dx[static_cast<size_t>(of_x)] += double{dout[static_cast<size_t>(of_out)]} * w[static_cast<size_t>(of_w)];
      dw[static_cast<size_t>(of_w)] += double{dout[static_cast<size_t>(of_out)]} * x[static_cast<size_t>(of_x)];
    });
    for (size_t i = 0; i < dout.size(); ++i) {
      dbias[i / static_cast<size_t>(c.out_height() * c.out_width()) % bias.size()] += dout[i];
    }
    for (const auto& [slot, want] : {std::pair("X", &dx), std::pair("W", &dw), std::pair("Bias", &dbias)}) {
      OpTest t = Conv(c, x, w, bias);
      ASSERT_OK(t.Run());
      const absl::StatusOr<Variable> got = t.Gradient(slot, 0, {{"Out", Tensor::Of<float>(c.out(), dout)}});
      ASSERT_TRUE(got.ok()) << got.status();
      const Tensor& values = std::get<Tensor>(*got);
      ASSERT_EQ(values.size(), static_cast<int64_t>(want->size())) << slot;
      for (int64_t i = 0; i < values.size(); ++i) {
        const double wanted = (*want)[static_cast<size_t>(i)];
        ASSERT_NEAR(values.data<float>()[i], wanted, 1e-4 * std::max(1.0, std::abs(wanted)))
            << slot << " element " << i;
      }
    }
  }
}

TEST(Conv2dTest, GradientAgreesWithDifferences) {
  for (const Case& c : {Case{2, 2, 4, 3, 3, 2, 2}, Case{1, 1, 5, 5, 2, 3, 3, {2, 2}, {1, 1}},
                        Case{2, 1, 3, 3, 12, 3, 3, {1, 1}, {1, 1}}}) {
    SCOPED_TRACE(c.text());
    for (const std::string activation : {"identity", "sigmoid", "tanh"}) {
      std::vector<float> x = Numbers(ElementCount(c.x()), 5), w = Numbers(ElementCount(c.w()), 6);
      for (float& v : w) v *= 0.3f;
      OpTest t = Conv(c, x, w, Numbers(c.filters, 7), activation);
      t.CheckGradient({.inputs = {"X", "W", "Bias"}});
      t.CheckBatchZero();
    }
  }
}

TEST(Conv2dTest, ActivatesWithAndWithoutBias) {
  for (const bool with_bias : {false, true}) {
    OpTest t =
        Conv({1, 1, 1, 3, 1, 1, 1}, {-2, 0, 3}, {1}, with_bias ? std::vector<float>{1} : std::vector<float>{}, "relu");
    ASSERT_OK(t.Run());
    t.ExpectOutput("Out", {1, 1, 1, 3}, with_bias ? std::vector<float>{0, 1, 4} : std::vector<float>{0, 0, 3}, 0);
    // Where the output is 0 nothing flows back.
    const auto dx = t.Gradient("X", 0, {{"Out", Tensor::Of<float>({1, 1, 1, 3}, std::vector<float>{5, 6, 7})}});
    ASSERT_TRUE(dx.ok()) << dx.status();
    EXPECT_EQ(std::get<Tensor>(*dx).data<float>()[0], 0);
    EXPECT_EQ(std::get<Tensor>(*dx).data<float>()[2], 7);
  }
}

TEST(Conv2dTest, AnExampleHasTheSameBitsInEveryRun) {
  const Case c = {13, 3, 14, 14, 8, 3, 3, {1, 1}, {1, 1}};
  OpTest once = Conv(c, Numbers(ElementCount(c.x()), 1), Numbers(ElementCount(c.w()), 2), {});
  ASSERT_OK(once.Run());
  OpTest again = Conv(c, Numbers(ElementCount(c.x()), 1), Numbers(ElementCount(c.w()), 2), {});
  ASSERT_OK(again.Run());
  EXPECT_EQ(once.Values("Out"), again.Values("Out"));
}

std::string Refusal(const Case& c, std::vector<v1::OpAttr> attrs) {
  OpTest t("conv2d", std::move(attrs));
  t.Batched("X", c.x(), Numbers(ElementCount(c.x()), 1)).Fixed("W", c.w(), Numbers(ElementCount(c.w()), 1));
  return std::string(t.InferShapes().message());
}

TEST(Conv2dTest, WhatDoesNotFitIsRefusedByName) {
  const auto attrs = [](std::vector<int64_t> stride, std::vector<int64_t> padding) {
    return std::vector<v1::OpAttr>{AttrInts("stride", stride), AttrInts("padding", padding)};
  };
  EXPECT_THAT(Refusal({1, 1, 4, 4, 1, 5, 3}, attrs({1, 1}, {0, 0})),
              HasSubstr("height: a kernel of 5 does not fit into 4 elements"));
  EXPECT_THAT(Refusal({1, 1, 4, 4, 1, 3, 3}, attrs({1, 1}, {0, 3})),
              HasSubstr("width: padding must be at least 0 and below the kernel, 3, got 3"));
  EXPECT_THAT(Refusal({1, 1, 4, 4, 1, 3, 3}, attrs({1, 0}, {0, 0})),
              HasSubstr("width: stride must be 1 to 16777216, got 0"));
  EXPECT_THAT(Refusal({1, 1, 4, 4, 1, 3, 3}, attrs({1}, {0, 0})),
              HasSubstr("stride must be two numbers, of height and width, got [1]"));
  EXPECT_THAT(Refusal({1, 1, 4, 4, 1, 3, 3}, attrs({1, INT64_MAX}, {INT64_MAX, 0})),
              HasSubstr("height: padding must be"));
  OpTest channels("conv2d", attrs({1, 1}, {0, 0}));
  channels.Batched("X", {1, 2, 4, 4}, Numbers(32, 1)).Fixed("W", {1, 3, 2, 2}, Numbers(12, 1));
  EXPECT_THAT(std::string(channels.InferShapes().message()),
              HasSubstr("X [-1, 2, 4, 4] has 2 channels, W [1, 3, 2, 2] is for 3"));
  OpTest rank("conv2d", attrs({1, 1}, {0, 0}));
  rank.Batched("X", {1, 16}, Numbers(16, 1)).Fixed("W", {1, 1, 2, 2}, Numbers(4, 1));
  EXPECT_THAT(std::string(rank.InferShapes().message()), HasSubstr("X must have 4 dims, got [-1, 16]"));
}

}  // namespace
}  // namespace weir
