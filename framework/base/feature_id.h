// Ids as tables see them, made from the raw ids that stand in data files. Scheme version 1: the same on every machine
// and for ever, because rows of checkpoints are found by them.
//
// Ids of a variable whose slots are `shared` stay raw. All others are salted by slot, so that one raw id in two slots
// is two rows. Three ids of a slot stand for something else than a value: missing (the slot is empty), rare (the value
// was seen less than min_count times) and padding.
#ifndef WEIR_FRAMEWORK_BASE_FEATURE_ID_H_
#define WEIR_FRAMEWORK_BASE_FEATURE_ID_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/base/stable_hash.h"

namespace weir {

// Of a slot: a function of the variable's and the slot's name ("cat", "C7"), so that slots may be added or change
// places. For a variable with shared slots, slot is "".
inline uint64_t SlotSalt(std::string_view variable, std::string_view slot) {
  std::string key(variable);
  key += '\n';
  key += slot;
  return StableHash(key);
}

// A bijection for each salt: two raw ids of one slot never meet.
inline int64_t SaltId(uint64_t salt, int64_t raw) {
  return static_cast<int64_t>(MixId(MixId(static_cast<uint64_t>(raw)) ^ salt));
}

// What an empty slot holds; for shared slots too.
inline int64_t MissingId(uint64_t salt) { return static_cast<int64_t>(StableHash("missing", 7, salt)); }

// What a value becomes that was seen less than min_count times; for shared slots too.
inline int64_t RareId(uint64_t salt) { return static_cast<int64_t>(StableHash("rare", 4, salt)); }

// What a raw padding id becomes in a salted variable: the same id in every slot, so that an operator can know it by one
// attribute. In a shared variable the raw id itself.
inline int64_t PaddingId(int64_t raw) { return SaltId(StableHash("padding"), raw); }

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_FEATURE_ID_H_
