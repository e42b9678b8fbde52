// Embedding rows by feature id: a hash table from int64 to [width values | optimizer state]. Thread-safe.
//
// Values may be stored in 16 bits (framework/runtime/row_values.h). Callers and the update rule use floats: the rule
// runs on float copies of the rows, and its results are rounded.
//
// A server holds a run of a table's logical shards. Placement and files are in terms of shards; locks and memory belong
// to stripes, each a power-of-two group of shards. Ids are ordered by MixId(id), so a shard and a stripe are each one
// interval of that order, and a batch sorted by it is cut into stripes by binary search.
//
// A row is read and written under its stripe's lock, so no reader sees half of an update. Two rows of one call may come
// from different moments. The number of stripes changes no value and no order that a caller can see.
//
// Rows come and go as the table's Lifecycle says (docs/tables.md): an update may leave its id without a row, and
// EndStep, between two steps, removes the rows whose time is over. A row that does not exist reads as its initial
// values.
//
// Rows beyond a memory budget are kept on disk, if there is one: in each stripe those that no call has used for
// longest. The place of a row does not affect results: every call gives the same bits, wherever its rows were. A call
// first brings its rows of a stripe into memory; disk accesses run without the stripe's lock.
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
#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/initial_value.h"
#include "framework/runtime/row_rule.h"
#include "framework/runtime/row_values.h"
#include "proto/table.pb.h"
#include "pserver/tables/cold_rows.h"
#include "pserver/tables/lifecycle_rules.h"
#include "pserver/tables/row_count.h"
#include "pserver/tables/row_layout.h"
#include "pserver/tables/row_memory.h"
#include "pserver/tables/row_store.h"
#include "pserver/tables/stripe_map.h"

namespace weir {

class DiskTier;
struct Stripe;

struct SparseTableOptions {
  std::string name;
  int width = 0;
  // Number of shards of the whole table, a power of two; this server holds [shard_begin, shard_end).
  uint32_t logical_shards = 4096;
  uint32_t shard_begin = 0;
  uint32_t shard_end = 4096;
  // Maximum number of rows of the whole table, 0 = no limit. A table that refuses rows when full gives one server its
  // shards' part of it, plus six standard deviations of a fair deal so that no table is refused that would fit; with
  // one server the limit is exact. A table that evicts gives each logical shard an equal part, and EndStep brings the
  // shard below it.
  int64_t capacity = 0;
  // Wanted number; rounded to what a power-of-two group of shards allows.
  int stripes = 64;
  // FLOAT32, FLOAT16 or BFLOAT16.
  v1::DType values = v1::FLOAT32;
  // Returns initial values of type `values`.
  RowInitializer initializer;
  // Update rule of the rows. Null: rows have no state and cannot be updated.
  std::unique_ptr<const RowRule> rule;
  v1::Lifecycle lifecycle = {};
  // Seed of the job, for admission by chance and rounding of values.
  uint64_t seed = 1;
  struct Disk {
    // Budget for rows in memory with their index, and for the memory of the store that `open` returns. The rows of a
    // call may exceed it while the call runs.
    int64_t memory_bytes = 0;
    // Called by Create with the size of a row in bytes. Null: all rows are in memory.
    std::function<absl::StatusOr<std::unique_ptr<ColdRows>>(int64_t row_bytes)> open;
  };
  Disk disk = {};
};

class SparseTable {
 public:
  // Creates an empty table. InvalidArgument: invalid width, shards or capacity. Also returns errors of disk.open.
  static absl::StatusOr<std::unique_ptr<SparseTable>> Create(SparseTableOptions options);
  ~SparseTable();

  // Copies values into out [ids.size(), width]. A row that does not exist is made if `create` is true (whatever the
  // lifecycle says of admission); else it only reads as its initial values. Ids may come in any order and repeat; ids
  // sorted by MixId are fastest. `pool` may be null. InvalidArgument: an id of another server's shard.
  // ResourceExhausted: over capacity. With rows on disk this and all following functions also return errors of
  // ColdRows; some rows may then be lost, and only a checkpoint restores them.
  absl::Status Pull(absl::Span<const int64_t> ids, bool create, float* out, ThreadPool* pool);

