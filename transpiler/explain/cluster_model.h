// Model of one cluster for `explain`: a plan, its programs, and sums over the steps that were added. Traffic is what
// passes between processes: with servers inside trainers (Plan.servers_in_trainers), a trainer's calls to its own
// server are not counted.
#ifndef WEIR_TRANSPILER_EXPLAIN_CLUSTER_MODEL_H_
#define WEIR_TRANSPILER_EXPLAIN_CLUSTER_MODEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "proto/explain.pb.h"
#include "proto/job.pb.h"
#include "transpiler/base/programs.h"
#include "transpiler/explain/all_reduce_traffic.h"
#include "transpiler/explain/sharded_traffic.h"
#include "transpiler/explain/traffic.h"

namespace weir {

class ClusterModel {
 public:
  // How many trainers of each host merge what they exchange with servers, and with each other; 1: none do.
  struct Merging {
    int servers = 1;
    int trainers = 1;
  };

  // `single`: the placed program with its update ops; `trainer`: the programs that a trainer runs. Borrows the job.
  ClusterModel(const v1::JobConfig& job, const Link& link, Programs single, Programs trainer, Merging merging);
  ClusterModel(const ClusterModel&) = delete;
  ClusterModel& operator=(const ClusterModel&) = delete;

  // Adds a step. nullptr: a step with the largest possible number of distinct rows.
  void AddStep(const StepIds* input);
  int64_t steps() const { return steps_; }

  const v1::Plan& plan() const { return single_.main.plan(); }
  const Programs& trainer() const { return trainer_; }
  const Traffic& traffic() const { return traffic_; }

  // The following functions need at least one AddStep.
  std::vector<v1::ExplainedServer> Servers() const;
  std::vector<v1::ExplainedTrainer> Trainers() const;
  // Returns what trainers hold and add among themselves; nullopt if servers hold the dense parameters.
  std::optional<v1::AllReduced> AllReduces() const;
  // Returns what hosts exchange with servers; nullopt if their trainers do not merge.
  std::optional<v1::MergedHosts> Merged() const;
  v1::Balance BalanceOf(const std::vector<v1::ExplainedServer>& servers) const;
  double RowsOfStep(const std::string& parameter) const;
  // Returns the traffic of one step for norms over several servers (rpc Norms): by trainer 0 in sync, else by each
  // trainer.
  FlowSum Norms() const;

 private:
  // Trainers with equal numbers of lanes and of nodes of the tree: ids [first, first + count).
  struct Group {
    int first = 0;
    int count = 0;
    int lanes = 0;
    ServerFlows flows;  // sums over steps and trainers
    StepRows peak;      // maximum over the rows of any of its trainers
    FlowSum
        row_exchange;  // to one other trainer: bytes_out and messages of gradient rows; sums over steps and trainers
    std::map<std::string, int64_t>
        id_bytes;  // bytes of an ids variable in all lanes; empty: computed for one id per slot
  };
  // Hosts with equal numbers of trainers, lanes and nodes, whose trainers merge: [first, first + count).
  struct HostGroup {
    TrainerRange trainers;  // of the first
    int first = 0;
    int count = 0;
    LaneRange lanes;    // of the first
    ServerFlows flows;  // sums over steps and hosts
  };
  struct Update {
    v1::OpDesc op;
    const OpDef* def = nullptr;
  };
  struct BlockState {
    int64_t bytes = 0;
    double flops = 0;
    double touched = 0;
  };

  // Outputs of the ops that run once for all lanes: those that there are once, and by name the bytes of those that
  // every lane has of its own.
  struct StepOutputs {
    std::set<std::string> once;
    std::map<std::string, int64_t> index_bytes;
  };

  // Returns the owners of dense blocks and tables: the servers, then what every trainer holds.
  std::vector<v1::ExplainedServer> Owners() const;
  size_t OwnerIndex(int server) const;
  // Returns the names of the norms that the update of a parameter takes, by round: consecutive norm ops share a round.
  std::vector<std::set<std::string>> NormRounds(const std::string& parameter) const;
  void FindHosts();
  // Returns what hosts exchange with each other where their trainers merge dense gradients; nullopt if they do not.
  std::optional<v1::AddedOnHosts> AddedOnHosts() const;
  void AddHosts(const StepIds* input);
  v1::TrainerExchange ExchangeOf(const Group& group) const;
  // Returns what each trainer updates; empty unless they share the updates out.
  std::vector<v1::UpdateShare> Shares(const v1::ExplainedServer& replica) const;
  // Adds the gradient rows that trainers [first, first + count) exchange in a step.
  void AddExchange(Group* group, int first, int count, const StepRows& rows);
  void AddUpdates(const StepIds* input);

  const v1::VarDesc* SingleVar(const std::string& name) const;
  // Returns state and cost of the updates of `dims` of a parameter; `grad_rows` < 0: a dense gradient.
  BlockState UpdatesOf(const std::string& parameter, absl::Span<const int64_t> dims, double grad_rows) const;
  // Returns the variables of an update op as they are on a server that owns `dims` of the parameter.
  std::map<std::string, v1::VarDesc, std::less<>> VarsOf(const v1::OpDesc& op, const v1::VarDesc& param,
                                                         absl::Span<const int64_t> dims, double grad_rows) const;
  // Returns the bytes of the state of `dims` of a dense parameter.
  int64_t StateBytes(const Update& update, const v1::VarDesc& param, absl::Span<const int64_t> dims) const;
  // Returns the rows of a step that a block is updated by, -1 for a dense gradient. Blocks of one parameter on one
  // server share its rows by size.
  double GradientRows(const v1::PlacedBlock& placed) const;
  v1::TrainerMemory MemoryOf(const Group& group) const;
  int64_t LanesBytes(const Group& group, const std::map<std::string, int64_t, std::less<>>& shared) const;
  void NoteOutputs(const v1::OpDesc& op, const OpDef& def, const Group& group, StepOutputs* outputs) const;
  // Returns the bytes in all lanes of a gradient by rows, of a part of one from one of several look-ups, or of a block
  // of one.
  int64_t GradientBytes(const Group& group, const std::string& name) const;
  int64_t IdsBytes(const Group& group, const v1::VarDesc& var) const;
  // Returns the bytes of the positions of the ids among the rows of the step.
  int64_t IndexBytes(const Group& group, const std::string& ids) const;
  // Returns the bytes of ids and positions of the batch whose rows are fetched ahead.
  int64_t AheadBytes(const Group& group) const;

  const v1::JobConfig& job_;
  const Link link_;
  const Programs single_;
  const Programs trainer_;
  const Merging merging_;
  const Traffic traffic_;
  const ProgramIndex single_index_;
  const ProgramIndex trainer_index_;
  std::map<std::string, std::vector<Update>> updates_;  // by parameter
  std::vector<Group> groups_;
  std::vector<HostGroup> hosts_;                        // empty: no host merges
  std::vector<ServerFlows> server_flows_;               // sums over steps and senders
  std::map<std::string, std::vector<double>> updated_;  // rows by parameter and owner, summed over steps
  std::unique_ptr<const AllReduceTraffic> all_reduce_;  // null: servers hold the dense parameters
  std::unique_ptr<ShardedTraffic> sharded_;             // null: trainers do not share the updates out
  // Rows by block, summed over steps, where trainers share the updates out.
  std::map<std::string, double, std::less<>> updated_blocks_;
  std::map<std::string, double> row_bytes_;  // to one other trainer, by parameter, summed over steps and trainers
  int64_t steps_ = 0;
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_CLUSTER_MODEL_H_
