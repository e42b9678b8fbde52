// Traffic of a step between one trainer, or a host whose trainers merge theirs, and every server: which rows it pulls
// and pushes, and the messages they take.
#ifndef WEIR_TRANSPILER_EXPLAIN_TRAFFIC_H_
#define WEIR_TRANSPILER_EXPLAIN_TRAFFIC_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/runtime/lane_tree.h"
#include "framework/tensor/id_selection.h"
#include "framework/tensor/tensor.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"
#include "transpiler/explain/step_ids.h"
#include "transpiler/explain/step_traffic.h"

namespace weir {

class Traffic {
 public:
  // `main`: a trainer's main program, with its plan. `main` and `job` are borrowed.
  Traffic(const v1::JobConfig& job, const v1::ProgramDesc& main);

  const std::vector<SparseTarget>& targets() const { return targets_; }

  // Returns the rows of a step without an input: an upper bound if every slot has one id (a sequence as many as it
  // takes) and rows of tables are spread evenly over the servers. All ids count as different, up to the rows of the
  // matrix.
  StepRows RowsAtMost(const TrainerRange& trainers) const;
  // Returns the rows for the ids of `step`, which has counted those of these trainers.
  StepRows RowsOf(const TrainerRange& trainers, const StepIds& step) const;
  // Returns the number of distinct rows that a step of all trainers updates, by server (of a table) or block. `step`
  // null: an estimate, as RowsAtMost. ByServer adds them up by server, [servers + 1]; the last number is that of blocks
  // that every trainer holds.
  std::vector<double> UpdatedPlaces(const SparseTarget& target, const StepIds* step) const;
  std::vector<double> ByServer(const SparseTarget& target, const std::vector<double>& places) const;

  // Returns the traffic by server. Every lane has examples.
  std::vector<ServerFlows> Step(const TrainerRange& trainers, const StepRows& rows) const;

 private:
  // Returns the number of batches of a step: train.accumulate_steps.
  int batches() const { return std::max(1, job_.train().accumulate_steps()); }
  int64_t LaneIds(const std::vector<SparseTarget::Source>& sources) const;
  void FindTargets();

  const v1::JobConfig& job_;
  const v1::ProgramDesc& main_;
  const v1::Plan& plan_;
  std::vector<SparseTarget> targets_;
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_TRAFFIC_H_
