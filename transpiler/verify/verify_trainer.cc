// VerifyTrainer of transpiler/verify/verify_plan.h: checks a trainer's main and startup program against the plan that
// they carry.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/graph/def_use.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/placement.h"
#include "framework/graph/shared_buffers.h"
#include "framework/graph/training_mode.h"
#include "framework/runtime/lane_tree.h"
#include "framework/tensor/tensor.h"
#include "glog/logging.h"
#include "transpiler/verify/verify_plan.h"
#include "transpiler/verify/verify_rules.h"

namespace weir {
namespace {

bool Has(const v1::BlockDesc& block, std::string_view type) {
  return std::any_of(block.ops().begin(), block.ops().end(), [&](const v1::OpDesc& op) { return op.type() == type; });
}

// Checks that every trainer has lanes, and that together they have each lane once.
absl::Status CheckLanes(const v1::Plan& plan) {
  const int lanes = plan.lanes() == 0 ? plan.trainers() : plan.lanes();
  int next = 0;
  for (int t = 0; t < plan.trainers(); ++t) {
    const LaneRange range = LanesOfTrainer(plan.lanes(), plan.trainers(), t);
    if (range.begin != next || range.count < 1) {
      return Broken("agreed", "trainer ", t, " has lanes ", range.begin, " to ", range.begin + range.count, " of ",
                    lanes, "; the trainers before it end at ", next);
    }
    next += range.count;
  }
  if (next != lanes) return Broken("agreed", "trainers have ", next, " of ", lanes, " lanes");
  return absl::OkStatus();
}

class TrainerRules {
 public:
  explicit TrainerRules(const Programs& programs)
      : main_(programs.main), startup_(programs.startup), plan_(main_.plan()), vars_(main_.blocks(0)) {}

  absl::Status Check() const {
    if (!main_.has_plan()) return absl::OkStatus();
    RETURN_IF_ERROR(CheckOwnership(main_, plan_, vars_));
    RETURN_IF_ERROR(CheckLanes(main_.plan()));
    const bool sends = Has(main_.blocks(0), "send_barrier"), receives = Has(main_.blocks(0), "fetch_barrier");
    RETURN_IF_ERROR(CheckPrefetch());
    RETURN_IF_ERROR(CheckAhead());
    if (sends || Has(main_.blocks(0), "send")) RETURN_IF_ERROR(CheckSends());
    if (receives) RETURN_IF_ERROR(CheckOwnUpdates());
    if (!receives && !Has(main_.blocks(0), "recv")) return absl::OkStatus();
    RETURN_IF_ERROR(CheckReceives(main_, "main"));
    RETURN_IF_ERROR(CheckServersOwn());
    if (startup_.blocks_size() == 0) return absl::OkStatus();
    RETURN_IF_ERROR(CheckReceives(startup_, "startup"));
    RETURN_IF_ERROR(CheckInitialised());
    return CheckBarriers();
  }

 private:
  absl::Status CheckSends() const {
    std::unordered_map<std::string_view, int> sent;
    bool closed = false;
    RETURN_IF_ERROR(CheckBuckets());
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      if (op.type() == "send_barrier") closed = true;
      if (op.type() == "all_reduce" || op.type() == "local_gradient") {
        RETURN_IF_ERROR(CheckAllReduce(op, closed));
        ++sent[plan_.blocks.find(BlockOf(op))->first];
      }
      if (op.type() != "send") continue;
      const auto& blocks = StringsOf(op, "blocks");
      const auto& vars = SlotVars(op.inputs(), "X");
      for (int i = 0; i < blocks.size(); ++i) {
        if (closed)
          return Broken("sent_once", "send of block '", blocks[i], "' stands behind send_barrier, which ends the step");
        RETURN_IF_ERROR(CheckOwner("sent_once", "send", op, blocks[i], i));
        const v1::VarDesc* x = vars_.Find(vars[i]);
        CHECK(x != nullptr) << vars[i];
        RETURN_IF_ERROR(CheckSentShape(blocks[i], *x));
        ++sent[blocks[i]];
      }
    }
    for (const v1::PlacedBlock& block : main_.plan().blocks()) {
      RETURN_IF_ERROR(Once("sent_once", "send of the gradient of block", block.name(), sent[block.name()]));
    }
    for (const v1::PlacedTable& table : main_.plan().tables()) {
      if (sent[table.name()] > 1)
        return Once("sent_once", "send of the rows of table", table.name(), sent[table.name()]);
      const v1::VarDesc* var = vars_.Find(table.name());
      if (sent[table.name()] == 0 && var != nullptr && var->trainable()) {
        return Once("sent_once", "send of the rows of table", table.name(), 0);
      }
    }
    return absl::OkStatus();
  }

