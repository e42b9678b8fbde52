// Exact sum of products of two float32 values: any order of adding and any way of splitting the terms give the same
// bits.
//
// The sum is a fixed-point number with a place for every bit that such a product can have: 20 limbs of 32 bits, the
// lowest worth 2^-298 (the square of the smallest subnormal). Only the result is rounded, once. Holds up to 2^50 terms.
// Not thread-safe.
//
// Used for sums over slices, rows and servers: each part adds up its own terms, the sums are added, and the total does
// not depend on the partition.
#ifndef WEIR_FRAMEWORK_BASE_EXACT_SUM_H_
#define WEIR_FRAMEWORK_BASE_EXACT_SUM_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weir {

class ExactSum {
 public:
  static constexpr int kLimbs = 20;
  // Length of a sum as integers: the limbs, lowest first, then flags.
  static constexpr int kWords = kLimbs + 1;

  void AddProduct(float a, float b);
  // Adds the square of each value. Long spans are fastest.
  void AddSquares(absl::Span<const float> values);
  void Add(const ExactSum& other);

  // Returns the nearest double, ties to even. Returns NaN once a NaN or both infinities were added, and an infinity
  // once one was.
  double Rounded() const;

  // Writes the sum into words [kWords]. Equal sums have equal words, whatever their terms were.
  void ToWords(int64_t* words) const;
  // InvalidArgument if `words` is not a result of ToWords.
  static absl::StatusOr<ExactSum> FromWords(absl::Span<const int64_t> words);
  // Returns the words as little-endian bytes.
  std::string ToBytes() const;
  static absl::StatusOr<ExactSum> FromBytes(std::string_view bytes);

 private:
  // Adds (or subtracts) mantissa * 2^(position - 298).
  void AddShifted(uint64_t mantissa, int position, bool negative);
  void AddOne(float value);
  // Carries: every limb but the highest into [0, 2^32).
  void Normalize();
  void NoteNotFinite(float a, float b);

  // Between two carries a limb holds a sum of up to kMostPending chunks below 2^32.
  static constexpr int64_t kMostPending = int64_t{1} << 29;
  static constexpr int64_t kNan = 1, kPlusInfinity = 2, kMinusInfinity = 4;
  int64_t limbs_[kLimbs] = {};
  int64_t pending_ = 0;  // additions since the last carry
  int64_t flags_ = 0;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_EXACT_SUM_H_
