#include "transpiler/passes/make_server_program.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/placement.h"
#include "transpiler/base/state_name.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"
#include "transpiler/job/modes.h"
#include "transpiler/passes/append_optimizer.h"
#include "transpiler/passes/build_startup.h"
#include "transpiler/passes/slice_variables.h"

namespace weir {
namespace {

// Index of the single machine's program by name. Borrows it.
struct SingleIndex {
  explicit SingleIndex(const v1::ProgramDesc& single) : plan(single.plan()), vars(single.blocks(0)) {
    for (const v1::OpDesc& op : single.blocks(0).ops()) {
      if (op.role() != v1::OPTIMIZE) continue;
      std::set<std::string_view> seen;
      for (const v1::ParamGrad& pair : op.param_grads()) {
        if (seen.insert(pair.param()).second) updates[pair.param()].push_back(&op);
      }
    }
    for (const v1::PlacedBlock& placed : plan.blocks()) blocks[placed.parameter()].push_back(&placed);
  }
  const v1::Plan& plan;
  const VarIndex vars;
  // OPTIMIZE ops in program order, and blocks in placement order, by parameter.
  std::unordered_map<std::string_view, std::vector<const v1::OpDesc*>> updates;
  std::unordered_map<std::string_view, std::vector<const v1::PlacedBlock*>> blocks;
};

// The server's program under construction, with the variables of its block 0 by name.
struct ServerMain {
  v1::ProgramDesc* program = nullptr;
  std::unordered_map<std::string, v1::VarDesc*> vars = {};

  v1::VarDesc* Find(const std::string& name) const {
    const auto found = vars.find(name);
    return found == vars.end() ? nullptr : found->second;
  }
  void AddVar(v1::VarDesc var) {
    v1::VarDesc* added = program->mutable_blocks(0)->add_vars();
    *added = std::move(var);
    vars[added->name()] = added;
  }
};

// Clones the ops that update one owned block or table, with the block's names.
class BlockCloner {
 public:
  BlockCloner(const v1::Distribute& distribute, const SingleIndex& single, const v1::ParamGrad& pair,
              const v1::PlacedBlock* placed, int blocks, ServerMain* server)
      : distribute_(distribute),
        single_(single),
        plan_(single.plan),
        pair_(pair),
        placed_(placed),
        blocks_(blocks),
        server_(server),
        main_(server->program),
        param_(single.vars.Find(pair.param())) {
    CHECK(param_ != nullptr);
    const auto updates = single.updates.find(pair.param());
    if (updates != single.updates.end()) updates_ = updates->second;
  }

  // Adds the optimize block and returns its index.
  absl::StatusOr<int> Clone() {
    FindStates();
    ASSIGN_OR_RETURN(const std::string param, Map(pair_.param()));
    ASSIGN_OR_RETURN(const std::string grad, Map(pair_.grad()));
    mapped_pair_ = Pair(param, grad);
    // Gradients come from trainers, so no op here computes them.
    server_->Find(grad)->set_stop_gradient(true);
    const int index = main_->blocks_size();
    v1::BlockDesc* block = main_->add_blocks();
    block->set_index(index);
    block->set_parent(0);
    if (!IsAdasum(grad)) AppendAverage(grad, block);
    if (distribute_.has_delay_compensation()) AppendDelayCompensation(param, grad, block);
    for (const v1::OpDesc* op : updates_) RETURN_IF_ERROR(CloneOp(*op, index));
    return index;
  }

 private:
  // Finds the state variables of the update op by the slots in its registration.
  void FindStates() {
    for (const v1::OpDesc* op : updates_) {
      const OpDef* def = OpRegistry::Global().Find(op->type());
      if (def == nullptr || !def->is_optimizer) continue;
      for (const StateDef& state : def->state) {
        const std::string name = InputOf(*op, state.slot);
        if (!name.empty()) states_[name] = state;
      }
    }
  }

  bool cut() const { return placed_ != nullptr && blocks_ > 1; }
  std::string suffix() const { return cut() ? absl::StrCat(".block", placed_->block()) : ""; }

