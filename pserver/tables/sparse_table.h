// Embedding rows by feature id: a hash table of int64 to [width values | optimizer state]. Thread-safe.
//
// Values may lie in 16 bits (framework/runtime/row_values.h). Everybody outside has floats, and so has the update rule,
// on copies of its rows; what the rule has made of the values is then rounded.
//
// A server holds a run of a table's logical shards. Placement and files speak of shards; locks and memory belong to
// stripes, each a power-of-two group of shards. Ids are ordered by MixId(id), so a shard and a stripe are both one
// interval of that order, and a batch sorted by it is cut into stripes by binary search.
//
// A row is read and written under its stripe's lock: never half of an update. Two rows of one call may come from
// different moments. Which stripes there are changes no value and no order that leaves this class.
//
// Rows come and go as the table's Lifecycle says (docs/tables.md): an update may leave its id without a row, and
// EndStep, between two steps, takes the rows whose time is over. A row that does not exist reads as its initial values.
//
// Rows beyond a memory budget lie on disk, if there is one: of each stripe those that were in no call for longest.
// Where a row lies is no part of its value: every call gives the same bits, wherever its rows were. A call first brings
// its rows of a stripe into memory; the disk works without the stripe's lock.
#ifndef WEIR_PSERVER_TABLES_SPARSE_TABLE_H_
#define WEIR_PSERVER_TABLES_SPARSE_TABLE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/initial_value.h"
#include "framework/runtime/row_rule.h"
#include "framework/runtime/row_values.h"
#include "proto/table.pb.h"
#include "pserver/tables/cold_rows.h"
#include "pserver/tables/lifecycle_rules.h"
#include "pserver/tables/row_memory.h"
#include "pserver/tables/row_store.h"

namespace weir {

struct SparseTableOptions {
  std::string name;
  int width = 0;
  // Of the whole table, a power of two; this server holds [shard_begin, shard_end).
  uint32_t logical_shards = 4096;
  uint32_t shard_begin = 0;
  uint32_t shard_end = 4096;
  // The most rows of the whole table, 0 = no limit. When it refuses, one server holds at most its shards' part of it,
  // plus six standard deviations of a fair deal so that no table is refused that would fit; with one server the limit
  // is exact. When it evicts, each logical shard has the same part, and EndStep brings it below.
  int64_t capacity = 0;
  // Wanted; rounded to what a power-of-two group of shards allows.
  int stripes = 64;
  // FLOAT32, FLOAT16 or BFLOAT16.
  v1::DType values = v1::FLOAT32;
  // Gives values of that type.
  RowInitializer initializer;
  // Null: rows have no state and cannot be updated.
  std::unique_ptr<const RowRule> rule;
  v1::Lifecycle lifecycle = {};
  // Of the job: chance of admission, rounding of values.
  uint64_t seed = 1;
  struct Disk {
    // For rows in memory with their index, and what `open` takes; rows of a call may exceed it while it lasts.
    int64_t memory_bytes = 0;
    // Called by Create, with the bytes of a row. Null: all rows are in memory.
    std::function<absl::StatusOr<std::unique_ptr<ColdRows>>(int64_t row_bytes)> open;
  };
  Disk disk = {};
};

// When something happens to rows.
struct RowTime {
  int64_t step = 0;
  // Since 1970; read only when rows expire by the clock.
  double seconds = 0;
};

class SparseTable {
 public:
  // InvalidArgument: width, shards or capacity that make no sense. Errors of disk.open.
  static absl::StatusOr<std::unique_ptr<SparseTable>> Create(SparseTableOptions options);
  ~SparseTable();

  // Copies values into out [ids.size(), width]. Rows that do not exist are made if `create` (whatever the lifecycle
  // says of admission), else they only read as their initial values. Any order, repeats allowed; ids sorted by MixId
  // are fastest. `pool` may be null. InvalidArgument: an id of another server's shard. ResourceExhausted: over
  // capacity. With rows on disk, here and in all that follows: errors of ColdRows; some rows may then be lost, and only
  // a checkpoint helps.
  absl::Status Pull(absl::Span<const int64_t> ids, bool create, float* out, ThreadPool* pool);

