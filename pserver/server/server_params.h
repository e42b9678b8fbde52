// Parameters of one server, and their updates: dense blocks with their optimize programs, tables with their row rules.
// Independent of sessions of trainers, versions and messages. Thread-safe where said.
#ifndef WEIR_PSERVER_SERVER_SERVER_PARAMS_H_
#define WEIR_PSERVER_SERVER_SERVER_PARAMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/clock.h"
#include "framework/base/counters.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/profiler.h"
#include "framework/runtime/scope.h"
#include "framework/wire/slices.h"
#include "proto/checkpoint.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/program.pb.h"
#include "pserver/protocol/norm_cuts.h"
#include "pserver/protocol/norm_rounds.h"
#include "pserver/server/delay_compensation.h"
#include "pserver/server/learning_rates.h"
#include "pserver/tables/sparse_table.h"

namespace weir {

// A checked tensor of a push: part of a node's gradient of one block or table.
struct Gradient {
  bool of_table = false;
  int target = 0;  // index of the block or table
  LaneRange node;
  // Dense: elements [begin, begin + count) of the block. Rows: `count` rows, with their ids in `ids`.
  int64_t begin = 0;
  int64_t count = 0;
  int width = 0;  // 0 = dense
  const float* values = nullptr;
  const int64_t* ids = nullptr;
  // Shows and clicks of each row, [count, 2], for tables that count them; else null.
  const float* counts = nullptr;
  // Positions by ascending MixId; empty if the ids are already in that order.
  std::vector<uint32_t> order;
  std::shared_ptr<const void> keep;  // owner of the memory of values and ids
  size_t decoded_bytes = 0;          // memory of values that were decoded out of the payload
  int64_t arrival = 0;               // order of arrival among all gradients of this server
};

// Gradients that one trainer pushed in one step.
struct TrainerGradients {
  int trainer = 0;
  int64_t samples = 0;
  std::vector<Gradient> gradients;
};

class ServerParams {
 public:
  // Creates the parameters and runs the startup program. InvalidArgument names what the programs lack. `main` holds the
  // plan.
  static absl::StatusOr<std::unique_ptr<ServerParams>> Create(const v1::ProgramDesc& main,
                                                              const v1::ProgramDesc& startup, int server_id,
                                                              ThreadPool* pool, bool add_in_arrival_order = false,
                                                              Clock* clock = Clock::Real());

  // Makes tables count in `counters` from now on: "table.<name>.skipped_rows", for tables that skip any. Call before
  // the first Apply.
  void CountIn(Counters* counters);

  struct BlockInfo {
    std::string name;
    int64_t count = 0;
    // Width of gradient rows, whose ids are in [0, rows); 0 = dense gradient.
    int sparse_width = 0;
    int64_t rows = 0;
  };
  // Return the index of the block (table); -1 if this server does not have it.
  int FindBlock(std::string_view name) const;
  int FindTable(std::string_view name) const;
  const BlockInfo& block(int i) const { return blocks_[static_cast<size_t>(i)]->info; }
  // Returns true if pushes for the table carry shows and clicks.
  bool counts_shows(int i) const { return tables_[static_cast<size_t>(i)]->counts_shows; }
  // Return the wire formats of the table's rows, and those of blocks and rows of blocks.
  const v1::Wire& wire_of_table(int i) const { return tables_[static_cast<size_t>(i)]->wire; }
  const v1::Wire& wire_of_blocks() const { return wire_; }
  SparseTable& table(int i) { return *tables_[static_cast<size_t>(i)]->table; }
  int blocks() const { return static_cast<int>(blocks_.size()); }
  int tables() const { return static_cast<int>(tables_.size()); }
  bool average_by_trainers() const { return average_by_trainers_; }

  // Part of a step (in async: of a trainer's step) that an Apply has. All but kLater also advance the learning rates.
  enum class StepPart { kWhole, kFirst, kLater };
  // Adds up gradients and runs the updates, blocks and stripes of tables in parallel. One element per trainer, by id;
  // gradients are divided by the sum of their samples (> 0). Several calls may run at once (async): each block and each
  // stripe is changed by one at a time. The error names the block or table. `norms`: norms of all rounds. `table_step`:
  // the step as tables count it (docs/tables.md); `step` if it is absent.
  absl::Status Apply(int64_t step, absl::Span<const TrainerGradients> trainers, StepPart part = StepPart::kWhole,
                     const Norms& norms = {}, std::optional<int64_t> table_step = std::nullopt);

  // Runs the step border: removes rows whose time is over, or that are too many. Several calls may run at once.
  absl::Status EndStep(int64_t table_step);
  // Adds the effects of lifecycles since the last call to `counters`, as "table.<name>.<effect>". Counters of present
  // numbers may go down.
  void CountRows(Counters* counters);

  // Advances schedules to the rates of `step`, for Applies of kLater in a step whose parts take effect one by one.
  // Waits for updates that run under other rates.
  absl::Status PrepareRates(int64_t step);
  // Advances schedules as if this many transactions had taken effect. Call before the first Apply.
  absl::Status AdvanceSchedules(int64_t transactions);

  // Returns the number of rounds of whole norms that must precede an Apply; 0 if there are none.
  int norm_rounds() const { return norm_rounds_; }
  // Returns this server's sums of one round, with all names of the round (docs/consistency.md, "Norms"). Changes no
  // value. `norms`: norms of the earlier rounds. With `keep` the next call continues where this one stopped: it must be
  // the next round, or Apply, of this step, with no other call in between. Without, everything is computed anew from
  // the gradients.
  absl::StatusOr<NormSums> SumsOfRound(int64_t step, absl::Span<const TrainerGradients> trainers, int round,
                                       const Norms& norms, bool keep);

