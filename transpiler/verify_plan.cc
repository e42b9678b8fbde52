#include "transpiler/verify_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/graph/dims.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/shared_buffers.h"
#include "framework/graph/training_mode.h"
#include "framework/runtime/lane_tree.h"

namespace weir {
namespace {

template <typename... Text>
absl::Status Broken(const char* rule, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(rule, ": ", text...));
}

std::string DimsText(absl::Span<const int64_t> dims) { return ShapeString(dims); }

absl::Span<const int64_t> DimsOf(const v1::PlacedBlock& block) {
  return absl::MakeConstSpan(block.dims().data(), static_cast<size_t>(block.dims_size()));
}

const google::protobuf::RepeatedPtrField<std::string>& Strings(const v1::OpDesc& op, std::string_view name) {
  static const auto* const none = new google::protobuf::RepeatedPtrField<std::string>;
  const v1::OpAttr* attr = FindAttr(op, name);
  return attr == nullptr ? *none : attr->strings().v();
}

// Element i of a list of integers; `absent` when it is not there.
int64_t IntAt(const v1::OpDesc& op, std::string_view name, int i, int64_t absent) {
  const v1::OpAttr* attr = FindAttr(op, name);
  return attr == nullptr || i >= attr->ints().v_size() ? absent : attr->ints().v(i);
}

const google::protobuf::RepeatedPtrField<std::string>& SlotVars(
    const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots, std::string_view name) {
  static const auto* const none = new google::protobuf::RepeatedPtrField<std::string>;
  for (const v1::OpSlot& slot : slots) {
    if (slot.name() == name) return slot.vars();
  }
  return *none;
}

// A bool attribute with its registered default.
bool BoolOf(const v1::OpDesc& op, std::string_view name) {
  const OpDef* def = OpRegistry::Global().Find(op.type());
  CHECK(def != nullptr) << op.type() << ": the verifier has seen this op";
  return AttrReader(op, *def).Bool(name);
}

bool Has(const v1::BlockDesc& block, std::string_view type) {
  return std::any_of(block.ops().begin(), block.ops().end(), [&](const v1::OpDesc& op) { return op.type() == type; });
}

// The plan, by name. Borrows it.
struct PlanIndex {
  explicit PlanIndex(const v1::Plan& p) : plan(p) {
    for (const v1::PlacedBlock& block : plan.blocks()) {
      blocks.emplace(block.name(), &block);
      of_parameter[block.parameter()].push_back(&block);
    }
    for (const v1::PlacedTable& table : plan.tables()) tables.emplace(table.name(), &table);
    for (const v1::FetchedRows& fetched : plan.fetched_rows()) fetched_rows.emplace(fetched.parameter(), &fetched);
  }
  const v1::Plan& plan;
  std::unordered_map<std::string_view, const v1::PlacedBlock*> blocks;
  std::unordered_map<std::string_view, std::vector<const v1::PlacedBlock*>> of_parameter;
  std::unordered_map<std::string_view, const v1::PlacedTable*> tables;
  std::unordered_map<std::string_view, const v1::FetchedRows*> fetched_rows;
};

absl::Status Once(const char* rule, std::string_view what, const std::string& name, int count) {
  if (count == 1) return absl::OkStatus();
  return Broken(rule, std::string(what), " '", name, "' is ", count == 0 ? "missing" : "there more than once");
}

// ----------------------------------------------------------------------------------------------------------- ownership

// Blocks of one parameter, in plan order.
absl::Status CheckCover(const std::vector<const v1::PlacedBlock*>& blocks, int servers, bool placed,
                        const VarIndex& vars) {
  int64_t next = 0;
  int index = 0;
  const std::string& parameter = blocks.front()->parameter();
  for (const v1::PlacedBlock* block : blocks) {
    const std::string what = absl::StrCat("block '", block->name(), "' of '", parameter, "'");
    if (block->block() != index)
      return Broken("owned", what, " has number ", block->block(), "; number ", index, " is missing");
    ++index;
    if (block->element_begin() != next) {
      return Broken("owned", what, " begins at element ", block->element_begin(), "; the blocks before it end at ",
                    next);
    }
    if (KnownCount(DimsOf(*block)) != block->element_count()) {
      return Broken("owned", what, " has ", block->element_count(), " elements and the shape ",
                    DimsText(DimsOf(*block)));
    }
    if (placed && (!block->has_server() || block->server() < 0 || block->server() >= servers)) {
      return Broken("owned", what, " is on server ", block->has_server() ? absl::StrCat(block->server()) : "none",
                    "; there are servers 0 to ", servers - 1);
    }
    next += block->element_count();
  }
  const v1::VarDesc* whole = vars.Find(parameter);
  if (whole == nullptr) return absl::OkStatus();
  const int64_t elements = KnownCount(Dims(*whole));
  if (elements != next)
    return Broken("owned", "the blocks of '", parameter, "' have ", next, " of its ", elements, " elements");
  for (const v1::PlacedBlock* block : blocks) {
    if (whole->dims_size() < 2 || std::equal(DimsOf(*block).begin() + (block->dims_size() > 0), DimsOf(*block).end(),
                                             whole->dims().begin() + 1, whole->dims().end())) {
      continue;
    }
    return Broken("owned", "block '", block->name(), "' ", DimsText(DimsOf(*block)), " is no run of whole rows of '",
                  parameter, "' ", DimsText(Dims(*whole)));
  }
  return absl::OkStatus();
}

absl::Status CheckTables(const v1::Plan& plan) {
  for (const v1::PlacedTable& table : plan.tables()) {
    const int shards = table.logical_shards();
    if (shards < plan.servers() || (shards & (shards - 1)) != 0) {
      return Broken("owned", "table '", table.name(), "' has ", shards, " logical shards for ", plan.servers(),
                    " servers; a power of two, at least one a server, is needed");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOwnership(const v1::ProgramDesc& main, const PlanIndex& index, const VarIndex& vars) {
  const v1::Plan& plan = main.plan();
  if (index.blocks.size() != static_cast<size_t>(plan.blocks_size())) {
    std::unordered_set<std::string_view> seen;
    for (const v1::PlacedBlock& block : plan.blocks()) {
      if (!seen.insert(block.name()).second) return Broken("owned", "the plan has block '", block.name(), "' twice");
    }
  }
  // Until the blocks are placed none has a server.
  const bool placed = plan.tables_size() > 0 || std::any_of(plan.blocks().begin(), plan.blocks().end(),
                                                            [](const v1::PlacedBlock& b) { return b.has_server(); });
  for (const v1::PlacedBlock& block : plan.blocks()) {
    const auto& blocks = index.of_parameter.at(block.parameter());
    if (blocks.front() == &block) RETURN_IF_ERROR(CheckCover(blocks, plan.servers(), placed, vars));
  }
  RETURN_IF_ERROR(CheckTables(plan));
  for (const v1::FetchedRows& fetched : plan.fetched_rows()) {
    const auto blocks = index.of_parameter.find(fetched.parameter());
    int64_t rows = 0;
    bool matrix = blocks != index.of_parameter.end();
    for (const v1::PlacedBlock* block : matrix ? blocks->second : std::vector<const v1::PlacedBlock*>()) {
      matrix &= block->dims_size() == 2 && block->sparse_gradient();
      rows += matrix ? block->dims(0) : 0;
    }
    if (matrix && rows == fetched.rows()) continue;
    return Broken(
        "owned", "rows of '", fetched.parameter(), "' are fetched, ", fetched.rows(), " in all; ",
        matrix ? absl::StrCat("its blocks have ", rows) : "the plan has no matrix of it with a gradient by rows");
  }
  for (const v1::ParamGrad& pair : UpdatedParameters(main)) {
    const v1::VarDesc* var = vars.Find(pair.param());
    // In a server's program the names are those of blocks, in blocks of their own.
    if (var == nullptr || index.of_parameter.contains(pair.param())) continue;
    if (var->kind() == v1::TABLE && (!placed || index.tables.contains(pair.param()))) continue;
    return Broken("owned", "parameter '", pair.param(), "' is updated and no server owns it");
  }
  return absl::OkStatus();
}

// Every trainer has lanes, and together they have each lane once.
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

// ------------------------------------------------------------------------------------------------------------- trainer

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
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      if (op.type() == "send_barrier") closed = true;
      if (op.type() != "send") continue;
      const auto& blocks = Strings(op, "blocks");
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
                  DimsText(DimsOf(placed)),
                  placed.sparse_gradient() ? ", which takes rows" : ", which takes a dense gradient");
  }

  // recv, fetch_barrier and concat of one program.
  absl::Status CheckReceives(const v1::ProgramDesc& program, const std::string& name) const {
    const VarIndex vars(program.blocks(0));
    const std::string in_startup = name == "startup" ? " of the startup program" : "";
    std::unordered_map<std::string_view, int> received;
    std::unordered_map<std::string_view, std::string_view> open;   // variable to block, until fetch_barrier
    std::unordered_map<std::string_view, std::string_view> holds;  // variable to block that it has
    std::unordered_set<std::string_view> whole;                    // parameters that have their value
    bool closed = false;
    for (const v1::OpDesc& op : program.blocks(0).ops()) {
      for (const v1::OpSlot& slot : op.inputs()) {
        for (const std::string& input : slot.vars()) {
          if (!open.contains(input)) continue;
          return Broken("defined", op.type(), in_startup, " reads '", input,
                        "' behind its recv and before fetch_barrier: the value "
                        "is not there yet");
        }
      }
      if (op.type() == "fetch_barrier") {
        closed = true;
        open.clear();
      }
      if (op.type() == "recv") {
        if (closed) {
          return Broken("received_once", "recv of block '", absl::StrJoin(Strings(op, "blocks"), "', '"), "'",
                        in_startup, " stands behind fetch_barrier, which has waited for the others");
        }
        const auto& blocks = Strings(op, "blocks");
        const auto& outs = SlotVars(op.outputs(), "Out");
        for (int i = 0; i < blocks.size(); ++i) {
          RETURN_IF_ERROR(CheckOwner("received_once", "recv", op, blocks[i], i));
          const auto placed = plan_.blocks.find(blocks[i]);
          if (placed == plan_.blocks.end())
            return Broken("received_once", "recv", in_startup, " asks for table '", blocks[i], "' whole");
          RETURN_IF_ERROR(CheckReceivedShape(*placed->second, *vars.Find(outs[i])));
          ++received[blocks[i]];
          open[outs[i]] = holds[outs[i]] = placed->first;
          if (plan_.of_parameter.at(placed->second->parameter()).size() == 1 &&
              outs[i] == placed->second->parameter()) {
            whole.insert(placed->second->parameter());
          }
        }
      }
      if (op.type() == "concat" && op.role() == v1::DIST) {
        RETURN_IF_ERROR(CheckJoin(op, holds, &whole, in_startup));
      }
    }
    if (!closed) return Broken("waits", "no fetch_barrier", in_startup, " waits for what recv asks for");
    for (const v1::PlacedBlock& block : main_.plan().blocks()) {
      const bool by_row = plan_.fetched_rows.contains(block.parameter());
      if (by_row && received[block.name()] > 0) {
        return Broken("received_once", "recv of block '", block.name(), "'", in_startup, ", whose rows are fetched");
      }
      if (by_row) continue;
      RETURN_IF_ERROR(
          Once("received_once", absl::StrCat("recv", in_startup, " of block"), block.name(), received[block.name()]));
      if (!whole.contains(block.parameter())) {
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
    return Broken("shapes", "block '", block.name(), "' ", DimsText(DimsOf(block)), " is received into '", out.name(),
                  "' ", DescribeVar(out));
  }

  // A concat that makes a parameter: of all its blocks, in order, once.
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

  // Rows come once for each table, with its width.
  absl::Status CheckPrefetch() const {
    std::set<std::string_view> asked;
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      if (op.type() != "prefetch") continue;
      const auto& tables = Strings(op, "row_tables");
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

  // Rows that are pulled a batch ahead miss the step in hand: a program that must see it does not ask for them, and nothing stands
  // before them that they could depend on.
  absl::Status CheckAhead() const {
    const TrainingMode mode = ModeOf(main_);
    if (!mode.prefetch_rows) return absl::OkStatus();
    if (main_.plan().sync()) return Broken("ahead", "prefetch runs ahead, and the plan is of a sync job");
    if (mode.staleness == 0) return Broken("ahead", "prefetch runs ahead, and fetch_barrier has the bound 0");
    if (mode.geo_every_steps > 0) return Broken("ahead", "prefetch runs ahead, and trainers update copies of their own (geo)");
    std::string before;
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      if (op.type() == "prefetch" && !before.empty()) {
        return Broken("ahead", "prefetch runs ahead, and stands behind ", before, "; only ", std::string(kShareBuffersOp), " may be before it");
      }
      if (op.type() == "prefetch" && !BoolOf(op, "ahead")) {
        return Broken("ahead", "of two prefetch ops only one runs ahead");
      }
      if (op.type() != "prefetch" && op.type() != kShareBuffersOp && before.empty()) before = op.type();
    }
    return absl::OkStatus();
  }

  // What only servers hold is read by no op.
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
    std::unordered_set<std::string_view> given;
    for (const v1::OpDesc& op : startup_.blocks(0).ops()) {
      for (const v1::OpSlot& slot : op.outputs()) given.insert(slot.vars().begin(), slot.vars().end());
    }
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      for (const v1::OpSlot& slot : op.inputs()) {
        for (const std::string& name : slot.vars()) {
          const v1::VarDesc* var = vars_.Find(name);
          if (var == nullptr || !var->persistable() || var->kind() != v1::DENSE || given.contains(name)) continue;
          return Broken("initialised", op.type(), " reads '", name, "', and the startup program gives it no value");
        }
      }
    }
    return absl::OkStatus();
  }

  // One barrier of each kind, saying sync as the plan does.
  absl::Status CheckBarriers() const {
    int sent = 0, fetched = 0;
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      sent += op.type() == "send_barrier";
      if (op.type() != "fetch_barrier") continue;
      ++fetched;
      if (BoolOf(op, "sync") != main_.plan().sync()) {
        return Broken("agreed", "fetch_barrier says sync=", BoolOf(op, "sync") ? "true" : "false", ", the plan ",
                      main_.plan().sync() ? "true" : "false");
      }
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

// -------------------------------------------------------------------------------------------------------------- server

// The op of an optimize block that updates its parameter; nullptr when none does.
const v1::OpDesc* UpdateOf(const v1::BlockDesc& block) {
  for (const v1::OpDesc& op : block.ops()) {
    if (!InputOf(op, "LearningRate").empty() && !InputOf(op, "Param").empty()) return &op;
  }
  return nullptr;
}

const v1::OpDesc* ListenOf(const v1::ProgramDesc& main) {
  const v1::OpDesc* listen = nullptr;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() == "listen_and_serv") listen = &op;
  }
  return listen;
}

// Update ops of the optimize blocks that a server serves, by the variable that they update.
using Updates = std::map<std::string, const v1::OpDesc*>;
absl::StatusOr<Updates> UpdatesOf(const v1::ProgramDesc& main, const v1::OpDesc& listen) {
  Updates updates;
  const v1::OpAttr* blocks = FindAttr(listen, "optimize_blocks");
  const int count = blocks == nullptr ? 0 : blocks->blocks().v_size();
  for (int i = 0; i < count; ++i) {
    const int b = blocks->blocks().v(i);
    if (b <= 0 || b >= main.blocks_size()) return Broken("updated_once", "there is no optimize block ", b);
    const v1::OpDesc* update = UpdateOf(main.blocks(b));
    if (update == nullptr) return Broken("updated_once", "optimize block ", b, " updates nothing");
    const std::string param = InputOf(*update, "Param");
    if (!updates.emplace(param, update).second) return Once("updated_once", "optimize block of", param, 2);
  }
  return updates;
}

class ServerRules {
 public:
  ServerRules(const Programs& programs, int server)
      : main_(programs.main),
        startup_(programs.startup),
        server_(server),
        plan_(main_.plan()),
        vars_(main_.blocks(0)) {}