  // Returns the block that an all_reduce names.
  static std::string BlockOf(const v1::OpDesc& op) {
    const v1::OpAttr* const block = FindAttr(op, "block");
    return block == nullptr ? "" : block->s();
  }

  // Checks an all_reduce or local_gradient.
  absl::Status CheckAllReduce(const v1::OpDesc& op, bool closed) const {
    const std::string block = BlockOf(op);
    if (closed) {
      return Broken("sent_once", op.type(), " of '", block, "' stands behind send_barrier, which ends the step");
    }
    const auto placed = plan_.blocks.find(block);
    if (placed == plan_.blocks.end()) {
      return Broken("sent_once", op.type(), " names block '", block, "', which the plan does not know");
    }
    if (placed->second->server() != kEveryTrainer) {
      return Broken("sent_once", op.type(), " of block '", block, "', which server ", placed->second->server(),
                    " owns");
    }
    const v1::VarDesc* x = vars_.Find(InputOf(op, "X"));
    CHECK(x != nullptr) << InputOf(op, "X");
    return CheckSentShape(block, *x);
  }

  absl::Status CheckBuckets() const {
    int64_t bucket = 0;
    int members = 0;  // of it, without rows, which travel by themselves
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      // Before the pass assign_buckets no op has one.
      if (op.type() != "all_reduce" || FindAttr(op, "bucket") == nullptr) continue;
      const int64_t own = IntOr(op, "bucket", 0);
      if (own < bucket) {
        return Broken("buckets", "all_reduce of '", BlockOf(op), "' has bucket ", own, " behind bucket ", bucket,
                      "; buckets ascend");
      }
      if (own > bucket) members = 0;
      bucket = own;
      if (IntOr(op, "width", 0) == 0 && ++members > kMostInBucket) {
        return Broken("buckets", "all_reduce of '", BlockOf(op), "' is the ", members, "th of bucket ", bucket,
                      "; at most ", kMostInBucket, " travel together");
      }
    }
    return absl::OkStatus();
  }

