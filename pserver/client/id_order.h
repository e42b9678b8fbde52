// Ids in the order in which servers, shards and stripes cut them: ascending by MixId(id).
#ifndef WEIR_PSERVER_CLIENT_ID_ORDER_H_
#define WEIR_PSERVER_CLIENT_ID_ORDER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/base/thread_pool.h"

namespace weir {

// Positions of the (distinct) ids by ascending MixId, and where each server's ids begin in that order. Keeps its memory
// from call to call. Not thread-safe.
class IdOrder {
 public:
  // `shards`: logical shards of the table, a power of two, dealt to `servers` as ShardServer does.
  void Sort(absl::Span<const int64_t> ids, uint32_t shards, int servers) {
    Start(ids, shards, servers);
    Finish();
  }
  // Sort in steps, for who can use the first positions before the last are known. After Start size() and begin() are
  // right, after Finish the positions at [begin, end) of the order. Borrows the ids from Start to the last Finish.
  void Start(absl::Span<const int64_t> ids, uint32_t shards, int servers);
  void Finish(size_t begin, size_t end);
  void Finish() { Finish(0, size()); }
  // On all threads.
  void Finish(ThreadPool* pool);
  // The positions of `all` whose place in `skip` is 0.
  void Select(const IdOrder& all, const uint8_t* skip);

  // Position in `ids` of the i-th in order.
  uint32_t operator[](size_t i) const { return positions_[i]; }
  const uint32_t* positions() const { return positions_.data(); }
  size_t size() const { return positions_.size(); }
  // Ids of server s stand at [begin(s), begin(s + 1)) of the order.
  size_t begin(int server) const { return server_begins_[static_cast<size_t>(server)]; }

 private:
  // One part, if it is not sorted yet.
  void SortPart(size_t part);

  absl::Span<const int64_t> ids_;
  // Entries lie in parts by their highest bits, which shift_ leaves.
  std::vector<uint64_t> entries_, scratch_;
  int shift_ = 63;
  std::vector<size_t> part_begins_;
  std::vector<uint8_t> part_sorted_;
  std::vector<uint32_t> positions_;
  std::vector<size_t> server_begins_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_ID_ORDER_H_
