#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "framework/runtime/row_rule.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/vector_unit.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Values;

struct Rule {
  std::string name;
  std::string type;
  std::vector<v1::OpAttr> attrs;
  double lr;
};

// The textbook, in double, one element: state[0..1] and the count of updates.
struct Element {
  double w = 0, s0 = 0, s1 = 0, s2 = 0;
  int count = 0;
};

double Attr(const Rule& rule, std::string_view name, double default_value) {
  for (const v1::OpAttr& a : rule.attrs) {
    if (a.name() == name) return a.has_b() ? a.b() : a.f();
  }
  return default_value;
}

Element Fresh(const Rule& rule, double w) {
  Element e{.w = w};
  if (rule.type == "adagrad") e.s0 = Attr(rule, "initial_accumulator", 0);
  if (rule.type == "ftrl") e.s0 = Attr(rule, "initial_accumulator", 0.1);
  return e;
}

void Reference(const Rule& rule, double g, Element* e) {
  ++e->count;
  if (rule.type == "sgd") {
    e->w -= rule.lr * g;
  } else if (rule.type == "momentum") {
    const double mu = Attr(rule, "mu", 0.9);
    e->s0 = mu * e->s0 + g;
    e->w -= rule.lr * (Attr(rule, "use_nesterov", 0) != 0 ? g + mu * e->s0 : e->s0);
  } else if (rule.type == "adagrad") {
    e->s0 += g * g;
    e->w -= rule.lr * g / (std::sqrt(e->s0) + Attr(rule, "epsilon", 1e-6));
  } else if (rule.type == "decayed_adagrad") {
    const double decay = Attr(rule, "decay", 0.95);
    e->s0 = decay * e->s0 + (1 - decay) * g * g;
    e->w -= rule.lr * g / (std::sqrt(e->s0) + Attr(rule, "epsilon", 1e-6));
  } else if (rule.type == "rmsprop" || rule.type == "rmsprop_centered") {
    const double rho = Attr(rule, "rho", 0.95);
    e->s0 = rho * e->s0 + (1 - rho) * g * g;
    if (rule.type == "rmsprop_centered") e->s2 = rho * e->s2 + (1 - rho) * g;
    e->s1 = Attr(rule, "mu", 0) * e->s1 + rule.lr * g / std::sqrt(e->s0 - e->s2 * e->s2 + Attr(rule, "epsilon", 1e-6));
    e->w -= e->s1;
  } else if (rule.type == "adamax") {
    const double b1 = Attr(rule, "beta1", 0.9);
    e->s0 = b1 * e->s0 + (1 - b1) * g;
    e->s1 = std::max(Attr(rule, "beta2", 0.999) * e->s1 + Attr(rule, "epsilon", 1e-8), std::abs(g));
    e->w -= rule.lr / (1 - std::pow(b1, e->count)) * e->s0 / e->s1;
  } else if (rule.type == "adam" || rule.type == "adamw") {
    const double b1 = Attr(rule, "beta1", 0.9), b2 = Attr(rule, "beta2", 0.999);
    e->s0 = b1 * e->s0 + (1 - b1) * g;
    e->s1 = b2 * e->s1 + (1 - b2) * g * g;
    const double mhat = e->s0 / (1 - std::pow(b1, e->count)), vhat = e->s1 / (1 - std::pow(b2, e->count));
    const double decay = rule.type == "adamw" ? rule.lr * Attr(rule, "weight_decay", 0.01) * e->w : 0;
    e->w -= rule.lr * mhat / (std::sqrt(vhat) + Attr(rule, "epsilon", 1e-8)) + decay;
  } else {
    const double p = -Attr(rule, "lr_power", -0.5), l1 = Attr(rule, "l1", 0), l2 = Attr(rule, "l2", 0);
    const double n = e->s0 + g * g;
    e->s1 += g - (std::pow(n, p) - std::pow(e->s0, p)) / rule.lr * e->w;
    e->s0 = n;
    const double sign = e->s1 < 0 ? -1 : 1;
    e->w = std::abs(e->s1) <= l1 ? 0 : (sign * l1 - e->s1) / (std::pow(n, p) / rule.lr + 2 * l2);
  }
}

// Numbers in (-1, 1) that a step and a place determine.
float Number(int step, int64_t i) {
  const uint32_t bits =
      static_cast<uint32_t>(step * 7919 + 13) * 2654435761u ^ static_cast<uint32_t>(i * 40503 + 77) * 2246822519u;
  return static_cast<float>((bits >> 9) % 20001) / 10000.0f - 1.0f;
}

const OpDef& Def(const std::string& type) { return *OpRegistry::Global().Find(type); }