  absl::Status Check() const {
    const v1::OpDesc* listen = ListenOf(main_);
    if (listen == nullptr) return Broken("agreed", "is no server's program: it has no listen_and_serv");
    RETURN_IF_ERROR(CheckOwnership(main_, plan_, vars_));
    RETURN_IF_ERROR(CheckListen(*listen));
    ASSIGN_OR_RETURN(const Updates updates, UpdatesOf(main_, *listen));
    std::unordered_map<std::string_view, const v1::OpDesc*> initial;
    if (startup_.blocks_size() > 0) {
      for (const v1::OpDesc& op : startup_.blocks(0).ops()) {
        for (const v1::OpSlot& slot : op.outputs()) {
          for (const std::string& name : slot.vars()) initial[name] = &op;
        }
      }
    }
    for (const v1::PlacedBlock& block : main_.plan().blocks()) {
      const auto update = updates.find(block.name());
      if (block.server() != server_) {
        if (update == updates.end()) continue;
        return Broken("updated_once", "server ", server_, " updates block '", block.name(), "', which server ",
                      block.server(), " owns");
      }
      if (update == updates.end()) return Once("updated_once", "optimize block of", block.name(), 0);
      RETURN_IF_ERROR(CheckShapes(block, *update->second));
      RETURN_IF_ERROR(CheckInitial(block, initial));
    }
    for (const auto& [name, update] : updates) {
      if (plan_.blocks.contains(name) || plan_.tables.contains(name)) continue;
      return Broken("updated_once", "server ", server_, " updates '", name, "', which the plan does not know");
    }
    return CheckReads(initial);
  }

