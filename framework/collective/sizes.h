// Sizes of the messages of collective operations, for the code that sends them and the code that predicts them
// (transpiler/explain).
#ifndef WEIR_FRAMEWORK_COLLECTIVE_SIZES_H_
#define WEIR_FRAMEWORK_COLLECTIVE_SIZES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir {

// Bytes of the header that every rank sends every other before the data of an operation. Headers have one size, so that
// a rank can receive one without knowing which operation the other has begun.
inline constexpr size_t kOperationHeaderBytes = 1024;
// Most bytes of a message of data, unless Collective::Options says otherwise.
inline constexpr int64_t kOperationMessageBytes = int64_t{1} << 20;

// An all-reduce sends all of its values to every rank if that is no more than so many bytes to all of them: one
// exchange instead of two (framework/collective/whole_run.h).
inline constexpr int64_t kMostWholeBytes = int64_t{256} << 10;
// Returns whether values of so many bytes, of elements of so many, go whole. Those of 16 bits do not: the owners of
// their slices round them.
bool GoesWhole(int64_t bytes, size_t element_bytes, int ranks);
// Most bytes behind a header: of as many addends as a rank may have.
inline constexpr size_t kMostAttachedBytes = size_t{64} * kMostWholeBytes;

// Returns the borders of one slice per rank, in elements, [ranks + 1], from 0 to count: as even as possible, each but
// the last at a multiple of 64 bytes.
std::vector<int64_t> EvenSlices(int64_t count, size_t element_bytes, int ranks);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_SIZES_H_