  // Applies one update to each row. A row that does not exist is made if the lifecycle admits its id; else the gradient
  // is dropped. grads [ids.size(), width] hold sums over samples; the gradient is grads / divisor. `shows`:
  // [ids.size(), 2], samples that have the id and their clicks, for a lifecycle that counts them; else null. Requires:
  // ids are distinct, in any order, each for the first time in this step. Errors as Pull; FailedPrecondition without a
  // rule, or if an update has made a value infinite or NaN.
  absl::Status Update(absl::Span<const int64_t> ids, const float* grads, float divisor, float learning_rate,
                      ThreadPool* pool, const RowTime& time = {}, const float* shows = nullptr);
  // Updates distinct ids of one stripe likewise, with one pointer to each gradient, and one to the shows and clicks of
  // each id.
  absl::Status UpdateStripe(int stripe, absl::Span<const int64_t> ids, const float* const* grads, float divisor,
                            float learning_rate, const RowTime& time = {}, const float* const* shows = nullptr);
  // Ends a step in one stripe: removes rows whose time is over or that exceed the capacity. The choice is a function of
  // the rows and the step (and of the clock, if the lifecycle uses it). Costs nothing if the lifecycle removes no rows.
  absl::Status EndStep(int stripe, const RowTime& time);

  // Changes between two versions, for readers that have pulled before the second (docs/consistency.md, "Rows ahead of
  // their step"). BeginChanges forgets which rows have changed, and says whether later changes are recorded; until a
  // BeginChanges with `record` every row counts as changed. May run beside reads.
  void BeginChanges(bool record);
  // Finds the ids whose rows have been updated, made, set or removed since the last BeginChanges: sets *positions to
  // their indices in `ids` and *rows [positions, width] to their values, as Pull without `create`. Ids sorted by MixId
  // are fastest. Errors as Pull.
  absl::Status PullChanged(absl::Span<const int64_t> ids, std::vector<uint32_t>* positions, std::vector<float>* rows);

  // Adds `changes` [ids.size(), width] to the values of existing rows and leaves their state unchanged. ids are
  // distinct. NotFound: a row does not exist; others may have changed. FailedPrecondition: values are not FLOAT32.
  absl::Status AddToValues(absl::Span<const int64_t> ids, const float* changes);
  // Sets whole rows [ids.size(), width + state_width], as read from a checkpoint; makes those that do not exist. ids
  // are distinct. Values are rounded to the nearest that the table can store.
  absl::Status SetRows(absl::Span<const int64_t> ids, const float* rows);
  // Sets rows as SetRows does, without looking for them on disk. Requires: the ids have no row.
  absl::Status AddRows(absl::Span<const int64_t> ids, const float* rows);
  // Forgets every row, candidate and tombstone. Reads may run concurrently. Requires: no call that makes rows runs.
  absl::Status Clear();

  // Makes columns [begin, end) of rows that do not exist 0, in place of what the initializer gives. None are so in a
  // new table. Reads may run concurrently. Requires: 0 <= begin <= end <= width; no call that makes rows runs.
  void SetZeroColumns(int begin, int end);
  int zero_begin() const { return static_cast<int>(zero_columns_.load(std::memory_order_relaxed) >> 32); }
  int zero_end() const { return static_cast<int>(zero_columns_.load(std::memory_order_relaxed) & UINT32_MAX); }
  // Sets columns [begin, end) of rows [ids.size(), stride], of which `rows` is column `begin` of the first, to the
  // values of rows that do not exist.
  void InitialValues(absl::Span<const int64_t> ids, int begin, int end, float* rows, size_t stride) const;
  // Returns the state of a row that is made, with the words of its lifecycle: state_width() floats.
  std::vector<float> InitialState() const;

  // Copies all rows of a stripe, ordered by (logical shard, id). Stripes 0, 1, ... one after the other give the order
  // of the whole table.
  absl::Status CopyStripe(int stripe, std::vector<int64_t>* ids, std::vector<float>* rows) const;
  // Calls fn(id, row [width + state_width]) once for every row of a stripe, in no particular order. Runs under a lock
  // of the stripe. Requires: fn does not call this table.
  absl::Status VisitStripe(int stripe, const std::function<void(int64_t, const float*)>& fn) const;

  // Memory of ids without a row. CopyMemory and SetMemory represent each entry as a row of floats that hold the bits of
  // 4-byte words, named by words(memory). Requires: words(memory) is not empty.
  using Memory = LifecycleRules::Memory;
  using enum LifecycleRules::Memory;
  // Names of the words; empty if the lifecycle keeps no such memory.
  const std::vector<std::string>& words(Memory memory) const { return rules_.words(memory).names; }
  void CopyMemory(Memory memory, int stripe, std::vector<int64_t>* ids, std::vector<float>* words) const;
  absl::Status SetMemory(Memory memory, absl::Span<const int64_t> ids, const float* words);

