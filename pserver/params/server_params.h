// Parameters of one server, and their updates: dense blocks with their optimize programs (dense_block.h), tables with
// their row rules (param_table.h), and the learning rates of both. Independent of sessions of trainers, versions and
// messages. Thread-safe where said.
#ifndef WEIR_PSERVER_PARAMS_SERVER_PARAMS_H_
#define WEIR_PSERVER_PARAMS_SERVER_PARAMS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "framework/base/clock.h"
#include "framework/base/counters.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/digest.h"
#include "framework/runtime/scope.h"
#include "proto/checkpoint.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/program.pb.h"
#include "pserver/params/averaging.h"
#include "pserver/params/dense_block.h"
#include "pserver/params/dense_sum.h"
#include "pserver/params/gradient.h"
#include "pserver/params/learning_rates.h"
#include "pserver/protocol/norm_rounds.h"

namespace weir {

namespace v1 {
class StartPlan;
}  // namespace v1

class ParamTable;
class PersistentRows;
class SparseTable;
struct RowTime;
struct StartCheckpoint;
struct UpdateTask;

class ServerParams {
 public:
  // Creates the parameters and runs the startup program. InvalidArgument names what the programs lack. `main` holds the
  // plan. `dense_sum`: null: LaneTreeSum. `lock_wait`: limit of the wait for another process that has the directory of
  // a table (ColdRowsOptions). Borrows all pointers for its lifetime, the programs for the call. Also returns errors of
  // OpenColdRows.
  static absl::StatusOr<std::unique_ptr<ServerParams>> Create(const v1::ProgramDesc& main,
                                                              const v1::ProgramDesc& startup, int server_id,
                                                              ThreadPool* pool, const DenseSum* dense_sum = nullptr,
                                                              Clock* clock = Clock::Real(),
                                                              absl::Duration lock_wait = absl::ZeroDuration());
  ~ServerParams();

  // Makes tables count in `counters` from now on: "table.<name>.skipped_rows", for tables that skip any. Requires:
  // called before the first Apply.
  void CountIn(Counters* counters);

  using BlockInfo = weir::BlockInfo;
  // Return the index of the block (table); -1 if this server does not have it.
  int FindBlock(std::string_view name) const;
  int FindTable(std::string_view name) const;
  const BlockInfo& block(int i) const { return blocks_[static_cast<size_t>(i)]->info(); }
  // Returns true if pushes for the table carry shows and clicks.
  bool counts_shows(int i) const;
  // Return the wire formats of the table's rows, and those of blocks and rows of blocks.
  const v1::Wire& wire_of_table(int i) const;
  const v1::Wire& wire_of_blocks() const { return wire_; }
  SparseTable& table(int i);
  int blocks() const { return static_cast<int>(blocks_.size()); }
  int tables() const { return static_cast<int>(tables_.size()); }
  bool average_by_trainers() const { return averaging_->by_trainers(); }

  // Part of a step (in async: of a trainer's step) that one Apply covers. All but kLater also advance the learning
  // rates.
  enum class StepPart { kWhole, kFirst, kLater };
  // Adds up gradients and runs the updates, blocks and stripes of tables in parallel. One element per trainer, by id;
  // gradients are divided by the sum of their samples. Requires: that is > 0; with norm_rounds() > 0, `norms` has all
  // rounds; kLater only after kFirst was handed out (async_apply EAGER: a later part may still see the rates of the
  // step before), or after PrepareRates of the step. Several calls may run at once (async): each block and each stripe
  // is changed by one at a time. The error names the block or table. `norms`: norms of all rounds. `table_step`: the
  // step as tables count it (docs/tables.md); `step` if it is absent.
  absl::Status Apply(int64_t step, absl::Span<const TrainerGradients> trainers, StepPart part = StepPart::kWhole,
                     const Norms& norms = {}, std::optional<int64_t> table_step = std::nullopt);

  // Runs the step border: lets scores decay, and removes rows that have expired, whose score is too low, or that are
  // too many. Returns the first error of a table (of its disk). Several calls may run at once.
  absl::Status EndStep(int64_t table_step);
  // Adds the effects of lifecycles since the last call to `counters`, as "table.<name>.<effect>". Counters of present
  // numbers may go down.
  void CountRows(Counters* counters);

  // Makes schedules count a step for each `count` transactions instead of each one. Requires: called before the first
  // Apply.
  void SetTransactionsPerStep(int count);
  // Advances schedules to the rates of `step`, for Applies of kLater in a step whose parts take effect one by one.
  // Waits for updates that run under other rates.
  absl::Status PrepareRates(int64_t step);
  // Advances schedules as if this many transactions had taken effect. Requires: called before the first Apply.
  absl::Status AdvanceSchedules(int64_t transactions);

  // Returns the number of rounds of whole norms that must precede an Apply; 0 if there are none.
  int norm_rounds() const { return norm_rounds_; }
  // Returns this server's sums of one round, with all names of the round (docs/consistency.md, "Norms"). Changes no
  // value. `norms`: norms of the earlier rounds. With `keep` the next call continues where this one stopped; without,
  // everything is computed anew from the gradients. Requires: the sum of the samples is > 0; with `keep`, the next call
  // is the next round, or Apply, of this step.
  absl::StatusOr<NormSums> SumsOfRound(int64_t step, absl::Span<const TrainerGradients> trainers, int round,
                                       const Norms& norms, bool keep);

