// Finds the distinct ids of a batch, in order of first appearance. Not thread-safe.
//
// Uses an open-addressing table of 4 bytes per slot, mostly a quarter full, whose memory is kept from batch to batch
// and which is small enough for the second-level cache. It starts with the size that the last batch needed and grows.
// The order of the result does not depend on the hash.
#ifndef WEIR_OPS_ID_DEDUPER_H_
#define WEIR_OPS_ID_DEDUPER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir {

class IdDeduper {
 public:
  // Discards all ids. At most `most_ids` ids may be added afterwards, fewer than 2^31.
  void Start(int64_t most_ids);
  // Sets index[i] to the position of ids[i] in `unique`, and appends new ids to `unique`, which must be empty at the
  // first Add after Start and must not be changed by other code.
  void Add(const int64_t* ids, int64_t n, int32_t* index, std::vector<int64_t>* unique);

 private:
  void SetSlots(uint64_t slots);
  // Doubles the slots and reinserts the `used` known ids.
  void Grow(const int64_t* known, size_t used);
  // Bits of the hash stored in a slot beside the position.
  uint32_t Tag(uint64_t hash) const { return static_cast<uint32_t>(hash >> tag_shift_) << place_bits_; }

  // Position of an id plus 1 in the low place_bits_, and its tag in the bits above; 0 is an empty slot.
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