// A parameter with its states, updated by the op through the registries.
class Trained {
 public:
  Trained(const Rule& rule, absl::Span<const int64_t> dims, std::vector<float> w, bool rows)
      : rule_(rule), dims_(dims.begin(), dims.end()), w_(std::move(w)) {
    for (const StateDef& s : Def(rule.type).state) {
      const int64_t size = s.like == StateDef::kParameter ? ElementCount(dims_) : rows ? dims_[0] : 1;
      const double initial = s.initial_attr.empty() ? s.initial : Fresh(rule, 0).s0;
      states_[s.slot] = std::vector<float>(static_cast<size_t>(size), static_cast<float>(initial));
    }
  }

  absl::Status Step(const std::vector<float>& grad) {
    return Run([&](OpTest& t) { t.Fixed("Grad", dims_, grad); }, /*rows=*/false);
  }
  absl::Status Step(SelectedRows grad) {
    return Run([&](OpTest& t) { t.Rows("Grad", std::move(grad), ElementCount(absl::MakeConstSpan(dims_).subspan(1))); },
               /*rows=*/true);
  }

  const std::vector<float>& w() const { return w_; }
  const std::vector<float>& state(const std::string& slot) const { return states_.at(slot); }

 private:
  template <typename SetGrad>
  absl::Status Run(SetGrad set_grad, bool rows) {
    OpTest t(rule_.type, rule_.attrs);
    t.Fixed("Param", dims_, w_);
    set_grad(t);
    t.Fixed("LearningRate", {1}, {static_cast<float>(rule_.lr)});
    t.SameVariable("ParamOut", "Param");
    for (const StateDef& s : Def(rule_.type).state) {
      const std::vector<float>& state = states_.at(s.slot);
      Shape dims = dims_;
      if (s.like == StateDef::kCount) dims = {rows ? dims_[0] : 1};
      t.Fixed(s.slot, dims, state);
      t.SameVariable(s.slot + "Out", s.slot);
    }
    const absl::Status status = t.Run();
    if (!status.ok()) return status;
    w_ = t.Values("ParamOut");
    for (const StateDef& s : Def(rule_.type).state) states_[s.slot] = t.Values(s.slot + "Out");
    return absl::OkStatus();
  }

  Rule rule_;
  Shape dims_;
  std::vector<float> w_;
  std::map<std::string, std::vector<float>> states_;
};

SelectedRows MakeRows(int64_t height, std::vector<int64_t> ids, const std::vector<float>& values) {
  SelectedRows rows;
  rows.height = height;
  const int64_t n = static_cast<int64_t>(ids.size());
  rows.ids = std::move(ids);
  rows.values = Tensor::Of<float>({n, static_cast<int64_t>(values.size()) / n}, values);
  rows.merged = true;
  rows.present = true;
  return rows;
}

std::unique_ptr<RowRule> MakeRule(const Rule& rule) {
  v1::OpDesc op = MakeOp(rule.type, {}, {}, rule.attrs);
  absl::StatusOr<std::unique_ptr<RowRule>> made = RowRuleRegistry::Global().Make(op);
  CHECK(made.ok()) << made.status();
  return std::move(*made);
}

std::vector<float> Numbers(int step, int64_t n) {
  std::vector<float> result;
  for (int64_t i = 0; i < n; ++i) result.push_back(Number(step, i));
  return result;
}

uint32_t Bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> result;
  for (float v : values) result.push_back(Bits(v));
  return result;
}

double Tolerance(double expected) { return 2e-6 * std::max(1.0, std::abs(expected)); }

class OptimizerTest : public ::testing::TestWithParam<Rule> {};

INSTANTIATE_TEST_SUITE_P(
    Rules, OptimizerTest,
    Values(
        Rule{"sgd", "sgd", {}, 0.1}, Rule{"momentum", "momentum", {AttrF("mu", 0.8)}, 0.05},
        Rule{"nesterov", "momentum", {AttrF("mu", 0.8), AttrB("use_nesterov", true)}, 0.05},
        Rule{"adagrad", "adagrad", {AttrF("epsilon", 1e-4), AttrF("initial_accumulator", 0.1)}, 0.1},
        Rule{"adam", "adam", {AttrF("beta1", 0.85), AttrF("beta2", 0.99)}, 0.01},
        Rule{"adamw", "adamw", {AttrF("beta1", 0.85), AttrF("beta2", 0.99), AttrF("weight_decay", 0.3)}, 0.01},
        Rule{"adamax", "adamax", {AttrF("beta1", 0.85), AttrF("beta2", 0.99)}, 0.01},
        // An epsilon as large as the gradients: how the bias correction scales it shows.
        Rule{"adam_epsilon", "adam", {AttrF("beta1", 0.85), AttrF("beta2", 0.99), AttrF("epsilon", 0.5)}, 0.01},
        Rule{"adamw_epsilon", "adamw", {AttrF("beta1", 0.85), AttrF("beta2", 0.99), AttrF("epsilon", 0.5)}, 0.01},
        Rule{"adamax_epsilon", "adamax", {AttrF("beta1", 0.85), AttrF("beta2", 0.99), AttrF("epsilon", 0.5)}, 0.01},
        Rule{"decayed_adagrad", "decayed_adagrad", {AttrF("decay", 0.9), AttrF("epsilon", 1e-4)}, 0.05},
        Rule{"rmsprop", "rmsprop", {AttrF("rho", 0.9), AttrF("mu", 0.6), AttrF("epsilon", 1e-3)}, 0.01},
        Rule{"rmsprop_centered",
             "rmsprop_centered",
             {AttrF("rho", 0.9), AttrF("mu", 0.6), AttrF("epsilon", 1e-3)},
             0.01},
        Rule{"ftrl", "ftrl", {AttrF("l1", 0.3), AttrF("l2", 0.2)}, 0.1},
        Rule{"ftrl_power", "ftrl", {AttrF("l1", 0.1), AttrF("lr_power", -0.7), AttrF("initial_accumulator", 1)}, 0.1}),
    [](const auto& info) { return info.param.name; });