 private:
  absl::Status CheckListen(const v1::OpDesc& listen) const {
    const v1::Plan& plan = main_.plan();
    const OpDef* def = OpRegistry::Global().Find(listen.type());
    CHECK(def != nullptr);
    const AttrReader attrs(listen, *def);
    if (attrs.Int("server_id") != server_) {
      return Broken("agreed", "is the program of server ", attrs.Int("server_id"), ", and this is server ", server_);
    }
    if (attrs.Int("trainers") != plan.trainers()) {
      return Broken("waits", "listen_and_serv waits for ", attrs.Int("trainers"), " trainers; the plan has ",
                    plan.trainers());
    }
    if (attrs.Int("lanes") != plan.lanes()) {
      return Broken("agreed", "listen_and_serv adds ", attrs.Int("lanes"), " lanes; the plan has ", plan.lanes());
    }
    if (attrs.Bool("sync") != plan.sync()) {
      return Broken("agreed", "listen_and_serv says sync=", attrs.Bool("sync") ? "true" : "false", ", the plan ",
                    plan.sync() ? "true" : "false");
    }
    return absl::OkStatus();
  }

  absl::Status CheckShapes(const v1::PlacedBlock& block, const v1::OpDesc& update) const {
    const v1::VarDesc* value = vars_.Find(block.name());
    if (value == nullptr || value->kind() != v1::DENSE ||
        !std::equal(value->dims().begin(), value->dims().end(), block.dims().begin(), block.dims().end())) {
      return Broken("shapes", "server ", server_, " holds block '", block.name(), "' as ",
                    value == nullptr ? "nothing" : DescribeVar(*value), "; the plan has ", DimsText(DimsOf(block)));
    }
    const v1::VarDesc* grad = vars_.Find(InputOf(update, "Grad"));
    // What is computed inside the optimize block (clip, decay) has been checked by its ops.
    if (grad == nullptr) return absl::OkStatus();
    const bool rows = grad->kind() == v1::SELECTED_ROWS;
    if (rows == block.sparse_gradient() && DimsAgree(Dims(*grad), DimsOf(block))) return absl::OkStatus();
    return Broken("shapes", "server ", server_, " takes the gradient of block '", block.name(), "' ",
                  DimsText(DimsOf(block)), block.sparse_gradient() ? ", which comes by rows," : "", " as ",
                  DescribeVar(*grad));
  }

