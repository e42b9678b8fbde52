// Norms and what reads them, against the textbook in double.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "framework/base/exact_sum.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

// Numbers in (-1, 1) that a step and a place determine.
Floats Numbers(int step, int64_t n) {
  Floats values;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits =
        static_cast<uint32_t>(step * 7919 + 13) * 2654435761u ^ static_cast<uint32_t>(i * 40503 + 77) * 2246822519u;
    values.push_back(static_cast<float>((bits >> 9) % 20001) / 10000.0f - 1.0f);
  }
  return values;
}

template <typename Values>
double NormOf(const Values& values) {
  long double sum = 0;
  for (const auto v : values) sum += static_cast<long double>(v) * v;
  return static_cast<double>(std::sqrt(sum));
}

Tensor Norm(double norm) { return Tensor::Of<double>({1}, absl::MakeConstSpan(&norm, 1)); }

SelectedRows MakeRows(int64_t height, std::vector<int64_t> ids, const Floats& values) {
  SelectedRows rows;
  rows.height = height;
  const int64_t n = static_cast<int64_t>(ids.size());
  rows.ids = std::move(ids);
  rows.values = Tensor::Of<float>({n, static_cast<int64_t>(values.size()) / n}, values);
  rows.merged = true;
  rows.present = true;
  return rows;
}

Tensor SumOf(const Floats& values) {
  OpTest t("sum_of_squares");
  t.Fixed("X", {static_cast<int64_t>(values.size())}, values);
  EXPECT_OK(t.Run());
  Tensor copy;
  copy.CopyFrom(t.Output("Out"));
  return copy;
}

TEST(SumOfSquaresTest, OfASliceOfRowsAndOfNothing) {
  EXPECT_EQ(ExactSum::FromWords(SumOf({3, -4, 12}).span<int64_t>())->Rounded(), 169);
  OpTest rows("sum_of_squares");
  rows.Rows("X", MakeRows(100, {7, 3}, {1, 2, 3, 4}), 2);
  ASSERT_OK(rows.Run());
  EXPECT_EQ(ExactSum::FromWords(rows.Output("Out").span<int64_t>())->Rounded(), 30);
  OpTest absent("sum_of_squares");
  absent.Absent("X", {5});
  ASSERT_OK(absent.Run());
  EXPECT_EQ(ExactSum::FromWords(absent.Output("Out").span<int64_t>())->Rounded(), 0);
}

TEST(SumOfSquaresTest, APoolChangesNoBit) {
  const Floats values = Numbers(1, 300000);
  ThreadPool pool("sums", 3);
  OpTest t("sum_of_squares");
  t.Fixed("X", {300000}, values);
  t.step().pool = &pool;
  ASSERT_OK(t.Run());
  const Tensor alone = SumOf(values);
  EXPECT_EQ(std::vector<int64_t>(t.Output("Out").span<int64_t>().begin(), t.Output("Out").span<int64_t>().end()),
            std::vector<int64_t>(alone.span<int64_t>().begin(), alone.span<int64_t>().end()));
}

TEST(WholeNormTest, IsOfAllPartsAndOfNoOrder) {
  for (bool swapped : {false, true}) {
    OpTest t("whole_norm", {AttrS("name", "w")});
    t.Fixed("X", SumOf(swapped ? Floats{12} : Floats{3, 4})).Fixed("X", SumOf(swapped ? Floats{3, 4} : Floats{12}));
    t.Outputs("Out", 2);
    ASSERT_OK(t.Run());
    EXPECT_EQ(t.Output("Out", 0).data<double>()[0], 13);
    EXPECT_EQ(t.Output("Out", 1).data<double>()[0], 13);
  }
}

TEST(WholeNormTest, ANormThatIsNoneIsNamed) {
  OpTest t("whole_norm", {AttrS("name", "fc.w@GRAD")});
  t.Fixed("X", SumOf({1, std::numeric_limits<float>::infinity()}));
  const absl::Status status = t.Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the norm of fc.w@GRAD is inf"));
}

