#include "tools/reporting/column.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "glog/logging.h"

namespace weir {
namespace {

// Accumulators of a sum, so that additions do not wait for each other. Part of what a sum is, bit by bit.
constexpr size_t kLanes = 8;

double SumOf(const double (&lanes)[kLanes]) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

double Squared(double x) { return x * x; }

float NormOf(double squares) {
  constexpr double kMost = std::numeric_limits<float>::max();
  const double norm = std::sqrt(squares);
  return static_cast<float>(norm > kMost && std::isfinite(norm) ? kMost : norm);
}

// Sum and bounds of numbers.
struct Extremes {
  double sum = 0;
  float min = INFINITY, max = -INFINITY;

  void Add(float x) {
    sum += static_cast<double>(x);
    min = std::min(min, x);
    max = std::max(max, x);
  }
};

// The functions below have a plain form and one with AVX2, whose results are equal to the bit. Spans are multiples of
// kLanes long.

Extremes ExtremesOf(absl::Span<const float> numbers) {
  double lanes[kLanes] = {};
  Extremes all;
  for (size_t i = 0; i < numbers.size(); ++i) {
    lanes[i % kLanes] += static_cast<double>(numbers[i]);
    all.min = std::min(all.min, numbers[i]);
    all.max = std::max(all.max, numbers[i]);
  }
  all.sum = SumOf(lanes);
  return all;
}

double SquaresOf(absl::Span<const float> numbers, double mean) {
  double lanes[kLanes] = {};
  for (size_t i = 0; i < numbers.size(); ++i) lanes[i % kLanes] += Squared(static_cast<double>(numbers[i]) - mean);
  return SumOf(lanes);
}

// Rows need not be a multiple of kLanes long.
void NormsOf(absl::Span<const float> values, size_t width, absl::Span<float> norms) {
  const size_t whole = width / kLanes * kLanes;
  for (size_t r = 0; r < norms.size(); ++r) {
    const float* const row = values.data() + r * width;
    double lanes[kLanes] = {};
    for (size_t c = 0; c < width; ++c) lanes[c < whole ? c % kLanes : 0] += Squared(static_cast<double>(row[c]));
    norms[r] = NormOf(SumOf(lanes));
  }
}

#define WEIR_AVX2 __attribute__((target("avx2")))

// Eight lanes of doubles.
struct Doubles {
  __m256d low, high;
};

WEIR_AVX2 inline Doubles DoublesOf(const float* x) {
  const __m256 floats = _mm256_loadu_ps(x);
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(floats)), _mm256_cvtps_pd(_mm256_extractf128_ps(floats, 1))};
}

WEIR_AVX2 inline void AddSquaresOf(const Doubles& x, Doubles* to) {
  to->low = _mm256_add_pd(to->low, _mm256_mul_pd(x.low, x.low));
  to->high = _mm256_add_pd(to->high, _mm256_mul_pd(x.high, x.high));
}

WEIR_AVX2 inline void Store(const Doubles& from, double* to) {
  _mm256_storeu_pd(to, from.low);
  _mm256_storeu_pd(to + 4, from.high);
}

WEIR_AVX2 inline double SumOfLanes(const Doubles& of) {
  double lanes[kLanes];
  Store(of, lanes);
  return SumOf(lanes);
}

WEIR_AVX2 Extremes ExtremesOfVectors(absl::Span<const float> numbers) {
  Doubles sums = {_mm256_setzero_pd(), _mm256_setzero_pd()};
  __m256 least = _mm256_set1_ps(INFINITY), most = _mm256_set1_ps(-INFINITY);
  for (size_t i = 0; i < numbers.size(); i += kLanes) {
    const Doubles x = DoublesOf(numbers.data() + i);
    sums.low = _mm256_add_pd(sums.low, x.low);
    sums.high = _mm256_add_pd(sums.high, x.high);
    const __m256 floats = _mm256_loadu_ps(numbers.data() + i);
    least = _mm256_min_ps(least, floats);
    most = _mm256_max_ps(most, floats);
  }
  float lanes[kLanes];
  Extremes all;
  _mm256_storeu_ps(lanes, least);
  all.min = *std::min_element(lanes, lanes + kLanes);
  _mm256_storeu_ps(lanes, most);
  all.max = *std::max_element(lanes, lanes + kLanes);
  all.sum = SumOfLanes(sums);
  return all;
}

WEIR_AVX2 double SquaresOfVectors(absl::Span<const float> numbers, double mean) {
  const __m256d middle = _mm256_set1_pd(mean);
  Doubles sums = {_mm256_setzero_pd(), _mm256_setzero_pd()};
  for (size_t i = 0; i < numbers.size(); i += kLanes) {
    Doubles x = DoublesOf(numbers.data() + i);
    x.low = _mm256_sub_pd(x.low, middle);
    x.high = _mm256_sub_pd(x.high, middle);
    AddSquaresOf(x, &sums);
  }
  return SumOfLanes(sums);
}

