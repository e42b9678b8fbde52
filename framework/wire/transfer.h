// Sizes of the messages that transfers are cut into. Used by both ends and by `explain`.
#ifndef WEIR_FRAMEWORK_WIRE_TRANSFER_H_
#define WEIR_FRAMEWORK_WIRE_TRANSFER_H_

#include <cstddef>

#include "framework/wire/slices.h"

namespace weir {

// Bytes from which the tensors of one gradient are sent at once; smaller ones are gathered until they reach this size.
inline constexpr size_t kGatherBytes = size_t{256} << 10;

// Bytes of values per pull of dense blocks: a transfer of several calls keeps both ends busy at once.
inline constexpr size_t kBytesPerCall = size_t{16} << 20;

// Bytes of values per pull of table rows, where both ends work row by row: the server looks up the next rows while the
// client stores the last ones. Small enough that a call's rows stay in a core's second-level cache between two
// accesses.
inline constexpr size_t kRowBytesPerCall = size_t{1} << 20;

// Bytes of values per pull of rows or blocks from a server in this process: there is no transfer to overlap, and small
// calls spread evenly over threads.
inline constexpr size_t kBytesPerCallInside = size_t{256} << 10;

// Returns the rows per call for `rows` rows of `row_bytes` each: as few calls of equal size as `most_bytes` per call
// allow.
inline constexpr size_t RowsPerCall(size_t rows, size_t row_bytes, size_t most_bytes) {
  const size_t most = most_bytes / row_bytes > 0 ? most_bytes / row_bytes : 1;
  const size_t calls = (rows + most - 1) / most;
  return calls == 0 ? 1 : (rows + calls - 1) / calls;
}

// Most bytes of one dense gradient in one message, over all nodes of the lane tree; leaves room for a header of items.
inline constexpr size_t kBytesOfOneTensor = kMaxMessageBytes - (size_t{1} << 20);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_TRANSFER_H_