  // One update of each row, made if need be and if the lifecycle admits it; else the gradient is dropped. ids distinct,
  // in any order, in this step for the first time; grads [ids.size(), width] hold sums over samples and the gradient is
  // grads / divisor. Errors as Pull; FailedPrecondition without a rule.
  // `shows`: [ids.size(), 2], samples that have the id and their clicks, for a lifecycle that counts them; null: none.
  absl::Status Update(absl::Span<const int64_t> ids, const float* grads, float divisor, float learning_rate,
                      ThreadPool* pool, const RowTime& time = {}, const float* shows = nullptr);
  // The same for distinct ids of one stripe, with a pointer to each gradient, and to the two numbers of each id.
  absl::Status UpdateStripe(int stripe, absl::Span<const int64_t> ids, const float* const* grads, float divisor,
                            float learning_rate, const RowTime& time = {}, const float* const* shows = nullptr);
  // The border behind a step: rows of the stripe that are over their time or over capacity go. What goes is a function
  // of the rows and the step (and of the clock, when the lifecycle says so). Costs nothing without a lifecycle that
  // takes rows.
  absl::Status EndStep(int stripe, const RowTime& time);

  // Adds `changes` [ids.size(), width] to the values of rows that exist and leaves their state. ids distinct. NotFound:
  // a row does not exist; others may have changed. FailedPrecondition: values are not FLOAT32.
  absl::Status AddToValues(absl::Span<const int64_t> ids, const float* changes);
  // Sets whole rows [ids.size(), width + state_width], made if need be (from a checkpoint). ids distinct. Values are
  // rounded to the nearest that can lie here.
  absl::Status SetRows(absl::Span<const int64_t> ids, const float* rows);
  // The same for ids that have no row: none is looked for on disk.
  absl::Status AddRows(absl::Span<const int64_t> ids, const float* rows);
  // Forgets every row, candidate and tombstone. Nobody makes rows meanwhile; reading is possible.
  absl::Status Clear();

  // Copies of all rows of a stripe by (logical shard, id). Going through stripes 0, 1, ... gives the whole order.
  absl::Status CopyStripe(int stripe, std::vector<int64_t>* ids, std::vector<float>* rows) const;
  // Calls fn(id, row [width + state_width]) for every row of a stripe, once, in no order, under a lock of the stripe:
  // fn must not call this table.
  absl::Status VisitStripe(int stripe, const std::function<void(int64_t, const float*)>& fn) const;

  // What the table knows of ids without a row: how often those that wait for admission were there, and when rows went.
  // As rows of floats that hold the bits of 4-byte words, named by `words`; never empty words.
  enum Memory { kCandidates = 0, kTombstones = 1 };
  // Empty: the lifecycle keeps none.
  const std::vector<std::string>& words(Memory memory) const { return word_names_[memory]; }
  void CopyMemory(Memory memory, int stripe, std::vector<int64_t>* ids, std::vector<float>* words) const;
  absl::Status SetMemory(Memory memory, absl::Span<const int64_t> ids, const float* words);

  int stripes() const { return stripe_count_; }
  // Smallest MixId(id) of the stripe's ids.
  uint64_t StripeBegin(int stripe) const;
  bool OwnsShard(uint32_t shard) const { return shard >= options_.shard_begin && shard < options_.shard_end; }
  // True when the id belongs to a shard of this server.
  bool Owns(int64_t id) const;

  const std::string& name() const { return options_.name; }
  int width() const { return options_.width; }
  v1::DType values() const { return options_.values; }
  // Of the update rule, and behind it what the lifecycle keeps beside a row (bits of 4-byte words).
  const std::vector<RowRule::State>& states() const { return states_; }
  int state_width() const { return state_width_; }
  uint32_t logical_shards() const { return options_.logical_shards; }
  const RowRule* rule() const { return options_.rule.get(); }
  const LifecycleRules& lifecycle() const { return rules_; }
  // Rows that exist.
  int64_t size() const { return rows_.load(std::memory_order_relaxed); }
  // The most rows that this server holds; 0 = no limit, or eviction sees to it.
  int64_t limit() const { return limit_; }
  // Memory of rows, candidates, tombstones and their indices.
  int64_t bytes() const;

