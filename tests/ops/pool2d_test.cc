#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Case {
  int64_t batch, channels, height, width;
  std::vector<int64_t> kernel, stride, padding = {0, 0};
  int64_t out_height() const { return (height + 2 * padding[0] - kernel[0]) / stride[0] + 1; }
  int64_t out_width() const { return (width + 2 * padding[1] - kernel[1]) / stride[1] + 1; }
  Shape x() const { return {batch, channels, height, width}; }
  Shape out() const { return {batch, channels, out_height(), out_width()}; }
  std::string text() const {
    return absl::StrCat("X ", ShapeString(x()), " kernel ", ShapeString(kernel), " stride ", ShapeString(stride),
                        " padding ", ShapeString(padding));
  }
};

OpTest Pool(const std::string& type, const Case& c, const std::vector<float>& x) {
  OpTest t("pool2d", {AttrS("type", type), AttrInts("kernel", c.kernel), AttrInts("stride", c.stride),
                      AttrInts("padding", c.padding)});
  t.Batched("X", c.x(), x);
  return t;
}

// Some values come more than once.
std::vector<float> Numbers(int64_t n) {
  std::vector<float> values;
  uint32_t state = 7;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(state >> 16 & 15) - 8);
  }
  return values;
}

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {1, 1, 1, 1, {1, 1}, {1, 1}},
      {2, 3, 4, 6, {2, 2}, {2, 2}},
      // The fast form with a column and a row that no window has, and with rows longer than a vector.
      {2, 2, 5, 7, {2, 2}, {2, 2}},
      {1, 2, 3, 71, {2, 2}, {2, 2}},
      {1, 1, 2, 2, {2, 2}, {2, 2}},
      {2, 1, 5, 4, {3, 2}, {1, 1}},
      {1, 2, 5, 5, {3, 3}, {2, 2}, {1, 1}},
      {1, 1, 4, 9, {2, 4}, {3, 2}, {1, 3}},
      {2, 2, 3, 5, {3, 5}, {3, 5}},
      {1, 1, 6, 6, {2, 2}, {2, 2}, {1, 1}},
      // Elements between windows.
      {1, 1, 7, 7, {2, 2}, {3, 3}},
  };
  return *cases;
}

// Out and X@GRAD of `dout`, by the definition.
void Plain(const std::string& type, const Case& c, const std::vector<float>& x, const std::vector<float>& dout,
           std::vector<float>* out, std::vector<float>* dx) {
  out->clear();
  dx->assign(x.size(), 0);
  for (int64_t p = 0; p < c.batch * c.channels; ++p)
    for (int64_t i = 0; i < c.out_height(); ++i)
      for (int64_t j = 0; j < c.out_width(); ++j) {
        std::vector<size_t> there;
        for (int64_t k = 0; k < c.kernel[0]; ++k)
          for (int64_t l = 0; l < c.kernel[1]; ++l) {
            const int64_t h = i * c.stride[0] + k - c.padding[0], w = j * c.stride[1] + l - c.padding[1];
            if (h >= 0 && h < c.height && w >= 0 && w < c.width)
              there.push_back(static_cast<size_t>((p * c.height + h) * c.width + w));
          }
        const float g = dout[out->size()];
        size_t best = there[0];
        float sum = 0;
        for (const size_t at : there) {
          if (x[at] > x[best]) best = at;
          sum += x[at];
        }
        const float n = static_cast<float>(there.size());
        if (type == "max") {
          out->push_back(x[best]);
          (*dx)[best] += g;
        } else {
          out->push_back(sum / n);
          for (const size_t at : there) (*dx)[at] += g / n;
        }
      }
}

