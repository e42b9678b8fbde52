// The hot loops over embedding rows: de-duplication of ids, gather, scatter of gradients, row rules. Each benchmark
// checks its result before it is timed; one that is wrong is reported as an error and has no figures. items_per_second
// are ids or rows.
//
//   bazel run //tests/bench:rows_bench
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/row_rule.h"
#include "glog/logging.h"
#include "ops/finite.h"
#include "ops/id_deduper.h"
#include "ops/lookup.h"
#include "ops/parallel_deduper.h"
#include "ops/vector_unit.h"

namespace weir {
namespace {

// 26 ids of 2048 examples, as in the DeepFM benchmark.
constexpr int64_t kIds = 26 * 2048;

uint64_t Next(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 16;
}

std::vector<int64_t> RandomIds(uint64_t range) {
  uint64_t state = 1;
  std::vector<int64_t> ids(kIds);
  for (int64_t& id : ids) id = static_cast<int64_t>(Next(&state) % range * 0x9E3779B97F4A7C15u);
  return ids;
}

void DeduplicateIds(benchmark::State& state) {
  const std::vector<int64_t> ids = RandomIds(static_cast<uint64_t>(state.range(0)));
  IdDeduper deduper;
  std::vector<int64_t> unique;
  std::vector<int32_t> index(ids.size());
  const auto run = [&] {
    unique.clear();
    deduper.Start(kIds);
    deduper.Add(ids.data(), kIds, index.data(), &unique);
  };
  run();
  std::unordered_map<int64_t, int32_t> expected;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto [it, fresh] = expected.emplace(ids[i], static_cast<int32_t>(expected.size()));
    if (it->second != index[i] || unique[static_cast<size_t>(index[i])] != ids[i])
      return state.SkipWithError("wrong result");
  }
  if (expected.size() != unique.size()) return state.SkipWithError("wrong number of ids");
  for (auto _ : state) run();
  state.SetItemsProcessed(state.iterations() * kIds);
  state.counters["unique"] = static_cast<double>(unique.size());
}
BENCHMARK(DeduplicateIds)->ArgName("range")->Arg(1000)->Arg(100000)->Arg(2600000)->Arg(int64_t{1} << 40);

// On all threads; with 0 besides the caller the cost of the division itself.
void DeduplicateIdsInParallel(benchmark::State& state) {
  const std::vector<int64_t> ids = RandomIds(static_cast<uint64_t>(state.range(0)));
  ThreadPool pool("bench", static_cast<int>(state.range(1)));
  IdDeduper plain;
  ParallelDeduper deduper;
  std::vector<int64_t> unique, expected;
  std::vector<int32_t> index(ids.size()), expected_index(ids.size());
  plain.Start(kIds);
  plain.Add(ids.data(), kIds, expected_index.data(), &expected);
  const ParallelDeduper::Run run = {ids.data(), kIds, index.data()};
  deduper.Find({&run, 1}, &pool, &unique);
  if (unique != expected || index != expected_index) return state.SkipWithError("wrong result");
  for (auto _ : state) deduper.Find({&run, 1}, &pool, &unique);
  state.SetItemsProcessed(state.iterations() * kIds);
}
BENCHMARK(DeduplicateIdsInParallel)
    ->ArgNames({"range", "threads"})
    ->ArgsProduct({{1000, 100000, 2600000, int64_t{1} << 40}, {0, 3}})
    ->UseRealTime();

struct Lookup {
  IdBatch ids;
  std::vector<int32_t> index;
  std::vector<float> rows;
  std::vector<int64_t> unique;
};
Lookup MakeLookup(int64_t width) {
  Lookup l;
  l.ids.slots = 26;
  l.ids.values = RandomIds(2600000);
  for (int64_t i = 0; i <= kIds; ++i) l.ids.offsets.push_back(i);
  l.index.resize(kIds);
  IdDeduper deduper;
  deduper.Start(kIds);
  deduper.Add(l.ids.values.data(), kIds, l.index.data(), &l.unique);
  for (size_t i = 0; i < l.unique.size() * static_cast<size_t>(width); ++i)
    l.rows.push_back(static_cast<float>(i % 1021));
  return l;
}

void Gather(benchmark::State& state) {
  const int64_t width = state.range(0);
  const Lookup l = MakeLookup(width);
  Tensor out;
  const auto run = [&] { PoolRows({}, l.ids, l.index.data(), l.rows.data(), width, &out); };
  run();
  for (int64_t i = 0; i < kIds; ++i) {
    if (std::memcmp(out.data<float>() + i * width, l.rows.data() + l.index[static_cast<size_t>(i)] * width,
                    sizeof(float) * static_cast<size_t>(width)) != 0) {
      return state.SkipWithError("wrong result");
    }
  }
  for (auto _ : state) {
    run();
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kIds);
  state.SetBytesProcessed(state.iterations() * kIds * width * 8);
}
BENCHMARK(Gather)->ArgName("width")->Arg(1)->Arg(8)->Arg(16)->Arg(17);

void ScatterGradients(benchmark::State& state) {
  const int64_t width = state.range(0);
  const Lookup l = MakeLookup(width);
  Tensor out_grad(v1::FLOAT32, {2048, 26, width});
  for (int64_t i = 0; i < out_grad.size(); ++i) out_grad.data<float>()[i] = static_cast<float>(i % 31);
  std::vector<float> grad(l.rows.size(), -1);
  const auto run = [&] { ScatterGradient({}, l.ids, l.index.data(), /*fresh=*/true, out_grad, width, grad.data()); };
  run();
  std::vector<float> expected(l.rows.size(), 0);
  for (int64_t i = 0; i < kIds; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      expected[static_cast<size_t>(l.index[static_cast<size_t>(i)] * width + j)] +=
          out_grad.data<float>()[i * width + j];
    }
  }
  if (grad != expected) return state.SkipWithError("wrong result");
  for (auto _ : state) {
    run();
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kIds);
}
BENCHMARK(ScatterGradients)->ArgName("width")->Arg(1)->Arg(16);

