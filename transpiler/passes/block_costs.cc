#include "transpiler/passes/block_costs.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "framework/graph/def_use.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "transpiler/base/programs.h"

namespace weir {
namespace {

constexpr int64_t kFloat = 4, kId = 8;

// Costs in eighths of a nanosecond. A byte on the wire: 1 GB/s, a 10-gigabit network or one loopback stream. A byte of
// memory: 8 GB/s, the copy rate of two cores of the bench machine. A flop of an update: 8 a nanosecond, one core
// without waiting for memory.
constexpr int64_t kPerWireByte = 8, kPerMemoryByte = 1, kPerFlop = 1;

// Costs of a whole parameter.
struct ParameterCost {
  int64_t elements = 1;
  int64_t rows = 1;
  // Elements of state variables shaped like the parameter, with one element per row, and of other shapes.
  int64_t like_parameter = 0, by_row = 0, scalar = 0;
  // Work of its OPTIMIZE ops.
  double flops = 0, bytes = 0;
  // Rows that a step can name; `rows` for a dense gradient.
  int64_t most_rows = 1;
  bool by_rows = false;
  bool fetched = false;
};

int64_t Elements(const v1::VarDesc& var) {
  int64_t count = 1;
  for (const int64_t d : var.dims()) count *= std::max<int64_t>(d, 1);
  return count;
}

void AddState(const v1::VarDesc& param, const v1::VarDesc& state, ParameterCost* cost) {
  const int64_t n = Elements(state);
  if (std::equal(state.dims().begin(), state.dims().end(), param.dims().begin(), param.dims().end())) {
    cost->like_parameter += 1;
  } else if (param.dims_size() > 0 && n == param.dims(0) && n > 1) {
    cost->by_row += 1;
  } else {
    cost->scalar += n;
  }
}

// Returns a * part / whole, rounded up.
int64_t Share(int64_t a, int64_t part, int64_t whole) {
  if (whole == 0) return 0;
  return static_cast<int64_t>((static_cast<__int128>(a) * part + whole - 1) / whole);
}

class Costs {
 public:
  explicit Costs(const v1::ProgramDesc& main) : main_(main), block_(main.blocks(0)), vars_(block_), reads_(main) {
    for (const v1::FetchedRows& fetched : main.plan().fetched_rows()) fetched_.insert(fetched.parameter());
    for (const v1::OpDesc& op : block_.ops()) {
      // Ops of several parameters (the norm over a group) cost next to nothing for each of them.
      if (op.role() != v1::OPTIMIZE || op.param_grads_size() != 1) continue;
      updates_[op.param_grads(0).param()].push_back(&op);
    }
  }

  BlockCost Of(const v1::PlacedBlock& block) {
    const ParameterCost& whole = Whole(block);
    const int64_t rows = block.dims_size() == 0 ? 1 : block.dims(0);
    BlockCost cost;
    cost.bytes = kFloat * (block.element_count() * (1 + whole.like_parameter) + rows * whole.by_row + whole.scalar);
    const int64_t dense = kFloat * block.element_count();
    int64_t up = dense, down = dense;
    if (whole.by_rows) {
      const int64_t row_bytes = kId + kFloat * (whole.elements / std::max<int64_t>(whole.rows, 1));
      up = Share(whole.most_rows, rows, whole.rows) * row_bytes;
      if (whole.fetched) down = up;
    }
    cost.load = kPerWireByte * main_.plan().trainers() * (up + down);
    // With a gradient by rows only the rows that a step names are updated.
    const int64_t update = std::llround(whole.bytes) * kPerMemoryByte + std::llround(whole.flops) * kPerFlop;
    const int64_t of_block = Share(update, block.element_count(), std::max<int64_t>(whole.elements, 1));
    cost.load += whole.by_rows ? Share(of_block, whole.most_rows, whole.rows) : of_block;
    return cost;
  }

 private:
  const ParameterCost& Whole(const v1::PlacedBlock& block) {
    const auto [found, fresh] = whole_.try_emplace(block.parameter());
    ParameterCost& cost = found->second;
    if (!fresh) return cost;
    const v1::VarDesc* param = vars_.Find(block.parameter());
    CHECK(param != nullptr) << block.parameter();
    cost.elements = Elements(*param);
    cost.rows = param->dims_size() == 0 ? 1 : std::max<int64_t>(param->dims(0), 1);
    cost.by_rows = block.sparse_gradient();
    cost.fetched = fetched_.contains(block.parameter());
    cost.most_rows = cost.rows;
    if (cost.by_rows) {
      const int64_t most = reads_.MostRows(*param, main_.plan().batch_size());
      if (most >= 0) cost.most_rows = most;
    }
    const VarLookup find = [this](std::string_view name) { return vars_.Find(name); };
    for (const v1::OpDesc* op : updates_[block.parameter()]) {
      const OpDef* def = OpRegistry::Global().Find(op->type());
      if (def == nullptr) continue;
      const Cost of_op = CostOf(*op, *def, find, main_.plan().batch_size());
      cost.flops += of_op.flops;
      cost.bytes += of_op.bytes;
      for (const StateDef& state : def->state) {
        if (const v1::VarDesc* var = vars_.Find(InputOf(*op, state.slot))) AddState(*param, *var, &cost);
      }
    }
    return cost;
  }

  const v1::ProgramDesc& main_;
  const v1::BlockDesc& block_;
  const VarIndex vars_;
  const IdReads reads_;
  std::unordered_set<std::string> fetched_;
  std::unordered_map<std::string, std::vector<const v1::OpDesc*>> updates_;  // OPTIMIZE ops by parameter
  std::unordered_map<std::string, ParameterCost> whole_;
};

}  // namespace

std::vector<BlockCost> BlockCosts(const v1::ProgramDesc& main) {
  Costs costs(main);
  std::vector<BlockCost> all;
  for (const v1::PlacedBlock& block : main.plan().blocks()) all.push_back(costs.Of(block));
  return all;
}

IdReads::IdReads(const v1::ProgramDesc& main) {
  const v1::BlockDesc& block = main.blocks(0);
  const VarIndex vars(block);
  const DefUse uses(block);
  for (const v1::OpDesc& op : block.ops()) {
    if (op.role() == v1::OPTIMIZE) continue;
    const bool lookup = op.type() == "lookup_table" || op.type() == "lookup_table_grad";
    const std::string_view ids = lookup ? OnlyVar(op.inputs(), "Ids") : std::string_view();
    const v1::VarDesc* var = ids.empty() ? nullptr : vars.Find(ids);
    const int64_t of_slot = lookup ? std::max<int64_t>(1, IntOr(op, "sequence", 1)) : 1;
    const bool of_data = var != nullptr && var->dims_size() == 2 && !uses.IsWritten(ids);
    for (const v1::OpSlot& slot : op.inputs()) {
      for (const std::string& name : slot.vars()) {
        if (of_data && slot.name() == "W") {
          int64_t& slots = slots_[name][ids];
          slots = std::max(slots, var->dims(1) * of_slot);
        } else {
          otherwise_.insert(name);
        }
      }
    }
  }
}

int64_t IdReads::MostRows(const v1::VarDesc& parameter, int64_t batch_size) const {
  if (otherwise_.contains(parameter.name()) || parameter.dims_size() == 0) return -1;
  const auto found = slots_.find(parameter.name());
  int64_t slots = 0;
  if (found != slots_.end()) {
    for (const auto& [ids, count] : found->second) slots += count;
  }
  int64_t most = 0;
  if (__builtin_mul_overflow(slots, batch_size, &most)) most = parameter.dims(0);
  return std::min(parameter.dims(0), most);
}

}  // namespace weir
