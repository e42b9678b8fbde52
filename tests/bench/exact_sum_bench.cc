// Squares per second into exact sums, beside a plain sum of doubles, by the length of a span.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "framework/base/exact_sum.h"
#include "glog/logging.h"

namespace weir {
namespace {

std::vector<float> Values(int64_t n) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1e-3f);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(random);
  return values;
}

void Exact(benchmark::State& state) {
  const std::vector<float> values = Values(state.range(0));
  ExactSum all, single;
  all.AddSquares(values);
  for (float v : values) single.AddProduct(v, v);
  CHECK(all.ToBytes() == single.ToBytes());
  for (auto _ : state) {
    ExactSum sum;
    sum.AddSquares(values);
    benchmark::DoNotOptimize(sum.Rounded());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}
BENCHMARK(Exact)->Arg(16)->Arg(128)->Arg(1 << 10)->Arg(1 << 14)->Arg(1 << 18)->Arg(1 << 22);

void OneByOne(benchmark::State& state) {
  const std::vector<float> values = Values(state.range(0));
  for (auto _ : state) {
    ExactSum sum;
    for (float v : values) sum.AddProduct(v, v);
    benchmark::DoNotOptimize(sum.Rounded());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(OneByOne)->Arg(1 << 14);

void PlainDouble(benchmark::State& state) {
  const std::vector<float> values = Values(state.range(0));
  for (auto _ : state) {
    double sum = 0;
    for (float v : values) sum += static_cast<double>(v) * v;
    benchmark::DoNotOptimize(sum);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(PlainDouble)->Arg(1 << 14)->Arg(1 << 22);

}  // namespace
}  // namespace weir

BENCHMARK_MAIN();