  absl::Status CheckInitial(const v1::PlacedBlock& block,
                            const std::unordered_map<std::string_view, const v1::OpDesc*>& initial) const {
    if (startup_.blocks_size() == 0) return absl::OkStatus();
    const auto found = initial.find(block.name());
    if (found == initial.end()) {
      return Broken("initialised", "the startup program of server ", server_, " gives block '", block.name(),
                    "' no value");
    }
    const v1::OpDesc& op = *found->second;
    const v1::OpAttr* shape = FindAttr(op, "shape");
    if (shape != nullptr &&
        !std::equal(shape->ints().v().begin(), shape->ints().v().end(), block.dims().begin(), block.dims().end())) {
      return Broken("shapes", "server ", server_, " initialises block '", block.name(), "' ", DimsText(DimsOf(block)),
                    " as [", absl::StrJoin(shape->ints().v(), ", "), "]");
    }
    const v1::OpAttr* variable = FindAttr(op, "variable");
    if (variable == nullptr) return absl::OkStatus();  // the same everywhere
    const v1::OpAttr* begin = FindAttr(op, "element_begin");
    const int64_t element = begin == nullptr ? 0 : begin->i();
    if (variable->s() == block.parameter() && element == block.element_begin()) return absl::OkStatus();
    return Broken("initialised", "block '", block.name(), "' is initialised as elements from ", element, " of '",
                  variable->s(), "'; it is elements from ", block.element_begin(), " of '", block.parameter(), "'");
  }