TEST_P(OptimizerTest, DenseFollowsTheTextbookFor20Steps) {
  const int64_t n = 37;
  Trained trained(GetParam(), {n}, Numbers(0, n), /*rows=*/false);
  std::vector<Element> expected;
  for (float w : Numbers(0, n)) expected.push_back(Fresh(GetParam(), w));
  for (int step = 1; step <= 20; ++step) {
    ASSERT_OK(trained.Step(Numbers(step, n)));
    for (int64_t i = 0; i < n; ++i) {
      Reference(GetParam(), Number(step, i), &expected[i]);
      ASSERT_NEAR(trained.w()[i], expected[i].w, Tolerance(expected[i].w)) << "step " << step << " " << i;
    }
  }
}

TEST_P(OptimizerTest, RowsOfATableFollowTheTextbookFor20Steps) {
  const int width = 8;
  const std::unique_ptr<RowRule> rule = MakeRule(GetParam());
  std::vector<float> row(static_cast<size_t>(width + rule->state_width(width)));
  std::vector<Element> expected;
  for (int j = 0; j < width; ++j) {
    row[j] = Number(0, j);
    expected.push_back(Fresh(GetParam(), row[j]));
  }
  rule->InitState(width, row.data() + width);
  for (int step = 1; step <= 20; ++step) {
    // Sums over 16 samples.
    std::vector<float> grad;
    for (int j = 0; j < width; ++j) grad.push_back(16 * Number(step, j));
    float* rows[] = {row.data()};
    const float* grads[] = {grad.data()};
    rule->Update(width, static_cast<float>(GetParam().lr), 16, 1, rows, grads);
    for (int j = 0; j < width; ++j) {
      Reference(GetParam(), Number(step, j), &expected[j]);
      ASSERT_NEAR(row[j], expected[j].w, Tolerance(expected[j].w)) << "step " << step << " " << j;
    }
  }
}

TEST_P(OptimizerTest, DenseRowsAndTableRowsGiveTheSameBits) {
  for (const int64_t width : {1, 3, 8, 16, 20, 32, 64}) {
    const int64_t height = 5;
    const std::vector<float> start = Numbers(0, height * width);
    Trained dense(GetParam(), {height, width}, start, /*rows=*/false);
    Trained rows(GetParam(), {height, width}, start, /*rows=*/true);
    const std::unique_ptr<RowRule> rule = MakeRule(GetParam());
    const int64_t floats = width + rule->state_width(static_cast<int>(width));
    std::vector<float> table(static_cast<size_t>(height * floats));
    for (int64_t r = 0; r < height; ++r) {
      std::copy_n(start.begin() + r * width, width, table.begin() + r * floats);
      rule->InitState(static_cast<int>(width), table.data() + r * floats + width);
    }
    for (int step = 1; step <= 7; ++step) {
      const std::vector<float> sums = Numbers(step, height * width);
      std::vector<float> grad = sums;
      for (float& g : grad) g /= 3;
      ASSERT_OK(dense.Step(grad));
      ASSERT_OK(rows.Step(MakeRows(height, {0, 1, 2, 3, 4}, grad)));
      std::vector<float*> row_pointers;
      std::vector<const float*> grad_pointers;
      for (int64_t r = 0; r < height; ++r) {
        row_pointers.push_back(table.data() + r * floats);
        grad_pointers.push_back(sums.data() + r * width);
      }
      rule->Update(static_cast<int>(width), static_cast<float>(GetParam().lr), 3, height, row_pointers.data(),
                   grad_pointers.data());
      std::vector<float> values;
      for (int64_t r = 0; r < height; ++r) {
        values.insert(values.end(), table.begin() + r * floats, table.begin() + r * floats + width);
      }
      ASSERT_EQ(Bits(dense.w()), Bits(rows.w())) << "width " << width << " step " << step;
      ASSERT_EQ(Bits(dense.w()), Bits(values)) << "width " << width << " step " << step;
    }
  }
}

