#include "ops/item_ranks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "glog/logging.h"
#include "ops/vector_unit.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weir {
namespace {

constexpr int64_t kPanel = PackedItems::kPanel;
// Queries that one task ranks, while the items pass by once; and bytes of the items that stay in the second-level cache
// for all of them.
constexpr int64_t kMostQueries = 240;
constexpr int64_t kTileBytes = 256 << 10;

// Queries side by side, and what each has counted.
struct Group {
  const float* vectors;  // [width, queries]
  const float* own;      // products of the queries' own items
  ItemRank* rank;
};

// Adds the items of panels [begin, end) to the counts of a group of kRows queries.
using CountPanels = void (*)(const PackedItems& items, int64_t begin, int64_t end, const Group& group);
// Writes the products of one query with a panel.
using PanelProducts = void (*)(const float* panel, int64_t width, const float* query, float* products);

// A compilation of the two for one vector unit.
struct Unit {
  int rows;
  CountPanels count;
  CountPanels count_one;
  PanelProducts products;
};

void ProductsPlain(const float* panel, int64_t width, const float* query, float* products) {
  std::fill_n(products, kPanel, 0.0f);
  for (int64_t k = 0; k < width; ++k) {
    for (int64_t j = 0; j < kPanel; ++j) products[j] = std::fma(query[k], panel[k * kPanel + j], products[j]);
  }
}

void CountPlain(const PackedItems& items, int64_t begin, int64_t end, const Group& group) {
  float products[kPanel];
  for (int64_t p = begin; p < end; ++p) {
    ProductsPlain(items.panel(p), items.width(), group.vectors, products);
    for (const float product : products) {
      group.rank[0].above += product > group.own[0];
      group.rank[0].equal += product == group.own[0];
    }
  }
}

#if defined(__x86_64__)

#define WEIR_WITH_FMA512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,popcnt")))
#define WEIR_WITH_FMA256 __attribute__((target("avx2,fma,popcnt")))

WEIR_WITH_FMA512 void ProductsAvx512(const float* panel, int64_t width, const float* query, float* products) {
  __m512 low = _mm512_setzero_ps(), high = _mm512_setzero_ps();
  for (int64_t k = 0; k < width; ++k) {
    const __m512 q = _mm512_set1_ps(query[k]);
    low = _mm512_fmadd_ps(q, _mm512_loadu_ps(panel + k * kPanel), low);
    high = _mm512_fmadd_ps(q, _mm512_loadu_ps(panel + k * kPanel + 16), high);
  }
  _mm512_storeu_ps(products, low);
  _mm512_storeu_ps(products + 16, high);
}

template <int kRows>
WEIR_WITH_FMA512 void CountAvx512(const PackedItems& items, int64_t begin, int64_t end, const Group& group) {
  const int64_t width = items.width();
  uint32_t above[kRows] = {}, equal[kRows] = {};
  for (int64_t p = begin; p < end; ++p) {
    const float* const panel = items.panel(p);
    __m512 low[kRows], high[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) low[r] = high[r] = _mm512_setzero_ps();
    for (int64_t k = 0; k < width; ++k) {
      const __m512 x = _mm512_loadu_ps(panel + k * kPanel), y = _mm512_loadu_ps(panel + k * kPanel + 16);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512 q = _mm512_set1_ps(group.vectors[k * kRows + r]);
        low[r] = _mm512_fmadd_ps(q, x, low[r]);
        high[r] = _mm512_fmadd_ps(q, y, high[r]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512 own = _mm512_set1_ps(group.own[r]);
      const auto bits = [](__mmask16 x, __mmask16 y) {
        return static_cast<uint32_t>(x) | static_cast<uint32_t>(y) << 16;
      };
      above[r] += static_cast<uint32_t>(std::popcount(
          bits(_mm512_cmp_ps_mask(low[r], own, _CMP_GT_OQ), _mm512_cmp_ps_mask(high[r], own, _CMP_GT_OQ))));
      equal[r] += static_cast<uint32_t>(std::popcount(
          bits(_mm512_cmp_ps_mask(low[r], own, _CMP_EQ_OQ), _mm512_cmp_ps_mask(high[r], own, _CMP_EQ_OQ))));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    group.rank[r].above += above[r];
    group.rank[r].equal += equal[r];
  }
}

WEIR_WITH_FMA256 void ProductsAvx2(const float* panel, int64_t width, const float* query, float* products) {
  __m256 part[4];
  for (__m256& x : part) x = _mm256_setzero_ps();
  for (int64_t k = 0; k < width; ++k) {
    const __m256 q = _mm256_set1_ps(query[k]);
    for (int j = 0; j < 4; ++j) part[j] = _mm256_fmadd_ps(q, _mm256_loadu_ps(panel + k * kPanel + 8 * j), part[j]);
  }
  for (int j = 0; j < 4; ++j) _mm256_storeu_ps(products + 8 * j, part[j]);
}

// Half a panel at a time: with its two vectors, 6 queries fill the 16 registers.
template <int kRows>
WEIR_WITH_FMA256 void CountAvx2(const PackedItems& items, int64_t begin, int64_t end, const Group& group) {
  const int64_t width = items.width();
  uint32_t above[kRows] = {}, equal[kRows] = {};
  for (int64_t half = 2 * begin; half < 2 * end; ++half) {
    const float* const panel = items.panel(half / 2) + half % 2 * 16;
    __m256 low[kRows], high[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) low[r] = high[r] = _mm256_setzero_ps();
    for (int64_t k = 0; k < width; ++k) {
      const __m256 x = _mm256_loadu_ps(panel + k * kPanel), y = _mm256_loadu_ps(panel + k * kPanel + 8);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256 q = _mm256_set1_ps(group.vectors[k * kRows + r]);
        low[r] = _mm256_fmadd_ps(q, x, low[r]);
        high[r] = _mm256_fmadd_ps(q, y, high[r]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256 own = _mm256_set1_ps(group.own[r]);
      const auto bits = [](__m256 x, __m256 y) __attribute__((target("avx2,fma,popcnt"))) {
        return static_cast<uint32_t>(_mm256_movemask_ps(x)) | static_cast<uint32_t>(_mm256_movemask_ps(y)) << 8;
      };
      above[r] += static_cast<uint32_t>(
          std::popcount(bits(_mm256_cmp_ps(low[r], own, _CMP_GT_OQ), _mm256_cmp_ps(high[r], own, _CMP_GT_OQ))));
      equal[r] += static_cast<uint32_t>(
          std::popcount(bits(_mm256_cmp_ps(low[r], own, _CMP_EQ_OQ), _mm256_cmp_ps(high[r], own, _CMP_EQ_OQ))));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    group.rank[r].above += above[r];
    group.rank[r].equal += equal[r];
  }
}

#endif  // __x86_64__

Unit UnitHere() {
#if defined(__x86_64__)
  const bool fma = __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("popcnt") != 0;
  if (fma && CurrentVectorUnit() == VectorUnit::kAvx512) {
    return {.rows = 12, .count = CountAvx512<12>, .count_one = CountAvx512<1>, .products = ProductsAvx512};
  }
  if (fma && CurrentVectorUnit() == VectorUnit::kAvx2) {
    return {.rows = 6, .count = CountAvx2<6>, .count_one = CountAvx2<1>, .products = ProductsAvx2};
  }
#endif
  return {.rows = 1, .count = CountPlain, .count_one = CountPlain, .products = ProductsPlain};
}

float ProductWith(const Unit& unit, const PackedItems& items, int64_t item, const float* query) {
  float products[kPanel];
  unit.products(items.panel(item / kPanel), items.width(), query, products);
  return products[item % kPanel];
}

// Takes the item itself and what is no candidate out of the counts.
void TakeOut(const Unit& unit, const PackedItems& items, const RankQuery& query, float own, ItemRank* rank) {
  std::vector<int64_t> out(query.without.begin(), query.without.end());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  std::erase(out, query.item);
  if (std::isnan(own)) {
    *rank = {.above = items.items() - 1 - static_cast<int64_t>(out.size())};
    return;
  }
  --rank->equal;
  for (const int64_t item : out) {
    const float product = ProductWith(unit, items, item, query.vector);
    rank->above -= product > own;
    rank->equal -= product == own;
  }
}

void RankSome(const Unit& unit, const PackedItems& items, std::span<const RankQuery> queries, ItemRank* ranks) {
  const auto n = static_cast<int64_t>(queries.size());
  const int64_t width = items.width();
  // The vectors of a group's queries side by side, at the place of the first; those behind the last group one by one.
  std::vector<float> vectors(static_cast<size_t>(n * width));
  std::vector<float> own;
  const int64_t grouped = n / unit.rows * unit.rows;
  for (int64_t q = 0; q < n; ++q) {
    const RankQuery& query = queries[static_cast<size_t>(q)];
    DCHECK(query.item >= 0 && query.item < items.items());
    const int64_t rows = q < grouped ? unit.rows : 1, first = q / rows * rows;
    for (int64_t k = 0; k < width; ++k) {
      vectors[static_cast<size_t>(first * width + k * rows + q - first)] = query.vector[k];
    }
    own.push_back(ProductWith(unit, items, query.item, query.vector));
  }
  std::fill_n(ranks, n, ItemRank());
  const int64_t bytes = kPanel * width * static_cast<int64_t>(sizeof(float));
  const int64_t tile = std::max<int64_t>(1, kTileBytes / bytes);
  for (int64_t begin = 0; begin < items.panels(); begin += tile) {
    const int64_t end = std::min(items.panels(), begin + tile);
    for (int64_t q = 0; q < n; q += q < grouped ? unit.rows : 1) {
      const CountPanels count = q < grouped ? unit.count : unit.count_one;
      count(items, begin, end, {vectors.data() + q * width, own.data() + q, ranks + q});
    }
  }
  for (int64_t q = 0; q < n; ++q) {
    TakeOut(unit, items, queries[static_cast<size_t>(q)], own[static_cast<size_t>(q)], ranks + q);
  }
}

}  // namespace

PackedItems::PackedItems(int64_t items, int64_t width)
    : items_(items),
      width_(width),
      data_(static_cast<size_t>(panels() * kPanel * width), std::numeric_limits<float>::quiet_NaN()) {}

void PackedItems::Set(int64_t first, int64_t count, const float* vectors) {
  CHECK(first >= 0 && count >= 0 && first + count <= items_);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t item = first + i;
    float* const out = data_.data() + item / kPanel * kPanel * width_ + item % kPanel;
    for (int64_t k = 0; k < width_; ++k) out[k * kPanel] = vectors[i * width_ + k];
  }
}

void RankItems(const PackedItems& items, std::span<const RankQuery> queries, ThreadPool* pool, ItemRank* ranks) {
  const Unit unit = UnitHere();
  const auto n = static_cast<int64_t>(queries.size());
  const int64_t threads = pool == nullptr ? 1 : pool->threads() + 1;
  // Whole groups, so that no task but the last has queries that are counted one by one.
  const int64_t share = (n + threads * unit.rows - 1) / (threads * unit.rows) * unit.rows;
  const int64_t some = std::min(share, kMostQueries);
  if (n == 0) return;
  const auto task = [&](int64_t t) {
    const int64_t begin = t * some;
    RankSome(unit, items, queries.subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min(some, n - begin))),
             ranks + begin);
  };
  const int64_t tasks = (n + some - 1) / some;
  if (pool == nullptr || tasks == 1) {
    for (int64_t t = 0; t < tasks; ++t) task(t);
  } else {
    pool->ParallelFor(tasks, task);
  }
}

}  // namespace weir
