// Traffic of a step between one trainer and every server: which rows it pulls and pushes, and the messages they take.
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
#include "transpiler/explain/step_traffic.h"

namespace weir {

// Input of the lanes of the whole job in one batch, by lane: ids by the name of their variable. Borrowed.
struct LaneInput {
  int64_t examples = 0;
  std::map<std::string, const IdBatch*, std::less<>> ids;
};
using BatchInput = std::vector<LaneInput>;
// One batch, or train.accumulate_steps of them.
using StepInput = std::vector<BatchInput>;

class Traffic {
 public:
  // `main`: a trainer's main program, with its plan. `main` and `job` are borrowed.
  Traffic(const v1::JobConfig& job, const v1::ProgramDesc& main);

  const std::vector<SparseTarget>& targets() const { return targets_; }

  // Returns an upper bound of the rows: every slot has one id (a sequence as many as it takes) and all ids differ, as
  // far as the matrix has rows; tables are spread evenly.
  StepRows RowsAtMost(int trainer) const;
  // Returns the rows for the ids of `step`.
  StepRows RowsOf(int trainer, const StepInput& step) const;
  // Returns the number of distinct rows of a step of the whole cluster, by server (of a table) or block; and of them
  // those by server, last those of every trainer.
  std::vector<double> UpdatedPlaces(const SparseTarget& target, const StepInput* step) const;
  std::vector<double> ByServer(const SparseTarget& target, const std::vector<double>& places) const;

  // Returns the traffic by server. Every lane has examples.
  std::vector<ServerFlows> Step(int trainer, const StepRows& rows) const;

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
