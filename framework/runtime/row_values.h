// How the values of a table's rows lie on the servers (table.storage): as float32, or as 16-bit floats. Whoever
// computes has them as float32, and every 16-bit value is one, so reading them loses nothing.
//
// What an update makes of a value is rounded to one of the two neighbours that 16 bits have, the nearer the likelier,
// so that the mean of many small updates is what it would be in float32. It goes up when
//
//   distance to the lower neighbour / distance of the two, in 65536ths (nearest even)  +  r  >=  65536
//
// where r are 16 bits that Philox gives at (seed, table, id, column, step): key StableHash("rounding of <table>",
// seed), counter low step << 17 | column / 8 (modulo 2^64), high id; column % 8 is the place in the block, the lower
// half of a word first. So the bits depend on nothing else: not on servers, threads or order. A value of the format
// stays itself. What is finite stays finite: beyond the greatest value it becomes that. Inf stays Inf, NaN is the quiet
// NaN of its sign, and -0 keeps its sign.
#ifndef WEIR_FRAMEWORK_RUNTIME_ROW_VALUES_H_
#define WEIR_FRAMEWORK_RUNTIME_ROW_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "framework/tensor/dtype.h"

namespace weir {

// The neighbour of `value` that `random` decides on. Plain: what the loops below are tested against.
float RoundAtRandom(DType dtype, float value, uint16_t random);

// Of one table; made once, used from any thread.
class RowValues {
 public:
  // Types that values can have: FLOAT32, FLOAT16, BFLOAT16.
  static bool Has(DType dtype);
  // Bytes of the values of a row: a multiple of 4.
  static int64_t BytesOf(DType dtype, int64_t width);

  // `dtype`: one of those.
  RowValues(DType dtype, uint64_t seed, std::string_view table);

  DType dtype() const { return dtype_; }
  bool is_float32() const { return dtype_ == v1::FLOAT32; }
  int64_t Bytes(int width) const { return BytesOf(dtype_, width); }

  // `from` and `to` of Bytes(width), at a multiple of 4 or 2.
  void Load(const char* from, int width, float* to) const;
  // To the nearest, ties to even.
  void StoreNearest(const float* from, int width, char* to) const;
  // What an update of `step` has made of n rows: from[i][0, width) of row ids[i] goes to to[i].
  void Store(int64_t step, int64_t n, const int64_t* ids, int width, const float* const* from, char* const* to) const;

  // What Load gives after Store, plain.
  void Round(int64_t step, int64_t id, absl::Span<float> row) const;

 private:
  const DType dtype_;
  const uint64_t key_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_ROW_VALUES_H_
