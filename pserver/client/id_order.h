// Order of ids by which servers, shards and stripes cut them: ascending by MixId(id).
#ifndef WEIR_PSERVER_CLIENT_ID_ORDER_H_
#define WEIR_PSERVER_CLIENT_ID_ORDER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/base/thread_pool.h"

namespace weir {

// Positions of distinct ids by ascending MixId, and the begin of each server's ids in that order. Keeps its memory from
// call to call. Not thread-safe.
class IdOrder {
 public:
  // Sorts `ids`. `shards`: logical shards of the table, a power of two, dealt to `servers` as ShardServer does.
  void Sort(absl::Span<const int64_t> ids, uint32_t shards, int servers) {
    Start(ids, shards, servers);
    Finish();
  }
  // Sorts on all threads of the pool.
  void Sort(absl::Span<const int64_t> ids, uint32_t shards, int servers, ThreadPool* pool);
  // Sorts in steps, for callers that can use the first positions before the last are known. After Start, size() and
  // begin() are valid; after Finish, the positions at [begin, end) of the order. Requires: Start comes first; the ids
  // live and stay unchanged until the last Finish.
  void Start(absl::Span<const int64_t> ids, uint32_t shards, int servers);
  void Finish(size_t begin, size_t end);
  void Finish() { Finish(0, size()); }
  // Finishes the whole order on all threads of the pool.
  void Finish(ThreadPool* pool);
  // Takes the positions of `all` for which `skip`, indexed by position, is 0. Requires: all of `all` is finished.
  void Select(const IdOrder& all, const uint8_t* skip);

  // Returns the position in `ids` of the i-th id in order. Requires: Finish has covered i.
  uint32_t operator[](size_t i) const { return positions_[i]; }
  const uint32_t* positions() const { return positions_.data(); }
  size_t size() const { return positions_.size(); }
  // Returns where the server's ids begin: those of server s are at [begin(s), begin(s + 1)) of the order.
  size_t begin(int server) const { return server_begins_[static_cast<size_t>(server)]; }

 private:
  // Makes room for the ids and as many parts as suit them.
  void Prepare(absl::Span<const int64_t> ids);
  // Groups entries of the ids in parts, on all threads of the pool if there is one and the ids are worth it.
  void Group(ThreadPool* pool);
  // Sets entries of the ids at [begin, end) into scratch_ and counts those of each part. Returns true if they ascend,
  // the first from the id before it.
  bool Count(size_t begin, size_t end, size_t* counts);
  void SetServerBegins(uint32_t shards, int servers);
  // Sorts one part unless it is sorted already.
  void SortPart(size_t part);

  absl::Span<const int64_t> ids_;
  // Entries, grouped in parts by their highest bits (those above shift_).
  std::vector<uint64_t> entries_, scratch_;
  // While entries are grouped, by chunk of the ids: whether it ascends; by chunk and part: the number of its entries in
  // the part, later where the next one goes.
  std::vector<uint8_t> chunk_sorted_;
  std::vector<size_t> next_;
  int shift_ = 63;
  std::vector<size_t> part_begins_;
  std::vector<uint8_t> part_sorted_;
  std::vector<uint32_t> positions_;
  std::vector<size_t> server_begins_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_ID_ORDER_H_
