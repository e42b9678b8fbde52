// One dense block of a server's parameters: its value, its optimize program with state, and their part in checkpoints.
#ifndef WEIR_PSERVER_PARAMS_DENSE_BLOCK_H_
#define WEIR_PSERVER_PARAMS_DENSE_BLOCK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/shard.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/scope.h"
#include "proto/program.pb.h"
#include "pserver/params/averaging.h"
#include "pserver/params/delay_compensation.h"
#include "pserver/params/update_task.h"
#include "pserver/protocol/norm_cuts.h"

namespace weir {

// Thread-safe where said.
class DenseBlock {
 public:
  // Programs of the block and what they run with. Borrowed; must outlive the block.
  struct Source {
    const v1::ProgramDesc& main;
    Scope* scope = nullptr;  // with the startup program's values
    ThreadPool* pool = nullptr;
    const Averaging* averaging = nullptr;
  };
  // `index`: its Gradient::target. `update`: the update op, which stands in the optimize block `optimize_block` of the
  // main program; null: the block is never updated. InvalidArgument names what the programs lack.
  static absl::StatusOr<std::unique_ptr<DenseBlock>> Create(int index, const v1::PlacedBlock& placed,
                                                            const Source& source, int optimize_block,
                                                            const v1::OpDesc* update);

  const BlockInfo& info() const { return info_; }
  const v1::PlacedBlock& placed() const { return placed_; }
  // Places at which the update waits for norms; the i-th belongs to round i.
  const std::vector<NormCut>& cuts() const { return cuts_; }
  // Returns the most memory that delay compensation takes; 0 without it.
  int64_t read_values_bytes() const { return read_values_bytes_; }

  // Adds up the gradients and runs the update, or the part of it before a round. The error names the block.
  // FailedPrecondition: a value has become infinite or NaN. Thread-safe.
  absl::Status Apply(const UpdateTask& task);

  // Do what ServerParams::CopyBlock, SetBlock, AddToBlock and CopyRows say. Thread-safe.
  void Copy(int64_t begin, int64_t count, float* out, int reader);
  void Set(absl::Span<const float> values);
  void Add(absl::Span<const float> changes);
  void CopyRows(absl::Span<const int64_t> ids, float* out);
  // Do for a block of rows what SparseTable's functions of these names do. Thread-safe.
  void BeginChanges(bool record);
  void PullChanged(absl::Span<const int64_t> ids, std::vector<uint32_t>* positions, std::vector<float>* rows);

  // A piece of the block that persists: values or one state, as 4-byte units.
  struct Piece {
    DensePiece place;
    absl::Span<float> bits;
  };
  // Returns the pieces, values first. Requires: no Apply runs while they are used.
  std::vector<Piece> Pieces();
  // Returns the number of elements of the whole parameter.
  int64_t whole_count() const;
  // Sets a piece to `from`, as read from a checkpoint; the next Apply begins a step. Requires: no Apply runs.
  void Restore(absl::Span<float> piece, absl::Span<const float> from);

 private:
  struct State {
    std::string name;  // "moment1"
    Variable* var = nullptr;
    bool scalar = false;
  };

  DenseBlock(int index, const v1::PlacedBlock& placed, const Source& source);
  // Finds the value. `desc`: the block's variable in the main program, or null.
  absl::Status InitValue(Scope* scope, const v1::VarDesc* desc);
  absl::Status InitUpdate(const Source& source, int optimize_block, const v1::OpDesc& update);
  absl::Status InitStates(Scope* scope, const v1::OpDesc& update);
  // Sets the variables that the optimize block starts from. Returns false if there is nothing to update.
  absl::StatusOr<bool> Begin(const UpdateTask& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Records the rows that the sums of this step have gradients for: no other rows change.
  void RecordRows() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs the ops of the optimize block from next_op_ on.
  absl::Status RunOps(const UpdateTask& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns an error if the update has made a value infinite or NaN.
  absl::Status CheckValues() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds the sums of a cut, which is that of task.round, or sets its norms.
  absl::Status PassCut(const UpdateTask& task, const NormCut& cut, bool add_sums) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const v1::PlacedBlock placed_;
  const ProfileName profiled_as_;
  const Averaging& averaging_;
  ThreadPool* const pool_;
  const uint64_t seed_;
  // Constant after Create.
  BlockInfo info_;
  std::vector<int64_t> whole_dims_;
  std::vector<State> states_;
  std::vector<NormCut> cuts_;
  int end_op_ = 0;
  int64_t read_values_bytes_ = 0;

  Mutex mu_;                 // held while the block is updated or copied
  Tensor* value_ = nullptr;  // elements guarded by mu_
  // Executor of the update. Null if the block is never updated.
  std::unique_ptr<Executor> update_ ABSL_GUARDED_BY(mu_);
  // Variables that receive the sums (Averaging::SumVariables).
  std::vector<Variable*> gradients_ ABSL_GUARDED_BY(mu_);
  // Op of update_ at which the current step continues; 0: starts from the gradients.
  int next_op_ ABSL_GUARDED_BY(mu_) = 0;
  // Set with delay compensation, else null: the values that trainers have read, and the variable that receives them.
  std::unique_ptr<ReadValues> read_values_ ABSL_GUARDED_BY(mu_);
  Variable* read_ ABSL_GUARDED_BY(mu_) = nullptr;
  // Rows that have changed since the last BeginChanges.
  struct Changes {
    bool all = true;
    std::vector<int64_t> rows;
  };
  Changes changes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_DENSE_BLOCK_H_
