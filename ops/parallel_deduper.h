// Finds the distinct ids of a batch on all threads of a pool, with the result of IdDeduper. Not thread-safe.
//
// Ids are dealt by hash to buckets, each of which finds where its ids appear first, with a table that fits the
// first-level cache. The place of an id is then the number of first appearances before its own, whatever the threads
// and the buckets.
#ifndef WEIR_OPS_PARALLEL_DEDUPER_H_
#define WEIR_OPS_PARALLEL_DEDUPER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "framework/base/thread_pool.h"

namespace weir {

class ParallelDeduper {
 public:
  // Consecutive ids of the batch, and where their places go.
  struct Run {
    const int64_t* ids = nullptr;
    int64_t n = 0;
    int32_t* index = nullptr;
  };

  // Returns true if the threads are worth the division of so many ids.
  static bool Pays(int64_t ids, const ThreadPool* pool);

  // Sets `unique` to the distinct ids of all runs in order of first appearance, and each index to the places of its
  // ids there. Fewer than 2^31 ids.
  void Find(absl::Span<const Run> runs, ThreadPool* pool, std::vector<int64_t>* unique);

 private:
  // Ids that one task reads: some runs.
  struct Chunk {
    std::vector<Run> runs;
    size_t begin = 0, ids = 0;     // numbers of its ids in the batch
    size_t first = 0, fresh = 0;   // places of the ids that appear first in it
    std::vector<uint32_t> begins;  // of buckets, in dealt_; one more at the end
    std::vector<uint32_t> dealt;   // by number in the chunk: where its id stands in dealt_
  };

  void Cut(absl::Span<const Run> runs);
  // Deals the ids of a chunk to buckets.
  void Deal(Chunk* chunk);
  // Sets firsts_ of the ids of a bucket. `slots`: memory of its table.
  void FindFirsts(size_t bucket, std::vector<uint32_t>* slots);
  void CountFirsts(Chunk* chunk) const;
  // Numbers the ids that appear first in a chunk.
  void Number(const Chunk& chunk, int64_t* unique);
  void WriteIndex(const Chunk& chunk) const;

  std::vector<Chunk> chunks_;  // the first used_chunks_ are of this batch
  size_t used_chunks_ = 0;
  size_t buckets_ = 1;                        // a power of two
  std::vector<std::vector<uint32_t>> slots_;  // by bucket
  // By chunk, then bucket, then in the order of the batch: so each task writes to lines of its own. The ids; where each
  // of them stands first, in these arrays; and where it stands first itself, its place.
  std::vector<int64_t> dealt_;
  std::vector<uint32_t> firsts_, places_;
};

}  // namespace weir

#endif  // WEIR_OPS_PARALLEL_DEDUPER_H_
