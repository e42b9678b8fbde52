// An example as bytes: in memory the unit that shuffling moves, in example files (docs/example_files.md) what a block
// holds one after the other. The number of floats and of slots is that of the reader, and not in the bytes.
//
//   uint32 ids, uint8 wide, uint8 one_each, uint16 weighted
//   float32 floats[]
//   uint16 counts[slots]     ids of each slot; not there with one_each, where every slot has one
//   uint32 or, if wide, int64 ids[]
//   float32 weights[ids]     if weighted
//
// All little-endian and without gaps. Ids that fit take four bytes.
#ifndef WEIR_FRAMEWORK_FORMATS_EXAMPLE_RECORD_H_
#define WEIR_FRAMEWORK_FORMATS_EXAMPLE_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "framework/formats/example.h"

namespace weir {

namespace internal {
struct ExampleRecordHeader {
  uint32_t ids;
  uint8_t wide;
  uint8_t one_each;
  uint16_t weighted;
};
static_assert(sizeof(ExampleRecordHeader) == 8);

// Returns the sum of uint16_t that need not be aligned.
uint64_t SumOfCounts(const char* counts, size_t slots);
}  // namespace internal

// Sizes of the bytes of an example.
struct ExampleRecordSizes {
  bool wide = false;
  bool one_each = false;
  uint32_t bytes = 0;
  // Bytes without one_each: a function of the number of values and of `wide`.
  uint32_t full_bytes = 0;
};
ExampleRecordSizes SizesOf(const Example& example);
// Writes sizes.bytes bytes.
void WriteExampleRecord(const Example& example, const ExampleRecordSizes& sizes, char* out);

// Addresses of the parts of an example, none of them aligned. Valid as long as the bytes.
struct ExampleRecordView {
  const char* floats;   // float
  const char* counts;   // uint16_t; null where every slot has one id
  const char* ids;      // int64_t, or uint32_t where not `wide`
  const char* weights;  // float; null without weights
  uint32_t id_count;
  bool wide;
};
// The bytes must be those of an example with so many floats and slots.
inline ExampleRecordView LookAtExampleRecord(const char* data, size_t floats, size_t slots) {
  internal::ExampleRecordHeader header;
  std::memcpy(&header, data, sizeof(header));
  ExampleRecordView view;
  view.floats = data + sizeof(header);
  const char* const behind = view.floats + floats * sizeof(float);
  view.counts = header.one_each != 0 ? nullptr : behind;
  view.ids = header.one_each != 0 ? behind : behind + slots * sizeof(uint16_t);
  view.id_count = header.ids;
  view.wide = header.wide != 0;
  view.weights = header.weighted != 0 ? view.ids + size_t{header.ids} * (view.wide ? 8 : 4) : nullptr;
  return view;
}
// `example` must have the sizes of the reader.
void ReadExampleRecord(const char* data, Example* example);

// Sets the sizes of the example at the front of bytes from outside. Returns false if they are no such example, or end
// within it.
inline bool CheckExampleRecord(std::string_view bytes, size_t floats, size_t slots, ExampleRecordSizes* sizes) {
  internal::ExampleRecordHeader header;
  if (bytes.size() < sizeof(header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if ((header.wide | header.one_each | header.weighted) > 1) return false;
  const uint64_t counts = uint64_t{slots} * sizeof(uint16_t);
  const uint64_t full = sizeof(header) + uint64_t{floats} * sizeof(float) + counts +
                        uint64_t{header.ids} * ((header.wide != 0 ? 8 : 4) + (header.weighted != 0 ? 4 : 0));
  const uint64_t size = header.one_each != 0 ? full - counts : full;
  if (size > bytes.size() || full > UINT32_MAX) return false;
  *sizes = {.wide = header.wide != 0,
            .one_each = header.one_each != 0,
            .bytes = static_cast<uint32_t>(size),
            .full_bytes = static_cast<uint32_t>(full)};
  if (header.one_each != 0) return header.ids == slots;
  return internal::SumOfCounts(bytes.data() + sizeof(header) + floats * sizeof(float), slots) == header.ids;
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_EXAMPLE_RECORD_H_
