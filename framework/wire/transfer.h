// How transfers are cut into messages. Both ends know it, and `explain` counts with it.
#ifndef WEIR_FRAMEWORK_WIRE_TRANSFER_H_
#define WEIR_FRAMEWORK_WIRE_TRANSFER_H_

#include <cstddef>

#include "framework/wire/slices.h"

namespace weir {

// Tensors of one gradient that together reach this leave at once; smaller ones are gathered until they fill it.
inline constexpr size_t kGatherBytes = size_t{256} << 10;

// Values of one pull of dense blocks: a transfer of several such calls keeps both ends busy at once.
inline constexpr size_t kBytesPerCall = size_t{16} << 20;

// The same for rows of tables, whose ends have work to do row by row: while one looks up the next rows, the other puts
// the last ones in their places. Small enough that a call's rows stay in a core's second-level cache from one touch to
// the next.
inline constexpr size_t kRowBytesPerCall = size_t{1} << 20;

// The same for rows and blocks of a server in this process: nothing is on its way, and threads share small calls
// evenly.
inline constexpr size_t kBytesPerCallInside = size_t{256} << 10;

// Rows that one call asks for, of `rows` with so many bytes each: as few calls as `most_bytes` of a call allow, of
// equal size.
inline constexpr size_t RowsPerCall(size_t rows, size_t row_bytes, size_t most_bytes) {
  const size_t most = most_bytes / row_bytes > 0 ? most_bytes / row_bytes : 1;
  const size_t calls = (rows + most - 1) / most;
  return calls == 0 ? 1 : (rows + calls - 1) / calls;
}

// Of one dense gradient in one message, all nodes of the lane tree together: a header of items fits beside it.
inline constexpr size_t kBytesOfOneTensor = kMaxMessageBytes - (size_t{1} << 20);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_TRANSFER_H_
