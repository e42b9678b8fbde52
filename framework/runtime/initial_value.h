// Computes initial values as a pure function of (seed, variable name, element index), and for table rows of (seed,
// table, id, column): the bits do not depend on the process, the piece or the order.
#ifndef WEIR_FRAMEWORK_RUNTIME_INITIAL_VALUE_H_
#define WEIR_FRAMEWORK_RUNTIME_INITIAL_VALUE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/tensor/dtype.h"
#include "proto/program.pb.h"

namespace weir {

// Fills `out` with elements [begin, begin + out.size()) of a variable of the given whole dims. InvalidArgument if the
// initializer does not fit (xavier without fans on a vector, max < min).
absl::Status InitialElements(const v1::Initializer& init, uint64_t seed, std::string_view variable,
                             absl::Span<const int64_t> whole_dims, int64_t begin, absl::Span<float> out);

// Initial values of the rows of one table. Const methods are thread-safe.
class RowInitializer {
 public:
  // A missing kind means constant 0. `values`: the type of the table's values, FLOAT32 or a 16-bit float, to which
  // initial values are rounded (to nearest).
  RowInitializer(const v1::Initializer& init, uint64_t seed, std::string_view table, DType values = v1::FLOAT32);
  // Sets another initializer for columns [begin, begin + width). Set columns from left to right, all of them or none.
  void SetColumns(int begin, int width, const v1::Initializer& init);
  // Writes the values of row `id` to `row`.
  void Fill(int64_t id, absl::Span<float> row) const;
  // Writes columns [begin, begin + values.size()) of row `id`, ignoring SetColumns.
  void FillColumns(int64_t id, int begin, absl::Span<float> values) const;

 private:
  struct Values {
    enum Kind { kConstant, kUniform, kGaussian } kind = kConstant;
    float a = 0, b = 0;  // constant; min and max - min; mean and deviation
    int begin = 0, width = 0;
  };
  static Values ValuesOf(const v1::Initializer& init);
  void FillFrom(const Values& values, int64_t id, int begin, absl::Span<float> out) const;

  uint64_t key_;
  DType values_;
  Values all_;
  std::vector<Values> columns_;  // empty: all_ holds
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_INITIAL_VALUE_H_
