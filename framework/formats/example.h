// One example in the form it has in a data file, before any transform.
#ifndef WEIR_FRAMEWORK_FORMATS_EXAMPLE_H_
#define WEIR_FRAMEWORK_FORMATS_EXAMPLE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/program.pb.h"

namespace weir {

// Kind of the raw ids of a slot in the data.
enum class IdKind {
  kUnknown,  // of a reader that does not say
  kInteger,
  kHex,   // an integer, written in hexadecimal digits
  kText,  // hashes of texts
};

// Variable that data gives. DENSE: [B, width] float32. IDS: `width` slots.
struct Column {
  std::string name;
  v1::VarKind kind = v1::DENSE;
  int64_t width = 1;
  // IDS: names of the slots, `width` of them; they salt the ids.
  std::vector<std::string> slot_names = {};
  // DENSE: names of the values, `width` of them; empty: they have none of their own.
  std::vector<std::string> value_names = {};
  // IDS: empty, or of each slot.
  std::vector<IdKind> id_kinds = {};
  // IDS: the variable whose ids these are, with its slots in slot_names; empty: ids of its own.
  std::string ids_of = {};
  // Its values are learned from the training data, or made of values that are.
  bool learned = false;
  // Whatever the ids are, the variable is the same.
  bool operator==(const Column& other) const {
    return name == other.name && kind == other.kind && width == other.width && slot_names == other.slot_names;
  }
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

  // Texts of fields whose classes are to be learned (v1::Csv.Column.learn_classes), in the order of their columns;
  // empty is missing. Other parsers leave them as they are.
  std::vector<std::string> texts = {};

  // Scratch memory of parsers while they read a line; meaningless between lines.
  std::vector<int64_t> scratch_ids = {};
  std::vector<float> scratch_weights = {};
  std::vector<uint32_t> scratch_slots = {};

  // A function of the seed, the epoch and the example's position, for what is drawn at random. Set by the caller of a
  // parser.
  uint64_t draw = 0;

  // Guesses of a parser about the next line, made from this one. Parsing must be right with any content.
  std::vector<int32_t> hints = {};

  static constexpr int kMaxSlotIds = 65535;
};

// Returns whether every slot has one id. Looks at four counts at a time, and at the last four again.
inline bool OneEach(absl::Span<const uint16_t> counts) {
  constexpr uint64_t kOnes = 0x0001000100010001ULL;
  if (counts.size() < 4) return std::all_of(counts.begin(), counts.end(), [](uint16_t count) { return count == 1; });
  uint64_t others = 0;
  const auto look = [&](size_t at) {
    uint64_t four;
    std::memcpy(&four, counts.data() + at, sizeof(four));
    others |= four ^ kOnes;
  };
  for (size_t at = 0; at + 4 <= counts.size(); at += 4) look(at);
  look(counts.size() - 4);
  return others == 0;
}

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
