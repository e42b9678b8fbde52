// Distinct ids of a batch, in order of first appearance. Not thread-safe.
//
// An open-addressing table of (part of the hash, position) pairs: 8 bytes a slot, at most half full, its memory kept from
// batch to batch. The order of the result does not depend on the hash.
#ifndef WEIR_OPS_ID_DEDUPER_H_
#define WEIR_OPS_ID_DEDUPER_H_

#include <cstdint>
#include <vector>

namespace weir {

class IdDeduper {
 public:
  // Forgets everything. At most `most_ids` ids will be added, fewer than 2^31.
  void Start(int64_t most_ids);
  // index[i]: place of ids[i] in `unique`, where new ids are appended. `unique` must be empty at the first Add after Start
  // and changed by nobody else.
  void Add(const int64_t* ids, int64_t n, int32_t* index, std::vector<int64_t>* unique);

 private:
  struct Slot {
    uint32_t tag;
    uint32_t place;  // plus 1; 0 is an empty slot
  };
  std::vector<Slot> slots_;
  int shift_ = 64;
  uint64_t mask_ = 0;
  int64_t left_ = 0;
};

}  // namespace weir

#endif  // WEIR_OPS_ID_DEDUPER_H_
