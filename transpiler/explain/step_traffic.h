// Messages of one step of one trainer, or of the trainers of a host that merge theirs: planned as a client plans them
// (framework/wire/pull_plan.h, push_plan.h), with headers but without payloads, and weighed.
#ifndef WEIR_TRANSPILER_EXPLAIN_STEP_TRAFFIC_H_
#define WEIR_TRANSPILER_EXPLAIN_STEP_TRAFFIC_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/runtime/lane_tree.h"
#include "framework/tensor/id_selection.h"
#include "framework/wire/pull_plan.h"
#include "framework/wire/push_plan.h"
#include "proto/explain.pb.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "proto/program.pb.h"
#include "transpiler/job/modes.h"

namespace weir {

// Size of a value of a parameter, of its gradient and of its state.
inline constexpr int64_t kFloatBytes = 4;

// Trainers [first, first + count), whose messages one of them sends for all.
struct TrainerRange {
  int first = 0;
  int count = 1;
};
// Returns their lanes, which are adjacent.
LaneRange LanesOf(const v1::Plan& plan, const TrainerRange& trainers);
// Returns the trainers of each host if each has `trainers_per_host`, the last one what is left: as launch deals them.
std::vector<TrainerRange> HostsOf(const v1::Plan& plan, int trainers_per_host);

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
    int server = 0;  // kEveryTrainer: none
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

// Rows of one target, for one trainer in one step, or for a host that merges.
struct TargetRows {
  std::vector<std::vector<double>> pulled;  // by batch of the step; by server (of a table) or block
  std::vector<std::vector<double>> pushed;  // by server (of a table) or block; by node of the lanes
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
// Fill a message of a flow.
v1::Flow ToProto(const FlowSum& sum);
v1::Flows ToProto(const ServerFlows& flows);

class StepTraffic {
 public:
  // All are borrowed. `main`: a trainer's main program, with its plan. `targets`: all matrices whose rows it pulls or
  // pushes; `rows`: how many of each.
  StepTraffic(const v1::JobConfig& job, const v1::ProgramDesc& main, const std::vector<SparseTarget>& targets,
              const TrainerRange& trainers, const StepRows& rows);

  // Returns the traffic by server. Call once. `batches`: number of batches of a step; each pulls rows of its own, while
  // sums of gradients leave once.
  std::vector<ServerFlows> Flows(int batches);

 private:
  // Traffic between the sender and one server.
  struct Server {
    ServerFlows flows;
    PushPart gathered;  // small tensors that have not been sent
    int next_part = 0;
    std::vector<BlockToPull> wanted;  // blocks that have not been pulled
  };

  void PullRows(const v1::OpDesc& op, size_t batch);
  // Returns the lists of rows that a prefetch asks a server for.
  std::vector<RowsToPull> RowsFrom(size_t server, const std::vector<std::string>& tables, size_t batch) const;
  // Returns the rows of a table and of all others that are asked for the same ids; adds their names to `asked`.
  RowsToPull RowsOfTables(size_t server, const std::string& table, const std::vector<std::string>& tables, size_t batch,
                          std::vector<std::string>* asked) const;
  void Send(const v1::OpDesc& op);
  void SendDense(const std::string& block, Server* server);
  // by_node: rows of each node.
  void SendRows(const std::string& name, const RowForm& form, const std::vector<double>& by_node, Server* server);
  void FinishSends();
  void Receive(const v1::OpDesc& op);
  void PullBlocks();

  // Packs tensors that are given together.
  void Push(std::vector<PlannedTensor> tensors, Server* server);
  void SendPart(v1::PushRequest header, PushPart part, bool last, Server* server);
  // Names the trainers whose gradients the part holds beside the sender's.
  void NameMerged(bool last, v1::PushRequest* header) const;
  void Weigh(PlannedPull pull, FlowSum* flow) const;
  const v1::Wire& WireOf(const SparseTarget& target) const;

  const v1::ProgramDesc& main_;
  const v1::Plan& plan_;
  const StepFacts& steps_;
  const StepRows& rows_;
  const TrainerRange trainers_;
  const v1::Caller caller_;
  const std::vector<PushNode> nodes_;  // of the trainers' lanes
  std::map<std::string, const SparseTarget*, std::less<>> targets_;
  std::map<std::string, const v1::PlacedBlock*, std::less<>> blocks_;
  std::vector<Server> servers_;
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_STEP_TRAFFIC_H_
