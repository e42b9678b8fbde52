// The tower of the DeepFM benchmark, 429-400-400-400-1 with a batch of 2048 in 8 lanes: forward and backward through
// the executor, beside its products of matrices alone. The loss is checked before anything is timed: the same bits on 1
// and 2 threads.
//
//   bazel run //tests/bench:tower_bench
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "framework/base/philox.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/autodiff.h"
#include "framework/graph/builder.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/executor.h"
#include "glog/logging.h"
#include "ops/arithmetic.h"
#include "ops/gemm.h"

namespace weir {
namespace {

constexpr int kLanes = 8;
constexpr int64_t kBatch = 256;
const std::vector<int64_t> kSizes = {429, 400, 400, 400, 1};

void FillRandom(uint64_t key, Tensor* t) {
  for (int64_t i = 0; i < t->size(); ++i) t->data<float>()[i] = 0.1f * (UniformFloat(Philox(key, i, 0).v[0]) - 0.5f);
}

// Floating-point operations of one example's products, forward and backward. The input of the tower gets a gradient
// too.
double Flops() {
  double flops = 0;
  for (size_t i = 1; i < kSizes.size(); ++i) flops += 6.0 * static_cast<double>(kSizes[i - 1] * kSizes[i]);
  return flops;
}

struct Tower {
  v1::ProgramDesc program;
  Scope scope;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Executor> executor;
  std::vector<int64_t> batch = std::vector<int64_t>(kLanes, kBatch);
  StepContext ctx;

  explicit Tower(int threads) {
    ProgramBuilder builder(&program);
    // A parameter in front of the tower stands for the embeddings, which need its input's gradient.
    CHECK(builder.AddData("data", {-1, kSizes[0]}).ok());
    CHECK(builder.AddData("label", {-1, 1}).ok());
    AddParameter(&builder, "scale", {kSizes[0]});
    std::string x = "in";
    CHECK(builder.AddOpOut(MakeOp("elementwise_mul", {{"X", {"data"}}, {"Y", {"scale"}}}, {}), "Out", x).ok());
    for (size_t i = 1; i < kSizes.size(); ++i) {
      const std::string w = absl::StrCat("w", i), b = absl::StrCat("b", i), out = absl::StrCat("out", i);
      AddParameter(&builder, w, {kSizes[i - 1], kSizes[i]});
      AddParameter(&builder, b, {kSizes[i]});
      const bool last = i + 1 == kSizes.size();
      CHECK(builder
                .AddOpOut(MakeOp("fc", {{"X", {x}}, {"W", {w}}, {"Bias", {b}}}, {},
                                 {AttrS("activation", last ? "identity" : "relu")}),
                          "Out", out)
                .ok());
      x = out;
    }
    CHECK(builder
              .AddOpOut(MakeOp("sigmoid_cross_entropy_with_logits", {{"X", {x}}, {"Label", {"label"}}}, {}), "Out",
                        "loss")
              .ok());
    program.add_losses()->set_var("loss");
    const absl::Status backward = AppendBackward(&program);
    CHECK(backward.ok()) << backward;
    std::vector<std::string> fetch = {"loss"};
    for (const v1::VarDesc& var : program.blocks(0).vars()) {
      if (var.is_parameter()) fetch.push_back(GradName(var.name()));
    }
    auto made = Executor::Create(program, &scope, {.lanes = kLanes, .fetch = fetch});
    CHECK(made.ok()) << made.status();
    executor = std::move(*made);
    // The calling thread works too.
    pool = std::make_unique<ThreadPool>("bench", threads - 1);
    ctx.pool = pool.get();
    for (int lane = 0; lane < kLanes; ++lane) {
      Tensor data(v1::FLOAT32, {kBatch, kSizes[0]}), label(v1::FLOAT32, {kBatch, 1});
      FillRandom(100 + static_cast<uint64_t>(lane), &data);
      for (int64_t i = 0; i < kBatch; ++i) label.data<float>()[i] = static_cast<float>(i % 2);
      *executor->Find(lane, "data") = data;
      *executor->Find(lane, "label") = label;
    }
  }

  void AddParameter(ProgramBuilder* builder, const std::string& name, std::vector<int64_t> dims) {
    v1::VarDesc var;
    var.set_name(name);
    var.set_persistable(true);
    var.set_is_parameter(true);
    var.mutable_dims()->Assign(dims.begin(), dims.end());
    CHECK(builder->AddVar(var).ok());
    Tensor value(v1::FLOAT32, dims);
    FillRandom(scope.vars().size() + 1, &value);
    *scope.FindOrCreate(name) = value;
  }

  void Run() {
    const absl::Status status = executor->Run(ctx, batch);
    CHECK(status.ok()) << status;
  }