// Of some divisors the rule multiplies by the reciprocal.
TEST_P(OptimizerTest, EveryDivisorGivesTheBitsOfADivision) {
  const std::unique_ptr<RowRule> rule = MakeRule(GetParam());
  const auto updated = [&](int width, float divisor, const std::vector<float>& grad) {
    std::vector<float> row = Numbers(1, width);
    row.resize(static_cast<size_t>(width + rule->state_width(width)));
    rule->InitState(width, row.data() + width);
    float* const rows[] = {row.data()};
    const float* const grads[] = {grad.data()};
    rule->Update(width, 0.1f, divisor, 1, rows, grads);
    return Bits(row);
  };
  for (const int width : {1, 3, 4, 8, 16, 20, 64}) {
    for (const float divisor : {1.0f, 2.0f, 3.0f, 4096.0f, 6000.0f, 0.25f, -8.0f, 0x1p-126f, 0x1p126f, 0x1p127f}) {
      for (const float size : {1.0f, 1e-36f, 1e30f}) {
        std::vector<float> sums = Numbers(2, width), grad;
        for (float& sum : sums) grad.push_back((sum *= size) / divisor);
        EXPECT_EQ(updated(width, divisor, sums), updated(width, 1, grad)) << width << " " << divisor << " " << size;
      }
    }
  }
}

TEST_P(OptimizerTest, EveryVectorUnitGivesTheSameBits) {
  const std::unique_ptr<RowRule> rule = MakeRule(GetParam());
  const VectorUnit best = CurrentVectorUnit();
  for (const int width : {1, 2, 7, 8, 9, 16, 17, 24, 32, 64, 100}) {
    const int64_t n = 50, floats = width + rule->state_width(width);
    std::vector<std::vector<uint32_t>> results;
    for (const VectorUnit unit : {VectorUnit::kPlain, VectorUnit::kAvx2, VectorUnit::kAvx512}) {
      if (!SetVectorUnitForTest(unit)) continue;
      std::vector<float> rows = Numbers(1, n * floats);
      std::vector<float*> row_pointers;
      for (int64_t r = 0; r < n; ++r) {
        rule->InitState(width, rows.data() + r * floats + width);
        row_pointers.push_back(rows.data() + r * floats);
      }
      for (int step = 2; step < 6; ++step) {
        const std::vector<float> grads = Numbers(step, n * width);
        std::vector<const float*> grad_pointers;
        for (int64_t r = 0; r < n; ++r) grad_pointers.push_back(grads.data() + r * width);
        rule->Update(width, 0.1f, 7, n, row_pointers.data(), grad_pointers.data());
      }
      Trained dense(GetParam(), {n, width}, Numbers(1, n * width), /*rows=*/false);
      ASSERT_OK(dense.Step(Numbers(2, n * width)));
      results.push_back(Bits(rows));
      const std::vector<uint32_t> bits = Bits(dense.w());
      results.back().insert(results.back().end(), bits.begin(), bits.end());
    }
    SetVectorUnitForTest(best);
    for (const std::vector<uint32_t>& result : results) EXPECT_EQ(result, results[0]) << "width " << width;
  }
}

