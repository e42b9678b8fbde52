// Which slots of a data set use the ids of a table: a row does not say which slot its id is from.
#ifndef WEIR_TOOLS_REPORTING_SLOT_USES_H_
#define WEIR_TOOLS_REPORTING_SLOT_USES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace weir {

// Ids of one table, by slot. About 40 bytes for each id of a slot. Not thread-safe while it is filled.
class SlotUses {
 public:
  struct Slot {
    std::string name;  // "cat.C7", or the variable of one slot
    int64_t ids = 0;   // different ones
    int64_t lookups = 0;
  };

  // Adds a slot and returns its index.
  int AddSlot(std::string name);
  // Adds a look-up of an id by a slot.
  void Add(int slot, int64_t id);

  const std::vector<Slot>& slots() const { return slots_; }
  // Calls use(slot) for each slot that has the id.
  template <typename Use>
  void ForSlotsOf(int64_t id, const Use& use) const {
    const auto first = first_.find(id);
    if (first == first_.end()) return;
    for (int32_t at = first->second; at >= 0; at = uses_[static_cast<size_t>(at)].next) {
      use(uses_[static_cast<size_t>(at)].slot);
    }
  }

 private:
  // The slots of an id are a list.
  struct Use {
    int32_t slot = 0;
    int32_t next = -1;
  };
  std::vector<Slot> slots_;
  std::vector<Use> uses_;
  absl::flat_hash_map<int64_t, int32_t> first_;
};

using SlotUsesByTable = std::map<std::string, SlotUses>;

}  // namespace weir

#endif  // WEIR_TOOLS_REPORTING_SLOT_USES_H_
