// Initial values as a pure function: of (seed, variable name, element index), and for table rows of (seed, table, id, column).
// Whoever computes a piece, in whatever order, gets the same bits.
#ifndef WEIR_FRAMEWORK_RUNTIME_INITIAL_VALUE_H_
#define WEIR_FRAMEWORK_RUNTIME_INITIAL_VALUE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/program.pb.h"

namespace weir {

// Elements [begin, begin + out.size()) of a variable of the given whole dims. InvalidArgument when the initializer does not
// fit (xavier without fans on a vector, max < min).
absl::Status InitialElements(const v1::Initializer& init, uint64_t seed, std::string_view variable,
                             absl::Span<const int64_t> whole_dims, int64_t begin, absl::Span<float> out);

// Rows of one table; made once, used from any thread.
class RowInitializer {
 public:
  // A missing kind means constant 0.
  RowInitializer(const v1::Initializer& init, uint64_t seed, std::string_view table);
  // Values of row `id` into row[0, width).
  void Fill(int64_t id, absl::Span<float> row) const;

 private:
  uint64_t key_;
  enum { kConstant, kUniform, kGaussian } kind_;
  float a_, b_;  // constant; min and max - min; mean and deviation
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_INITIAL_VALUE_H_