  // Returns the name of a variable on this server; declares it on first use.
  absl::StatusOr<std::string> Map(const std::string& name) {
    const auto known = names_.find(name);
    if (known != names_.end()) return known->second;
    const v1::VarDesc* var = single_.vars.Find(name);
    CHECK(var != nullptr) << name << " passed the verifier";
    ASSIGN_OR_RETURN(const v1::VarDesc mapped, MapVar(*var));
    names_[name] = mapped.name();
    if (server_->Find(mapped.name()) == nullptr) server_->AddVar(mapped);
    return mapped.name();
  }

  absl::StatusOr<v1::VarDesc> MapVar(const v1::VarDesc& var) const {
    v1::VarDesc mapped = var;
    if (var.kind() == v1::TABLE || !cut()) return mapped;
    const auto state = states_.find(var.name());
    const bool is_param = var.name() == pair_.param();
    const bool like_param =
        is_param || var.name() == pair_.grad() ||
        std::equal(var.dims().begin(), var.dims().end(), param_->dims().begin(), param_->dims().end());
    const bool by_row = state != states_.end() && state->second.like == StateDef::kCount && var.dims_size() == 1 &&
                        param_->dims_size() > 0 && var.dims(0) == param_->dims(0) && var.dims(0) > 1;
    if (state == states_.end() && !like_param) {
      // Learning rates and other scalars are whole on every server.
      if (ElementCountOf(var) == 1) return mapped;
      // Sums that the block's own ops compute, such as the sum of squares of its piece, are whole too.
      if (!var.persistable() && var.dtype() == v1::INT64) {
        mapped.set_name(var.name() + suffix());
        return mapped;
      }
      return absl::InvalidArgumentError(
          absl::StrCat("the update of '", pair_.param(), "' ", ShapeString(Dims(*param_)), " uses '", var.name(), "' ",
                       ShapeString(Dims(var)),
                       ", which cannot be cut into the same rows: set distribute.slice_var_up: "
                       "false"));
    }
    const bool from_param = var.name().starts_with(pair_.param() + ".");
    mapped.set_name(is_param || from_param
                        ? absl::StrCat(pair_.param(), suffix(), var.name().substr(pair_.param().size()))
                        : var.name() + suffix());
    if (!like_param && !by_row) return mapped;  // a scalar state: one per block
    *mapped.mutable_dims() = placed_->dims();
    if (by_row) mapped.mutable_dims()->Truncate(1);
    SetPiece(var, by_row, &mapped);
    return mapped;
  }

  static int64_t ElementCountOf(const v1::VarDesc& var) {
    int64_t count = 1;
    for (const int64_t d : var.dims()) count *= d;
    return count;
  }

  void SetPiece(const v1::VarDesc& whole, bool by_row, v1::VarDesc* mapped) const {
    const int64_t row = by_row ? ElementCount(Dims(*param_).subspan(1)) : 1;
    v1::BlockOf* of = mapped->mutable_block_of();
    of->set_variable(whole.name());
    of->set_block(placed_->block());
    of->set_element_begin(placed_->element_begin() / row);
    of->set_element_count(placed_->element_count() / row);
    *of->mutable_whole_dims() = whole.dims();
  }

  // Returns whether the gradient is the adasum of lanes' means, which nothing divides.
  bool IsAdasum(const std::string& grad) const {
    return UsesAdasum(distribute_) && placed_ != nullptr && server_->Find(grad)->kind() == v1::DENSE && !Measured();
  }
  // Returns whether the parameter is a running average, and its gradient a measurement.
  bool Measured() const {
    return std::any_of(updates_.begin(), updates_.end(),
                       [](const v1::OpDesc* op) { return op->type() == kRunningAverageOp; });
  }

  // Appends the ops that turn the sum over samples into the average.
  void AppendAverage(const std::string& grad, v1::BlockDesc* block) {
    if (!plan_.average_by_trainers()) {
      *block->add_ops() = WithRole(MakeOp("merge", {{"X", {grad}}}, {{"Out", {grad}}}), v1::OPTIMIZE, &mapped_pair_);
      return;
    }
    std::vector<std::string> parts;
    for (int t = 0; t < plan_.trainers(); ++t) {
      v1::VarDesc part = *server_->Find(grad);
      part.set_name(absl::StrCat(grad, ".trainer_", t));
      parts.push_back(part.name());
      server_->AddVar(std::move(part));
    }
    // Now an op here computes the gradient.
    server_->Find(grad)->set_stop_gradient(false);
    *block->add_ops() = WithRole(MakeOp("sum", {{"X", parts}}, {{"Out", {grad}}}), v1::OPTIMIZE, &mapped_pair_);
    *block->add_ops() =
        WithRole(MakeOp("scale", {{"X", {grad}}}, {{"Out", {grad}}}, {AttrF("scale", 1.0 / plan_.trainers())}),
                 v1::OPTIMIZE, &mapped_pair_);
  }