// Tests the rule's own UpdatePart, and the default one of a rule that has none.
TEST_P(OptimizerTest, PartsOfLongerRowsGiveTheSameBits) {
  class WithoutAForm : public RowRule {
   public:
    explicit WithoutAForm(const RowRule& rule) : rule_(rule) {}
    std::vector<State> states(int width) const override { return rule_.states(width); }
    void InitState(int width, float* state) const override { rule_.InitState(width, state); }
    void Update(int width, float rate, float divisor, int64_t n, float* const* rows,
                const float* const* grads) const override {
      rule_.Update(width, rate, divisor, n, rows, grads);
    }

   private:
    const RowRule& rule_;
  };
  const std::unique_ptr<RowRule> rule = MakeRule(GetParam());
  const WithoutAForm slow(*rule);
  for (const int width : {1, 3, 4, 8, 16, 20}) {
    const int64_t n = 12, state = rule->state_width(width), whole = width + state;
    // Three floats of others before the values, five between them and their state.
    const int64_t state_at = width + 5, length = 3 + state_at + state + 2;
    std::vector<float> rows = Numbers(1, n * whole), fast = Numbers(2, n * length);
    for (int64_t r = 0; r < n; ++r) {
      rule->InitState(width, rows.data() + r * whole + width);
      std::copy_n(rows.data() + r * whole, width, fast.data() + r * length + 3);
      std::copy_n(rows.data() + r * whole + width, state, fast.data() + r * length + 3 + state_at);
    }
    std::vector<float> parts = fast;
    const std::vector<float> before = fast;
    for (int step = 2; step < 6; ++step) {
      const std::vector<float> grads = Numbers(step, n * width);
      std::vector<float*> row_pointers, fast_pointers, part_pointers;
      std::vector<const float*> grad_pointers;
      for (int64_t r = 0; r < n; ++r) {
        row_pointers.push_back(rows.data() + r * whole);
        fast_pointers.push_back(fast.data() + r * length + 3);
        part_pointers.push_back(parts.data() + r * length + 3);
        grad_pointers.push_back(grads.data() + r * width);
      }
      rule->Update(width, 0.1f, 7, n, row_pointers.data(), grad_pointers.data());
      rule->UpdatePart(width, state_at, 0.1f, 7, n, fast_pointers.data(), grad_pointers.data());
      slow.UpdatePart(width, state_at, 0.1f, 7, n, part_pointers.data(), grad_pointers.data());
    }
    EXPECT_EQ(Bits(fast), Bits(parts)) << "width " << width;
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t j = 0; j < length; ++j) {
        const int64_t at = j - 3;
        const bool own = (at >= 0 && at < width) || (at >= state_at && at < state_at + state);
        const float want = !own         ? before[r * length + j]
                           : at < width ? rows[r * whole + at]
                                        : rows[r * whole + width + at - state_at];
        ASSERT_EQ(Bits(fast[r * length + j]), Bits(want)) << "width " << width << " row " << r << " float " << j;
      }
    }
  }
}

TEST_P(OptimizerTest, ManyThreadsGiveTheSameBits) {
  ThreadPool pool("test", 2);
  const int64_t n = 100000;
  std::vector<std::vector<float>> results;
  for (ThreadPool* p : {static_cast<ThreadPool*>(nullptr), &pool}) {
    OpTest t(GetParam().type, GetParam().attrs);
    t.step().pool = p;
    t.Fixed("Param", {n}, Numbers(0, n)).Fixed("Grad", {n}, Numbers(1, n)).Fixed("LearningRate", {1}, {0.1f});
    t.SameVariable("ParamOut", "Param");
    for (const StateDef& s : Def(GetParam().type).state) {
      if (s.like == StateDef::kCount) {
        t.Fixed(s.slot, {1}, {3});
      } else {
        std::vector<float> state = Numbers(2, n);
        for (float& v : state) v = std::abs(v);
        t.Fixed(s.slot, {n}, state);
      }
      t.SameVariable(s.slot + "Out", s.slot);
    }
    ASSERT_OK(t.Run());
    results.push_back(t.Values("ParamOut"));
  }
  EXPECT_EQ(Bits(results[0]), Bits(results[1]));
}

TEST_P(OptimizerTest, OnlyRowsInTheGradientChange) {
  const std::vector<float> start = Numbers(0, 8);
  Trained trained(GetParam(), {4, 2}, start, /*rows=*/true);
  ASSERT_OK(trained.Step(MakeRows(4, {2, 0}, {1, 2, 3, 4})));
  for (int i : {2, 3, 6, 7}) EXPECT_EQ(Bits(trained.w()[i]), Bits(start[i]));
  for (int i : {0, 1, 4, 5}) EXPECT_NE(Bits(trained.w()[i]), Bits(start[i]));
  for (const StateDef& s : Def(GetParam().type).state) {
    const std::vector<float>& state = trained.state(s.slot);
    const size_t width = state.size() / 4;
    for (size_t j = 0; j < width; ++j) {
      EXPECT_EQ(state[1 * width + j], state[3 * width + j]) << s.slot;
      EXPECT_NE(state[1 * width + j], state[2 * width + j]) << s.slot;
    }
  }
}

TEST_P(OptimizerTest, AnAbsentGradientChangesNothing) {
  const std::vector<float> start = Numbers(0, 4);
  Trained trained(GetParam(), {2, 2}, start, /*rows=*/true);
  SelectedRows absent;
  absent.height = 2;
  ASSERT_OK(trained.Step(absent));
  EXPECT_EQ(Bits(trained.w()), Bits(start));
}

TEST_P(OptimizerTest, NanInTheGradientIsNotHidden) {
  Trained trained(GetParam(), {2}, {1, 2}, /*rows=*/false);
  ASSERT_OK(trained.Step(std::vector<float>{std::nanf(""), 1}));
  EXPECT_TRUE(std::isnan(trained.w()[0]));
  EXPECT_FALSE(std::isnan(trained.w()[1]));
}

TEST_P(OptimizerTest, AGradientOfAnotherShapeIsRefused) {
  OpTest t(GetParam().type, GetParam().attrs);
  t.Fixed("Param", {2, 3}, Numbers(0, 6)).Fixed("Grad", {3, 2}, Numbers(0, 6)).Fixed("LearningRate", {1}, {0.1f});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("Grad [3, 2] does not fit Param [2, 3]"));
}

