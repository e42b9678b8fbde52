// Storage of the values of a table's rows on the servers (table.storage): as float32, or as 16-bit floats. Arithmetic
// uses float32, and every 16-bit value is a float32, so reading loses nothing.
//
// An updated value is rounded at random to one of its two 16-bit neighbours, the nearer with the higher probability, so
// that the mean of many small updates is that of float32. It is rounded up if
//
//   distance to the lower neighbour / distance of the two, in 65536ths (nearest even)  +  r  >=  65536
//
// where r are 16 bits that Philox gives at (seed, table, id, column, step): key StableHash("rounding of <table>",
// seed), counter low step << 17 | column / 8 (modulo 2^64), high id; column % 8 is the place in the block, the lower
// half of a word first. The bits therefore do not depend on servers, threads or order. A value of the format is
// unchanged. Finite values stay finite: beyond the greatest value they become the greatest. Inf stays Inf, NaN becomes
// the quiet NaN of its sign, and -0 keeps its sign.
#ifndef WEIR_FRAMEWORK_RUNTIME_ROW_VALUES_H_
#define WEIR_FRAMEWORK_RUNTIME_ROW_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "framework/tensor/dtype.h"

namespace weir {

// Returns the neighbour of `value` selected by `random`. Reference that the loops below are tested against.
float RoundAtRandom(DType dtype, float value, uint16_t random);

// Storage of one table. Thread-safe.
class RowValues {
 public:
  // Returns true for the types of stored values: FLOAT32, FLOAT16, BFLOAT16.
  static bool Has(DType dtype);
  // Returns the bytes of the values of a row: a multiple of 4.
  static int64_t BytesOf(DType dtype, int64_t width);

  // `dtype` must be one of those of Has.
  RowValues(DType dtype, uint64_t seed, std::string_view table);

  DType dtype() const { return dtype_; }
  bool is_float32() const { return dtype_ == v1::FLOAT32; }
  int64_t Bytes(int width) const { return BytesOf(dtype_, width); }

  // Converts stored values to float32. Stored rows here and below have Bytes(width) and are aligned to their element
  // type (4 or 2 bytes).
  void Load(const char* from, int width, float* to) const;
  // Stores values rounded to nearest, ties to even.
  void StoreNearest(const float* from, int width, char* to) const;
  // Stores the results of an update of `step` for n rows, rounded at random: from[i][0, width) of row ids[i] goes to
  // to[i].
  void Store(int64_t step, int64_t n, const int64_t* ids, int width, const float* const* from, char* const* to) const;

  // Replaces `row` by the values that Load returns after Store; reference form.
  void Round(int64_t step, int64_t id, absl::Span<float> row) const;

 private:
  const DType dtype_;
  const uint64_t key_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_ROW_VALUES_H_
