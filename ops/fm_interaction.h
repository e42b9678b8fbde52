// Where fm_interaction and its gradient find the slots of an example, on every device.
#ifndef WEIR_OPS_FM_INTERACTION_H_
#define WEIR_OPS_FM_INTERACTION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weir {

// Slot s of example b is [b * stride + begin + s * width, .. + width) of X.
struct FmSlots {
  int64_t slots = 0;
  int64_t width = 0;
  int64_t stride = 0;
  int64_t begin = 0;
};
// Of X with these dims: all of it, [batch, slots, width], when `columns` is empty, else the columns of a matrix, by
// their begin, slots and width. InvalidArgument when X has no such slots.
absl::StatusOr<FmSlots> FmSlotsOf(absl::Span<const int64_t> columns, absl::Span<const int64_t> dims);

}  // namespace weir

#endif  // WEIR_OPS_FM_INTERACTION_H_
