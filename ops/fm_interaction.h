// Position of the slots of an example in the input of fm_interaction and its gradient, on every device.
#ifndef WEIR_OPS_FM_INTERACTION_H_
#define WEIR_OPS_FM_INTERACTION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weir {

// Slot s of example b is the `width` elements of X from b * stride + begin + s * width on.
struct FmSlots {
  int64_t slots = 0;
  int64_t width = 0;
  int64_t stride = 0;
  int64_t begin = 0;
};
// Returns the slots of X of these dims. If `columns` is empty, X is [batch, slots, width]; else X is a matrix and
// `columns` is {begin, slots, width}. InvalidArgument if X has no such slots.
absl::StatusOr<FmSlots> FmSlotsOf(absl::Span<const int64_t> columns, absl::Span<const int64_t> dims);

}  // namespace weir

#endif  // WEIR_OPS_FM_INTERACTION_H_