  absl::Status CheckReads(const std::unordered_map<std::string_view, const v1::OpDesc*>& initial) const {
    if (startup_.blocks_size() == 0) return absl::OkStatus();
    for (const v1::BlockDesc& block : main_.blocks()) {
      for (const v1::OpDesc& op : block.ops()) {
        for (const v1::OpSlot& slot : op.inputs()) {
          for (const std::string& name : slot.vars()) {
            const v1::VarDesc* var = vars_.Find(name);
            if (var == nullptr || !var->persistable() || var->kind() != v1::DENSE || initial.contains(name)) continue;
            return Broken("initialised", op.type(), " of optimize block ", block.index(), " reads '", name,
                          "', and the startup program of server ", server_, " gives it no value");
          }
        }
      }
    }
    return absl::OkStatus();
  }

  const v1::ProgramDesc& main_;
  const v1::ProgramDesc& startup_;
  const int server_;
  const PlanIndex plan_;
  const VarIndex vars_;
};

// --------------------------------------------------------------------------------------------------------------- waits

// Events of one step, and which waits for which.
class WaitGraph {
 public:
  int Add(std::string name) {
    names_.push_back(std::move(name));
    edges_.emplace_back();
    return static_cast<int>(names_.size()) - 1;
  }
  void Wait(int who, int for_what) { edges_[static_cast<size_t>(who)].push_back(for_what); }