  // Copies elements [begin, begin + count) of a block as they are between two updates. `reader`: the trainer that
  // reads; with delay compensation its next gradient is corrected by these values. Thread-safe.
  void CopyBlock(int block, int64_t begin, int64_t count, float* out, int reader);
  // Set, or add to, all elements of a block, between two updates. Its state stays. Thread-safe.
  void SetBlock(int block, absl::Span<const float> values);
  void AddToBlock(int block, absl::Span<const float> changes);
  // Returns the most memory that delay compensation takes; 0 without it.
  int64_t read_values_bytes() const { return read_values_bytes_; }

  // Copies rows `ids`, each in [0, rows), of a block with sparse_width > 0 to out [ids.size(), sparse_width], between
  // two updates. Thread-safe.
  void CopyRows(int block, absl::Span<const int64_t> ids, float* out);

  // No Apply may run during the following three.
  absl::StatusOr<v1::CheckpointShard> Save(const std::string& path);
  absl::Status Load(const std::string& directory, const v1::CheckpointManifest& manifest);
  absl::Status Digest(v1::ControlReply* reply);
  // Returns the shards of a checkpoint that hold elements of this server's blocks, or may hold rows of its logical
  // shards.
  std::vector<int> SourcesOf(const v1::CheckpointManifest& manifest) const;

 private:
  struct State {
    std::string name;  // "moment1"
    Variable* var = nullptr;
    bool scalar = false;
  };
  struct DenseBlock {
    BlockInfo info;
    ProfileName profiled_as;
    v1::PlacedBlock placed;
    std::vector<int64_t> whole_dims;
    std::vector<State> states;
    Mutex mu;                 // held while the block is updated or copied
    Tensor* value = nullptr;  // elements guarded by mu
    // Null: the block is never updated.
    std::unique_ptr<Executor> update ABSL_GUARDED_BY(mu);
    // Variable that receives the sum; BY_TRAINERS: one per trainer.
    std::vector<Variable*> gradients ABSL_GUARDED_BY(mu);
    std::vector<NormCut> cuts;  // constant
    // Op of `update` at which the current step continues; 0: starts from the gradients.
    int next_op ABSL_GUARDED_BY(mu) = 0;
    int end_op = 0;  // constant
    // Set with delay compensation, else null: the values that trainers have read, and the variable that receives them.
    std::unique_ptr<ReadValues> read_values ABSL_GUARDED_BY(mu);
    Variable* read ABSL_GUARDED_BY(mu) = nullptr;
  };
  // Task of ApplyBlock and ApplyStripe: the whole update, or the sums of one round.
  struct Task {
    int64_t step = 0;
    absl::Span<const TrainerGradients> trainers;
    int64_t samples = 0;
    RowTime time = {};  // of rows of tables
    const Norms* norms = nullptr;
    int round = -1;  // -1: the update
    bool keep = false;
    NormSums* sums = nullptr;  // behind sums_mu
    Mutex* sums_mu = nullptr;
    void AddSum(const std::string& name, const ExactSum& sum) const;
  };
  struct Table {
    std::unique_ptr<SparseTable> table;
    ProfileName profiled_as;
    Variable* learning_rate = nullptr;  // null without an optimizer
    std::optional<TableClip> clip;
    bool counts_shows = false;
    v1::Wire wire;
    Counter* skipped = nullptr;  // null: not counted
    Mutex skipped_mu;
    int64_t skipped_rows ABSL_GUARDED_BY(skipped_mu) = 0;  // counted so far
    bool has_lifecycle = false;
    Mutex counted_mu;
    SparseTable::Counts counted ABSL_GUARDED_BY(counted_mu);  // counted by CountRows so far
  };

  ServerParams(int server_id, ThreadPool* pool, bool add_in_arrival_order, Clock* clock)
      : server_id_(server_id), pool_(pool), add_in_arrival_order_(add_in_arrival_order), clock_(clock) {}
  RowTime TimeOf(int64_t table_step);
  absl::Status Init(const v1::ProgramDesc& main, const v1::ProgramDesc& startup);
  std::vector<LearningRates::State> RateStates();
  // `optimize`: the table's optimize block, whose update op is `update`; both null: the table is never updated.
  absl::Status AddTable(const v1::VarDesc& var, const v1::Plan& plan, const v1::BlockDesc* optimize,
                        const v1::OpDesc* update);
  absl::Status AddBlock(const v1::PlacedBlock& placed, const v1::ProgramDesc& main, int optimize_block,
                        const v1::OpDesc* update);
  absl::Status RunUnits(const Task& task);
  static void CountSkippedRows(Table* table);
  absl::Status ApplyBlock(const Task& task, int block);
  absl::Status ApplyStripe(const Task& task, int table, int stripe);
  // Runs the ops of the optimize block from next_op on.
  absl::Status RunBlockOps(const Task& task, DenseBlock* block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(block->mu);

  const int server_id_;
  ThreadPool* const pool_;
  const bool add_in_arrival_order_;  // a planted fault
  Clock* const clock_;
  bool reads_clock_ = false;  // true if some rows expire by it
  int norm_rounds_ = 0;
  int lanes_ = 1;
  int trainers_ = 1;
  uint64_t seed_ = 1;
  bool average_by_trainers_ = false;
  v1::Wire wire_;
  int64_t read_values_bytes_ = 0;
  Scope scope_;
  std::unique_ptr<LearningRates> rates_;  // null: they are constant
  std::vector<std::unique_ptr<DenseBlock>> blocks_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::map<std::string, int, std::less<>> block_index_;
  std::map<std::string, int, std::less<>> table_index_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_SERVER_PARAMS_H_
