// Kernels whose speed is bound by memory or by a few instructions per element, beside a floor that does the minimum.
//
//   optimizer steps   arrays of 64 MiB each; the floor reads and writes as many bytes and adds: `ratio` is of times
//   look-ups          rows of 64 bytes at random places of 512 MiB; the floor touches the same lines and writes as much
//   losses, AUC       samples per second, values in the cache
//
// Each result is checked before it is timed. Floor and kernel run by turns; figures are medians of both, on one thread.
//
//   bazel run //tests/bench:kernels_bench
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "framework/base/philox.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/builder.h"
#include "framework/runtime/executor.h"
#include "glog/logging.h"
#include "ops/adagrad_math.h"
#include "ops/adam_math.h"
#include "ops/lookup.h"
#include "ops/momentum_math.h"
#include "ops/sgd_math.h"
#include "ops/update_loops.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

constexpr int64_t kElements = int64_t{1} << 24;
constexpr int64_t kRows = int64_t{1} << 23;
constexpr int64_t kWidth = 16;
constexpr int64_t kLookups = int64_t{1} << 20;
constexpr int64_t kSamples = int64_t{1} << 15;

float Uniform(uint64_t key, int64_t i) { return UniformFloat(Philox(key, static_cast<uint64_t>(i), 0).v[0]); }

std::vector<float> Values(uint64_t key, int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  // Numbers at random are not needed in such numbers.
  for (int64_t i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] = i < 65536 ? Uniform(key, i) : values[static_cast<size_t>(i - 65521)];
  return values;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// By turns with its floor.
void TimeBeside(benchmark::State& state, const std::function<void()>& floor, const std::function<void()>& kernel,
                int64_t items, int64_t bytes) {
  std::vector<double> floors, kernels;
  const auto seconds = [](const std::function<void()>& fn) {
    const auto begin = std::chrono::steady_clock::now();
    fn();
    benchmark::ClobberMemory();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (auto _ : state) {
    floors.push_back(seconds(floor));
    kernels.push_back(seconds(kernel));
    state.SetIterationTime(kernels.back());
  }
  const double of_floor = Median(floors), of_kernel = Median(kernels);
  state.counters["ratio"] = of_kernel / of_floor;
  state.counters["floor_GB/s"] = static_cast<double>(bytes) / of_floor / 1e9;
  state.counters["M_items/s"] = static_cast<double>(items) / of_kernel / 1e6;
}

// The traffic of an update with so many states, and an addition an array.
template <int kStates>
WEIR_VECTORIZED void UpdateFloor(int64_t n, const float* g, float* w, float* state0, float* state1) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    w[i] = w[i] + g[i];
    if (kStates > 0) state0[i] = state0[i] + g[i];
    if (kStates > 1) state1[i] = state1[i] + g[i];
  }
}

template <typename Math>
void OptimizerStep(benchmark::State& state, const Math& math,
                   const std::function<double(double g, double w, double s0, double s1)>& expected) {
  constexpr int kStates = Math::kStates;
  const std::vector<float> g = Values(1, kElements);
  std::vector<float> w = Values(2, kElements), s0 = Values(3, kStates > 0 ? kElements : 1),
                     s1 = Values(4, kStates > 1 ? kElements : 1);
  const float before[] = {w[77], s0[kStates > 0 ? 77 : 0], s1[kStates > 1 ? 77 : 0]};
  const auto run = [&] {
    UpdateLoops<Math>::Dense(math.At(0.01f, 1), kElements, g.data(), w.data(), s0.data(), s1.data(), nullptr);
  };
  run();
  if (std::abs(w[77] - expected(g[77], before[0], before[1], before[2])) > 1e-5)
    return state.SkipWithError("wrong result");
  TimeBeside(
      state, [&] { UpdateFloor<kStates>(kElements, g.data(), w.data(), s0.data(), s1.data()); }, run, kElements,
      kElements * 4 * (3 + 2 * kStates));
}

// A row is a cache line.
struct Rows {
  Tensor rows{v1::FLOAT32, {kRows, kWidth}};
  std::vector<int32_t> index = std::vector<int32_t>(kLookups);
  IdBatch ids;
  Tensor out;

  explicit Rows(int64_t slots) {
    for (int64_t i = 0; i < rows.size(); ++i) rows.data<float>()[i] = static_cast<float>(i % 1021);
    ids.slots = slots;
    ids.values.resize(kLookups);
    for (int64_t i = 0; i <= kLookups; ++i) ids.offsets.push_back(i);
    for (int64_t i = 0; i < kLookups; ++i) {
      const uint64_t at = Philox(5, static_cast<uint64_t>(i), 0).v[0] % kRows;
      index[static_cast<size_t>(i)] = static_cast<int32_t>(at);
      ids.values[static_cast<size_t>(i)] = static_cast<int64_t>(at);
    }
  }