  // Since the table was made; `rows`, `candidates` and `tombstones` are what is there now.
  struct Counts {
    int64_t rows = 0;
    int64_t made = 0;        // by updates and pulls, not from checkpoints
    int64_t expired = 0;     // rows
    int64_t evicted = 0;     // rows
    int64_t faded = 0;       // rows, for their score
    int64_t dropped = 0;     // gradients of ids that were not admitted
    int64_t candidates = 0;  // ids that wait for admission
    int64_t tombstones = 0;
    int64_t bytes = 0;  // bytes()
    // With rows on disk:
    int64_t in_memory = 0;  // rows now
    int64_t used = 0;       // ids of calls
    int64_t read = 0;       // rows brought into memory
    int64_t written = 0;    // rows that had changed and left memory
  };
  Counts counts() const;
  // Null: all rows are in memory.
  const ColdRows* disk() const { return disk_.get(); }

 private:
  struct Stripe;
  // Sections of a batch by stripe; `order` is empty when the batch already lies that way.
  struct Sections {
    std::vector<int64_t> begins;  // stripe_count_ + 1
    std::vector<uint32_t> order;
  };
  class Updates;

  explicit SparseTable(SparseTableOptions options);

  uint32_t Shard(uint64_t mixed) const { return static_cast<uint32_t>((mixed >> 32) * options_.logical_shards >> 32); }
  int StripeOf(uint64_t mixed) const { return static_cast<int>((Shard(mixed) >> group_log2_) - first_group_); }
  // First and last MixId of a logical shard.
  std::pair<uint64_t, uint64_t> ShardRange(uint32_t shard) const;
  std::pair<uint64_t, uint64_t> StripeRange(int stripe) const;
  // Of the stripe's shards those that this server holds.
  std::pair<uint32_t, uint32_t> ShardsOf(int stripe) const;
  absl::Status Partition(absl::Span<const int64_t> ids, Sections* sections) const;
  absl::Status SetOrAddRows(absl::Span<const int64_t> ids, const float* rows, bool look_on_disk);
  template <typename Fn>
  absl::Status ForEachSection(absl::Span<const int64_t> ids, ThreadPool* pool, const Fn& fn);
  // A new row with its initial values, or nullptr and why.
  char* Insert(Stripe& stripe, int64_t id, uint64_t mixed, absl::Status* status);
  // What a candidate was shown and clicked before it got a row.
  struct Earlier {
    float shows = 0, clicks = 0;
  };
  // Counts those ids[k], k of `missing`, that are candidates, or throws their dice; what is admitted stays in
  // `missing`, with what was counted of it before in `earlier`.
  absl::Status Admit(Stripe& stripe, absl::Span<const int64_t> ids, const RowTime& time, const float* const* shows,
                     std::vector<uint32_t>* missing, std::vector<Earlier>* earlier);
  void Stamp(char* words, const LifecycleRules::Words& places, const RowTime& time, const float* shows) const;
  double ScoreOf(const char* words, const LifecycleRules::Words& places) const;
  void Remove(Stripe& stripe, int64_t id, const RowTime& time);
  // Counts a row that does not exist any more.
  void Forget(Stripe& stripe, int64_t id, const RowTime& time);
  void RemoveCandidate(Stripe& stripe, int64_t id);
  // Shards of [begin, end) whose rows are to be looked at for their time.
  std::vector<uint32_t> Due(Stripe& stripe, uint32_t begin, uint32_t end, const RowTime& time) const;
  bool Expired(const char* words, const LifecycleRules::Words& places, const RowTime& time) const;
  uint64_t Keep(const char* words, const LifecycleRules::Words& places, const RowTime& time) const;
  void ExpireRows(Stripe& stripe, uint32_t shard, const RowTime& time);
  void ExpireCandidates(Stripe& stripe, uint32_t shard, const RowTime& time);
  // Shows and clicks decay; whether the score is now too low.
  bool Fade(char* words, const LifecycleRules::Words& places) const;
  void DecayRows(Stripe& stripe, uint32_t shard, const RowTime& time);
  void DecayCandidates(Stripe& stripe, uint32_t shard);
  void EvictRows(Stripe& stripe, uint32_t shard, const RowTime& time);
  void EvictCandidates(Stripe& stripe, uint32_t shard, const RowTime& time);
  // Leaves those that go: the lowest. (what keeps it, id)
  using Kept = std::vector<std::pair<uint64_t, int64_t>>;
  void ChooseGoing(Kept* all) const;
  absl::Status Full() const;

