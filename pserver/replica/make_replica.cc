#include "pserver/replica/make_replica.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/placement.h"
#include "framework/graph/training_mode.h"
#include "pserver/protocol/norm_cuts.h"
#include "pserver/replica/sharded_replica.h"
#include "transpiler/passes/make_replica_program.h"

namespace weir {

namespace {

// Returns the most rounds of norms that the update of a block takes, whichever trainer runs it.
absl::StatusOr<int> NormRoundsOf(const v1::ProgramDesc& main, const v1::AllReduceMode& mode) {
  size_t rounds = 0;
  for (const int32_t index : mode.blocks()) {
    if (index < 0 || index >= main.blocks_size()) continue;  // refused by ServerParams
    ASSIGN_OR_RETURN(const std::vector<NormCut> cuts, NormCutsOf(main.blocks(index)));
    rounds = std::max(rounds, cuts.size());
  }
  return static_cast<int>(rounds);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DenseReplica>> MakeReplica(const ReplicaOptions& options) {
  const v1::AllReduceMode mode = ModeOf(*options.main).all_reduce();
  const int rank = options.collective->rank();
  DenseReplica::Parts parts = {.collective = options.collective, .number = options.main->plan().servers() + rank};
  ASSIGN_OR_RETURN(const Programs own, MakeReplicaProgram(*options.main, *options.startup, rank));
  ASSIGN_OR_RETURN(parts.params, ServerParams::Create(own.main, own.startup, parts.number, options.pool));
  ASSIGN_OR_RETURN(parts.norm_rounds, NormRoundsOf(*options.main, mode));
  for (const v1::PlacedBlock& placed : options.main->plan().blocks()) {
    if (placed.server() != kEveryTrainer) continue;
    const int owner = placed.has_trainer() ? placed.trainer() : -1;
    if (mode.sharded() && (owner < 0 || owner >= options.collective->size())) {
      return absl::InvalidArgumentError(absl::StrCat("the plan has block '", placed.name(), "' for trainer ", owner,
                                                     "; there are ", options.collective->size()));
    }
    parts.blocks.push_back(
        {.placed = placed, .target = parts.params->FindBlock(placed.name()), .owner = mode.sharded() ? owner : -1});
  }
  if (mode.sharded()) return MakeShardedReplica(std::move(parts));
  return std::make_unique<DenseReplica>(std::move(parts));
}

}  // namespace weir
