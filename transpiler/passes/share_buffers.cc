#include "transpiler/passes/share_buffers.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/reported_loss.h"
#include "framework/graph/shared_buffers.h"
#include "framework/tensor/dtype.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

struct Life {
  int first = -1;  // op that writes it first
  int last = -1;   // last op that touches it; the number of ops if its bytes are sent
  int64_t bytes = 0;
};

class Sharer {
 public:
  Sharer(const v1::ProgramDesc& main, std::vector<const OpDef*> defs)
      : block_(main.blocks(0)), defs_(std::move(defs)), batch_(LaneBatch(main.plan())), vars_(block_) {
    for (const v1::LossDesc& loss : main.losses()) {
      kept_.insert({loss.var(), ReportedLoss(main, loss), loss.prediction(), loss.label(), loss.sample_weight()});
    }
    kept_.insert(main.kept().begin(), main.kept().end());
  }

  // Appends the variables that share a buffer with another one, in order of the program, and the number of the buffer
  // of each.
  void Run(std::vector<std::string>* vars, std::vector<int64_t>* buffers) {
    FindLives();
    Deal();
    std::map<size_t, int> users;
    for (const auto& [var, buffer] : buffer_of_) ++users[buffer];
    std::map<size_t, int64_t> numbers;
    for (const std::string& var : order_) {
      const size_t buffer = buffer_of_.at(var);
      if (users[buffer] < 2) continue;
      vars->push_back(var);
      buffers->push_back(numbers.emplace(buffer, static_cast<int64_t>(numbers.size())).first->second);
    }
  }

 private:
  // Returns true for dense variables of a lane that neither a loss nor main.kept() names. of_step_ has the outputs of
  // ops that the executor runs once for all lanes: ops of another scope than kLane, and DIST ops that touch a
  // persistable variable or one of of_step_.
  bool CanShare(const std::string& name) const {
    const v1::VarDesc* const var = vars_.Find(name);
    return var != nullptr && var->kind() == v1::DENSE && !var->persistable() && !kept_.contains(name) &&
           !of_step_.contains(name);
  }

  void FindLives() {
    const int end = block_.ops_size();
    std::map<std::string, std::string> whole_of;  // view to what it is a view of
    for (int i = 0; i < end; ++i) {
      const v1::OpDesc& op = block_.ops(i);
      bool of_step = defs_[i]->scope != OpScope::kLane;
      if (op.role() == v1::DIST) {
        const auto shared = [&](const std::string& var) {
          of_step |= of_step_.contains(var) || (vars_.Contains(var) && vars_.Find(var)->persistable());
        };
        ForEachVar(op.inputs(), shared);
        ForEachVar(op.outputs(), shared);
      }
      if (of_step) ForEachVar(op.outputs(), [&](const std::string& var) { of_step_.insert(var); });
      if (op.type() == "split_byref") {
        const std::string whole = InputOf(op, "X");
        ForEachVar(op.outputs(), [&](const std::string& var) { whole_of[var] = whole; });
      }
    }
    for (int i = 0; i < end; ++i) {
      const v1::OpDesc& op = block_.ops(i);
      ForEachVar(op.inputs(), [&](const std::string& var) {
        const auto whole = whole_of.find(var);
        for (const std::string& touched : {var, whole == whole_of.end() ? var : whole->second}) {
          const auto life = lives_.find(touched);
          if (life != lives_.end())
            life->second.last = std::max(life->second.last, defs_[i]->scope == OpScope::kGate ? end : i);
        }
      });
      ForEachVar(op.outputs(), [&](const std::string& var) {
        if (!CanShare(var) || whole_of.contains(var)) return;
        Life& life = lives_[var];
        if (life.first < 0) {
          life = {.first = i, .last = i, .bytes = DenseBytes(*vars_.Find(var), batch_)};
          order_.push_back(var);
        }
        life.last = std::max(life.last, i);
      });
    }
    // A variable that is read before its first write gets its value from outside the program: it keeps memory of its
    // own.
    for (int i = 0; i < end; ++i) {
      ForEachVar(block_.ops(i).inputs(), [&](const std::string& var) {
        const auto life = lives_.find(var);
        if (life == lives_.end() || life->second.first < i) return;
        lives_.erase(life);
        order_.erase(std::find(order_.begin(), order_.end(), var));
      });
    }
  }