TEST_P(OptimizerTest, RowsThatAreNotMergedAreRefused) {
  Trained trained(GetParam(), {4, 2}, Numbers(0, 8), /*rows=*/true);
  SelectedRows grad = MakeRows(4, {1, 1}, {1, 2, 3, 4});
  grad.merged = false;
  EXPECT_THAT(std::string(trained.Step(grad).message()), HasSubstr("not merged"));
}

TEST_P(OptimizerTest, ARowOutsideTheParameterIsRefused) {
  Trained trained(GetParam(), {4, 2}, Numbers(0, 8), /*rows=*/true);
  EXPECT_THAT(std::string(trained.Step(MakeRows(4, {1, 4}, {1, 2, 3, 4})).message()),
              HasSubstr("row 4; Param has rows 0 to 3"));
}

TEST_P(OptimizerTest, AMissingStateIsRefused) {
  if (Def(GetParam().type).state.empty()) return;
  OpTest t(GetParam().type, GetParam().attrs);
  t.Fixed("Param", {2}, {1, 2}).Fixed("Grad", {2}, {1, 2}).Fixed("LearningRate", {1}, {0.1f});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr(Def(GetParam().type).state[0].slot + " is missing"));
}

TEST(SgdTest, ByHand) {
  Trained trained({"", "sgd", {}, 0.5}, {2}, {1, 2}, /*rows=*/false);
  ASSERT_OK(trained.Step(std::vector<float>{4, -2}));
  EXPECT_THAT(trained.w(), ElementsAre(-1, 3));
}

TEST(MomentumTest, NesterovLooksAhead) {
  // v = 2; w = 1 - 0.5 * (2 + 0.5 * 2)
  Trained trained({"", "momentum", {AttrF("mu", 0.5), AttrB("use_nesterov", true)}, 0.5}, {1}, {1}, /*rows=*/false);
  ASSERT_OK(trained.Step(std::vector<float>{2}));
  EXPECT_THAT(trained.w(), ElementsAre(-0.5f));
  EXPECT_THAT(trained.state("Velocity"), ElementsAre(2));
}

TEST(AdagradTest, ByHand) {
  // a = 9 + 16; w = 1 - 0.5 * 4 / (5 + 0)
  Trained trained({"", "adagrad", {AttrF("epsilon", 0), AttrF("initial_accumulator", 9)}, 0.5}, {1}, {1},
                  /*rows=*/false);
  ASSERT_OK(trained.Step(std::vector<float>{4}));
  EXPECT_THAT(trained.w(), ElementsAre(0.6f));
  EXPECT_THAT(trained.state("Moment"), ElementsAre(25));
}

std::vector<float> PerRow(const RowRule& rule, int width, const std::vector<float>& start, int steps, float divisor) {
  std::vector<float> row = start;
  row.resize(static_cast<size_t>(width) + static_cast<size_t>(rule.state_width(width)));
  rule.InitState(width, row.data() + width);
  float* rows[] = {row.data()};
  for (int step = 1; step <= steps; ++step) {
    std::vector<float> grad = Numbers(step, width);
    for (float& g : grad) g *= divisor;
    const float* grads[] = {grad.data()};
    rule.Update(width, 0.1f, divisor, 1, rows, grads);
  }
  return row;
}

const Rule kPerRow = {"", "adagrad_per_row", {AttrF("epsilon", 1e-4), AttrF("initial_accumulator", 0.1)}, 0.1};

TEST(AdagradPerRowTest, FollowsTheTextbookFor20Steps) {
  const std::unique_ptr<RowRule> rule = MakeRule(kPerRow);
  for (const int width : {1, 3, 4, 8, 16, 21, 64, 100}) {
    ASSERT_EQ(rule->state_width(width), 1);
    const std::vector<float> start = Numbers(0, width);
    std::vector<double> w(start.begin(), start.end());
    double a = 0.1;
    for (int step = 1; step <= 20; ++step) {
      double squares = 0;
      for (int j = 0; j < width; ++j) squares += static_cast<double>(Number(step, j)) * Number(step, j);
      a += squares / width;
      for (int j = 0; j < width; ++j) w[j] -= 0.1 * Number(step, j) / (std::sqrt(a) + 1e-4);
    }
    const std::vector<float> row = PerRow(*rule, width, start, 20, 16);
    for (int j = 0; j < width; ++j)
      EXPECT_NEAR(row[j], w[j], 1e-6 * std::max(1.0, std::abs(w[j]))) << "width " << width;
    EXPECT_NEAR(row[width], a, 1e-5);
  }
}