TEST(Pool2dTest, IsTheDefinition) {
  for (const std::string type : {"max", "average"}) {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(type + " " + c.text());
      const std::vector<float> x = Numbers(ElementCount(c.x()));
      std::vector<float> dout, out, dx;
      for (int64_t i = 0; i < ElementCount(c.out()); ++i) dout.push_back(static_cast<float>(i % 13) - 5.5f);
      Plain(type, c, x, dout, &out, &dx);
      OpTest t = Pool(type, c, x);
      ASSERT_OK(t.Run());
      t.ExpectOutput("Out", c.out(), out, 0);
      const auto got = t.Gradient("X", 0, {{"Out", Tensor::Of<float>(c.out(), dout)}});
      ASSERT_TRUE(got.ok()) << got.status();
      const Tensor& values = std::get<Tensor>(*got);
      EXPECT_EQ(std::vector<float>(values.data<float>(), values.data<float>() + values.size()), dx);
      t.CheckBatchZero();
    }
  }
}

TEST(Pool2dTest, GradientAgreesWithDifferences) {
  const Case c = {2, 2, 5, 5, {3, 3}, {2, 2}, {1, 1}};
  std::vector<float> x;
  // Far from one another, so that a difference does not change which is the greatest.
  for (int64_t i = 0; i < ElementCount(c.x()); ++i) x.push_back(static_cast<float>(i * 37 % 101) * 0.1f);
  for (const std::string type : {"max", "average"}) Pool(type, c, x).CheckGradient({.inputs = {"X"}});
}

TEST(Pool2dTest, TheGradientOfEqualElementsGoesToTheFirst) {
  // 2 x 2 side by side, and the same windows by the general way.
  for (const std::vector<int64_t>& kernel : {std::vector<int64_t>{2, 2}, std::vector<int64_t>{2, 4}}) {
    OpTest t = Pool("max", {1, 1, 2, 4, kernel, kernel}, {3, 3, 3, 3, 3, 3, 3, 3});
    ASSERT_OK(t.Run());
    const int64_t windows = kernel[1] == 2 ? 2 : 1;
    const auto dx = t.Gradient(
        "X", 0, {{"Out", Tensor::Of<float>({1, 1, 1, windows}, std::vector<float>(static_cast<size_t>(windows), 1))}});
    ASSERT_TRUE(dx.ok()) << dx.status();
    const float* values = std::get<Tensor>(*dx).data<float>();
    EXPECT_EQ(std::vector<float>(values, values + 8),
              (std::vector<float>{1, 0, windows == 2 ? 1.0f : 0.0f, 0, 0, 0, 0, 0}));
  }
}

TEST(Pool2dTest, NanAndInfinityAreNotHidden) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  for (const std::vector<int64_t>& kernel : {std::vector<int64_t>{2, 2}, std::vector<int64_t>{2, 1}}) {
    OpTest t = Pool("max", {1, 1, 2, 2, kernel, kernel}, {1, nan, inf, 2});
    ASSERT_OK(t.Run());
    const std::vector<float> out = t.Values("Out");
    EXPECT_TRUE(std::isnan(out.back()));
    EXPECT_EQ(out.size() == 2 ? out[0] : inf, inf);
  }
  OpTest lowest = Pool("max", {1, 1, 2, 2, {2, 2}, {2, 2}}, {-inf, -inf, -inf, -inf});
  ASSERT_OK(lowest.Run());
  EXPECT_THAT(lowest.Values("Out"), ElementsAre(-inf));
}

TEST(Pool2dTest, WhatDoesNotFitIsRefusedByName) {
  const auto refusal = [](const std::string& type, const Case& c) {
    OpTest t = Pool(type, c, Numbers(ElementCount(c.x())));
    return std::string(t.InferShapes().message());
  };
  EXPECT_THAT(refusal("least", {1, 1, 2, 2, {2, 2}, {2, 2}}), HasSubstr("type must be max or average, got 'least'"));
  EXPECT_THAT(refusal("max", {1, 1, 2, 2, {3, 2}, {2, 2}}),
              HasSubstr("height: a kernel of 3 does not fit into 2 elements"));
  EXPECT_THAT(refusal("max", {1, 1, 2, 2, {2, 2}, {2, 2}, {2, 0}}),
              HasSubstr("height: padding must be at least 0 and below the kernel, 2, got 2"));
  EXPECT_THAT(refusal("average", {1, 1, 2, 2, {2}, {2, 2}}),
              HasSubstr("kernel must be two numbers, of height and width, got 1"));
}

}  // namespace
}  // namespace weir