  // Copies elements [begin, begin + count) of a block as they are between two updates. `reader`: the trainer that
  // reads, whose next gradient is corrected by these values with delay compensation; -1: the reader is no trainer.
  // Thread-safe.
  void CopyBlock(int block, int64_t begin, int64_t count, float* out, int reader);
  // Set, or add to, all elements of a block, between two updates. Its state stays. Thread-safe.
  void SetBlock(int block, absl::Span<const float> values);
  void AddToBlock(int block, absl::Span<const float> changes);
  // Returns the most memory that delay compensation takes; 0 without it.
  int64_t read_values_bytes() const;

  // Copies rows `ids`, each in [0, rows), of a block with sparse_width > 0 to out [ids.size(), sparse_width], between
  // two updates. Thread-safe.
  void CopyRows(int block, absl::Span<const int64_t> ids, float* out);

  // Changes of rows between two versions, of all tables and blocks of rows (SparseTable::BeginChanges). A step begins
  // with BeginChanges; its changes are recorded if WantChanges has been called since the step before. Thread-safe.
  void WantChanges() { wants_changes_ = true; }
  void BeginChanges();
  // Does what SparseTable::PullChanged does for rows of a block. Thread-safe.
  void PullChangedRows(int block, absl::Span<const int64_t> ids, std::vector<uint32_t>* positions,
                       std::vector<float>* rows);

  // Save, load and digest the parameters. `writes`: chooses the dense pieces of a shard; empty: all. Load returns
  // errors of LoadCheckpoint; after one, blocks are as before, and tables are empty or hold a part of the rows.
  // Requires, here and for ExchangeDense and ExchangeBlocks: no Apply runs meanwhile.
  absl::StatusOr<v1::CheckpointShard> Save(const std::string& path,
                                           const std::function<bool(const DensePiece&)>& writes = {});
  absl::Status Load(const std::string& directory, const v1::CheckpointManifest& manifest);
  // Takes values from checkpoints of other jobs, one for each of plan.sources() (framework/checkpoint/start.h); what
  // the plan does not name stays. Called again with the same arguments it leaves the same. Returns errors of
  // StartFromCheckpoints; after one that is not of a disk or of a table's limit, all is as before. Requires: no Apply
  // has run.
  absl::Status Start(absl::Span<const StartCheckpoint> sources, const v1::StartPlan& plan);
  absl::Status Digest(v1::ControlReply* reply);
  // Calls `exchange` with all that is dense, piece by piece in a fixed order: values, optimizer state and counters of
  // learning rates. The values that it leaves in a piece become the new state.
  using Exchange = std::function<absl::Status(absl::Span<float>)>;
  absl::Status ExchangeDense(const Exchange& exchange);
  // Does the same with values and optimizer state alone.
  absl::Status ExchangeBlocks(const Exchange& exchange);
  // Returns the shards of a checkpoint that hold elements of this server's blocks, or may hold rows of its logical
  // shards.
  std::vector<int> SourcesOf(const v1::CheckpointManifest& manifest) const;

 private:
  // Update ops of the program, by the parameter or table they update, with their optimize blocks.
  struct UpdateOp {
    int block = -1;
    const v1::OpDesc* op = nullptr;
  };
  using UpdateOps = std::map<std::string, UpdateOp, std::less<>>;
  // A dense piece that persists, and its owner.
  struct Piece {
    DenseBlock::Piece piece;
    int64_t whole_count = 0;      // elements of the variable that it is digested with
    DenseBlock* block = nullptr;  // null: learning rates
  };

  ServerParams(int server_id, ThreadPool* pool, const DenseSum* dense_sum, Clock* clock, absl::Duration lock_wait);
  absl::Status Init(const v1::ProgramDesc& main, const v1::ProgramDesc& startup);
  // Returns the updates in the optimize blocks of listen_and_serv.
  static absl::StatusOr<UpdateOps> FindUpdates(const v1::ProgramDesc& main, const v1::OpDesc& serve);
  // Runs the startup program and checks what it made: kernels trust the main program's types and dims.
  absl::Status RunStartup(const v1::ProgramDesc& main, const v1::ProgramDesc& startup);
  absl::Status AddBlocks(const v1::ProgramDesc& main, const UpdateOps& updates);
  absl::Status AddTables(const v1::ProgramDesc& main, const UpdateOps& updates);

  RowTime TimeOf(int64_t table_step);
  absl::Status Run(UpdateTask task);

  // Return what persists, in the order of the server's checkpoint shard. BlockPieces: without learning rates.
  std::vector<Piece> DensePieces();
  std::vector<Piece> BlockPieces();
  absl::Status ExchangePieces(const std::vector<Piece>& pieces, const Exchange& exchange);
  // Sets each piece to what was read for it.
  static void RestorePieces(const std::vector<Piece>& pieces, const std::vector<std::vector<float>>& read);
  // Gives tables the zero columns that they have in a checkpoint.
  void RestoreZeroColumns(const v1::CheckpointManifest& manifest);
  std::vector<PersistentRows> RowTables();
  absl::Status DigestRows(const PersistentRows& rows, VariableDigestSum* sum);

  const int server_id_;
  ThreadPool* const pool_;
  const DenseSum* const dense_sum_;
  Clock* const clock_;
  const absl::Duration lock_wait_;
  bool reads_clock_ = false;  // true if some rows expire by it
  std::atomic<bool> wants_changes_{false};
  int norm_rounds_ = 0;
  v1::Wire wire_;
  std::unique_ptr<const Averaging> averaging_;
  Scope scope_;
  std::unique_ptr<LearningRates> rates_;  // null: they are constant
  std::vector<std::unique_ptr<DenseBlock>> blocks_;
  std::vector<std::unique_ptr<ParamTable>> tables_;
  std::map<std::string, int, std::less<>> block_index_;
  std::map<std::string, int, std::less<>> table_index_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_SERVER_PARAMS_H_