  // Touches every line of the rows and writes `floats` floats.
  void Floor(int64_t floats) {
    constexpr size_t kAhead = 32;
    float sum = 0;
    for (size_t i = 0; i < index.size(); ++i) {
      if (i + kAhead < index.size()) __builtin_prefetch(rows.data<float>() + int64_t{index[i + kAhead]} * kWidth);
      sum += rows.data<float>()[int64_t{index[i]} * kWidth];
    }
    benchmark::DoNotOptimize(sum);
    std::memset(out.data<float>(), 0, sizeof(float) * static_cast<size_t>(floats));
  }
};

// kSlots slots of one id, their rows side by side or added up.
void Lookup(benchmark::State& state, Pooling pooling) {
  constexpr int64_t kSlots = 32;
  Rows r(kSlots);
  const LookupAttrs attrs = {.pooling = pooling};
  const auto run = [&] { PoolRows(attrs, r.ids, r.index.data(), r.rows.data<float>(), kWidth, &r.out); };
  run();
  for (int64_t b = 0; b < kLookups / kSlots; b += 97) {
    for (int64_t j = 0; j < kWidth; ++j) {
      float sum = 0;
      for (int64_t s = 0; s < kSlots; ++s) {
        const float value = r.rows.data<float>()[int64_t{r.index[static_cast<size_t>(b * kSlots + s)]} * kWidth + j];
        sum += value;
        if (pooling == Pooling::kNone && r.out.data<float>()[(b * kSlots + s) * kWidth + j] != value)
          return state.SkipWithError("wrong row");
      }
      if (pooling == Pooling::kSum && r.out.data<float>()[b * kWidth + j] != sum)
        return state.SkipWithError("wrong sum");
    }
  }
  TimeBeside(
      state, [&] { r.Floor(r.out.size()); }, run, kLookups, kLookups * kWidth * 4 + r.out.size() * 4);
}

// Predictions of a click model: most of them small.
std::vector<float> Predictions(uint64_t key, int64_t n) {
  std::vector<float> p;
  for (int64_t i = 0; i < n; ++i) {
    const float x = Uniform(key, i) + Uniform(key + 1, i) + Uniform(key + 2, i);
    p.push_back(1 / (1 + std::exp(4 - 2 * x)));
  }
  return p;
}
std::vector<float> Labels(int64_t n) {
  std::vector<float> label;
  for (int64_t i = 0; i < n; ++i) label.push_back(Uniform(9, i) < 0.25f ? 1 : 0);
  return label;
}

void Auc(benchmark::State& state, bool uniform) {
  constexpr int64_t kBuckets = 65536;
  v1::ProgramDesc program;
  ProgramBuilder builder(&program);
  for (const char* name : {"p", "label"}) CHECK(builder.AddData(name, {-1, 1}).ok());
  Scope scope;
  for (const char* name : {"positives", "negatives"}) {
    v1::VarDesc var;
    var.set_name(name);
    var.set_persistable(true);
    var.set_dtype(v1::INT64);
    var.add_dims(kBuckets);
    CHECK(builder.AddVar(var).ok());
    *scope.FindOrCreate(name) = Tensor::Of<int64_t>({kBuckets}, std::vector<int64_t>(kBuckets));
  }
  const absl::Status added = builder.AddOp(
      MakeOp("auc", {{"Predict", {"p"}}, {"Label", {"label"}}, {"StatPos", {"positives"}}, {"StatNeg", {"negatives"}}},
             {{"StatPosOut", {"positives"}}, {"StatNegOut", {"negatives"}}}));
  CHECK(added.ok()) << added;
  auto executor = Executor::Create(program, &scope, {});
  CHECK(executor.ok()) << executor.status();
  std::vector<float> p = Predictions(6, kSamples);
  for (int64_t i = 0; i < kSamples && uniform; ++i) p[static_cast<size_t>(i)] = Uniform(8, i);
  const std::vector<float> label = Labels(kSamples);
  *(*executor)->Find(0, "p") = Tensor::Of<float>({kSamples, 1}, p);
  *(*executor)->Find(0, "label") = Tensor::Of<float>({kSamples, 1}, label);
  const auto run = [&] {
    const absl::Status status = (*executor)->Run({}, {kSamples});
    CHECK(status.ok()) << status;
  };
  run();
  std::vector<int64_t> positives(kBuckets), negatives(kBuckets);
  for (size_t i = 0; i < p.size(); ++i)
    ++(label[i] > 0.5f ? positives : negatives)[static_cast<size_t>(p[i] * kBuckets)];
  const auto counted = [&](const char* name) { return std::get<Tensor>(*scope.Find(name)).span<int64_t>(); };
  if (counted("positives") != absl::MakeConstSpan(positives) ||
      counted("negatives") != absl::MakeConstSpan(negatives)) {
    return state.SkipWithError("wrong counts");
  }
  for (auto _ : state) run();
  state.SetItemsProcessed(state.iterations() * kSamples);
}

