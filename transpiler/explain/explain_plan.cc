#include "transpiler/explain/explain_plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/stable_hash.h"
#include "framework/collective/sizes.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/placement.h"
#include "framework/graph/training_mode.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/row_values.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"
#include "transpiler/job/modes.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

constexpr int64_t kFloatBytes = 4;

// Must match the layout of rows in pserver/tables/sparse_table.h.
int64_t RowBytes(const v1::ProgramDesc& main, const v1::PlacedTable& table) {
  const v1::VarDesc* const var = FindVar(main.blocks(0), table.name());
  return 8 + RowValues::BytesOf(var == nullptr ? v1::FLOAT32 : var->dtype(), table.width()) +
         table.state_width() * kFloatBytes;
}

std::string Server(const v1::ProgramDesc& main, int server) {
  const v1::Plan& plan = main.plan();
  int blocks = 0;
  int64_t elements = 0;
  std::string list;
  for (const v1::PlacedBlock& block : plan.blocks()) {
    if (block.server() != server) continue;
    ++blocks;
    elements += block.element_count();
    absl::StrAppend(&list, "  ", block.name(), " [", absl::StrJoin(block.dims(), ", "), "]",
                    block.sparse_gradient() ? ", gradient by rows" : "", "\n");
  }
  for (const v1::PlacedTable& table : plan.tables()) {
    uint32_t first = 0, end = 0;
    const uint32_t shards = static_cast<uint32_t>(table.logical_shards());
    while (first < shards && ShardServer(first, shards, plan.servers()) != server) ++first;
    for (end = first; end < shards && ShardServer(end, shards, plan.servers()) == server;) ++end;
    absl::StrAppend(&list, "  table ", table.name(), ", shards ", first, " to ", end, " of ", shards, ", ",
                    RowBytes(main, table), " bytes a row\n");
  }
  const int around = TrainerAround(plan, server);
  return absl::StrCat("server ", server, around < 0 ? "" : absl::StrCat(" in trainer ", around), ": ", blocks,
                      " blocks, ", elements * kFloatBytes, " bytes of parameters, ", plan.tables_size(), " tables\n",
                      list);
}

// Returns the bytes of the optimizer state of the blocks that trainers update, by name of the block.
std::map<std::string, int64_t> StateBytes(const v1::ProgramDesc& main) {
  const VarIndex vars(main.blocks(0));
  const v1::TrainingMode mode = ModeOf(main);
  std::map<std::string, int64_t> bytes;
  for (const int32_t index : mode.all_reduce().blocks()) {
    for (const v1::OpDesc& op : main.blocks(index).ops()) {
      const OpDef* const def = OpRegistry::Global().Find(op.type());
      if (def == nullptr || !def->is_optimizer) continue;
      int64_t& of_block = bytes[InputOf(op, "Param")];
      for (const StateDef& state : def->state) {
        const v1::VarDesc* const var = vars.Find(InputOf(op, state.slot));
        if (var != nullptr) of_block += ElementCount(Dims(*var)) * static_cast<int64_t>(DTypeSize(var->dtype()));
      }
    }
  }
  return bytes;
}

// Share of a trainer where all share the updates out.
struct UpdateShare {
  int blocks = 0;
  int64_t elements = 0, dense = 0, state = 0;  // dense: elements with a dense gradient
  std::string list;
};

std::vector<UpdateShare> SharesOf(const v1::ProgramDesc& main) {
  const std::map<std::string, int64_t> state = StateBytes(main);
  std::vector<UpdateShare> shares(static_cast<size_t>(main.plan().trainers()));
  for (const v1::PlacedBlock& block : main.plan().blocks()) {
    if (!block.has_trainer()) continue;
    UpdateShare& share = shares[static_cast<size_t>(block.trainer())];
    const auto found = state.find(block.name());
    ++share.blocks;
    share.elements += block.element_count();
    share.dense += block.sparse_gradient() ? 0 : block.element_count();
    share.state += found == state.end() ? 0 : found->second;
    absl::StrAppend(&share.list, "  ", block.name(), " [", absl::StrJoin(block.dims(), ", "), "]",
                    block.sparse_gradient() ? ", gradient by rows" : "", "\n");
  }
  return shares;
}