  // Corrects a dense gradient for changes since its trainer read the block. The server fills in the values that were
  // read.
  void AppendDelayCompensation(const std::string& param, const std::string& grad, v1::BlockDesc* block) {
    const v1::VarDesc* const grad_var = server_->Find(grad);
    if (grad_var->kind() != v1::DENSE || placed_ == nullptr) return;
    // The input of a running average does not depend on the average.
    if (Measured()) return;
    v1::VarDesc read = *grad_var;
    read.set_name(absl::StrCat(param, ".read"));
    *block->add_ops() =
        WithRole(MakeOp("delay_compensate", {{"Grad", {grad}}, {"Param", {param}}, {"Read", {read.name()}}},
                        {{"Out", {grad}}}, {AttrF("lambda", distribute_.delay_compensation().lambda())}),
                 v1::OPTIMIZE, &mapped_pair_);
    server_->AddVar(std::move(read));
  }

  absl::Status CloneOp(const v1::OpDesc& op, int index) {
    v1::OpDesc clone = op;
    if (op.param_grads_size() > 1) KeepOwnVars(&clone);
    for (v1::OpSlot& slot : *clone.mutable_inputs()) RETURN_IF_ERROR(MapSlot(&slot));
    for (v1::OpSlot& slot : *clone.mutable_outputs()) RETURN_IF_ERROR(MapSlot(&slot));
    clone.clear_param_grads();
    *clone.add_param_grads() = mapped_pair_;
    *main_->mutable_blocks(index)->add_ops() = std::move(clone);
    return absl::OkStatus();
  }

  // Removes from an op of several parameters (the norm over a group) the variables that no other op of this parameter
  // names.
  void KeepOwnVars(v1::OpDesc* op) const {
    std::set<std::string> own;
    for (const v1::OpDesc* other : updates_) {
      if (other->param_grads_size() != 1) continue;
      for (const auto* slots : {&other->inputs(), &other->outputs()}) {
        for (const v1::OpSlot& slot : *slots) own.insert(slot.vars().begin(), slot.vars().end());
      }
    }
    for (auto* slots : {op->mutable_inputs(), op->mutable_outputs()}) {
      for (v1::OpSlot& slot : *slots) {
        v1::OpSlot kept;
        kept.set_name(slot.name());
        for (std::string& var : *slot.mutable_vars()) {
          if (own.contains(var)) kept.add_vars(std::move(var));
        }
        slot = std::move(kept);
      }
    }
  }

  absl::Status MapSlot(v1::OpSlot* slot) {
    for (std::string& name : *slot->mutable_vars()) {
      ASSIGN_OR_RETURN(name, Map(name));
    }
    return absl::OkStatus();
  }