  // A cycle as text, from its first event around; "" when there is none.
  std::string Cycle() const {
    std::vector<int> state(names_.size(), 0);  // 1: on the path
    std::vector<std::pair<int, size_t>> path;
    for (size_t start = 0; start < names_.size(); ++start) {
      if (state[start] != 0) continue;
      path.push_back({static_cast<int>(start), 0});
      state[start] = 1;
      while (!path.empty()) {
        const int node = path.back().first;
        const auto& edges = edges_[static_cast<size_t>(node)];
        if (path.back().second == edges.size()) {
          state[static_cast<size_t>(node)] = 2;
          path.pop_back();
          continue;
        }
        const int next = edges[path.back().second++];
        if (state[static_cast<size_t>(next)] == 1) return Text(path, next);
        if (state[static_cast<size_t>(next)] != 0) continue;
        state[static_cast<size_t>(next)] = 1;
        path.push_back({next, 0});
      }
    }
    return "";
  }

 private:
  std::string Text(const std::vector<std::pair<int, size_t>>& path, int back_to) const {
    std::string text;
    bool on = false;
    for (const auto& [node, edge] : path) {
      on |= node == back_to;
      if (on) absl::StrAppend(&text, names_[static_cast<size_t>(node)], " waits for ");
    }
    return text + names_[static_cast<size_t>(back_to)];
  }