  void Deal() {
    std::vector<int64_t> sizes;
    std::vector<bool> free;
    for (int i = 0; i < block_.ops_size(); ++i) {
      const v1::OpDesc& op = block_.ops(i);
      std::set<std::string> handed_over;
      for (const v1::OpSlot& slot : op.outputs()) {
        for (const std::string& var : slot.vars()) {
          const auto life = lives_.find(var);
          if (life == lives_.end() || life->second.first != i) continue;
          const std::string from = InPlaceInput(op, i, slot, life->second.bytes);
          if (!from.empty() && handed_over.insert(from).second) {
            buffer_of_[var] = buffer_of_.at(from);
            continue;
          }
          buffer_of_[var] = Take(life->second.bytes, &sizes, &free);
        }
      }
      std::set<std::string> touched;
      ForEachVar(op.inputs(), [&](const std::string& var) { touched.insert(var); });
      ForEachVar(op.outputs(), [&](const std::string& var) { touched.insert(var); });
      for (const std::string& var : touched) {
        const auto life = lives_.find(var);
        if (life != lives_.end() && life->second.last == i && !handed_over.contains(var))
          free[buffer_of_.at(var)] = true;
      }
    }
  }

  // Returns the input whose memory this output may take, because no later op reads it; "" if there is none.
  std::string InPlaceInput(const v1::OpDesc& op, int i, const v1::OpSlot& output, int64_t bytes) const {
    if (output.vars_size() != 1) return "";
    for (const InPlaceRule& rule : defs_[i]->in_place) {
      if (rule.output != output.name()) continue;
      std::string from = InputOf(op, rule.input);
      const auto life = lives_.find(from);
      if (life == lives_.end() || life->second.last != i || life->second.bytes != bytes) continue;
      // The op must not read the variable through another slot as well.
      int reads = 0;
      ForEachVar(op.inputs(), [&](const std::string& var) { reads += var == from ? 1 : 0; });
      if (reads == 1) return from;
    }
    return "";
  }

  static size_t Take(int64_t bytes, std::vector<int64_t>* sizes, std::vector<bool>* free) {
    size_t best = sizes->size();
    for (size_t b = 0; b < sizes->size(); ++b) {
      if (!(*free)[b]) continue;
      if (best == sizes->size()) {
        best = b;
        continue;
      }
      const int64_t have = (*sizes)[b], had = (*sizes)[best];
      if (had >= bytes ? have >= bytes && have < had : have > had) best = b;
    }
    if (best == sizes->size()) {
      sizes->push_back(bytes);
      free->push_back(false);
      return best;
    }
    (*sizes)[best] = std::max((*sizes)[best], bytes);
    (*free)[best] = false;
    return best;
  }

  const v1::BlockDesc& block_;
  const std::vector<const OpDef*> defs_;
  const int64_t batch_;
  const VarIndex vars_;
  std::set<std::string> kept_;
  std::set<std::string> of_step_;
  std::map<std::string, Life> lives_;
  std::vector<std::string> order_;  // of lives_, by first write
  std::map<std::string, size_t> buffer_of_;
};

}  // namespace

int64_t DenseBytes(const v1::VarDesc& var, int64_t batch) {
  int64_t elements = 1;
  for (int d = 0; d < var.dims_size(); ++d) elements *= var.dims(d) >= 0 ? var.dims(d) : d == 0 ? batch : 1;
  return elements * static_cast<int64_t>(DTypeSize(var.dtype()));
}

int64_t LaneBatch(const v1::Plan& plan) {
  const int64_t lanes = std::max(1, plan.lanes() == 0 ? plan.trainers() : plan.lanes());
  return (plan.batch_size() + lanes - 1) / lanes;
}

absl::StatusOr<bool> ShareBuffers(const Job& job, Programs* programs) {
  if (!job.config.distribute().memory_optimize()) return false;
  v1::BlockDesc* block = programs->main.mutable_blocks(0);
  std::vector<const OpDef*> defs;
  for (const v1::OpDesc& op : block->ops()) {
    if (op.type() == kShareBuffersOp) return false;
    ASSIGN_OR_RETURN(const OpDef* def, OpRegistry::Global().Get(op.type()));
    defs.push_back(def);
  }
  std::vector<std::string> vars;
  std::vector<int64_t> buffers;
  Sharer(programs->main, std::move(defs)).Run(&vars, &buffers);
  if (vars.empty()) return false;
  *block->add_ops() =
      WithRole(MakeOp(kShareBuffersOp, {}, {}, {AttrStrings("vars", vars), AttrInts("buffers", buffers)}), v1::FORWARD);
  for (int i = block->ops_size() - 1; i > 0; --i) block->mutable_ops()->SwapElements(i, i - 1);
  const absl::Status checked = ReadSharedBuffers(programs->main, 0).status();
  if (!checked.ok()) return absl::InternalError(absl::StrCat("share_buffers: ", checked.message()));
  return true;
}

REGISTER_PASS(share_buffers)
({.name = "share_buffers", .run = ShareBuffers, .phase = Phase::kTrainer, .after = "receive_parameters"});

}  // namespace weir
