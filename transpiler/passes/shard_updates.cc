#include "transpiler/passes/shard_updates.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/graph/placement.h"
#include "glog/logging.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/block_costs.h"
#include "transpiler/passes/pass.h"
#include "transpiler/passes/share_out.h"
#include "transpiler/passes/slice_variables.h"

namespace weir {
namespace {

void ChooseTrainers(v1::ProgramDesc* main) {
  v1::Plan* const plan = main->mutable_plan();
  const std::vector<BlockCost> costs = BlockCosts(*main);
  std::vector<int64_t> state_bytes;
  for (int i = 0; i < plan->blocks_size(); ++i) {
    const int64_t values = plan->blocks(i).element_count() * static_cast<int64_t>(sizeof(float));
    state_bytes.push_back(costs[static_cast<size_t>(i)].bytes - values);
  }
  ShareOut(state_bytes, plan);
}

}  // namespace

absl::StatusOr<bool> ShardUpdates(const Job& job, Programs* programs) {
  const v1::Distribute& distribute = job.config.distribute();
  if (!ShardsUpdates(distribute)) return false;
  v1::ProgramDesc* const main = &programs->main;
  CHECK(main->has_plan()) << "place first";
  v1::Plan* const plan = main->mutable_plan();
  if (plan->blocks_size() == 0 || plan->blocks(0).has_trainer()) return false;
  const VarIndex vars(main->blocks(0));
  std::vector<CutParameter> parameters;
  for (const v1::PlacedBlock& whole : plan->blocks()) {
    const v1::VarDesc* const param = vars.Find(whole.parameter());
    const v1::VarDesc* const grad = vars.Find(whole.gradient());
    CHECK(param != nullptr && grad != nullptr) << whole.parameter();
    CHECK_EQ(whole.server(), kEveryTrainer) << whole.name();
    const int trainers = distribute.slice_var_up() ? plan->trainers() : 1;
    parameters.push_back({param, grad, PieceElements(Dims(*param), trainers)});
  }
  ASSIGN_OR_RETURN(const std::vector<v1::PlacedBlock> blocks, CutIntoBlocks(job, parameters, main));
  plan->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  for (v1::PlacedBlock& block : *plan->mutable_blocks()) block.set_server(kEveryTrainer);
  ChooseTrainers(main);
  return true;
}

REGISTER_PASS(shard_updates)
({.name = "shard_updates", .run = ShardUpdates, .phase = Phase::kPlacement, .after = "place_blocks"});

}  // namespace weir