  // Checks that gradients of what every trainer holds are of the kind that the mode has, and that the plan names
  // trainers if they share the updates out.
  absl::Status CheckKindOfUpdates(const v1::AllReduceMode& mode) const {
    const std::string other = mode.local_steps() > 0 ? "all_reduce" : "local_gradient";
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      if (op.type() != other) continue;
      return Broken("sent_once", other, " of '", BlockOf(op), "' in a program whose mode has local_steps ",
                    mode.local_steps());
    }
    for (const v1::PlacedBlock& block : main_.plan().blocks()) {
      if (block.server() != kEveryTrainer || block.has_trainer() == mode.sharded()) continue;
      return Broken("agreed", "the mode says that ",
                    mode.sharded() ? "trainers share the updates out" : "every trainer updates everything",
                    ", and block '", block.name(), "' of the plan names ", block.has_trainer() ? "one" : "no",
                    " trainer");
    }
    return absl::OkStatus();
  }

  // Checks that the blocks of the mode update exactly what every trainer holds, each once. With a block's trainer
  // (PlacedBlock.trainer) these are the updates of all trainers, of which each runs its own.
  absl::Status CheckOwnUpdates() const {
    const v1::TrainingMode mode = ModeOf(main_);
    RETURN_IF_ERROR(CheckKindOfUpdates(mode.all_reduce()));
    std::unordered_map<std::string_view, int> updated;
    for (const int32_t index : mode.all_reduce().blocks()) {
      for (const v1::OpDesc& op : main_.blocks(index).ops()) {
        const OpDef* def = OpRegistry::Global().Find(op.type());
        if (def == nullptr || !def->is_optimizer) continue;
        const std::string param = InputOf(op, "Param");
        const auto placed = plan_.blocks.find(param);
        if (placed == plan_.blocks.end() || placed->second->server() != kEveryTrainer) {
          return Broken("updated_once", "block ", index, " updates '", param, "', which trainers do not hold");
        }
        ++updated[placed->first];
      }
    }
    for (const v1::PlacedBlock& block : main_.plan().blocks()) {
      if (block.server() != kEveryTrainer) continue;
      RETURN_IF_ERROR(
          Once("updated_once", "update, in the trainer's program, of block", block.name(), updated[block.name()]));
    }
    return absl::OkStatus();
  }

  absl::Status CheckOwner(const char* rule, const char* what, const v1::OpDesc& op, const std::string& block,
                          int i) const {
    const auto placed = plan_.blocks.find(block);
    const bool table = placed == plan_.blocks.end() && plan_.tables.contains(block);
    if (placed == plan_.blocks.end() && !table) {
      return Broken(rule, what, " names block '", block, "', which the plan does not know");
    }
    const int64_t owner = table ? -1 : placed->second->server();
    const int64_t server = IntAt(op, "servers", i, -2);
    if (server == owner) return absl::OkStatus();
    return Broken(rule, what, " of block '", block, "' goes to server ", server, "; the plan has it on server ", owner);
  }

  absl::Status CheckSentShape(const std::string& block, const v1::VarDesc& x) const {
    const auto table = plan_.tables.find(block);
    if (table != plan_.tables.end()) {
      if (x.kind() == v1::SELECTED_ROWS && x.dims_size() == 2 && x.dims(1) == table->second->width())
        return absl::OkStatus();
      return Broken("shapes", "rows '", x.name(), "' ", DescribeVar(x), " go to table '", block, "' of width ",
                    table->second->width());
    }
    const v1::PlacedBlock& placed = *plan_.blocks.at(block);
    const v1::VarKind kind = placed.sparse_gradient() ? v1::SELECTED_ROWS : v1::DENSE;
    const bool fits =
        placed.sparse_gradient() ? DimsAgree(Dims(x), DimsOf(placed)) : KnownCount(Dims(x)) == placed.element_count();
    if (x.kind() == kind && fits) return absl::OkStatus();
    return Broken("shapes", "gradient '", x.name(), "' ", DescribeVar(x), " goes to block '", block, "' ",
                  ShapeString(DimsOf(placed)),
                  placed.sparse_gradient() ? ", which takes rows" : ", which takes a dense gradient");
  }

  // State of CheckReceives as it walks through a program.
  struct Receives {
    std::unordered_map<std::string_view, int> received;            // recvs by block
    std::unordered_map<std::string_view, std::string_view> open;   // variable to block, until fetch_barrier
    std::unordered_map<std::string_view, std::string_view> holds;  // variable to the block that it holds
    std::unordered_set<std::string_view> whole;                    // parameters that have their value
    bool closed = false;                                           // fetch_barrier has been passed
  };

  // Checks recv, fetch_barrier and concat of one program.
  absl::Status CheckReceives(const v1::ProgramDesc& program, const std::string& name) const {
    const VarIndex vars(program.blocks(0));
    const std::string in_startup = name == "startup" ? " of the startup program" : "";
    Receives state;
    for (const v1::OpDesc& op : program.blocks(0).ops()) {
      for (const v1::OpSlot& slot : op.inputs()) {
        for (const std::string& input : slot.vars()) {
          if (!state.open.contains(input)) continue;
          return Broken("defined", op.type(), in_startup, " reads '", input,
                        "' behind its recv and before fetch_barrier: the value "
                        "is not there yet");
        }
      }
      if (op.type() == "fetch_barrier") {
        state.closed = true;
        state.open.clear();
      }
      if (op.type() == "recv") RETURN_IF_ERROR(CheckRecv(op, vars, in_startup, &state));
      if (op.type() == "concat" && op.role() == v1::DIST) {
        RETURN_IF_ERROR(CheckJoin(op, state.holds, &state.whole, in_startup));
      }
    }
    return CheckAllReceived(std::move(state), in_startup);
  }

  absl::Status CheckRecv(const v1::OpDesc& op, const VarIndex& vars, const std::string& in_startup,
                         Receives* state) const {
    const auto& blocks = StringsOf(op, "blocks");
    const auto& outs = SlotVars(op.outputs(), "Out");
    if (state->closed) {
      return Broken("received_once", "recv of block '", absl::StrJoin(blocks, "', '"), "'", in_startup,
                    " stands behind fetch_barrier, which has waited for the others");
    }
    for (int i = 0; i < blocks.size(); ++i) {
      RETURN_IF_ERROR(CheckOwner("received_once", "recv", op, blocks[i], i));
      const auto placed = plan_.blocks.find(blocks[i]);
      if (placed == plan_.blocks.end())
        return Broken("received_once", "recv", in_startup, " asks for table '", blocks[i], "' whole");
      RETURN_IF_ERROR(CheckReceivedShape(*placed->second, *vars.Find(outs[i])));
      ++state->received[blocks[i]];
      state->open[outs[i]] = state->holds[outs[i]] = placed->first;
      const std::string& parameter = placed->second->parameter();
      if (plan_.of_parameter.at(parameter).size() == 1 && outs[i] == parameter) state->whole.insert(parameter);
    }
    return absl::OkStatus();
  }

  // Checks the state at the end of the program.
  absl::Status CheckAllReceived(Receives state, const std::string& in_startup) const {
    if (!state.closed) return Broken("waits", "no fetch_barrier", in_startup, " waits for what recv asks for");
    for (const v1::PlacedBlock& block : main_.plan().blocks()) {
      const bool by_row = plan_.fetched_rows.contains(block.parameter());
      const int received = state.received[block.name()];
      if (by_row && received > 0) {
        return Broken("received_once", "recv of block '", block.name(), "'", in_startup, ", whose rows are fetched");
      }
      if (by_row) continue;
      RETURN_IF_ERROR(Once("received_once", absl::StrCat("recv", in_startup, " of block"), block.name(), received));
      if (!state.whole.contains(block.parameter())) {
        return Broken("received_once", "the received blocks of '", block.parameter(), "' are not joined", in_startup);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckReceivedShape(const v1::PlacedBlock& block, const v1::VarDesc& out) const {
    if (out.kind() == v1::DENSE && out.dtype() == v1::FLOAT32 &&
        std::equal(out.dims().begin(), out.dims().end(), block.dims().begin(), block.dims().end())) {
      return absl::OkStatus();
    }
    return Broken("shapes", "block '", block.name(), "' ", ShapeString(DimsOf(block)), " is received into '",
                  out.name(), "' ", DescribeVar(out));
  }

  // Checks a concat that makes a parameter: it must join all its blocks, in order, once.
  absl::Status CheckJoin(const v1::OpDesc& op, const std::unordered_map<std::string_view, std::string_view>& holds,
                         std::unordered_set<std::string_view>* whole, const std::string& in_startup) const {
    const std::string parameter = OutputOf(op, "Out");
    const auto blocks = plan_.of_parameter.find(parameter);
    if (blocks == plan_.of_parameter.end()) return absl::OkStatus();
    std::vector<std::string_view> given, wanted;
    for (const std::string& x : SlotVars(op.inputs(), "X")) {
      const auto block = holds.find(x);
      given.push_back(block == holds.end() ? std::string_view(x) : block->second);
    }
    for (const v1::PlacedBlock* block : blocks->second) wanted.push_back(block->name());
    if (given != wanted) {
      const auto join = [](const std::vector<std::string_view>& names) {
        std::string text;
        for (const std::string_view name : names) absl::StrAppend(&text, text.empty() ? "" : ", ", std::string(name));
        return text;
      };
      return Broken("received_once", "concat", in_startup, " joins '", parameter, "' from ", join(given),
                    "; its blocks are ", join(wanted));
    }
    if (!whole->insert(blocks->first).second) {
      return Broken("received_once", "'", parameter, "' is joined more than once", in_startup);
    }
    return absl::OkStatus();
  }

  // Checks that prefetch fetches each table's rows once, with its width.
  absl::Status CheckPrefetch() const {
    std::set<std::string_view> asked;
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      if (op.type() != "prefetch") continue;
      const auto& tables = StringsOf(op, "row_tables");
      const auto& rows = SlotVars(op.outputs(), "Rows");
      for (int i = 0; i < tables.size(); ++i) {
        if (!asked.insert(tables[i]).second) return Once("received_once", "prefetch of the rows of", tables[i], 2);
        const auto table = plan_.tables.find(tables[i]);
        const auto fetched = plan_.fetched_rows.find(tables[i]);
        if (table == plan_.tables.end() && fetched == plan_.fetched_rows.end()) {
          return Broken("received_once", "prefetch asks for rows of '", tables[i],
                        "', which the plan does not give by row");
        }
        int64_t width = 0, height = -1;
        if (table != plan_.tables.end()) {
          width = table->second->width();
        } else {
          height = fetched->second->rows();
          width = plan_.of_parameter.contains(tables[i]) ? plan_.of_parameter.at(tables[i]).front()->dims(1) : 0;
        }
        if (IntAt(op, "widths", i, 0) != width || IntAt(op, "heights", i, -1) != height) {
          return Broken("shapes", "prefetch takes '", tables[i], "' for [", IntAt(op, "heights", i, -1), ", ",
                        IntAt(op, "widths", i, 0), "] into '", rows[i], "'; the plan has [", height, ", ", width, "]");
        }
      }
    }
    return absl::OkStatus();
  }

  // Without sync, rows that are pulled a batch ahead miss the step in progress. Checks that a program that must see
  // that step does not ask for them, and that no op on which they could depend precedes them.
  absl::Status CheckAhead() const {
    const v1::TrainingMode mode = ModeOf(main_);
    if (!mode.prefetch_rows()) return absl::OkStatus();
    if (const char* const why = WhyNotAhead(mode)) return Broken("ahead", "prefetch runs ahead, and ", why);
    std::string before;
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      if (op.type() == "prefetch" && !before.empty()) {
        return Broken("ahead", "prefetch runs ahead, and stands behind ", before, "; only ",
                      std::string(kShareBuffersOp), " may be before it");
      }
      if (op.type() == "prefetch" && !main_.has_mode() && !BoolOf(op, "ahead")) {
        return Broken("ahead", "of two prefetch ops only one runs ahead");
      }
      if (op.type() != "prefetch" && op.type() != kShareBuffersOp && before.empty()) before = op.type();
    }
    return absl::OkStatus();
  }

  // Checks that no op reads parameters that only servers hold.
  absl::Status CheckServersOwn() const {
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      for (const v1::OpSlot& slot : op.inputs()) {
        for (const std::string& name : slot.vars()) {
          const v1::VarDesc* var = vars_.Find(name);
          if (var == nullptr || (var->kind() != v1::TABLE && !plan_.fetched_rows.contains(name))) continue;
          return Broken("defined", op.type(), " reads '", name,
                        "', of which a trainer has only the rows that prefetch brings");
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckInitialised() const {
    const DefUse startup(startup_.blocks(0));
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      for (const v1::OpSlot& slot : op.inputs()) {
        for (const std::string& name : slot.vars()) {
          const v1::VarDesc* var = vars_.Find(name);
          if (var == nullptr || !var->persistable() || var->kind() != v1::DENSE || startup.IsWritten(name)) continue;
          return Broken("initialised", op.type(), " reads '", name, "', and the startup program gives it no value");
        }
      }
    }
    return absl::OkStatus();
  }

  // Checks that there is one barrier of each kind, with the plan's `sync`.
  absl::Status CheckBarriers() const {
    int sent = 0, fetched = 0;
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      sent += op.type() == "send_barrier";
      if (op.type() != "fetch_barrier") continue;
      ++fetched;
      RETURN_IF_ERROR(CheckSync(op, main_.plan()));
    }
    if (sent == 0) return Broken("waits", "servers wait for the send_barrier of a trainer, and its program has none");
    if (sent > 1) return Broken("waits", sent, " send_barriers: a step ends once");
    if (fetched > 1) return Broken("waits", fetched, " fetch_barriers: a step is waited for once");
    return absl::OkStatus();
  }

  const v1::ProgramDesc& main_;
  const v1::ProgramDesc& startup_;
  const PlanIndex plan_;
  const VarIndex vars_;
};

}  // namespace

absl::Status VerifyTrainer(const Programs& trainer) {
  if (trainer.main.blocks_size() == 0 || !trainer.main.has_plan()) return absl::OkStatus();
  return TrainerRules(trainer).Check();
}

}  // namespace weir