  const v1::Distribute& distribute_;
  const SingleIndex& single_;
  const v1::Plan& plan_;
  const v1::ParamGrad pair_;
  const v1::PlacedBlock* const placed_;  // nullptr for a table
  const int blocks_;
  ServerMain* const server_;
  v1::ProgramDesc* const main_;
  const v1::VarDesc* const param_;
  std::vector<const v1::OpDesc*> updates_;
  v1::ParamGrad mapped_pair_;
  std::map<std::string, StateDef> states_;
  std::map<std::string, std::string> names_;
};

// lr_block is -1 if there is none.
v1::OpDesc ListenAndServ(const v1::Plan& plan, int server, absl::Span<const int32_t> blocks, int lr_block) {
  const char* const average = plan.average_by_trainers() ? "trainers" : "samples";
  v1::OpDesc op =
      MakeOp("listen_and_serv", {}, {},
             {AttrI("server_id", server), AttrI("trainers", plan.trainers()), AttrI("lanes", plan.lanes()),
              AttrB("sync", plan.sync()), AttrS("average", average), AttrBlocks("optimize_blocks", blocks)});
  if (lr_block >= 0) *op.add_attrs() = AttrBlock("lr_block", lr_block);
  return WithRole(std::move(op), v1::RPC);
}

// Adds a block with the ops of role LR_SCHEDULE and returns its index, -1 if there are none. Persistable variables go
// to block 0, others to the new block.
absl::StatusOr<int> AddLearningRates(const v1::BlockDesc& single, ServerMain* server) {
  std::vector<const v1::OpDesc*> ops;
  for (const v1::OpDesc& op : single.ops()) {
    if (op.role() == v1::LR_SCHEDULE) ops.push_back(&op);
  }
  if (ops.empty()) return -1;
  const int index = server->program->blocks_size();
  v1::BlockDesc* block = server->program->add_blocks();
  block->set_index(index);
  block->set_parent(0);
  const auto declare = [&](const v1::OpDesc& op, const std::string& name, bool read) -> absl::Status {
    if (server->Find(name) != nullptr || FindVar(*block, name) != nullptr) return absl::OkStatus();
    const v1::VarDesc* var = FindVar(single, name);
    CHECK(var != nullptr) << name << " passed the verifier";
    if (var->is_parameter() || (read && !var->persistable())) {
      return absl::InvalidArgumentError(
          absl::StrCat("operator ", op.type(), " with role LR_SCHEDULE uses '", name,
                       "', which servers do not have: a schedule reads what other operators of "
                       "that role write, and persistable variables that are no parameters"));
    }
    if (var->persistable()) {
      server->AddVar(*var);
    } else {
      *block->add_vars() = *var;
    }
    return absl::OkStatus();
  };
  for (const v1::OpDesc* op : ops) {
    for (const v1::OpSlot& slot : op->inputs()) {
      for (const std::string& name : slot.vars()) RETURN_IF_ERROR(declare(*op, name, /*read=*/true));
    }
    for (const v1::OpSlot& slot : op->outputs()) {
      for (const std::string& name : slot.vars()) RETURN_IF_ERROR(declare(*op, name, /*read=*/false));
    }
    *block->add_ops() = *op;
  }
  return index;
}

// Tables without updates are served too.
void AddUntrainedTables(const v1::BlockDesc& single, ServerMain* server) {
  for (const v1::VarDesc& var : single.vars()) {
    if (var.kind() == v1::TABLE && server->Find(var.name()) == nullptr) server->AddVar(var);
  }
}

}  // namespace

absl::StatusOr<Programs> MakeServerProgram(const Job& job, const v1::ProgramDesc& single, int server) {
  const v1::Plan& plan = single.plan();
  Programs programs;
  v1::ProgramDesc* main = &programs.main;
  main->set_format_version(single.format_version());
  main->set_name(absl::StrCat(job.config.name(), ".server", server, ".main"));
  main->set_seed(single.seed());
  *main->mutable_plan() = plan;
  v1::BlockDesc* block = main->add_blocks();
  block->set_index(0);
  const SingleIndex index(single);
  ServerMain grown{.program = main};
  std::vector<int32_t> optimize_blocks;
  for (const v1::ParamGrad& pair : UpdatedParameters(single)) {
    std::vector<const v1::PlacedBlock*> owned;
    const auto blocks = index.blocks.find(pair.param());
    if (blocks == index.blocks.end()) {
      if (server != kEveryTrainer) owned.push_back(nullptr);  // a table: every server has shards of it
    } else {
      for (const v1::PlacedBlock* placed : blocks->second) {
        if (placed->server() == server) owned.push_back(placed);
      }
    }
    const int count = blocks == index.blocks.end() ? 0 : static_cast<int>(blocks->second.size());
    for (const v1::PlacedBlock* placed : owned) {
      ASSIGN_OR_RETURN(const int optimize,
                       BlockCloner(job.config.distribute(), index, pair, placed, count, &grown).Clone());
      optimize_blocks.push_back(optimize);
    }
  }
  if (server != kEveryTrainer) AddUntrainedTables(single.blocks(0), &grown);
  ASSIGN_OR_RETURN(const int lr_block, AddLearningRates(single.blocks(0), &grown));
  *main->mutable_blocks(0)->add_ops() = ListenAndServ(plan, server, optimize_blocks, lr_block);
  WriteModes(job.config.distribute(), &JobMode::in_server, OwnUpdates(), main);
  RETURN_IF_ERROR(BuildStartup(job, &programs).status());
  programs.startup.set_name(absl::StrCat(job.config.name(), ".server", server, ".startup"));
  return programs;
}

}  // namespace weir