// One operator of a loss, on samples with a prediction, a label and a gradient.
void Loss(benchmark::State& state, const std::string& type,
          const std::function<double(double x, double label)>& expected) {
  const bool gradient = type.ends_with("_grad"), logits = type.starts_with("sigmoid");
  v1::ProgramDesc program;
  ProgramBuilder builder(&program);
  for (const char* name : {"x", "label", "dloss"}) CHECK(builder.AddData(name, {-1, 1}).ok());
  const std::string slot = logits ? "X" : "Predicted", out_slot = logits ? "Out" : "Loss";
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs = {{slot, {"x"}}, {"Label", {"label"}}};
  if (gradient) inputs.push_back({out_slot + "@GRAD", {"dloss"}});
  const auto added = builder.AddOpOut(MakeOp(type, inputs, {}), gradient ? slot + "@GRAD" : out_slot, "out");
  CHECK(added.ok()) << added.status();
  Scope scope;
  auto executor = Executor::Create(program, &scope, {.fetch = {"out"}});
  CHECK(executor.ok()) << executor.status();
  std::vector<float> x = Predictions(6, kSamples);
  for (int64_t i = 0; i < kSamples && logits; ++i) x[static_cast<size_t>(i)] = 20 * (Uniform(8, i) - 0.5f);
  const std::vector<float> label = Labels(kSamples);
  *(*executor)->Find(0, "x") = Tensor::Of<float>({kSamples, 1}, x);
  *(*executor)->Find(0, "label") = Tensor::Of<float>({kSamples, 1}, label);
  if (gradient) *(*executor)->Find(0, "dloss") = Tensor::Of<float>({kSamples, 1}, std::vector<float>(kSamples, 1));
  const auto run = [&] {
    const absl::Status status = (*executor)->Run({}, {kSamples});
    CHECK(status.ok()) << status;
  };
  run();
  const Tensor& out = std::get<Tensor>(*(*executor)->Find(0, "out"));
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = expected(x[i], label[i]);
    if (!(std::abs(out.data<float>()[i] - want) <= 1e-5 * std::max(1.0, std::abs(want))))
      return state.SkipWithError("wrong result");
  }
  for (auto _ : state) run();
  state.SetItemsProcessed(state.iterations() * kSamples);
}

