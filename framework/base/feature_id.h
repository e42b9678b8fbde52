// Computes the ids used by tables from the raw ids in data files. Scheme version 1: ids are equal on every machine and
// in every version, because rows of checkpoints are found by them.
//
// Ids of a variable whose slots are `shared` stay raw. All others are salted by slot, so that one raw id in two slots
// is two rows. Three ids of a slot do not stand for a value: missing (the slot is empty), rare (the value was seen less
// than min_count times) and padding.
#ifndef WEIR_FRAMEWORK_BASE_FEATURE_ID_H_
#define WEIR_FRAMEWORK_BASE_FEATURE_ID_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/base/stable_hash.h"

namespace weir {

// Returns the salt of a slot, a function of the variable's and the slot's name ("cat", "C7"), so that slots may be
// added or reordered. For a variable with shared slots, slot is "".
inline uint64_t SlotSalt(std::string_view variable, std::string_view slot) {
  std::string key(variable);
  key += '\n';
  key += slot;
  return StableHash(key);
}

// Returns the salted id. A bijection for each salt: two raw ids of one slot never collide.
inline int64_t SaltId(uint64_t salt, int64_t raw) {
  return static_cast<int64_t>(MixId(MixId(static_cast<uint64_t>(raw)) ^ salt));
}

// Returns the id of an empty slot, shared or not.
inline int64_t MissingId(uint64_t salt) { return static_cast<int64_t>(StableHash("missing", 7, salt)); }

// Returns the id that replaces a value seen less than min_count times, in shared slots too.
inline int64_t RareId(uint64_t salt) { return static_cast<int64_t>(StableHash("rare", 4, salt)); }

// Returns the id that replaces a raw padding id in a salted variable: one id for every slot, so that an operator
// recognizes it by one attribute. A shared variable keeps the raw id.
inline int64_t PaddingId(int64_t raw) { return SaltId(StableHash("padding"), raw); }

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_FEATURE_ID_H_