WEIR_AVX2 void NormsOfVectors(absl::Span<const float> values, size_t width, absl::Span<float> norms) {
  const size_t whole = width / kLanes * kLanes;
  for (size_t r = 0; r < norms.size(); ++r) {
    const float* const row = values.data() + r * width;
    Doubles sums = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    for (size_t c = 0; c < whole; c += kLanes) AddSquaresOf(DoublesOf(row + c), &sums);
    double lanes[kLanes];
    Store(sums, lanes);
    for (size_t c = whole; c < width; ++c) lanes[0] += Squared(static_cast<double>(row[c]));
    norms[r] = NormOf(SumOf(lanes));
  }
}

// Adds the squares of columns [0, whole) of rows of `width` values, row by row.
WEIR_AVX2 void ColumnsOfVectors(absl::Span<const float> values, size_t width, size_t whole,
                                absl::Span<double> squares) {
  for (size_t c = 0; c < whole; c += kLanes) {
    double* const to = squares.data() + c;
    Doubles sums = {_mm256_loadu_pd(to), _mm256_loadu_pd(to + 4)};
    for (size_t at = c; at < values.size(); at += width) AddSquaresOf(DoublesOf(values.data() + at), &sums);
    Store(sums, to);
  }
}

// Returns the numbers of `kept` in each class of `classes`, as counts by their distance from its end.
std::vector<std::vector<int64_t>> MembersOf(absl::Span<const uint32_t> classes, absl::Span<const float> kept) {
  std::vector<std::vector<int64_t>> members(classes.size(), std::vector<int64_t>(ColumnHistogram::kMembers));
  for (const float x : kept) {
    const uint32_t its = ColumnHistogram::ClassOf(x);
    for (size_t i = 0; i < classes.size(); ++i) {
      if (its == classes[i]) ++members[i][ColumnHistogram::DistanceOf(x)];
    }
  }
  return members;
}

// Returns the place of the member that has `rank` (from 0, rising) in its class. Members of a class of negative numbers
// rise towards its end.
uint32_t DistanceAt(int64_t rank, const std::vector<int64_t>& members, bool negative) {
  const auto count = static_cast<uint32_t>(members.size());
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t distance = negative ? count - 1 - i : i;
    if (rank < members[distance]) return distance;
    rank -= members[distance];
  }
  LOG(FATAL) << "the numbers kept are not those counted";
}

bool IsNegative(uint32_t of) { return std::signbit(ColumnHistogram::NearEnd(of)); }

}  // namespace

ColumnSums ColumnSums::Of(absl::Span<const float> numbers, bool vectors) {
  ColumnSums sums;
  if (numbers.empty()) return sums;
  const size_t whole = numbers.size() / kLanes * kLanes;
  const absl::Span<const float> lanes = numbers.first(whole), rest = numbers.subspan(whole);
  Extremes extremes = vectors ? ExtremesOfVectors(lanes) : ExtremesOf(lanes);
  for (const float x : rest) extremes.Add(x);
  if (!std::isfinite(extremes.sum)) {
    // A sum of floats in double does not overflow: some are not finite.
    std::vector<float> finite;
    std::copy_if(numbers.begin(), numbers.end(), std::back_inserter(finite), [](float x) { return std::isfinite(x); });
    sums = Of(finite, vectors);
    sums.not_finite = static_cast<int64_t>(numbers.size() - finite.size());
    return sums;
  }
  sums.count = static_cast<int64_t>(numbers.size());
  sums.mean = extremes.sum / static_cast<double>(numbers.size());
  sums.min = extremes.min;
  sums.max = extremes.max;
  sums.squares = vectors ? SquaresOfVectors(lanes, sums.mean) : SquaresOf(lanes, sums.mean);
  for (const float x : rest) sums.squares += Squared(static_cast<double>(x) - sums.mean);
  return sums;
}

void ColumnSums::Add(const ColumnSums& other) {
  not_finite += other.not_finite;
  if (other.count == 0) return;
  if (count == 0) {
    const int64_t bad = not_finite;
    *this = other;
    not_finite = bad;
    return;
  }
  const double mine = static_cast<double>(count), its = static_cast<double>(other.count);
  const double distance = other.mean - mean;
  squares += other.squares + distance * distance * mine * its / (mine + its);
  mean += distance * its / (mine + its);
  count += other.count;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
}

void ColumnHistogram::Add(absl::Span<const float> numbers) {
  uint64_t* const counts = counts_.data();
  for (const float x : numbers) ++counts[ClassOf(x)];
}

void ColumnHistogram::Add(const ColumnHistogram& other) {
  for (uint32_t of = 0; of < kClasses; ++of) counts_[of] += other.counts_[of];
}

int64_t ColumnHistogram::finite() const {
  uint64_t sum = 0;
  for (uint32_t of = kFirst; of < kEnd; ++of) sum += counts_[of];
  return static_cast<int64_t>(sum);
}