  std::string Bits(std::string_view name) {
    std::string bits;
    for (int lane = 0; lane < kLanes; ++lane) {
      const Tensor& t = std::get<Tensor>(*executor->Find(lane, name));
      bits.append(static_cast<const char*>(t.raw()), t.bytes());
    }
    return bits;
  }
};

// Returns the precision of an argument of a benchmark; skips it where the processor has no such products.
ProductPrecision PrecisionOf(benchmark::State& state, int64_t argument) {
  if (argument == 0) return ProductPrecision::kFp32;
  if (!HasBf16Unit(Bf16Unit::kAvx512)) state.SkipWithError("this processor has no products in bfloat16");
  return ProductPrecision::kBf16;
}

void Report(benchmark::State& state, ProductPrecision precision = ProductPrecision::kFp32) {
  state.SetItemsProcessed(state.iterations() * kLanes * kBatch);
  state.counters["GFLOP/s"] = benchmark::Counter(
      Flops() * kLanes * kBatch * static_cast<double>(state.iterations()) / 1e9, benchmark::Counter::kIsRate);
  state.SetLabel(ResolvedArithmetic(precision));
}

void ForwardAndBackward(benchmark::State& state) {
  const ProductPrecision precision = PrecisionOf(state, state.range(1));
  if (state.error_occurred()) return;
  Tower one(1), tower(static_cast<int>(state.range(0)));
  one.ctx.precision = tower.ctx.precision = precision;
  one.Run();
  tower.Run();
  for (const char* name : {"loss", "w1@GRAD", "scale@GRAD"}) {
    if (one.Bits(name) != tower.Bits(name)) return state.SkipWithError("the number of threads changed a bit");
  }
  for (auto _ : state) tower.Run();
  Report(state, precision);
}
BENCHMARK(ForwardAndBackward)
    ->ArgNames({"threads", "bf16"})
    ->ArgsProduct({{1, 2}, {0, 1}})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// ForwardAndBackward while the profiler records every step.
void ForwardAndBackwardProfiled(benchmark::State& state) {
  Tower tower(static_cast<int>(state.range(0)));
  tower.Run();
  int64_t step = 0;
  for (auto _ : state) {
    if (step++ % 500 == 0) {
      // Before its memory is full: what has no room costs less.
      state.PauseTiming();
      Profiler::Process().Start(0, 1);
      state.ResumeTiming();
    }
    const ProfiledStep profiled(0);
    tower.Run();
  }
  const bool dropped = Profiler::Process().Collect().dropped > 0;
  Profiler::Process().Stop();
  if (dropped) return state.SkipWithError("the profiler's memory was full");
  Report(state);
}
BENCHMARK(ForwardAndBackwardProfiled)
    ->Arg(1)
    ->Arg(2)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Matrix products of ForwardAndBackward alone, on one thread.
void ProductsAlone(benchmark::State& state) {
  const ProductPrecision precision = PrecisionOf(state, state.range(0));
  if (state.error_occurred()) return;
  // Results go elsewhere: fed back they would shrink to numbers that are not normal, which are slow.
  std::vector<Tensor> x, w, dw, result;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    x.emplace_back(v1::FLOAT32, Shape{kBatch, kSizes[i]});
    FillRandom(i, &x.back());
    result.emplace_back(v1::FLOAT32, Shape{kBatch, kSizes[i]});
    if (i == 0) continue;
    w.emplace_back(v1::FLOAT32, Shape{kSizes[i - 1], kSizes[i]});
    dw.emplace_back(v1::FLOAT32, Shape{kSizes[i - 1], kSizes[i]});
    FillRandom(i + 10, &w.back());
  }
  for (auto _ : state) {
    for (int lane = 0; lane < kLanes; ++lane) {
      for (size_t i = 1; i < kSizes.size(); ++i) {
        Gemm(kBatch, kSizes[i], kSizes[i - 1], x[i - 1].data<float>(), w[i - 1].data<float>(), result[i].data<float>(),
             {.precision = precision});
      }
      for (size_t i = kSizes.size() - 1; i > 0; --i) {
        Gemm(kSizes[i - 1], kSizes[i], kBatch, x[i - 1].data<float>(), x[i].data<float>(), dw[i - 1].data<float>(),
             {.transpose_a = true, .precision = precision});
        Gemm(kBatch, kSizes[i - 1], kSizes[i], x[i].data<float>(), w[i - 1].data<float>(), result[i - 1].data<float>(),
             {.transpose_b = true, .precision = precision});
      }
    }
  }
  Report(state, precision);
}
BENCHMARK(ProductsAlone)
    ->ArgName("bf16")
    ->Arg(0)
    ->Arg(1)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weir

BENCHMARK_MAIN();
