// One table of a server's parameters: its rows, how gradients update them, and what is counted of them.
#ifndef WEIR_PSERVER_PARAMS_PARAM_TABLE_H_
#define WEIR_PSERVER_PARAMS_PARAM_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/counters.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/scope.h"
#include "proto/program.pb.h"
#include "pserver/params/averaging.h"
#include "pserver/params/update_task.h"
#include "pserver/protocol/norm_cuts.h"
#include "pserver/tables/sparse_table.h"

namespace weir {

// Thread-safe.
class ParamTable {
 public:
  // Programs of the table and what they run with. Borrowed; must outlive the table.
  struct Source {
    const v1::ProgramDesc& main;  // with the plan
    Scope* scope = nullptr;       // with the startup program's values
    const Averaging* averaging = nullptr;
    absl::Duration lock_wait;  // ColdRowsOptions::lock_wait
  };
  // `index`: its Gradient::target. `update`: the update op, which stands in the optimize block `optimize_block` of the
  // main program; null: the table is never updated. InvalidArgument names what the programs lack. Also returns errors
  // of OpenColdRows.
  static absl::StatusOr<std::unique_ptr<ParamTable>> Create(int index, const v1::VarDesc& var, int server_id,
                                                            const Source& source, int optimize_block,
                                                            const v1::OpDesc* update);

  SparseTable& rows() { return *rows_; }
  const SparseTable& rows() const { return *rows_; }
  const std::string& name() const { return rows_->name(); }
  // Returns true if pushes for the table carry shows and clicks.
  bool counts_shows() const { return counts_shows_; }
  const v1::Wire& wire() const { return wire_; }
  // Clip by the norm of the table's gradient, which must be known before an update.
  const std::optional<TableClip>& clip() const { return clip_; }

  // Merges the gradients of one stripe's rows and updates the rows, or adds the sums of round 0. The error names the
  // table.
  absl::Status Apply(const UpdateTask& task, int stripe);
  // Ends a step (SparseTable::EndStep) in all stripes, in parallel.
  absl::Status EndStep(const RowTime& time, ThreadPool* pool);

  // Counts in `counters` from now on: "table.<name>.skipped_rows", if the table skips any. Requires: called before the
  // first Apply.
  void CountIn(Counters* counters);
  // Adds the rows skipped since the last call to that counter.
  void CountSkippedRows();
  // Adds the effects of the lifecycle and of the disk since the last call to `counters`, as "table.<name>.<effect>".
  void CountRows(Counters* counters);

 private:
  ParamTable(int index, const Averaging* averaging) : index_(index), averaging_(*averaging) {}
  absl::Status Init(const v1::VarDesc& var, int server_id, const Source& source, const v1::BlockDesc* optimize,
                    const v1::OpDesc* update);
  // Sets rule and initializer of the options, learning_rate_ and clip_.
  absl::Status InitUpdate(const v1::VarDesc& var, const Source& source, const v1::BlockDesc& optimize,
                          const v1::OpDesc& update, SparseTableOptions* options);
  // Sets `averages` [ids, width] to the gradients of the rows, divided.
  void Average(const RowSums& sums, std::vector<float>* averages) const;
  // Clips the averages by their norm, and makes the sums point at them.
  absl::Status Clip(const Norms& norms, std::vector<float>* averages, RowSums* sums) const;

  const int index_;
  const Averaging& averaging_;
  // Constant after Create.
  std::unique_ptr<SparseTable> rows_;
  ProfileName profiled_as_;
  const Variable* learning_rate_ = nullptr;  // null without an optimizer
  std::optional<TableClip> clip_;
  bool counts_shows_ = false;
  bool has_lifecycle_ = false;
  v1::Wire wire_;
  Counter* skipped_ = nullptr;  // null: not counted

  Mutex skipped_mu_;
  int64_t skipped_so_far_ ABSL_GUARDED_BY(skipped_mu_) = 0;  // counted in skipped_
  Mutex counted_mu_;
  SparseTable::Counts counted_ ABSL_GUARDED_BY(counted_mu_);  // by CountRows so far
};

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_PARAM_TABLE_H_