  // Rows on disk (sparse_table_disk.cc).
  //
  // Brings into memory what exists of ids[order[0..n)] (ids[0..n) when order is null), and says that they are used now.
  // The stripe's lock is held on entry and on return, but not throughout.
  absl::Status Fetch(Stripe& stripe, absl::Span<const int64_t> ids, const uint32_t* order, int64_t n);
  // Rows that a stripe may have in memory, by what the disk's part of it takes now.
  void SetGoal();
  bool Crowded(const Stripe& stripe) const;
  // Rows that are too many leave memory. Without the stripe's lock.
  absl::Status MakeRoom(Stripe& stripe);
  // The same where disk_mu is held.
  absl::Status MakeRoomHeld(Stripe& stripe);
  void LeaveMemory(Stripe& stripe, int64_t id);
  absl::Status EndStepOnDisk(Stripe& stripe, uint32_t begin, uint32_t end, const RowTime& time);
  // Every row of the interval once: those in memory, under the stripe's lock; then, without it, those that lay on disk
  // only. disk_mu is held.
  absl::Status VisitBoth(Stripe& stripe, uint64_t first, uint64_t last,
                         const std::function<void(int64_t id, char* row)>& in_memory,
                         const std::function<void(int64_t id, const char* values)>& on_disk) const;
  absl::Status CopyFromBoth(int stripe, std::vector<int64_t>* ids, std::vector<float>* rows) const;
  // What the border behind a step does to a shard, as ExpireRows, DecayRows and EvictRows do in memory. disk_mu is
  // held.
  absl::Status ExpireOnDisk(Stripe& stripe, uint32_t shard, const RowTime& time);
  absl::Status DecayOnDisk(Stripe& stripe, uint32_t shard, const RowTime& time);
  absl::Status EvictOnDisk(Stripe& stripe, uint32_t shard, const RowTime& time);
  // The rows of `going` go from the disk, and from memory unless still(keep, words) is false there: changed meanwhile.
  absl::StatusOr<int64_t> Take(Stripe& stripe, const Kept& going, const RowTime& time,
                               const std::function<bool(uint64_t keep, const char* words)>& still);
  void Touch(char* row, uint32_t clock) const;
  // The row is not, or may not be, as it is on disk. Nothing without a disk.
  void Changed(char* row) const;

  // A row as [width + state_width] floats; `scratch` is for one that does not lie as such.
  const float* Floats(const char* row, std::vector<float>* scratch) const;
  void SetFloats(const float* floats, char* row) const;

  char* WordsOf(char* row) const { return row + words_begin_; }
  // Of tables with FLOAT32 values: they and the state.
  float* Values(char* row) const { return reinterpret_cast<float*>(row); }

  const SparseTableOptions options_;
  const LifecycleRules rules_;
  const RowValues values_;
  std::vector<RowRule::State> states_;
  std::vector<std::string> word_names_[2];
  int state_width_ = 0;
  int64_t state_begin_ = 0;  // in a row, behind values
  int64_t words_begin_ = 0;  // in a row, behind values and the rule's state
  int64_t row_bytes_ = 0;
  int64_t use_begin_ =
      0;  // in a row, with a disk: behind all else a word: call that last used it, and in the top bit: changed
  int group_log2_ = 0;  // shards per stripe
  uint32_t first_group_ = 0;
  int stripe_count_ = 0;
  int64_t limit_ = 0;
  // Of all stripes: rows, candidates, tombstones.
  std::unique_ptr<ChunkMemory> chunks_[3];
  ChunkMemory pages_{kIndexPageBytes};  // of all indices
  std::unique_ptr<Stripe[]> stripes_;
  // Only ever compared with the limit and reported; no other memory hangs on it.
  std::atomic<int64_t> rows_{0};
  std::unique_ptr<ColdRows> disk_;
  // A goal, moved by whoever makes room.
  std::atomic<int64_t> most_in_stripe_{0};
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_SPARSE_TABLE_H_