std::string SharesText(const std::vector<UpdateShare>& shares) {
  std::string text;
  for (size_t t = 0; t < shares.size(); ++t) {
    const UpdateShare& share = shares[t];
    absl::StrAppend(&text, "trainer ", t, " updates: ", share.blocks, " blocks, ", share.elements * kFloatBytes,
                    " bytes of parameters, ", share.state, " bytes of optimizer state\n", share.list);
  }
  return text;
}

// Describes what every trainer holds, and what trainers send each other for its gradients.
std::string AllReduced(const v1::ProgramDesc& main, const v1::Comm& comm) {
  const v1::Plan& plan = main.plan();
  int blocks = 0;
  int64_t elements = 0, dense = 0, row_blocks = 0;
  bool sharded = false;
  for (const v1::PlacedBlock& block : plan.blocks()) {
    if (block.server() != kEveryTrainer) continue;
    ++blocks;
    elements += block.element_count();
    row_blocks += block.sparse_gradient();
    dense += block.sparse_gradient() ? 0 : block.element_count() * kFloatBytes;
    sharded |= block.has_trainer();
  }
  if (blocks == 0) return "";
  if (const int64_t every = ModeOf(main).all_reduce().local_steps(); every > 0) {
    return absl::StrCat("every trainer: ", blocks, " blocks, ", elements * kFloatBytes,
                        " bytes of parameters, which it updates by itself\naverage of all trainers every ", every,
                        " steps: values, optimizer state and running values\n");
  }
  const std::vector<UpdateShare> shares = sharded ? SharesOf(main) : std::vector<UpdateShare>();
  std::string text =
      absl::StrCat("every trainer: ", blocks, " blocks, ", elements * kFloatBytes, " bytes of parameters\n",
                   SharesText(shares), sharded ? "reduce-scatter and all-gather of " : "all-reduce of ", dense,
                   sharded ? " bytes of dense parameters:" : " bytes of dense gradients:");
  const int trainers = plan.trainers();
  const auto nodes = [&](int trainer) { return AlignedNodes(LanesOfTrainer(plan.lanes(), trainers, trainer)).size(); };
  const bool wire = comm.backend() == v1::Comm::AUTO || comm.backend() == v1::Comm::WIRE;
  const bool whole = wire && !sharded && !ModeOf(main).all_reduce().adasum() && GoesWhole(dense, kFloatBytes, trainers);
  // Sums of the others' shares go to these, and the values of the own share to all.
  const auto sent = [&](int trainer) {
    const double all = static_cast<double>(dense);
    if (whole) return std::llround(static_cast<double>(nodes(trainer)) * all * (trainers - 1));
    const double own =
        sharded ? static_cast<double>(shares[static_cast<size_t>(trainer)].dense * kFloatBytes) : all / trainers;
    return std::llround(static_cast<double>(nodes(trainer)) * (all - own) + own * (trainers - 1));
  };
  for (int first = 0; first < trainers;) {
    int end = first + 1;
    while (end < trainers && nodes(end) == nodes(first) && sent(end) == sent(first)) ++end;
    absl::StrAppend(
        &text, first == 0 ? " trainer" : "; trainer",
        end - first > 1 ? absl::StrCat("s ", first, " to ", end - 1, " send ") : absl::StrCat(" ", first, " sends "),
        sent(first), " bytes", end - first > 1 ? " each" : "", " (k = ", nodes(first), ")");
    first = end;
  }
  absl::StrAppend(&text, "\n");
  if (row_blocks > 0 && sharded) {
    absl::StrAppend(&text, "gradients of ", row_blocks,
                    " blocks by rows: a trainer sends its rows to those that update them, and rows that it has updated "
                    "to ",
                    trainers - 1, " others\n");
  } else if (row_blocks > 0) {
    absl::StrAppend(&text, "gradients of ", row_blocks, " blocks by rows: a trainer sends its rows to ", trainers - 1,
                    " others\n");
  }
  return text;
}

