// Traffic of a step between one trainer and every server, counted as pserver/client/client.h cuts and packs it: the
// same messages are built, without their payloads, and measured.
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

namespace weir {

// Input of the lanes of the whole job in one batch, by lane: ids by the name of their variable. Borrowed.
struct LaneInput {
  int64_t examples = 0;
  std::map<std::string, const IdBatch*, std::less<>> ids;
};
using BatchInput = std::vector<LaneInput>;
// One batch, or train.accumulate_steps of them.
using StepInput = std::vector<BatchInput>;

// Matrix whose gradient leaves as rows: a distributed table, or a parameter with is_sparse that may lie in several
// blocks.
struct SparseTarget {
  std::string parameter;
  std::string gradient;
  int64_t width = 1;
  bool table = false;
  uint32_t shards = 1;   // of a table
  int64_t capacity = 0;  // of a table; 0: no limit
  int64_t rows = 0;      // of a parameter
  // Blocks in order of their rows; empty for a table.
  struct Block {
    std::string name;
    int server = 0;
    int64_t row_begin = 0;
    int64_t row_end = 0;
  };
  std::vector<Block> blocks;
  // One ids variable by which look-ups read the matrix.
  struct Source {
    std::string ids;
    int64_t slots = 1;
    bool has_padding = false;
    int64_t padding = 0;
    int64_t sequence = 0;  // only the last so many ids of each example; 0: all
    IdSelection selection() const { return {.has_padding = has_padding, .padding_id = padding, .sequence = sequence}; }
    auto operator<=>(const Source&) const = default;
  };
  std::vector<Source> pulled_by;  // includes padding; empty if the whole matrix is received
  std::vector<Source> pushed_by;
  // True if the gradient rows of a lane carry their positions among the rows of the step.
  bool with_step_rows = false;
};

// Rows of one target, for one trainer in one step.
struct TargetRows {
  std::vector<std::vector<double>> pulled;  // by batch of the step; by server (of a table) or block
  std::vector<std::vector<double>> pushed;  // by server (of a table) or block; by node of the trainer's lanes
  std::vector<double> lane_rows;            // gradient rows of each lane
  double distinct = 0;                      // distinct rows that are pulled at once, or pushed by any lane
};
// Keyed by parameter.
using StepRows = std::map<std::string, TargetRows, std::less<>>;

struct FlowSum {
  double messages = 0, bytes_out = 0, bytes_in = 0, rows = 0;
  FlowSum& operator+=(const FlowSum& other);
  FlowSum Times(double factor) const;
};
struct ServerFlows {
  FlowSum pull_rows, push, pull_blocks;
  ServerFlows& operator+=(const ServerFlows& other);
  ServerFlows Times(double factor) const;
  FlowSum Total() const;
};

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
  // Returns the number of distinct rows of a step of the whole cluster, by server.
  std::vector<double> UpdatedRows(const SparseTarget& target, const StepInput* step) const;

  // Returns the traffic by server. Every lane has examples.
  std::vector<ServerFlows> Step(int trainer, const StepRows& rows) const;

 private:
  // Returns the number of batches of a step: train.accumulate_steps.
  int batches() const { return std::max(1, job_.train().accumulate_steps()); }
  int64_t LaneIds(const std::vector<SparseTarget::Source>& sources) const;
  void FindTargets();
  // Returns the wire formats of the target's rows.
  const v1::Wire& WireOf(const SparseTarget& target) const;

  const v1::JobConfig& job_;
  const v1::ProgramDesc& main_;
  const v1::Plan& plan_;
  std::vector<SparseTarget> targets_;
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_TRAFFIC_H_
