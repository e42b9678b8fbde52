// The plan by itself: the rule `owned`.
#include "transpiler/verify/verify_plan.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/graph/placement.h"
#include "framework/tensor/tensor.h"
#include "transpiler/verify/verify_rules.h"

namespace weir {
namespace {

// Checks who updates a block that trainers hold. `sharded`: the plan's first such block names a trainer.
absl::Status CheckTrainer(const v1::PlacedBlock& block, const std::string& what, int trainers, bool sharded) {
  if (block.has_trainer() && block.server() != kEveryTrainer) {
    return Broken("owned", what, " is on server ", block.server(), " and names trainer ", block.trainer(),
                  "; a block has one owner");
  }
  if (block.server() != kEveryTrainer) return absl::OkStatus();
  if (block.has_trainer() != sharded) {
    return Broken("owned", what, sharded ? " names no trainer" : absl::StrCat(" names trainer ", block.trainer()),
                  "; either every block that trainers hold names the one that updates it, or none does");
  }
  if (!sharded || (block.trainer() >= 0 && block.trainer() < trainers)) return absl::OkStatus();
  return Broken("owned", what, " is updated by trainer ", block.trainer(), "; there are trainers 0 to ", trainers - 1);
}

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
                    ShapeString(DimsOf(*block)));
    }
    // If every trainer updates it, it is whole.
    const bool on_trainers = block->server() == kEveryTrainer && (blocks.size() == 1 || block->has_trainer());
    if (placed && !on_trainers && (!block->has_server() || block->server() < 0 || block->server() >= servers)) {
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
    return Broken("owned", "block '", block->name(), "' ", ShapeString(DimsOf(*block)), " is no run of whole rows of '",
                  parameter, "' ", ShapeString(Dims(*whole)));
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

}  // namespace

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
  const auto held = std::find_if(plan.blocks().begin(), plan.blocks().end(),
                                 [](const v1::PlacedBlock& b) { return b.server() == kEveryTrainer; });
  const bool sharded = held != plan.blocks().end() && held->has_trainer();
  for (const v1::PlacedBlock& block : plan.blocks()) {
    RETURN_IF_ERROR(CheckTrainer(block, absl::StrCat("block '", block.name(), "' of '", block.parameter(), "'"),
                                 plan.trainers(), sharded));
  }
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

absl::Status VerifyOwnership(const v1::ProgramDesc& main) {
  if (!main.has_plan()) return absl::OkStatus();
  return CheckOwnership(main, PlanIndex(main.plan()), VarIndex(main.blocks(0)));
}

}  // namespace weir