// in_batch_softmax and its gradients by query and item, on 4,096 examples of width 64.
void InBatchSoftmax(benchmark::State& state) {
  constexpr int64_t kBatch = 4096, kWide = 64;
  const auto workers = static_cast<int>(state.range(0)) - 1;
  v1::ProgramDesc program;
  ProgramBuilder builder(&program);
  for (const char* name : {"query", "item"}) CHECK(builder.AddData(name, {-1, kWide}).ok());
  CHECK(builder.AddData("dloss", {-1, 1}).ok());
  std::vector<std::pair<std::string, std::vector<std::string>>> in = {{"Query", {"query"}}, {"Item", {"item"}}};
  const std::vector<v1::OpAttr> attrs = {AttrF("temperature", 0.2)};
  CHECK(builder.AddOp(MakeOp("in_batch_softmax", in, {{"LogSum", {"log_sum"}}, {"Out", {"loss"}}}, attrs)).ok());
  in.push_back({"LogSum", {"log_sum"}});
  in.push_back({"Out@GRAD", {"dloss"}});
  CHECK(
      builder.AddOp(MakeOp("in_batch_softmax_grad", in, {{"Query@GRAD", {"dquery"}}, {"Item@GRAD", {"ditem"}}}, attrs))
          .ok());
  Scope scope;
  auto executor = Executor::Create(program, &scope, {.fetch = {"loss", "dquery", "ditem"}});
  CHECK(executor.ok()) << executor.status();
  // Of unit length, as towers for retrieval give them.
  const auto unit = [&](uint64_t key) {
    std::vector<float> values;
    for (int64_t i = 0; i < kBatch; ++i) {
      float squares = 0;
      for (int64_t w = 0; w < kWide; ++w) {
        values.push_back(2 * Uniform(key, i * kWide + w) - 1);
        squares += values.back() * values.back();
      }
      for (auto x = values.end() - kWide; x != values.end(); ++x) *x /= std::sqrt(squares);
    }
    return values;
  };
  const std::vector<float> query = unit(11), item = unit(12);
  *(*executor)->Find(0, "query") = Tensor::Of<float>({kBatch, kWide}, query);
  *(*executor)->Find(0, "item") = Tensor::Of<float>({kBatch, kWide}, item);
  *(*executor)->Find(0, "dloss") = Tensor::Of<float>({kBatch, 1}, std::vector<float>(kBatch, 1.0f / kBatch));
  ThreadPool pool("bench", workers);
  StepContext step;
  step.pool = workers > 0 ? &pool : nullptr;
  const auto run = [&] {
    const absl::Status status = (*executor)->Run(step, {kBatch});
    CHECK(status.ok()) << status;
  };
  run();
  const Tensor& loss = std::get<Tensor>(*(*executor)->Find(0, "loss"));
  for (int64_t i = 0; i < kBatch; i += 97) {
    const auto score = [&](int64_t j) {
      double product = 0;
      for (int64_t w = 0; w < kWide; ++w) {
        product += double{query[static_cast<size_t>(i * kWide + w)]} * item[static_cast<size_t>(j * kWide + w)];
      }
      return product / 0.2;
    };
    double sum = 0;
    for (int64_t j = 0; j < kBatch; ++j) sum += std::exp(score(j));
    if (std::abs(loss.data<float>()[i] - (std::log(sum) - score(i))) > 1e-5) return state.SkipWithError("wrong result");
  }
  for (auto _ : state) run();
  state.SetItemsProcessed(state.iterations() * kBatch);
}

void Register() {
  using benchmark::RegisterBenchmark;
  RegisterBenchmark("loss/in_batch_softmax", InBatchSoftmax)
      ->ArgName("threads")
      ->Arg(1)
      ->Arg(2)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  const auto beside = [](benchmark::internal::Benchmark* b) {
    b->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(25);
  };
  beside(RegisterBenchmark("step/sgd", [](benchmark::State& s) {
    OptimizerStep(s, SgdMath{}, [](double g, double w, double, double) { return w - 0.01 * g; });
  }));
  beside(RegisterBenchmark("step/momentum", [](benchmark::State& s) {
    OptimizerStep(s, MomentumMath<false>{0.9f},
                  [](double g, double w, double v, double) { return w - 0.01 * (0.9 * v + g); });
  }));
  beside(RegisterBenchmark("step/adagrad", [](benchmark::State& s) {
    OptimizerStep(s, AdagradMath{1e-6f},
                  [](double g, double w, double a, double) { return w - 0.01 * g / (std::sqrt(a + g * g) + 1e-6); });
  }));
  beside(RegisterBenchmark("step/adam", [](benchmark::State& s) {
    OptimizerStep(s, AdamMath{.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8f},
                  [](double g, double w, double m, double v) {
                    const double moment = (0.9 * m + 0.1 * g) / 0.1, squares = (0.999 * v + 0.001 * g * g) / 0.001;
                    return w - 0.01 * moment / (std::sqrt(squares) + 1e-8);
                  });
  }));
  beside(RegisterBenchmark("lookup/rows", Lookup, Pooling::kNone));
  beside(RegisterBenchmark("lookup/sum", Lookup, Pooling::kSum));
  RegisterBenchmark("auc", Auc, false);
  RegisterBenchmark("auc/uniform", Auc, true);
  RegisterBenchmark("loss/log_loss", Loss, "log_loss",
                    [](double p, double y) { return -y * std::log(p + 1e-4) - (1 - y) * std::log(1 - p + 1e-4); });
  RegisterBenchmark("loss/log_loss_grad", Loss, "log_loss_grad",
                    [](double p, double y) { return (1 - y) / (1 - p + 1e-4) - y / (p + 1e-4); });
  RegisterBenchmark("loss/sigmoid_cross_entropy", Loss, "sigmoid_cross_entropy_with_logits",
                    [](double x, double y) { return std::max(x, 0.0) - x * y + std::log1p(std::exp(-std::abs(x))); });
  RegisterBenchmark("loss/sigmoid_cross_entropy_grad", Loss, "sigmoid_cross_entropy_with_logits_grad",
                    [](double x, double y) { return 1 / (1 + std::exp(-x)) - y; });
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::Register();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
