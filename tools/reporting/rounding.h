// Errors that 16-bit storage would make in the values of a table (table.storage): relative errors by rounding to the
// nearest, as values of a checkpoint are rounded that such a table loads (docs/tables.md, "Values in 16 bits").
#ifndef WEIR_TOOLS_REPORTING_ROUNDING_H_
#define WEIR_TOOLS_REPORTING_ROUNDING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "framework/tensor/dtype.h"

namespace weir {

// Errors of finite values other than 0. Adding parts in one order gives the same bits each time.
struct RoundingErrors {
  int64_t values = 0;
  double sum = 0;  // of relative errors
  float max = 0;
  // Values beyond the greatest of the type, which become the greatest.
  int64_t beyond = 0;

  void Add(const RoundingErrors& other);
};

// Returns the errors of both types. Uses AVX2 and F16C if the processor has them; results are equal but for the order
// in which `sum` is added up.
struct SixteenBitErrors {
  RoundingErrors float16, bfloat16;
};
SixteenBitErrors RoundingErrorsOf(absl::Span<const float> values);
// Returns the same with `dtype`'s own conversions, one value after the other.
RoundingErrors RoundingErrorsByValue(DType dtype, absl::Span<const float> values);

}  // namespace weir

#endif  // WEIR_TOOLS_REPORTING_ROUNDING_H_