  std::vector<std::string> names_;
  std::vector<std::vector<int>> edges_;
};

// One step in sync: every server waits for every trainer's send_barrier, a trainer's fetch_barrier for every server,
// and each op of a trainer for the ones before it. Trainers are alike, so the first and the last stand for all.
absl::Status CheckWaits(const v1::ProgramDesc& trainer, absl::Span<const ServerSide> servers) {
  const v1::Plan& plan = trainer.plan();
  if (!plan.sync()) return absl::OkStatus();
  WaitGraph graph;
  std::vector<int> versions;
  for (const ServerSide& server : servers) versions.push_back(graph.Add(absl::StrCat("server ", server.index)));
  for (const int t : std::set<int>{0, plan.trainers() - 1}) {
    int before = -1;
    for (const v1::OpDesc& op : trainer.blocks(0).ops()) {
      if (op.type() != "send_barrier" && op.type() != "fetch_barrier") continue;
      const int event = graph.Add(absl::StrCat(op.type(), " of trainer ", t));
      if (before >= 0) graph.Wait(event, before);
      before = event;
      for (const int version : versions) {
        if (op.type() == "send_barrier") graph.Wait(version, event);
        if (op.type() == "fetch_barrier" && BoolOf(op, "sync")) graph.Wait(event, version);
      }
    }
  }
  const std::string cycle = graph.Cycle();
  return cycle.empty() ? absl::OkStatus() : Broken("waits", cycle);
}

// ----------------------------------------------------------------------------------------------------------------- set

class SetRules {
 public:
  SetRules(const v1::ProgramDesc& trainer, const ServerSide& server)
      : trainer_(trainer),
        server_(server),
        main_(server.programs->main),
        trainer_vars_(trainer.blocks(0)),
        server_vars_(main_.blocks(0)) {}

