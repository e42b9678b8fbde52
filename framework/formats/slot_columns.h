// Shared code of formats whose lines fill named slots: maps slots to columns, and reorders ids.
#ifndef WEIR_FRAMEWORK_FORMATS_SLOT_COLUMNS_H_
#define WEIR_FRAMEWORK_FORMATS_SLOT_COLUMNS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/formats/example.h"
#include "framework/formats/line_parser.h"

namespace weir {

struct DataSlot {
  std::string name;
  std::string output;  // empty: the name
  bool is_float = false;
  bool skip = false;
  int dim = 1;  // values of a float slot
  IdKind id_kind = IdKind::kInteger;
  int position = 0;  // set by LayOutSlots: first float in Example.floats, or slot in Example.counts
};

// Lays out the columns of slots, in order of the first slot of each; slots with one output are adjacent. `before`:
// columns of the format itself. `field` names the slots in messages ("data.multi_slot.slot"). InvalidArgument: a name
// that is empty or repeated, an invalid dim, an output of both floats and ids, no slot that is not skipped.
absl::StatusOr<std::vector<Column>> LayOutSlots(std::string_view field, std::vector<Column> before,
                                                std::vector<DataSlot>* slots);

// Returns the inputs of slots that records name. `field`: of the slots in the job ("data.slot_sign.slot"); `kind`:
// "slot".
std::vector<NamedInput> NamedInputsOf(std::string_view field, std::string_view kind,
                                      const std::vector<DataSlot>& slots);
// Returns names for LineParser::NamesIn, each once, in their order, not all if they are many.
std::string ShownNames(const std::vector<std::string_view>& names);

// Moves ids (and weights) that were read slot by slot in `order` into the order of Example.counts. `order` holds every
// slot once.
void OrderIds(const std::vector<int>& order, Example* example);

// Sorts ids by slot; ids of one slot keep their order. slots[i] is the slot of example->ids[i]; counts must be set.
void SortIds(const std::vector<uint32_t>& slots, Example* example);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_SLOT_COLUMNS_H_
