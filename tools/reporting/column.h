// Distribution of a column of floats that comes in parts, in any order and on several threads: exact quantiles of a
// column that fits into memory, else those of a histogram, whose relative error is bounded.
//
// The histogram has 512 classes for each power of two and sign: a float's class is its upper 18 bits, in the order of
// numbers. It counts exactly, so the result does not depend on threads or on the order of parts.
#ifndef WEIR_TOOLS_REPORTING_COLUMN_H_
#define WEIR_TOOLS_REPORTING_COLUMN_H_

#include <bit>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/tensor/float16.h"
#include "tools/reporting/table_report.pb.h"

namespace weir {

// Most numbers of a column that are kept: 64 MiB.
inline constexpr int64_t kExactColumn = int64_t{16} << 20;
// Bound of the relative error of a quantile from the histogram: the end of a class that is nearer to 0 stands for all
// of its numbers. Whole numbers up to 1024 are exact; numbers below 1.2e-38 may become 0.
inline constexpr double kClassError = 0x1p-9;

// Sums of a part of a column. Numbers that are not finite are counted and left out. Adding parts in one order gives the
// same bits each time, on every processor. `vectors`: false for the plain form, for tests.
struct ColumnSums {
  int64_t count = 0;
  int64_t not_finite = 0;
  double mean = 0;
  double squares = 0;  // sum of squared distances from the mean
  float min = 0, max = 0;

  static ColumnSums Of(absl::Span<const float> numbers, bool vectors = HasFloat16Vectors());
  void Add(const ColumnSums& other);
};

// Counts of numbers by class: 2 MiB. Not thread-safe; each thread has its own.
class ColumnHistogram {
 public:
  ColumnHistogram() : counts_(kClasses) {}

  void Add(absl::Span<const float> numbers);
  void Add(const ColumnHistogram& other);

  // Returns the number of finite numbers.
  int64_t finite() const;
  // Returns the class of the finite number of this rank, from 0 in rising order; `before` becomes the number of finite
  // ones in lower classes. Requires: 0 <= rank < finite().
  uint32_t Find(int64_t rank, int64_t* before) const;
  int64_t count(uint32_t of) const { return static_cast<int64_t>(counts_[of]); }
  // Returns the sum of the finite numbers in higher classes, each taken for the end of its class.
  double SumAbove(uint32_t of) const;

  static uint32_t ClassOf(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    // Turns around the negative ones.
    return (bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u)) >> kShift;
  }
  // Returns the end of a class that is nearer to 0.
  static float NearEnd(uint32_t of) { return Member(of, 0); }
  // Numbers of a class have kMembers bit patterns: returns that of this distance from the end nearer to 0.
  static constexpr uint32_t kMembers = uint32_t{1} << 14;
  static float Member(uint32_t of, uint32_t distance);
  static uint32_t DistanceOf(float x) { return std::bit_cast<uint32_t>(x) & (kMembers - 1); }

 private:
  static constexpr int kShift = 14;
  static_assert(kMembers == uint32_t{1} << kShift);
  static constexpr uint32_t kClasses = uint32_t{1} << (32 - kShift);
  // Finite numbers are in [kFirst, kEnd); outside are the infinities and NaN.
  static constexpr uint32_t kFirst = (0x007fffffu >> kShift) + 1, kEnd = 0xff800000u >> kShift;

  std::vector<uint64_t> counts_;
};

// Adds up squares of rows [squares.size()] of values: to squares[c] those of column c of rows whose values are all
// finite, and sets norms[r] to the square root of the sum of row r, which is not finite if a value is not. Norms beyond
// the greatest float become the greatest.
void AddSquares(absl::Span<const float> values, absl::Span<double> squares, absl::Span<float> norms,
                bool vectors = HasFloat16Vectors());

// Returns the figures of a column. `kept` holds all of its numbers, those that are not finite too, or is empty: then
// quantiles come from the histogram.
v1::ColumnFigures FiguresOf(const ColumnSums& sums, const ColumnHistogram& histogram, absl::Span<const float> kept);

// Returns the sum of the `n` greatest finite numbers of a column; exact if `kept` is not empty.
double SumOfGreatest(int64_t n, const ColumnHistogram& histogram, absl::Span<const float> kept);

}  // namespace weir

#endif  // WEIR_TOOLS_REPORTING_COLUMN_H_