TEST(AdagradPerRowTest, EveryVectorUnitGivesTheSameBits) {
  const std::unique_ptr<RowRule> rule = MakeRule(kPerRow);
  const VectorUnit best = CurrentVectorUnit();
  for (const int width : {1, 2, 4, 7, 8, 16, 17, 24, 32, 64, 100}) {
    std::vector<std::vector<uint32_t>> results;
    for (const VectorUnit unit : {VectorUnit::kPlain, VectorUnit::kAvx2, VectorUnit::kAvx512}) {
      if (SetVectorUnitForTest(unit)) results.push_back(Bits(PerRow(*rule, width, Numbers(0, width), 9, 7)));
    }
    SetVectorUnitForTest(best);
    for (const std::vector<uint32_t>& result : results) EXPECT_EQ(result, results[0]) << "width " << width;
  }
}

// Widths that have loops of their own sum in the order of those that have none.
TEST(AdagradPerRowTest, TheMeanIsThatOfSixteenSumsInATree) {
  const std::unique_ptr<RowRule> rule = MakeRule(kPerRow);
  for (const int width : {1, 4, 8, 16, 32, 64, 20, 100}) {
    const std::vector<float> grad = Numbers(1, width);
    float sums[16] = {};
    for (int j = 0; j < width; ++j) sums[j % 16] += grad[j] * grad[j];
    for (int half = 8; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
    }
    const std::vector<float> row = PerRow(*rule, width, Numbers(0, width), 1, 1);
    EXPECT_EQ(Bits(row[width]), Bits(0.1f + sums[0] / static_cast<float>(width))) << "width " << width;
  }
}

TEST(AdagradPerRowTest, IsForTablesAlone) {
  OpTest t("adagrad_per_row");
  t.Fixed("Param", {2}, {1, 2}).Fixed("Grad", {2}, {1, 2}).Fixed("LearningRate", {1}, {0.1f}).Fixed("Moment", {1}, {0});
  EXPECT_FALSE(t.Run().ok());
}

TEST(UpdateOpTest, ColumnsAndWhatBelongsToThemAreForTables) {
  for (const v1::OpAttr& attr : {AttrInts("columns", {0, 1}), AttrI("after", 2)}) {
    OpTest t("sgd", {attr});
    t.Fixed("Param", {2, 2}, Numbers(0, 4)).Fixed("Grad", {2, 2}, Numbers(0, 4)).Fixed("LearningRate", {1}, {0.1f});
    EXPECT_THAT(std::string(t.InferShapes().message()),
                HasSubstr(attr.name() == "after" ? "after is for tables" : "columns are for rows of tables"));
  }
}

TEST(AdamTest, TheFirstStepOfARowIsAFullStepWheneverItComes) {
  // mhat = g, vhat = g^2: w moves by lr against the sign of g.
  Trained trained({"", "adam", {}, 0.25}, {2, 1}, {1, 1}, /*rows=*/true);
  for (int step = 0; step < 5; ++step) ASSERT_OK(trained.Step(MakeRows(2, {0}, {3})));
  EXPECT_EQ(trained.w()[1], 1);
  ASSERT_OK(trained.Step(MakeRows(2, {1}, {-7})));
  EXPECT_NEAR(trained.w()[1], 1.25, 1e-6);
  EXPECT_THAT(trained.state("Step"), ElementsAre(5, 1));
}

TEST(AdamTest, CountsBeyondTheKnownPowersGoOnSmoothly) {
  // The table of powers ends at 4096; the formula takes over with the same numbers.
  const Rule rule = {"", "adam", {AttrF("beta2", 0.9999)}, 0.01};
  const std::unique_ptr<RowRule> rows = MakeRule(rule);
  for (const float count : {4094.0f, 4095.0f, 4096.0f, 100000.0f}) {
    std::vector<float> row = {1, 0.3f, 0.2f, count};
    const std::vector<float> grad = {0.5f};
    float* row_pointers[] = {row.data()};
    const float* grad_pointers[] = {grad.data()};
    rows->Update(1, 0.01f, 1, 1, row_pointers, grad_pointers);
    Element e{.w = 1, .s0 = 0.3f, .s1 = 0.2f, .count = static_cast<int>(count)};
    Reference(rule, 0.5, &e);
    EXPECT_NEAR(row[0], e.w, 1e-6) << count;
    EXPECT_EQ(row[3], count + 1);
  }
}

TEST(AdamTest, CountsOfAveragedReplicasNeedNotBeWhole) {
  for (const char* type : {"adam", "adamax"}) {
    const std::unique_ptr<RowRule> rows = MakeRule({"", type, {}, 0.01});
    for (const float count : {0.25f, 1.5f, 2.75f}) {
      std::vector<float> row = {1, 0.3f, 0.2f, count};
      const std::vector<float> grad = {0.5f};
      float* row_pointers[] = {row.data()};
      const float* grad_pointers[] = {grad.data()};
      rows->Update(1, 0.01f, 1, 1, row_pointers, grad_pointers);
      const double t = count + 1, m = 0.9 * 0.3 + 0.1 * 0.5, rate = 0.01 * m / (1 - std::pow(0.9, t));
      const double v = (0.999 * 0.2 + 0.001 * 0.25) / (1 - std::pow(0.999, t));
      EXPECT_NEAR(row[0], 1 - rate / (std::string(type) == "adam" ? std::sqrt(v) : 0.5), 1e-6) << type << " " << count;
    }
  }
}

