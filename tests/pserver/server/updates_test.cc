// Updates on servers: every optimizer with every schedule, and every decay and clip with both, against plain double
// arithmetic, with the same bits on every cluster.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/checkpoint/digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/update_cluster.h"
#include "transpiler/job/load_job.h"

namespace weir {
namespace {

constexpr int64_t kSteps = 20;
constexpr double kRate = 0.02;

// One element of a textbook implementation.
struct Element {
  double w = 0;
  double s[3] = {0, 0, 0};
  int count = 0;
};

struct Optimizer {
  const char* kind;
  const char* settings;
  double initial;  // value of s[0]
  void (*update)(Element& e, double lr, double g);
};

const Optimizer kOptimizers[] = {
    {"sgd", "", 0, [](Element& e, double lr, double g) { e.w -= lr * g; }},
    {"momentum", "mu: 0.8", 0,
     [](Element& e, double lr, double g) {
       e.s[0] = 0.8 * e.s[0] + g;
       e.w -= lr * e.s[0];
     }},
    {"momentum", "mu: 0.8 nesterov: true", 0,
     [](Element& e, double lr, double g) {
       e.s[0] = 0.8 * e.s[0] + g;
       e.w -= lr * (g + 0.8 * e.s[0]);
     }},
    {"adagrad", "epsilon: 1e-5 initial_accumulator: 0.1", 0.1,
     [](Element& e, double lr, double g) {
       e.s[0] += g * g;
       e.w -= lr * g / (std::sqrt(e.s[0]) + 1e-5);
     }},
    {"decayed_adagrad", "decay: 0.9 epsilon: 1e-5", 0,
     [](Element& e, double lr, double g) {
       e.s[0] = 0.9 * e.s[0] + (1 - 0.9) * g * g;
       e.w -= lr * g / (std::sqrt(e.s[0]) + 1e-5);
     }},
    {"adam", "beta1: 0.8 beta2: 0.95", 0,
     [](Element& e, double lr, double g) {
       e.s[0] = 0.8 * e.s[0] + (1 - 0.8) * g;
       e.s[1] = 0.95 * e.s[1] + (1 - 0.95) * g * g;
       const double m = e.s[0] / (1 - std::pow(0.8, e.count)), v = e.s[1] / (1 - std::pow(0.95, e.count));
       e.w -= lr * m / (std::sqrt(v) + 1e-8);
     }},
    {"adamw", "beta1: 0.8 beta2: 0.95 weight_decay: 0.1", 0,
     [](Element& e, double lr, double g) {
       e.s[0] = 0.8 * e.s[0] + (1 - 0.8) * g;
       e.s[1] = 0.95 * e.s[1] + (1 - 0.95) * g * g;
       const double m = e.s[0] / (1 - std::pow(0.8, e.count)), v = e.s[1] / (1 - std::pow(0.95, e.count));
       e.w -= lr * (m / (std::sqrt(v) + 1e-8) + 0.1 * e.w);
     }},
    {"adamax", "beta1: 0.8 beta2: 0.95", 0,
     [](Element& e, double lr, double g) {
       e.s[0] = 0.8 * e.s[0] + (1 - 0.8) * g;
       e.s[1] = std::max(0.95 * e.s[1] + 1e-8, std::abs(g));
       e.w -= lr / (1 - std::pow(0.8, e.count)) * e.s[0] / e.s[1];
     }},
    {"rmsprop", "rho: 0.9 mu: 0.5 epsilon: 1e-4", 0,
     [](Element& e, double lr, double g) {
       e.s[0] = 0.9 * e.s[0] + (1 - 0.9) * g * g;
       e.s[1] = 0.5 * e.s[1] + lr * g / std::sqrt(e.s[0] + 1e-4);
       e.w -= e.s[1];
     }},
    {"rmsprop", "rho: 0.9 mu: 0.5 epsilon: 1e-3 centered: true", 0,
     [](Element& e, double lr, double g) {
       e.s[0] = 0.9 * e.s[0] + (1 - 0.9) * g * g;
       e.s[2] = 0.9 * e.s[2] + (1 - 0.9) * g;
       e.s[1] = 0.5 * e.s[1] + lr * g / std::sqrt(e.s[0] - e.s[2] * e.s[2] + 1e-3);
       e.w -= e.s[1];
     }},
    {"ftrl", "l1: 0.01 l2: 0.1 initial_accumulator: 0.1", 0.1,
     [](Element& e, double lr, double g) {
       if (lr == 0) return;
       const double n = e.s[0] + g * g;
       e.s[1] += g - (std::sqrt(n) - std::sqrt(e.s[0])) / lr * e.w;
       e.s[0] = n;
       const double sign = e.s[1] < 0 ? -1 : 1;
       e.w = std::abs(e.s[1]) <= 0.01 ? 0 : (sign * 0.01 - e.s[1]) / (std::sqrt(n) / lr + 2 * 0.1);
     }},
};

struct Schedule {
  const char* text;
  // False if the optimizer's own rate is not set.
  bool uses_rate;
  double (*rate)(int64_t t);
};

const Schedule kSchedules[] = {
    {"", true, [](int64_t) { return kRate; }},
    {"schedule { constant {} warm_up { steps: 6 start_learning_rate: 0.001 } }", true,
     [](int64_t t) { return t < 6 ? 0.001 + (kRate - 0.001) * t / 6 : kRate; }},
    {"schedule { exponential { decay_steps: 5 decay_rate: 0.7 } }", true,
     [](int64_t t) { return kRate * std::pow(0.7, t / 5.0); }},
    {"schedule { exponential { decay_steps: 5 decay_rate: 0.7 staircase: true } }", true,
     [](int64_t t) { return kRate * std::pow(0.7, t / 5); }},
    {"schedule { natural_exp { decay_steps: 6 decay_rate: 0.5 } }", true,
     [](int64_t t) { return kRate * std::exp(-0.5 * t / 6); }},
    {"schedule { inverse_time { decay_steps: 4 decay_rate: 0.6 staircase: true } }", true,
     [](int64_t t) { return kRate / (1 + 0.6 * static_cast<double>(t >> 2)); }},
    {"schedule { polynomial { decay_steps: 12 end_learning_rate: 0.002 power: 1.5 } }", true,
     [](int64_t t) { return (kRate - 0.002) * std::pow(1 - std::min<int64_t>(t, 12) / 12.0, 1.5) + 0.002; }},
    {"schedule { polynomial { decay_steps: 7 end_learning_rate: 0.001 cycle: true } }", true,
     [](int64_t t) { return (kRate - 0.001) * (1 - t / (7.0 * std::max<int64_t>(1, (t + 6) / 7))) + 0.001; }},
    {"schedule { piecewise { boundaries: [4, 11] values: [0.02, 0.007, 0.003] } }", false,
     [](int64_t t) { return t < 4    ? 0.02
                            : t < 11 ? 0.007
                                     : 0.003; }},
    {"schedule { noam { d_model: 0.25 warmup_steps: 9 } }", true,
     [](int64_t t) { return kRate * 2 * std::min(std::pow(t + 1, -0.5), (t + 1) * std::pow(9, -1.5)); }},
    {"schedule { cosine { decay_steps: 15 end_learning_rate: 0.001 } }", true,
     [](int64_t t) { return 0.001 + (kRate - 0.001) * (1 + std::cos(M_PI * std::min<int64_t>(t, 15) / 15)) / 2; }},
    {"schedule { cosine { decay_steps: 15 } warm_up { steps: 4 end_learning_rate: 0.03 } }", true,
     [](int64_t t) { return t < 4 ? 0.03 * t / 4 : kRate * (1 + std::cos(M_PI * std::min<int64_t>(t, 15) / 15)) / 2; }},
};

struct Decay {
  const char* text;
  double l1, l2;
};
const Decay kDecays[] = {{"", 0, 0},
                         {"l1_decay: 0.004", 0.004, 0},
                         {"l2_decay: 0.03", 0, 0.03},
                         {"l1_decay: 0.002 l2_decay: 0.05", 0.002, 0.05}};

struct Clip {
  const char* text;
  double min, max;
};
const Clip kClips[] = {{"", -1e9, 1e9},
                       {"clip { by_value { max: 0.09 } }", -0.09, 0.09},
                       {"clip { by_value { min: -0.05 max: 0.15 } }", -0.05, 0.15}};

// Settings that may differ for one parameter.
struct Settings {
  double rate_factor = 1;
  Decay decay;
  Clip clip;
};

// Computes the averaged gradient of an element. Returns false if it has none.
bool Average(const std::string& parameter, int64_t row, int64_t element, int64_t step, double* g) {
  bool any = false;
  double sum = 0;
  int64_t samples = 0;
  for (int lane = 0; lane < kUpdateLanes; ++lane) {
    samples += LaneSamples(step, lane);
    if (!HasGradient(parameter, row, step, lane)) continue;
    any = true;
    sum += LaneGradient(parameter, element, step, lane);
  }
  *g = sum / static_cast<double>(samples);
  return any;
}

double Reference(const Optimizer& optimizer, const std::function<double(int64_t)>& rate, const Settings& settings,
                 const std::string& parameter, int64_t row, int64_t element, double initial) {
  Element e{.w = initial};
  e.s[0] = optimizer.initial;
  for (int64_t step = 0; step < kSteps; ++step) {
    double g = 0;
    if (!Average(parameter, row, element, step, &g)) continue;
    g = std::min(std::max(g, settings.clip.min), settings.clip.max);
    g += settings.decay.l1 * (e.w > 0 ? 1 : e.w < 0 ? -1 : 0) + settings.decay.l2 * e.w;
    ++e.count;
    optimizer.update(e, rate(step) * settings.rate_factor, g);
  }
  return e.w;
}

bool IsRows(const std::string& parameter) { return parameter == "s" || parameter == "t"; }

// Compares every element of small parameters and every 37th of large ones, to 1e-6.
void ExpectRight(const UpdateRun& run, const Optimizer& optimizer, const std::function<double(int64_t)>& rate,
                 const std::function<Settings(const std::string&)>& settings) {
  for (const auto& [parameter, values] : run.final) {
    const Settings own = settings(parameter);
    const std::vector<float>& initial = run.initial.at(parameter);
    ASSERT_EQ(initial.size(), values.size()) << parameter;
    int wrong = 0;
    for (size_t i = 0; i < values.size() && wrong<3; i += values.size()> 100 ? 37 : 1) {
      const int64_t element = static_cast<int64_t>(i);
      const double want =
          Reference(optimizer, rate, own, parameter, IsRows(parameter) ? element / 4 : 0, element, initial[i]);
      if (std::abs(values[i] - want) <= 1e-6 * std::max(1.0, std::abs(want))) continue;
      ++wrong;
      ADD_FAILURE() << parameter << "[" << i << "] is " << values[i] << ", expected " << want << ", was " << initial[i];
    }
  }
}

Job JobOf(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<Job> job = ParseJob(text, "job.textproto", overrides);
  EXPECT_TRUE(job.ok()) << job.status() << "\n" << text;
  return job.ok() ? *job : Job();
}

UpdateRun Train(const std::string& text, const std::vector<std::string>& overrides = {}) {
  absl::StatusOr<UpdateRun> run = RunUpdates(JobOf(text, overrides), kSteps);
  EXPECT_TRUE(run.ok()) << run.status() << "\n" << text;
  return run.ok() ? *std::move(run) : UpdateRun();
}

void ExpectSame(const UpdateRun& a, const UpdateRun& b) {
  EXPECT_EQ(a.digest, b.digest);
  EXPECT_EQ(a.final, b.final);
}

std::string OptimizerText(const Optimizer& optimizer, const Schedule& schedule, const std::string& rest) {
  const std::string rate = schedule.uses_rate ? absl::StrCat("learning_rate: ", kRate, " ") : "";
  return absl::StrCat(optimizer.kind, " { ", rate, optimizer.settings, " } ", schedule.text, " ", rest);
}

class EveryOptimizerTest : public ::testing::TestWithParam<int> {};

TEST_P(EveryOptimizerTest, IsRightAndTheSameOnEveryClusterWithEveryScheduleDecayAndClip) {
  const Optimizer& optimizer = kOptimizers[GetParam()];
  const std::vector<std::vector<std::string>> clusters = {
      {"distribute.servers=3", "distribute.split_method=HASH_NAME"},
      {"distribute.servers=2", "distribute.trainers=2", "distribute.slice_var_up=false"},
      {"distribute.servers=4", "distribute.trainers=2"}};
  for (int j = 0; j < static_cast<int>(std::size(kSchedules)); ++j) {
    // Combines each decay and clip with every schedule and optimizer, and with each other.
    const Decay& decay = kDecays[(GetParam() + j) % 4];
    const Clip& clip = kClips[(GetParam() + j / 4 + j) % 3];
    const std::string text =
        UpdateJobText(OptimizerText(optimizer, kSchedules[j], absl::StrCat(decay.text, " ", clip.text)));
    SCOPED_TRACE(text);
    const UpdateRun one = Train(text);
    ExpectRight(one, optimizer, kSchedules[j].rate, [&](const std::string&) { return Settings{1, decay, clip}; });
    const UpdateRun many = Train(text, {"distribute.servers=2", "distribute.trainers=2"});
    EXPECT_GT(many.plan.blocks_size(), one.plan.blocks_size());
    ExpectSame(many, one);
    if (j % 4 == 0) ExpectSame(Train(text, clusters[(GetParam() + j / 4) % 3]), one);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EveryOptimizerTest, ::testing::Range(0, static_cast<int>(std::size(kOptimizers))),
                         [](const auto& info) { return absl::StrCat(kOptimizers[info.param].kind, "_", info.param); });

TEST(ParameterSettingsTest, TheFirstEntryThatMatchesHolds) {
  const std::string text = UpdateJobText(OptimizerText(kOptimizers[3], kSchedules[10], R"(
      l2_decay: 0.03 clip { by_value { max: 0.09 } }
      parameter { name: "deep.b" learning_rate_factor: 0.5 no_clip: true }
      parameter { name: "d*" l2_decay: 0 l1_decay: 0.004 }
      parameter { name: "*t.w*" clip { by_value { min: -0.05 max: 0.15 } } }
      parameter { name: "t" learning_rate_factor: 0 }
      parameter { name: "*" learning_rate_factor: 3 })"));
  const UpdateRun one = Train(text);
  const auto settings = [](const std::string& name) -> Settings {
    if (name == "deep.b") return {0.5, kDecays[2], kClips[0]};
    if (name == "deep.w") return {1, kDecays[1], kClips[1]};
    if (name.starts_with("out.w")) return {1, kDecays[2], kClips[2]};
    return {name == "t" ? 0.0 : 3.0, kDecays[2], kClips[1]};
  };
  ExpectRight(one, kOptimizers[3], kSchedules[10].rate, settings);
  ExpectSame(Train(text, {"distribute.servers=2", "distribute.trainers=2"}), one);
}

TEST(ParameterSettingsTest, ATableMayHaveAScheduleOfItsOwn) {
  const Optimizer& adam = kOptimizers[5];
  const std::string own = absl::StrCat("optimizer { ", OptimizerText(adam, kSchedules[8], "l1_decay: 0.004"), " }");
  const std::string text = UpdateJobText(OptimizerText(adam, kSchedules[4], ""), own);
  const UpdateRun one = Train(text);
  UpdateRun table = one, rest = one;
  table.final.clear();
  table.final["t"] = one.final.at("t");
  rest.final.erase("t");
  ExpectRight(table, adam, kSchedules[8].rate, [](const std::string&) { return Settings{1, kDecays[1], kClips[0]}; });
  ExpectRight(rest, adam, kSchedules[4].rate, [](const std::string&) { return Settings{1, kDecays[0], kClips[0]}; });
  ExpectSame(Train(text, {"distribute.servers=3", "distribute.trainers=2"}), one);
}

// ---------------------------------------------------------------------------------------------- rows of the table t

constexpr int kWidth = 4;

struct RowSettings {
  // Columns [0, wide) use ftrl, the others adagrad with one accumulator; 0: all use adagrad.
  int wide = 0;
  int64_t after = 0;  // of the columns from `wide` on
  double min = -1e9, max = 1e9;
  std::function<bool(int64_t step, int lane, int64_t row)> bad = nullptr;
};

// Computes a row by the textbook. `initial` has the values with which columns that begin later begin.
std::vector<double> RowReference(const RowSettings& s, int64_t row, const std::vector<double>& initial) {
  std::vector<double> w = initial;
  std::vector<Element> wide(static_cast<size_t>(s.wide));
  for (int j = 0; j < s.wide; ++j) wide[j] = {.w = w[j], .s = {0.1, 0, 0}};
  double a = 0.1;
  int64_t met = 0;
  const auto bound = [&](double x) { return std::min(std::max(x, s.min), s.max); };
  for (int64_t step = 0; step < kSteps; ++step) {
    double g[kWidth];
    bool any = false, bad = false;
    for (int j = 0; j < kWidth; ++j) any = Average("t", row, row * kWidth + j, step, &g[j]);
    for (int lane = 0; lane < kUpdateLanes; ++lane) {
      bad |= s.bad != nullptr && HasGradient("t", row, step, lane) && s.bad(step, lane, row);
    }
    if (!any || bad) continue;
    for (int j = 0; j < s.wide; ++j) {
      kOptimizers[10].update(wide[j], 0.05, g[j]);
      wide[j].w = w[j] = bound(wide[j].w);
    }
    if (met++ < s.after) continue;
    double squares = 0;
    for (int j = s.wide; j < kWidth; ++j) squares += g[j] * g[j];
    a += squares / (kWidth - s.wide);
    for (int j = s.wide; j < kWidth; ++j) w[j] = bound(w[j] - 0.03 * g[j] / (std::sqrt(a) + 1e-4));
  }
  for (int j = s.wide; j < kWidth; ++j) {
    if (met < s.after) w[j] = 0;
  }
  return w;
}

constexpr char kRowAdagrad[] = "adagrad { learning_rate: 0.03 epsilon: 1e-4 initial_accumulator: 0.1 per_row: true }";

// Expects the same bits on every cluster, and the reference's values. With `after`, columns begin with 0.25 to be
// recognizable.
void ExpectRows(const std::string& table, const RowSettings& settings, int64_t skipped = 0) {
  const std::string text = UpdateJobText("sgd { learning_rate: 0.02 }", table);
  SCOPED_TRACE(text);
  const auto train = [&](const std::vector<std::string>& overrides) {
    absl::StatusOr<UpdateRun> run = RunUpdates(JobOf(text, overrides), kSteps, settings.bad);
    EXPECT_TRUE(run.ok()) << run.status();
    return run.ok() ? *std::move(run) : UpdateRun();
  };
  const UpdateRun one = train({});
  if (::testing::Test::HasFailure()) return;
  const std::vector<float>&initial = one.initial.at("t"), &final = one.final.at("t");
  for (size_t row = 0; row < final.size() / kWidth; ++row) {
    std::vector<double> start(initial.begin() + row * kWidth, initial.begin() + (row + 1) * kWidth);
    for (int j = settings.wide; j < kWidth && settings.after > 0; ++j) {
      EXPECT_EQ(start[j], 0) << "columns that begin later read as zeros";
      start[j] = 0.25;
    }
    const std::vector<double> want = RowReference(settings, static_cast<int64_t>(row), start);
    for (int j = 0; j < kWidth; ++j) {
      EXPECT_NEAR(final[row * kWidth + j], want[j], 1e-6 * std::max(1.0, std::abs(want[j])))
          << "row " << row << " column " << j;
    }
  }
  const auto counted = one.counters.find("table.t.skipped_rows");
  EXPECT_EQ(counted == one.counters.end() ? 0 : counted->second, skipped);
  for (const std::vector<std::string>& cluster :
       {std::vector<std::string>{"distribute.servers=2", "distribute.trainers=2"},
        {"distribute.servers=3"},
        {"distribute.trainers=2"}}) {
    const UpdateRun other = train(cluster);
    ExpectSame(other, one);
    EXPECT_EQ(other.plan.tables(0).state_width(), one.plan.tables(0).state_width());
  }
}

TEST(RowUpdateTest, OneAccumulatorForARow) { ExpectRows(absl::StrCat("optimizer { ", kRowAdagrad, " }"), {}); }

TEST(RowUpdateTest, ValuesKeepToTheirBounds) {
  ExpectRows(absl::StrCat("min_value: -0.1 max_value: 0.2 optimizer { ", kRowAdagrad, " }"), {.min = -0.1, .max = 0.2});
}

TEST(RowUpdateTest, SegmentsHaveRulesOfTheirOwn) {
  ExpectRows(absl::StrCat("optimizer { ", kRowAdagrad, R"( }
      segment { width: 2 optimizer { ftrl { learning_rate: 0.05 l1: 0.01 l2: 0.1 initial_accumulator: 0.1 } } }
      segment { width: 2 })"),
             {.wide = 2});
}

TEST(RowUpdateTest, ASegmentMayBeginLater) {
  for (const int64_t after : {1, 3, 7}) {
    ExpectRows(absl::StrCat("max_value: 0.3 optimizer { ", kRowAdagrad, R"( }
        segment { width: 1 optimizer { ftrl { learning_rate: 0.05 l1: 0.01 l2: 0.1 initial_accumulator: 0.1 } } }
        segment { width: 3 after: )",
                            after, " initializer { constant { value: 0.25 } } }"),
               {.wide = 1, .after = after, .max = 0.3});
  }
}

TEST(RowUpdateTest, RowsWithABadGradientAreSkippedAndCounted) {
  const auto bad = [](int64_t step, int lane, int64_t row) { return step % 3 == 1 && lane == row % 2; };
  int64_t skipped = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int64_t row = 0; row < static_cast<int64_t>(UpdateTableIds().size()); ++row) {
      const int lane = static_cast<int>(row % 2);
      skipped += bad(step, lane, row) && HasGradient("t", row, step, lane) ? 1 : 0;
    }
  }
  ASSERT_GT(skipped, 10);
  ExpectRows(absl::StrCat("bad_gradient: SKIP_ROW optimizer { ", kRowAdagrad, " }"), {.bad = bad}, skipped);
}

TEST(RowUpdateTest, ARowThatIsNotFiniteIsNamed) {
  const absl::StatusOr<Job> job =
      ParseJob(UpdateJobText("sgd { learning_rate: 0.02 }"), "job", {"distribute.trainers=2"});
  ASSERT_TRUE(job.ok()) << job.status();
  const auto in_the_last_step = [](int64_t step, int /*lane*/, int64_t /*row*/) { return step == kSteps - 1; };
  EXPECT_THAT(std::string(RunUpdates(*job, kSteps, in_the_last_step).status().message()),
              ::testing::ContainsRegex("step 19: table t: row -?[0-9]+ is NaN after its update"));
}

TEST(BlockUpdateTest, AnElementThatIsNotFiniteIsNamed) {
  for (const char* trainers : {"distribute.trainers=1", "distribute.trainers=2"}) {
    const absl::StatusOr<Job> job = ParseJob(
        UpdateJobText("sgd { learning_rate: 3e38 }", "optimizer { sgd { learning_rate: 0.02 } }"), "job", {trainers});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_THAT(std::string(RunUpdates(*job, kSteps).status().message()),
                ::testing::ContainsRegex("block .*: element [0-9]+ is -?inf after its update"));
  }
}

TEST(RowUpdateTest, SegmentsMayHaveSchedulesOfTheirOwn) {
  // Both segments together equal one table with the same rule and schedule.
  const std::string scheduled =
      "optimizer { adam { learning_rate: 0.02 } schedule { exponential { decay_steps: 5 decay_rate: 0.7 } } l2_decay: "
      "0.03 }";
  const UpdateRun whole = Train(UpdateJobText("sgd { learning_rate: 0.02 }", scheduled));
  const UpdateRun parts =
      Train(UpdateJobText("sgd { learning_rate: 0.02 }",
                          absl::StrCat("segment { width: 1 ", scheduled, " } segment { width: 3 ", scheduled, " }")));
  EXPECT_EQ(parts.final, whole.final);
}

// The digest includes the counter: it differs for two runs that differ in the counter alone.
TEST(ScheduleTest, TheStepCounterIsState) {
  const UpdateRun with = Train(UpdateJobText("sgd { learning_rate: 0.02 } schedule { constant {} }"));
  const UpdateRun without = Train(UpdateJobText("sgd { learning_rate: 0.02 }"));
  EXPECT_EQ(with.final, without.final);
  EXPECT_EQ(with.digest.values, without.digest.values);
  EXPECT_NE(with.digest.state, without.digest.state);
}

// One trainer has no samples in 5 of its 20 steps, so 35 pushes of 2 trainers take effect and t reaches 17.
TEST(ScheduleTest, SeveralAsyncTrainersCountTogether) {
  const std::vector<std::string> async = {"distribute.sync=false", "distribute.trainers=2"};
  const UpdateRun with = Train(UpdateJobText("sgd { learning_rate: 0.02 } schedule { constant {} }"), async);
  const UpdateRun without = Train(UpdateJobText("sgd { learning_rate: 0.02 }"), async);
  VariableDigester expected("@LR_SCHEDULE", 1);
  const float rate[] = {0.02f};
  expected.AddScalarState("learning_rate", 0, rate);
  const std::vector<std::pair<std::string, int64_t>> counts = {{"learning_rate.step", 18}, {"transactions", 35}};
  for (const auto& [name, count] : counts) {
    float bits[2];
    std::memcpy(bits, &count, sizeof(bits));
    expected.AddScalarState(name, 0, bits);
  }
  EXPECT_EQ(with.digest.state - without.digest.state, expected.sum().state);
}

TEST(ScheduleTest, OneAsyncTrainerCountsAsSyncDoes) {
  for (const int j : {1, 8, 11}) {
    const std::string text = UpdateJobText(OptimizerText(kOptimizers[1], kSchedules[j], ""));
    const std::vector<std::string> async = {"distribute.sync=false", "distribute.servers=2"};
    const UpdateRun sync = Train(text);
    ExpectSame(Train(text, async), sync);
    std::vector<std::string> eager = async;
    eager.push_back("distribute.async_apply=EAGER");
    ExpectSame(Train(text, eager), sync);
  }
}

}  // namespace
}  // namespace weir