// Rows in order of a random permutation, each of whole cache lines as a table would keep them.
void UpdateRows(benchmark::State& state, const char* type, VectorUnit unit) {
  const int width = static_cast<int>(state.range(0));
  const int64_t n = state.range(1);
  const VectorUnit best = CurrentVectorUnit();
  if (!SetVectorUnitForTest(unit)) return state.SkipWithError("this machine lacks the vector unit");
  const auto rule = *RowRuleRegistry::Global().Make(MakeOp(type, {}, {}));
  const int64_t stride = (width + rule->state_width(width) + 15) / 16 * 16;
  Tensor rows(v1::FLOAT32, {n, stride}), checked(v1::FLOAT32, {n, stride}), grads(v1::FLOAT32, {n, width});
  std::vector<int64_t> order(static_cast<size_t>(n));
  uint64_t random = 7;
  for (int64_t i = 0; i < n; ++i) {
    order[static_cast<size_t>(i)] = i;
    std::swap(order[static_cast<size_t>(i)], order[Next(&random) % static_cast<uint64_t>(i + 1)]);
    for (int j = 0; j < width; ++j) {
      rows.data<float>()[i * stride + j] = 0.01f * static_cast<float>(j);
      grads.data<float>()[i * width + j] = static_cast<float>(static_cast<int64_t>(Next(&random) % 2001) - 1000);
    }
    rule->InitState(width, rows.data<float>() + i * stride + width);
  }
  checked.CopyFrom(rows);
  std::vector<float*> pointers, checked_pointers;
  std::vector<const float*> grad_pointers;
  for (int64_t i : order) {
    pointers.push_back(rows.data<float>() + i * stride);
    checked_pointers.push_back(checked.data<float>() + i * stride);
    grad_pointers.push_back(grads.data<float>() + i * width);
  }
  // Against the plain loop, row by row.
  rule->Update(width, 0.01f, 2048, n, pointers.data(), grad_pointers.data());
  SetVectorUnitForTest(VectorUnit::kPlain);
  for (size_t i = 0; i < order.size(); ++i)
    rule->Update(width, 0.01f, 2048, 1, &checked_pointers[i], &grad_pointers[i]);
  SetVectorUnitForTest(unit);
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t bytes = sizeof(float) * static_cast<size_t>(width + rule->state_width(width));
    if (std::memcmp(pointers[i], checked_pointers[i], bytes) != 0) {
      SetVectorUnitForTest(best);
      return state.SkipWithError("wrong result");
    }
  }
  for (auto _ : state) {
    rule->Update(width, 0.01f, 2048, n, pointers.data(), grad_pointers.data());
    benchmark::ClobberMemory();
  }
  SetVectorUnitForTest(best);
  state.SetItemsProcessed(state.iterations() * n);
}

void CheckFinite(benchmark::State& state) {
  std::vector<float> x(static_cast<size_t>(state.range(0)), 1);
  x.back() = std::nanf("");
  if (AllFinite(x.data(), state.range(0))) return state.SkipWithError("wrong result");
  x.back() = 1;
  for (auto _ : state) benchmark::DoNotOptimize(AllFinite(x.data(), state.range(0)));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}
BENCHMARK(CheckFinite)->ArgName("floats")->Arg(400 * 400);

void RegisterRowRules() {
  const std::pair<const char*, VectorUnit> units[] = {
      {"plain", VectorUnit::kPlain}, {"avx2", VectorUnit::kAvx2}, {"avx512", VectorUnit::kAvx512}};
  for (const char* type : {"sgd", "momentum", "adagrad", "adagrad_per_row", "adam", "ftrl"}) {
    for (const auto& [name, unit] : units) {
      auto* bench = benchmark::RegisterBenchmark(
          std::string(absl::StrCat("UpdateRows/", type, "/", name)).c_str(),
          [type = type, unit = unit](benchmark::State& state) { UpdateRows(state, type, unit); });
      bench->ArgNames({"width", "rows"})->Args({16, 4096});
      if (std::strncmp(type, "adagrad", 7) == 0) bench->Args({8, 4096})->Args({1, 4096})->Args({16, 1000000});
      if (std::strcmp(type, "ftrl") == 0) bench->Args({1, 4096});
    }
  }
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::RegisterRowRules();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