uint32_t ColumnHistogram::Find(int64_t rank, int64_t* before) const {
  int64_t below = 0;
  for (uint32_t of = kFirst; of < kEnd; ++of) {
    const auto count = static_cast<int64_t>(counts_[of]);
    if (below + count > rank) {
      *before = below;
      return of;
    }
    below += count;
  }
  LOG(FATAL) << "rank " << rank << " of " << below << " numbers";
}

double ColumnHistogram::SumAbove(uint32_t of) const {
  double sum = 0;
  for (uint32_t above = of + 1; above < kEnd; ++above) {
    if (counts_[above] > 0) sum += static_cast<double>(counts_[above]) * static_cast<double>(NearEnd(above));
  }
  return sum;
}

float ColumnHistogram::Member(uint32_t of, uint32_t distance) {
  const uint32_t low = of << kShift;
  const bool negative = (low & 0x80000000u) == 0;
  return std::bit_cast<float>((negative ? ~(low | (kMembers - 1)) : low & 0x7fffffffu) | distance);
}

void AddSquares(absl::Span<const float> values, absl::Span<double> squares, absl::Span<float> norms, bool vectors) {
  if (vectors) {
    NormsOfVectors(values, squares.size(), norms);
  } else {
    NormsOf(values, squares.size(), norms);
  }
  const size_t width = squares.size();
  const bool finite = std::all_of(norms.begin(), norms.end(), [](float norm) { return std::isfinite(norm); });
  const size_t whole = vectors && finite ? width / kLanes * kLanes : 0;
  if (whole > 0) ColumnsOfVectors(values, width, whole, squares);
  for (size_t r = 0; r < norms.size(); ++r) {
    if (!std::isfinite(norms[r])) continue;
    const float* const row = values.data() + r * width;
    for (size_t c = whole; c < width; ++c) squares[c] += Squared(static_cast<double>(row[c]));
  }
}

v1::ColumnFigures FiguresOf(const ColumnSums& sums, const ColumnHistogram& histogram, absl::Span<const float> kept) {
  v1::ColumnFigures figures;
  figures.set_count(sums.count);
  figures.set_not_finite(sums.not_finite);
  if (sums.count == 0) return figures;
  CHECK_EQ(histogram.finite(), sums.count);
  constexpr int64_t kPercents[] = {1, 50, 99};
  int64_t ranks[3];
  uint32_t classes[3];
  float quantiles[3];
  for (int q = 0; q < 3; ++q) {
    // ceil(q n) from 1 is the quantile; here ranks begin at 0.
    const int64_t rank = std::max<int64_t>(1, (sums.count * kPercents[q] + 99) / 100) - 1;
    int64_t before = 0;
    classes[q] = histogram.Find(rank, &before);
    ranks[q] = rank - before;
    quantiles[q] = ColumnHistogram::NearEnd(classes[q]);
  }
  if (!kept.empty()) {
    const std::vector<std::vector<int64_t>> members = MembersOf(classes, kept);
    for (int q = 0; q < 3; ++q) {
      quantiles[q] = ColumnHistogram::Member(classes[q], DistanceAt(ranks[q], members[q], IsNegative(classes[q])));
    }
  }
  figures.set_mean(sums.mean);
  figures.set_deviation(std::sqrt(sums.squares / static_cast<double>(sums.count)));
  figures.set_min(static_cast<double>(sums.min));
  figures.set_p1(static_cast<double>(quantiles[0]));
  figures.set_p50(static_cast<double>(quantiles[1]));
  figures.set_p99(static_cast<double>(quantiles[2]));
  figures.set_max(static_cast<double>(sums.max));
  figures.set_quantile_error(kept.empty() ? kClassError : 0);
  return figures;
}

double SumOfGreatest(int64_t n, const ColumnHistogram& histogram, absl::Span<const float> kept) {
  const int64_t finite = histogram.finite();
  n = std::min(n, finite);
  if (n <= 0) return 0;
  // The class with the least of them, of which `some` are among the n.
  int64_t before = 0;
  const uint32_t of = histogram.Find(finite - n, &before);
  int64_t some = n - (finite - before - histogram.count(of));
  if (kept.empty()) {
    return histogram.SumAbove(of) + static_cast<double>(some) * static_cast<double>(ColumnHistogram::NearEnd(of));
  }
  std::vector<int64_t> members(ColumnHistogram::kMembers);
  double sum = 0;
  for (const float x : kept) {
    const uint32_t its = ColumnHistogram::ClassOf(x);
    if (its == of) ++members[ColumnHistogram::DistanceOf(x)];
    if (its > of && std::isfinite(x)) sum += static_cast<double>(x);
  }
  for (uint32_t i = 0; i < ColumnHistogram::kMembers && some > 0; ++i) {
    const uint32_t distance = IsNegative(of) ? i : ColumnHistogram::kMembers - 1 - i;
    const int64_t taken = std::min(some, members[distance]);
    sum += static_cast<double>(taken) * static_cast<double>(ColumnHistogram::Member(of, distance));
    some -= taken;
  }
  return sum;
}

#undef WEIR_AVX2

}  // namespace weir
