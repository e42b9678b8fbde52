#include "transpiler/passes/shard_updates.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <tuple>

#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/graph/placement.h"
#include "glog/logging.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/block_costs.h"
#include "transpiler/passes/pass.h"
#include "transpiler/passes/slice_variables.h"

namespace weir {
namespace {

// Bytes of a block, or of what a trainer has so far.
struct Share {
  int64_t state = 0, values = 0;
};

Share ShareOf(const v1::PlacedBlock& block, const BlockCost& cost) {
  const int64_t values = block.element_count() * static_cast<int64_t>(sizeof(float));
  return {.state = cost.bytes - values, .values = values};
}

// Chooses the trainers of the blocks of one parameter; `shares`: those of all blocks.
void ShareOut(std::vector<int> blocks, const std::vector<Share>& shares, v1::Plan* plan, std::vector<Share>* trainers) {
  const auto of = [&shares](int block) -> const Share& { return shares[static_cast<size_t>(block)]; };
  std::stable_sort(blocks.begin(), blocks.end(), [&](int a, int b) { return of(a).values > of(b).values; });
  std::vector<bool> has_one(trainers->size(), false);
  for (const int block : blocks) {
    // Without state its values count, which travel.
    const auto load = [&](size_t t) {
      const Share& so_far = (*trainers)[t];
      return of(block).state > 0 ? std::tuple(so_far.state, so_far.values, t)
                                 : std::tuple(so_far.values, so_far.state, t);
    };
    size_t least = trainers->size();
    for (size_t t = 0; t < trainers->size(); ++t) {
      if (!has_one[t] && (least == trainers->size() || load(t) < load(least))) least = t;
    }
    CHECK_LT(least, trainers->size()) << plan->blocks(block).name();
    has_one[least] = true;
    (*trainers)[least].state += of(block).state;
    (*trainers)[least].values += of(block).values;
    plan->mutable_blocks(block)->set_trainer(static_cast<int32_t>(least));
  }
}

void ChooseTrainers(v1::ProgramDesc* main) {
  v1::Plan* const plan = main->mutable_plan();
  const std::vector<BlockCost> costs = BlockCosts(*main);
  std::vector<Share> shares;
  std::map<std::string_view, size_t> place;  // in `parameters`
  struct Parameter {
    std::vector<int> blocks;
    int64_t bytes = 0;
  };
  std::vector<Parameter> parameters;
  for (int i = 0; i < plan->blocks_size(); ++i) {
    const BlockCost& cost = costs[static_cast<size_t>(i)];
    shares.push_back(ShareOf(plan->blocks(i), cost));
    const auto [found, fresh] = place.emplace(plan->blocks(i).parameter(), parameters.size());
    if (fresh) parameters.emplace_back();
    parameters[found->second].blocks.push_back(i);
    parameters[found->second].bytes += cost.bytes;
  }
  std::stable_sort(parameters.begin(), parameters.end(),
                   [](const Parameter& a, const Parameter& b) { return a.bytes > b.bytes; });
  std::vector<Share> trainers(static_cast<size_t>(plan->trainers()));
  for (const Parameter& parameter : parameters) ShareOut(parameter.blocks, shares, plan, &trainers);
}

}  // namespace

std::vector<int64_t> PieceElements(absl::Span<const int64_t> dims, int trainers) {
  const int64_t elements = ElementCount(dims);
  const int64_t row = dims.size() < 2 ? 1 : ElementCount(dims.subspan(1));
  const int64_t rows = elements / row;
  const int64_t pieces = std::max<int64_t>(1, std::min({int64_t{trainers}, rows, elements / kLeastPiece}));
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < pieces; ++i) counts.push_back((rows / pieces + (i < rows % pieces ? 1 : 0)) * row);
  return counts;
}

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