TEST(FtrlTest, ARateOfZeroChangesNothing) {
  Trained trained({"", "ftrl", {}, 0}, {1}, {0.5f}, /*rows=*/false);
  ASSERT_OK(trained.Step(std::vector<float>{2}));
  EXPECT_THAT(trained.w(), ElementsAre(0.5f));
  EXPECT_THAT(trained.state("SquaredAccumulator"), ElementsAre(0.1f));
  EXPECT_THAT(trained.state("LinearAccumulator"), ElementsAre(0));
}

TEST(RmspropTest, OnlyTheCenteredFormKeepsTheMeanGradient) {
  EXPECT_EQ(Def("rmsprop").state.size(), 2u);
  // r = 0.1 * 4; v = 0.5 * 2 / sqrt(0.4 + 0.1)
  Trained plain({"", "rmsprop", {AttrF("rho", 0.9), AttrF("epsilon", 0.1)}, 0.5}, {1}, {1}, /*rows=*/false);
  ASSERT_OK(plain.Step(std::vector<float>{2}));
  EXPECT_NEAR(plain.w()[0], 1 - 1 / std::sqrt(0.5), 1e-6);
  // s = 0.2; v = 0.5 * 2 / sqrt(0.4 - 0.04 + 0.1)
  Trained centered({"", "rmsprop_centered", {AttrF("rho", 0.9), AttrF("epsilon", 0.1)}, 0.5}, {1}, {1}, /*rows=*/false);
  ASSERT_OK(centered.Step(std::vector<float>{2}));
  EXPECT_NEAR(centered.w()[0], 1 - 1 / std::sqrt(0.46), 1e-6);
  EXPECT_NEAR(centered.state("MeanGrad")[0], 0.2, 1e-7);
}

TEST(RmspropTest, GradientsThatDoNotDifferLeaveAVarianceOfZero) {
  // r - s^2 is 0 up to rounding of numbers near 1e6, far more than epsilon.
  Trained centered({"", "rmsprop_centered", {AttrF("rho", 0.5), AttrF("epsilon", 1e-6)}, 1e-6}, {1}, {1},
                   /*rows=*/false);
  for (int step = 0; step < 60; ++step) ASSERT_OK(centered.Step(std::vector<float>{1234.567f}));
  EXPECT_TRUE(std::isfinite(centered.w()[0]));
}

TEST(FtrlTest, L1KeepsWeightsAtZero) {
  Trained trained({"", "ftrl", {AttrF("l1", 1.0)}, 0.1}, {2}, {0, 0}, /*rows=*/false);
  ASSERT_OK(trained.Step(std::vector<float>{0.5f, 2}));
  EXPECT_EQ(trained.w()[0], 0);
  EXPECT_LT(trained.w()[1], 0);
}

TEST(RowRuleTest, StatesAreNamedAndHaveInitialValues) {
  const std::unique_ptr<RowRule> ftrl = MakeRule({"", "ftrl", {AttrF("initial_accumulator", 0.25)}, 0.1});
  ASSERT_EQ(ftrl->states(4).size(), 2u);
  EXPECT_EQ(ftrl->states(4)[0].name, "squared_accumulator");
  EXPECT_EQ(ftrl->states(4)[1].name, "linear_accumulator");
  std::vector<float> state(8, 9);
  ftrl->InitState(4, state.data());
  EXPECT_THAT(state, ElementsAre(0.25f, 0.25f, 0.25f, 0.25f, 0, 0, 0, 0));
  const std::unique_ptr<RowRule> adam = MakeRule({"", "adam", {}, 0.1});
  ASSERT_EQ(adam->states(4).size(), 3u);
  EXPECT_EQ(adam->states(4)[2].name, "step");
  EXPECT_EQ(adam->states(4)[2].width, 1);
  EXPECT_EQ(adam->state_width(4), 9);
}

TEST(RowRuleTest, ATableHasItsStateInItsRows) {
  OpTest t("adagrad");
  v1::OpDesc op;
  SelectedRows grad = MakeRows(-1, {5}, {1, 2});
  grad.height = 3;
  t.Fixed("Param", {3, 2}, Numbers(0, 6)).Rows("Grad", grad, 2).Fixed("LearningRate", {2}, {0.1f, 0.1f});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("LearningRate must have one element, got [2]"));
}

}  // namespace
}  // namespace weir
