// Distinct ids of a batch, in order of first appearance. Not thread-safe.
//
// An open-addressing table of 4 bytes a slot, a quarter full for the most part, its memory kept from batch to batch:
// small enough for the second-level cache. It begins as large as the last batch needed and grows. The order of the
// result does not depend on the hash.
#ifndef WEIR_OPS_ID_DEDUPER_H_
#define WEIR_OPS_ID_DEDUPER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir {

class IdDeduper {
 public:
  // Forgets everything. At most `most_ids` ids will be added, fewer than 2^31.
  void Start(int64_t most_ids);
  // index[i]: place of ids[i] in `unique`, where new ids are appended. `unique` must be empty at the first Add after
  // Start and changed by nobody else.
  void Add(const int64_t* ids, int64_t n, int32_t* index, std::vector<int64_t>* unique);

 private:
  void SetSlots(uint64_t slots);
  // Twice the slots, with the `used` ids that are known.
  void Grow(const int64_t* known, size_t used);
  // Bits of the hash that a slot has beside the place.
  uint32_t Tag(uint64_t hash) const { return static_cast<uint32_t>(hash >> tag_shift_) << place_bits_; }

  // The place of an id plus 1 in the low place_bits_, and above them its tag; 0 is an empty slot.
  std::vector<uint32_t> slots_;
  uint64_t mask_ = 0;  // slots in use, less 1
  int shift_ = 64;
  int place_bits_ = 1;
  int tag_shift_ = 0;
  int64_t left_ = 0;
  uint64_t most_used_ = 0;  // before the slots grow
  int64_t last_unique_ = -1;
};

}  // namespace weir

#endif  // WEIR_OPS_ID_DEDUPER_H_
