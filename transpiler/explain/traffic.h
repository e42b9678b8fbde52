// What a step moves between one trainer and every server, counted as pserver/client/client.h cuts and packs it: the
// same messages are made, without their payloads, and weighed.
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

// What the lanes of the whole job are given in one batch, by lane: ids by the name of their variable. Borrowed.
struct LaneInput {
  int64_t examples = 0;
  std::map<std::string, const IdBatch*, std::less<>> ids;
};
using BatchInput = std::vector<LaneInput>;
// One batch, or train.accumulate_steps of them.
using StepInput = std::vector<BatchInput>;

// A matrix whose gradient leaves as rows: a distributed table, or a parameter with is_sparse that may lie in several
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
  // What look-ups read it by.
  struct Source {
    std::string ids;
    int64_t slots = 1;
    bool has_padding = false;
    int64_t padding = 0;
    int64_t sequence = 0;  // of each example the last so many; 0: all
    IdSelection selection() const { return {.has_padding = has_padding, .padding_id = padding, .sequence = sequence}; }
    auto operator<=>(const Source&) const = default;
  };
  std::vector<Source> pulled_by;  // no padding left out; empty when the whole is received
  std::vector<Source> pushed_by;
  // The gradient rows of a lane remember their place among the rows of the step.
  bool with_step_rows = false;
};

// Rows of one target, of one trainer in one step.
struct TargetRows {
  std::vector<std::vector<double>> pulled;  // by batch of the step; by server (of a table) or block
  std::vector<std::vector<double>> pushed;  // by server (of a table) or block; by node of the trainer's lanes
  std::vector<double> lane_rows;            // of the gradient of each lane
  double distinct = 0;                      // pulled at once, or pushed by any lane
};
// By parameter.
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
  // `main` of a trainer, with its plan; borrowed, like `job`.
  Traffic(const v1::JobConfig& job, const v1::ProgramDesc& main);

  const std::vector<SparseTarget>& targets() const { return targets_; }

  // As if every slot had one id (a sequence as many as it takes) and no two were the same, as far as the matrix has
  // rows; tables spread evenly.
  StepRows RowsAtMost(int trainer) const;
  // Of these very ids.
  StepRows RowsOf(int trainer, const StepInput& step) const;
  // Distinct rows of a step of the whole cluster, by server.
  std::vector<double> UpdatedRows(const SparseTarget& target, const StepInput* step) const;

  // By server. Every lane has examples.
  std::vector<ServerFlows> Step(int trainer, const StepRows& rows) const;

 private:
  // Batches of a step: train.accumulate_steps.
  int batches() const { return std::max(1, job_.train().accumulate_steps()); }
  int64_t LaneIds(const std::vector<SparseTarget::Source>& sources) const;
  void FindTargets();
  // How its rows travel.
  const v1::Wire& WireOf(const SparseTarget& target) const;

  const v1::JobConfig& job_;
  const v1::ProgramDesc& main_;
  const v1::Plan& plan_;
  std::vector<SparseTarget> targets_;
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_TRAFFIC_H_
