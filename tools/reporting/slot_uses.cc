#include "tools/reporting/slot_uses.h"

namespace weir {

int SlotUses::AddSlot(std::string name) {
  slots_.push_back({.name = std::move(name)});
  return static_cast<int>(slots_.size()) - 1;
}

void SlotUses::Add(int slot, int64_t id) {
  Slot& of = slots_[static_cast<size_t>(slot)];
  ++of.lookups;
  const auto [first, is_new] = first_.try_emplace(id, -1);
  for (int32_t at = first->second; at >= 0; at = uses_[static_cast<size_t>(at)].next) {
    if (uses_[static_cast<size_t>(at)].slot == slot) return;
  }
  ++of.ids;
  uses_.push_back({.slot = slot, .next = first->second});
  first->second = static_cast<int32_t>(uses_.size()) - 1;
}

}  // namespace weir