TEST(WholeNormTest, TakesNothingButSums) {
  OpTest t("whole_norm", {AttrS("name", "w")});
  t.Fixed("X", {21}, Floats(21, 1));
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("X must be INT64 [21], the output of sum_of_squares"));
}

TEST(ClipByNormTest, BoundsTheNormAndLeavesShortGradientsAlone) {
  const Floats g = Numbers(2, 50);
  const double norm = NormOf(g);
  for (double max_norm : {0.5, 1e-3, 100.0}) {
    OpTest t("clip_by_norm", {AttrF("max_norm", max_norm)});
    t.Fixed("X", {50}, g).Fixed("Norm", Norm(norm));
    ASSERT_OK(t.Run());
    const Floats out = t.Values("Out");
    for (size_t i = 0; i < g.size(); ++i)
      EXPECT_NEAR(out[i], g[i] * max_norm / std::max(max_norm, norm), 1e-6 * max_norm);
    if (max_norm > norm) {
      EXPECT_EQ(out, g);
    }
  }
  OpTest rows("clip_by_norm", {AttrF("max_norm", 2.5)});
  rows.Rows("X", MakeRows(100, {7, 3}, {0, 3, 4, 0}), 2).Fixed("Norm", Norm(5));
  ASSERT_OK(rows.Run());
  const SelectedRows& out = std::get<SelectedRows>(rows.OutputVar("Out"));
  EXPECT_EQ(out.ids, (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(Floats(out.values.span<float>().begin(), out.values.span<float>().end()), (Floats{0, 1.5, 2, 0}));
}

TEST(ClipByNormTest, MaxNormIsPositive) {
  OpTest t("clip_by_norm", {AttrF("max_norm", 0)});
  t.Fixed("X", {1}, {1}).Fixed("Norm", Norm(1));
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("max_norm must be positive"));
}

constexpr double kLr = 0.1;

TEST(LarsMomentumTest, FollowsTheTextbookFor20Steps) {
  const double mu = 0.8, coeff = 0.02, decay = 0.01, epsilon = 1e-3;
  const int64_t n = 36;
  Floats w = Numbers(0, n), v(n, 0);
  Doubles dw(w.begin(), w.end()), dv(n, 0);
  for (int step = 1; step <= 20; ++step) {
    const Floats g = Numbers(step, n);
    OpTest t("lars_momentum", {AttrF("mu", mu), AttrF("lars_coeff", coeff), AttrF("lars_weight_decay", decay),
                               AttrF("epsilon", epsilon)});
    t.Fixed("Param", {12, 3}, w).Fixed("Grad", {12, 3}, g).Fixed("LearningRate", {1}, {static_cast<float>(kLr)});
    t.Fixed("Velocity", {12, 3}, v).Fixed("ParamNorm", Norm(NormOf(w))).Fixed("GradNorm", Norm(NormOf(g)));
    t.SameVariable("ParamOut", "Param").SameVariable("VelocityOut", "Velocity");
    ASSERT_OK(t.Run());
    w = t.Values("ParamOut");
    v = t.Values("VelocityOut");
    const double rate = kLr * coeff * NormOf(dw) / (NormOf(g) + decay * NormOf(dw) + epsilon);
    for (int64_t i = 0; i < n; ++i) {
      dv[i] = mu * dv[i] + rate * (g[i] + decay * dw[i]);
      dw[i] -= dv[i];
      ASSERT_NEAR(w[i], dw[i], 1e-6) << step;
    }
  }
}

TEST(LarsMomentumTest, TheRateIsPlainWhenANormIsZero) {
  for (bool zero_param : {false, true}) {
    OpTest t("lars_momentum", {AttrF("mu", 0.5), AttrF("lars_coeff", 0.02), AttrF("lars_weight_decay", 0.1)});
    t.Fixed("Param", {2}, zero_param ? Floats{0, 0} : Floats{1, 2})
        .Fixed("Grad", {2}, zero_param ? Floats{3, 4} : Floats{0, 0});
    t.Fixed("LearningRate", {1}, {0.5f}).Fixed("Velocity", {2}, {1, 0});
    t.Fixed("ParamNorm", Norm(zero_param ? 0 : 1)).Fixed("GradNorm", Norm(zero_param ? 5 : 0));
    t.SameVariable("ParamOut", "Param").SameVariable("VelocityOut", "Velocity");
    ASSERT_OK(t.Run());
    const Floats w = t.Values("ParamOut");
    EXPECT_NEAR(w[0], zero_param ? -(0.5 + 1.5) : 1 - (0.5 + 0.05), 1e-6);
  }
}

TEST(LambTest, FollowsTheTextbookFor20Steps) {
  const double b1 = 0.85, b2 = 0.99, epsilon = 1e-6, decay = 0.02;
  const int64_t n = 36;
  const std::vector<v1::OpAttr> attrs = {AttrF("beta1", b1), AttrF("beta2", b2), AttrF("epsilon", epsilon),
                                         AttrF("weight_decay", decay)};
  Floats w = Numbers(0, n), m(n, 0), v(n, 0), count = {0};
  Doubles dw(w.begin(), w.end()), dm(n, 0), dv(n, 0), r(n, 0);
  for (int step = 1; step <= 20; ++step) {
    const Floats g = Numbers(step, n);
    OpTest direction("lamb_direction", attrs);
    direction.Fixed("Param", {12, 3}, w)
        .Fixed("Grad", {12, 3}, g)
        .Fixed("Moment1", {12, 3}, m)
        .Fixed("Moment2", {12, 3}, v);
    direction.Fixed("Step", {1}, count);
    ASSERT_OK(direction.Run());
    OpTest t("lamb", attrs);
    t.Fixed("Param", {12, 3}, w).Fixed("Grad", {12, 3}, g).Fixed("LearningRate", {1}, {static_cast<float>(kLr)});
    t.Fixed("Moment1", {12, 3}, m).Fixed("Moment2", {12, 3}, v).Fixed("Step", {1}, count);
    t.Fixed("ParamNorm", Norm(NormOf(w))).Fixed("DirectionNorm", Norm(NormOf(direction.Values("Out"))));
    t.SameVariable("ParamOut", "Param").SameVariable("Moment1Out", "Moment1").SameVariable("Moment2Out", "Moment2");
    t.SameVariable("StepOut", "Step");
    ASSERT_OK(t.Run());
    w = t.Values("ParamOut");
    m = t.Values("Moment1Out");
    v = t.Values("Moment2Out");
    count = t.Values("StepOut");
    for (int64_t i = 0; i < n; ++i) {
      dm[i] = b1 * dm[i] + (1 - b1) * g[i];
      dv[i] = b2 * dv[i] + (1 - b2) * g[i] * g[i];
      r[i] = dm[i] / (1 - std::pow(b1, step)) / (std::sqrt(dv[i] / (1 - std::pow(b2, step))) + epsilon) + decay * dw[i];
      EXPECT_NEAR(direction.Values("Out")[i], r[i], 1e-5 * std::max(1.0, std::abs(r[i])));
    }
    const double rate = kLr * NormOf(dw) / NormOf(r);
    for (int64_t i = 0; i < n; ++i) {
      dw[i] -= rate * r[i];
      ASSERT_NEAR(w[i], dw[i], 1e-6 * std::max(1.0, std::abs(dw[i]))) << step;
    }
  }
  EXPECT_EQ(count, Floats{20});
}

// All rows in the gradient: the same as dense, but for the counts, of which there is one a row.
TEST(LambTest, RowsOfTheStepGetTheBitsOfADenseUpdateAndOthersStay) {
  const Floats w = Numbers(0, 9), g = Numbers(1, 6), m = Numbers(2, 9), v(9, 0.25f);
  const auto update = [&](bool rows, Floats* out) {
    OpTest t("lamb");
    t.Fixed("Param", {3, 3}, w);
    if (rows) {
      t.Rows("Grad", MakeRows(3, {2, 0}, g), 3);
    } else {
      t.Fixed("Grad", {3, 3}, {g[3], g[4], g[5], 0, 0, 0, g[0], g[1], g[2]});
    }
    t.Fixed("LearningRate", {1}, {0.1f}).Fixed("Moment1", {3, 3}, m).Fixed("Moment2", {3, 3}, v);
    t.Fixed("Step", {rows ? 3 : 1}, rows ? Floats{4, 9, 4} : Floats{4});
    t.Fixed("ParamNorm", Norm(2)).Fixed("DirectionNorm", Norm(3));
    t.SameVariable("ParamOut", "Param").SameVariable("Moment1Out", "Moment1").SameVariable("Moment2Out", "Moment2");
    t.SameVariable("StepOut", "Step");
    ASSERT_OK(t.Run());
    *out = t.Values("ParamOut");
    if (rows) {
      EXPECT_EQ(t.Values("StepOut"), (Floats{5, 9, 5}));
    }
  };
  Floats dense, rows;
  update(false, &dense);
  update(true, &rows);
  for (size_t i : {0, 1, 2, 6, 7, 8}) EXPECT_EQ(rows[i], dense[i]) << i;
  for (size_t i : {3, 4, 5}) EXPECT_EQ(rows[i], w[i]) << i;
}

TEST(LambTest, DirectionsOfRowsAreThoseOfADenseGradient) {
  const Floats w = Numbers(0, 9), g = Numbers(1, 6), m = Numbers(2, 9), v(9, 0.25f);
  const auto direction = [&](bool rows) {
    OpTest t("lamb_direction", {AttrF("weight_decay", 0.02)});
    t.Fixed("Param", {3, 3}, w);
    if (rows) {
      t.Rows("Grad", MakeRows(3, {2, 0}, g), 3);
    } else {
      t.Fixed("Grad", {3, 3}, {g[3], g[4], g[5], 0, 0, 0, g[0], g[1], g[2]});
    }
    t.Fixed("Moment1", {3, 3}, m).Fixed("Moment2", {3, 3}, v);
    t.Fixed("Step", {rows ? 3 : 1}, rows ? Floats{4, 9, 4} : Floats{4});
    EXPECT_TRUE(t.Run().ok());
    if (!rows) return t.Values("Out");
    const Tensor& values = std::get<SelectedRows>(t.OutputVar("Out")).values;
    return Floats(values.data<float>(), values.data<float>() + values.size());
  };
  const Floats dense = direction(false);
  EXPECT_EQ(direction(true), (Floats{dense[6], dense[7], dense[8], dense[0], dense[1], dense[2]}));
}

TEST(LarsMomentumTest, RowsOfTheStepGetTheBitsOfADenseUpdateAndOthersStay) {
  const Floats w = Numbers(0, 9), g = Numbers(1, 6), v = Numbers(2, 9);
  const auto update = [&](bool rows, Floats* out) {
    OpTest t("lars_momentum");
    t.Fixed("Param", {3, 3}, w);
    if (rows) {
      t.Rows("Grad", MakeRows(3, {2, 0}, g), 3);
    } else {
      t.Fixed("Grad", {3, 3}, {g[3], g[4], g[5], 0, 0, 0, g[0], g[1], g[2]});
    }
    t.Fixed("LearningRate", {1}, {0.1f})
        .Fixed("Velocity", {3, 3}, v)
        .Fixed("ParamNorm", Norm(2))
        .Fixed("GradNorm", Norm(3));
    t.SameVariable("ParamOut", "Param").SameVariable("VelocityOut", "Velocity");
    ASSERT_OK(t.Run());
    *out = t.Values("ParamOut");
  };
  Floats dense, rows;
  update(false, &dense);
  update(true, &rows);
  for (size_t i : {0, 1, 2, 6, 7, 8}) EXPECT_EQ(rows[i], dense[i]) << i;
  for (size_t i : {3, 4, 5}) EXPECT_EQ(rows[i], w[i]) << i;
}

}  // namespace
}  // namespace weir