// Traffic of a step for a parameter with row gradients that is not a table on the servers.
struct SparseParameter {
  int64_t bytes = 0;                         // whole parameter
  int64_t row_bytes = 0;                     // an id and its row
  const v1::FetchedRows* fetched = nullptr;  // null if the whole parameter is received
};

std::map<std::string, SparseParameter> SparseParameters(const v1::Plan& plan) {
  std::map<std::string, SparseParameter> sparse;
  for (const v1::PlacedBlock& block : plan.blocks()) {
    if (!block.sparse_gradient() || block.server() == kEveryTrainer) continue;
    SparseParameter& parameter = sparse[block.parameter()];
    parameter.bytes += block.element_count() * kFloatBytes;
    parameter.row_bytes = 8 + (block.dims(0) > 0 ? block.element_count() / block.dims(0) : 0) * kFloatBytes;
  }
  for (const v1::FetchedRows& fetched : plan.fetched_rows()) {
    const auto found = sparse.find(fetched.parameter());
    if (found != sparse.end()) found->second.fetched = &fetched;
  }
  return sparse;
}

}  // namespace

std::string ExplainPlan(const Job& job, const v1::ProgramDesc& main) {
  const v1::Plan& plan = main.plan();
  const uint64_t fingerprint = PlanFingerprint(PlanText(job, plan));
  std::string text = absl::StrCat(
      "plan of ", plan.job(), ": ", plan.servers(), " servers, ", plan.trainers(), " trainers, ", plan.lanes(),
      " lanes, ", StepFactsOf(plan.sync()).name, ", batch ", plan.batch_size(), "\n", "fingerprint ",
      absl::StrCat(absl::Hex(fingerprint, absl::kZeroPad16)), ", scheme version ", plan.scheme_version(), "\n");
  int64_t dense = 0;
  for (int server = 0; server < plan.servers(); ++server) text += Server(main, server);
  text += AllReduced(main, job.config.comm());
  for (const v1::PlacedBlock& block : plan.blocks()) {
    if (block.server() == kEveryTrainer) continue;
    dense += block.sparse_gradient() ? 0 : block.element_count() * kFloatBytes;
  }
  const std::map<std::string, SparseParameter> sparse = SparseParameters(plan);
  int64_t whole = 0;
  for (const auto& [name, parameter] : sparse) whole += parameter.fetched == nullptr ? parameter.bytes : 0;
  // One push and one pull of dense blocks, and one pull of rows, to every server in another process.
  const int inside = TrainerAround(plan, 0) == 0 ? 1 : 0;
  const int64_t messages =
      int64_t{plan.servers() - inside} * (plan.tables_size() > 0 || plan.fetched_rows_size() > 0 ? 3 : 2);
  absl::StrAppend(&text, "a step of a trainer: ", messages, " messages at least, ", dense,
                  " bytes of dense gradients up per lane subtree, ", dense + whole, " bytes of dense parameters down");
  for (const auto& [name, parameter] : sparse) {
    absl::StrAppend(&text, ", ", parameter.row_bytes, parameter.fetched == nullptr ? " bytes up" : " bytes up and down",
                    " per distinct id of ", name);
    if (parameter.fetched != nullptr) absl::StrAppend(&text, " (at most ", parameter.fetched->most_rows(), " ids)");
  }
  for (const v1::PlacedTable& table : plan.tables()) {
    absl::StrAppend(&text, ", ", 8 + table.width() * kFloatBytes, " bytes up and down per distinct id of ",
                    table.name());
  }
  if (job.config.distribute().prefetch_rows()) text += ", rows a batch ahead of their use";
  text += "\n";
  if (inside > 0) text += "of these bytes, a trainer's share of its own server stays in its process\n";
  return text;
}

}  // namespace weir
