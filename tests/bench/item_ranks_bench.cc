// Ranks of items among 1,000,000, beside the products alone by ops/gemm.h (sgemm), by turns.
//
//   bazel run //tests/bench:item_ranks_bench
//
// The products are made in blocks of 4096 items, so that their results stay in the cache: the best that sgemm can do.
// Checks some ranks first. Prints GFLOP/s of both, the median of the turns, and the median of the ratios.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "framework/base/thread_pool.h"
#include "ops/gemm.h"
#include "ops/item_ranks.h"

namespace {

constexpr int64_t kItems = 1'000'000, kQueries = 480, kBlock = 4096;
constexpr int kTurns = 7;

std::vector<float> Numbers(int64_t n, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(seed >> 8) / 8388608.0f - 1;
  }
  return values;
}

template <typename Fn>
double SecondsOf(const Fn& fn) {
  const absl::Time begin = absl::Now();
  fn();
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Ends the program if ranks differ from those by the products, whose order of sums is another: few items may change
// places.
void CheckRanks(const std::vector<float>& vectors, const std::vector<float>& queries, int64_t width,
                const weir::PackedItems& items, const std::vector<weir::RankQuery>& wanted) {
  std::vector<weir::ItemRank> ranks(wanted.size());
  weir::RankItems(items, wanted, nullptr, ranks.data());
  std::vector<float> products(static_cast<size_t>(kItems));
  for (size_t q = 0; q < wanted.size(); q += 60) {
    weir::Gemm(1, kItems, width, queries.data() + static_cast<int64_t>(q) * width, vectors.data(), products.data(),
               {.transpose_b = true});
    const float own = products[static_cast<size_t>(wanted[q].item)];
    const int64_t above = std::count_if(products.begin(), products.end(), [&](float x) { return x > own; });
    const int64_t off = std::max(above, ranks[q].above) - std::min(above, ranks[q].above);
    if (off <= 20) continue;
    std::printf("query %zu has rank %ld, by sgemm %ld\n", q, ranks[q].above, above);
    std::exit(1);
  }
}

void Measure(int64_t width, int threads) {
  weir::ThreadPool pool("ranks", threads - 1);
  const std::vector<float> vectors = Numbers(kItems * width, 1), queries = Numbers(kQueries * width, 2);
  weir::PackedItems items(kItems, width);
  items.Set(0, kItems, vectors.data());
  std::vector<weir::RankQuery> wanted;
  for (int64_t q = 0; q < kQueries; ++q) wanted.push_back({queries.data() + q * width, q * 1999});
  std::vector<weir::ItemRank> ranks(wanted.size());
  CheckRanks(vectors, queries, width, items, wanted);
  const int64_t share = kQueries / threads;
  std::vector<std::vector<float>> products(static_cast<size_t>(threads),
                                           std::vector<float>(static_cast<size_t>(share * kBlock)));
  std::vector<double> ranked, multiplied, ratios;
  for (int turn = 0; turn < kTurns; ++turn) {
    ranked.push_back(SecondsOf([&] { weir::RankItems(items, wanted, &pool, ranks.data()); }));
    multiplied.push_back(SecondsOf([&] {
      pool.ParallelFor(threads, [&](int64_t t) {
        for (int64_t begin = 0; begin < kItems; begin += kBlock) {
          const int64_t n = std::min(kBlock, kItems - begin);
          weir::Gemm(share, n, width, queries.data() + t * share * width, vectors.data() + begin * width,
                     products[static_cast<size_t>(t)].data(), {.transpose_b = true});
        }
      });
    }));
    ratios.push_back(multiplied.back() / ranked.back());
  }
  const double work = 2.0 * kItems * kQueries * static_cast<double>(width) / 1e9;
  std::printf("width %3ld, %d threads: %4.0f queries/s, ranks %6.1f GFLOP/s, sgemm %6.1f GFLOP/s, ratio %.2f\n", width,
              threads, kQueries / Median(ranked), work / Median(ranked), work / Median(multiplied), Median(ratios));
}

}  // namespace

int main() {
  for (const int64_t width : {32, 64, 128}) {
    for (const int threads : {1, 2}) Measure(width, threads);
  }
}
