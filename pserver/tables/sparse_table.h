// Embedding rows by feature id: a hash table of int64 to [width values | optimizer state]. Thread-safe.
//
// A server holds a run of a table's logical shards. Placement and files speak of shards; locks and memory belong to stripes,
// each a power-of-two group of shards. Ids are ordered by MixId(id), so a shard and a stripe are both one interval of that
// order, and a batch sorted by it is cut into stripes by binary search.
//
// A row is read and written under its stripe's lock: never half of an update. Two rows of one call may come from different
// moments. Which stripes there are changes no value and no order that leaves this class.
//
// Memory: rows lie in chunks and never move; an index of 4 bytes a slot, filled to between 0.53 and 0.8, points at them. The
// index grows by half; the stripes' first sizes are spread over one such step, so that they do not all grow in the same batch.
#ifndef WEIR_PSERVER_TABLES_SPARSE_TABLE_H_
#define WEIR_PSERVER_TABLES_SPARSE_TABLE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/initial_value.h"
#include "framework/runtime/row_rule.h"
#include "pserver/tables/row_memory.h"

namespace weir {

struct SparseTableOptions {
  std::string name;
  int width = 0;
  // Of the whole table, a power of two; this server holds [shard_begin, shard_end).
  uint32_t logical_shards = 4096;
  uint32_t shard_begin = 0;
  uint32_t shard_end = 4096;
  // The most rows of the whole table, 0 = no limit. One server holds at most its shards' part of it, plus six standard
  // deviations of a fair deal so that no table is refused that would fit; with one server the limit is exact.
  int64_t capacity = 0;
  // Wanted; rounded to what a power-of-two group of shards allows.
  int stripes = 16;
  RowInitializer initializer;
  // Null: rows have no state and cannot be updated.
  std::unique_ptr<const RowRule> rule;
};

class SparseTable {
 public:
  // InvalidArgument: width, shards or capacity that make no sense.
  static absl::StatusOr<std::unique_ptr<SparseTable>> Create(SparseTableOptions options);
  ~SparseTable();

  // Copies values into out [ids.size(), width]. Rows that do not exist are made if `create`, else they only read as their
  // initial values. Any order, repeats allowed; ids sorted by MixId are fastest. `pool` may be null.
  // InvalidArgument: an id of another server's shard. ResourceExhausted: over capacity.
  absl::Status Pull(absl::Span<const int64_t> ids, bool create, float* out, ThreadPool* pool);

  // One update of each row, made if need be. ids distinct, in any order; grads [ids.size(), width] hold sums over samples and
  // the gradient is grads / divisor. Errors as Pull; FailedPrecondition without a rule.
  absl::Status Update(absl::Span<const int64_t> ids, const float* grads, float divisor, float learning_rate,
                      ThreadPool* pool);
  // The same for distinct ids of one stripe, with a pointer to each gradient.
  absl::Status UpdateStripe(int stripe, absl::Span<const int64_t> ids, const float* const* grads, float divisor,
                            float learning_rate);

  // Adds `changes` [ids.size(), width] to the values of rows that exist and leaves their state. ids distinct. NotFound: a row
  // does not exist; others may have changed.
  absl::Status AddToValues(absl::Span<const int64_t> ids, const float* changes);
  // Sets whole rows [ids.size(), width + state_width], made if need be (from a checkpoint). ids distinct.
  absl::Status SetRows(absl::Span<const int64_t> ids, const float* rows);
  // Forgets every row. Nobody makes rows meanwhile; reading is possible.
  void Clear();

  // Copies of all rows of a stripe by (logical shard, id). Going through stripes 0, 1, ... gives the whole order.
  void CopyStripe(int stripe, std::vector<int64_t>* ids, std::vector<float>* rows) const;
  // Calls fn(id, row [width + state_width]) for every row of a stripe, in no order, under the stripe's lock: fn must not call
  // this table.
  void VisitStripe(int stripe, const std::function<void(int64_t, const float*)>& fn) const;

  int stripes() const { return stripe_count_; }
  // Smallest MixId(id) of the stripe's ids.
  uint64_t StripeBegin(int stripe) const;
  bool OwnsShard(uint32_t shard) const { return shard >= options_.shard_begin && shard < options_.shard_end; }
  // True when the id belongs to a shard of this server.
  bool Owns(int64_t id) const;

  const std::string& name() const { return options_.name; }
  int width() const { return options_.width; }
  int state_width() const { return state_width_; }
  uint32_t logical_shards() const { return options_.logical_shards; }
  const RowRule* rule() const { return options_.rule.get(); }
  int64_t size() const { return rows_.load(std::memory_order_relaxed); }
  // The most rows that this server holds; 0 = no limit.
  int64_t limit() const { return limit_; }
  // Memory of rows and index.
  int64_t bytes() const;

 private:
  struct Stripe;
  // Sections of a batch by stripe; `order` is empty when the batch already lies that way.
  struct Sections {
    std::vector<int64_t> begins;  // stripe_count_ + 1
    std::vector<uint32_t> order;
  };

  explicit SparseTable(SparseTableOptions options);

  uint32_t Shard(uint64_t mixed) const { return static_cast<uint32_t>((mixed >> 32) * options_.logical_shards >> 32); }
  int StripeOf(uint64_t mixed) const { return static_cast<int>((Shard(mixed) >> group_log2_) - first_group_); }
  absl::Status Partition(absl::Span<const int64_t> ids, Sections* sections) const;
  template <typename Fn>
  absl::Status ForEachSection(absl::Span<const int64_t> ids, ThreadPool* pool, const Fn& fn);
  // Calls fn(i, row or nullptr) for each of n ids, with memory fetched ahead of use.
  template <typename Id, typename Fn>
  absl::Status Walk(Stripe& stripe, int64_t n, bool create, int64_t touched_bytes, const Id& id, const Fn& fn);
  absl::StatusOr<char*> Insert(Stripe& stripe, int64_t id, uint64_t mixed);
  absl::Status Full() const;

  const SparseTableOptions options_;
  const int state_width_;
  const int64_t row_bytes_;  // id, values, state
  int chunk_log2_ = 0;       // rows per chunk
  int group_log2_ = 0;       // shards per stripe
  uint32_t first_group_ = 0;
  int stripe_count_ = 0;
  int64_t limit_ = 0;
  std::unique_ptr<ChunkMemory> chunks_;  // of all stripes
  std::unique_ptr<Stripe[]> stripes_;
  // Only ever compared with the limit and reported; no other memory hangs on it.
  std::atomic<int64_t> rows_{0};
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_SPARSE_TABLE_H_