  int stripes() const { return map_.stripes(); }
  // Returns the smallest MixId(id) of the stripe's ids.
  uint64_t StripeBegin(int stripe) const { return map_.StripeBegin(stripe); }
  bool OwnsShard(uint32_t shard) const { return map_.OwnsShard(shard); }
  // Returns true if the id belongs to a shard of this server.
  bool Owns(int64_t id) const { return map_.OwnsShard(map_.ShardOf(MixId(static_cast<uint64_t>(id)))); }

  const std::string& name() const { return options_.name; }
  int width() const { return options_.width; }
  v1::DType values() const { return options_.values; }
  // State of the update rule, followed by what the lifecycle keeps beside a row (bits of 4-byte words).
  const std::vector<RowRule::State>& states() const { return layout_.states(); }
  int state_width() const { return layout_.state_width(); }
  uint32_t logical_shards() const { return options_.logical_shards; }
  const RowRule* rule() const { return options_.rule.get(); }
  const LifecycleRules& lifecycle() const { return rules_; }
  // Returns the number of existing rows.
  int64_t size() const { return count_.rows(); }
  // Returns the maximum number of rows on this server; 0 = no limit, or eviction limits it.
  int64_t limit() const { return count_.limit(); }
  // Returns the memory of rows, candidates, tombstones and their indices.
  int64_t bytes() const;

  // Counts since the table was made; `rows`, `candidates`, `tombstones` and `bytes` are present values.
  struct Counts {
    int64_t rows = 0;
    int64_t made = 0;        // rows made by updates and pulls, not from checkpoints
    int64_t expired = 0;     // rows
    int64_t evicted = 0;     // rows
    int64_t faded = 0;       // rows removed for their score
    int64_t dropped = 0;     // gradients of ids that were not admitted
    int64_t candidates = 0;  // ids that wait for admission
    int64_t tombstones = 0;
    int64_t bytes = 0;  // bytes()
    // Set with rows on disk:
    int64_t in_memory = 0;  // rows now
    int64_t used = 0;       // ids of calls
    int64_t read = 0;       // rows brought into memory
    int64_t written = 0;    // rows that had changed and left memory
  };
  Counts counts() const;
  // Returns the rows on disk. Null if all rows are in memory.
  const ColdRows* disk() const;

 private:
  explicit SparseTable(SparseTableOptions options);

  // Returns `status` with the table's name in front.
  absl::Status Named(const absl::Status& status) const;
  absl::Status Full() const;
  // Calls fn(stripe, StripeIds) for every stripe that has ids, on threads of `pool` if they are many. Returns the first
  // error.
  template <typename Fn>
  absl::Status ForEachStripe(absl::Span<const int64_t> ids, ThreadPool* pool, const Fn& fn);
  // Makes a row with its initial values. Returns nullptr and sets *status on failure.
  char* Insert(Stripe& stripe, int64_t id, uint64_t mixed, absl::Status* status);
  // Sets a new row to its initial values.
  void InitRow(int64_t id, char* row) const;
  // Sets `values` to those of a row that does not exist.
  void FillValues(int64_t id, absl::Span<float> values) const;
  // Sets the words that the lifecycle keeps with a new row.
  void InitWords(char* words) const;
  absl::Status PullStripe(Stripe& stripe, const StripeIds& ids, bool create, float* out);
  // Appends the positions of the changed ids.
  static void FindChanged(Stripe* stripe, const StripeIds& ids, std::vector<uint32_t>* positions);
  absl::Status SetOrAddRows(absl::Span<const int64_t> ids, const float* rows, bool look_on_disk);
  // Forgets the rows in memory.
  void ClearStripes();

  const SparseTableOptions options_;
  // First and end of the zero columns, in one word: readers see both of one SetZeroColumns.
  std::atomic<uint64_t> zero_columns_{0};
  const LifecycleRules rules_;
  const StripeMap map_;
  const RowLayout layout_;
  RowCount count_;
  // Chunks of all stripes: rows, candidates, tombstones.
  std::unique_ptr<ChunkMemory> chunks_[3];
  ChunkMemory pages_{kIndexPageBytes};  // index pages of all stores
  std::unique_ptr<Stripe[]> stripes_;
  std::unique_ptr<DiskTier> disk_;            // null: all rows are in memory
  std::atomic<bool> records_changes_{false};  // false: no stripe does
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_SPARSE_TABLE_H_