  absl::Status Check() const {
    const v1::OpDesc* listen = ListenOf(main_);
    CHECK(listen != nullptr) << "verify the server first";
    ASSIGN_OR_RETURN(const Updates updates, UpdatesOf(main_, *listen));
    for (const v1::OpDesc& op : trainer_.blocks(0).ops()) {
      if (op.type() == "send") RETURN_IF_ERROR(CheckSend(op, updates));
      if (op.type() == "recv") RETURN_IF_ERROR(CheckRecv(op));
      if (op.type() == "prefetch") RETURN_IF_ERROR(CheckPrefetch(op));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckSend(const v1::OpDesc& op, const Updates& updates) const {
    const auto& blocks = Strings(op, "blocks");
    const auto& vars = SlotVars(op.inputs(), "X");
    for (int i = 0; i < blocks.size(); ++i) {
      const int64_t to = IntAt(op, "servers", i, -2);
      if (to != server_.index && to != -1) continue;
      const auto update = updates.find(blocks[i]);
      if (update == updates.end()) {
        return Broken("updated_once", "'", vars[i], "' is sent to ", to < 0 ? "table" : "block", " '", blocks[i],
                      "', which nothing on server ", server_.index, " updates");
      }
      const v1::VarDesc* sent = trainer_vars_.Find(vars[i]);
      const v1::VarDesc* taken = server_vars_.Find(InputOf(*update->second, "Grad"));
      if (sent == nullptr || taken == nullptr) continue;
      const bool rows = sent->kind() == v1::SELECTED_ROWS;
      const bool fits = rows ? taken->kind() == v1::SELECTED_ROWS && DimsAgree(Dims(*sent), Dims(*taken))
                             : taken->kind() == v1::DENSE && KnownCount(Dims(*sent)) == KnownCount(Dims(*taken));
      if (fits && sent->dtype() == taken->dtype()) continue;
      return Broken("shapes", "a trainer sends '", sent->name(), "' ", DescribeVar(*sent), "; server ", server_.index,
                    " takes '", taken->name(), "' ", DescribeVar(*taken));
    }
    return absl::OkStatus();
  }

  absl::Status CheckRecv(const v1::OpDesc& op) const {
    const auto& blocks = Strings(op, "blocks");
    const auto& vars = SlotVars(op.outputs(), "Out");
    for (int i = 0; i < blocks.size(); ++i) {
      if (IntAt(op, "servers", i, -2) != server_.index) continue;
      const v1::VarDesc* out = trainer_vars_.Find(vars[i]);
      const v1::VarDesc* held = server_vars_.Find(blocks[i]);
      if (held == nullptr)
        return Broken("received_once", "server ", server_.index, " has no block '", blocks[i], "' to give");
      if (out == nullptr || (out->dtype() == held->dtype() && KnownCount(Dims(*out)) == KnownCount(Dims(*held))))
        continue;
      return Broken("shapes", "server ", server_.index, " gives '", held->name(), "' ", DescribeVar(*held),
                    "; a trainer takes '", out->name(), "' ", DescribeVar(*out));
    }
    return absl::OkStatus();
  }

  absl::Status CheckPrefetch(const v1::OpDesc& op) const {
    const auto& tables = Strings(op, "row_tables");
    for (int i = 0; i < tables.size(); ++i) {
      const v1::VarDesc* held = server_vars_.Find(tables[i]);
      if (IntAt(op, "heights", i, -1) >= 0) continue;  // blocks, which CheckRecv's side of the plan has seen
      if (held == nullptr || held->kind() != v1::TABLE) {
        return Broken("received_once", "server ", server_.index, " has no table '", tables[i], "' to give rows of");
      }
      if (held->dims(1) == IntAt(op, "widths", i, 0)) continue;
      return Broken("shapes", "prefetch takes rows of ", IntAt(op, "widths", i, 0), " floats; table '", tables[i],
                    "' of server ", server_.index, " is ", DescribeVar(*held));
    }
    return absl::OkStatus();
  }

  const v1::ProgramDesc& trainer_;
  const ServerSide& server_;
  const v1::ProgramDesc& main_;
  const VarIndex trainer_vars_, server_vars_;
};

}  // namespace

absl::Status VerifyOwnership(const v1::ProgramDesc& main) {
  if (!main.has_plan()) return absl::OkStatus();
  return CheckOwnership(main, PlanIndex(main.plan()), VarIndex(main.blocks(0)));
}

absl::Status VerifyTrainer(const Programs& trainer) {
  if (trainer.main.blocks_size() == 0 || !trainer.main.has_plan()) return absl::OkStatus();
  return TrainerRules(trainer).Check();
}

absl::Status VerifyServer(const Programs& server, int index) {
  if (server.main.blocks_size() == 0) return Broken("agreed", "is no server's program: it has no block");
  return ServerRules(server, index).Check();
}

absl::Status VerifySet(const Programs& trainer, absl::Span<const ServerSide> servers) {
  const std::string plan = trainer.main.plan().SerializeAsString();
  for (const ServerSide& server : servers) {
    if (server.programs->main.plan().SerializeAsString() != plan) {
      return Broken("agreed", "the plan of server ", server.index, " is not the trainer's");
    }
    RETURN_IF_ERROR(SetRules(trainer.main, server).Check());
  }
  return CheckWaits(trainer.main, servers);
}

}  // namespace weir
