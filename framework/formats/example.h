// One example in the form it has in a data file, before any transform.
#ifndef WEIR_FRAMEWORK_FORMATS_EXAMPLE_H_
#define WEIR_FRAMEWORK_FORMATS_EXAMPLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/program.pb.h"

namespace weir {

// Variable that data gives. DENSE: [B, width] float32. IDS: `width` slots.
struct Column {
  std::string name;
  v1::VarKind kind = v1::DENSE;
  int64_t width = 1;
  // IDS: names of the slots, `width` of them; they salt the ids.
  std::vector<std::string> slot_names = {};
  bool operator==(const Column&) const = default;
};

// Values of all columns of one example. Reused from line to line: a parser writes every field.
struct Example {
  // Float columns side by side, in order of columns. NaN is missing.
  std::vector<float> floats;
  // Ids of all slots of all id columns, slot by slot.
  std::vector<int64_t> ids;
  // Number of ids in each slot, at most kMaxSlotIds.
  std::vector<uint16_t> counts;
  // Empty, or one per id.
  std::vector<float> weights;

  // Scratch memory of parsers while they read a line; meaningless between lines.
  std::vector<int64_t> scratch_ids = {};
  std::vector<float> scratch_weights = {};
  std::vector<uint32_t> scratch_slots = {};

  static constexpr int kMaxSlotIds = 65535;
};

// Position of an example: (file, offset) ascends in input order over all files of a data set.
struct InputPosition {
  // Index of the file in the sorted list of the data set's files.
  int64_t file = 0;
  // Offset of the line's first byte in the (uncompressed) text.
  int64_t offset = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): takes the 0 in the comparison that the compiler writes for a pointer
  auto operator<=>(const InputPosition&) const = default;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_EXAMPLE_H_
