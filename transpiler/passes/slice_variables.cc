#include "transpiler/passes/slice_variables.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "transpiler/job/check_modes.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

// Version of the placement rules: slicing here, hashes in framework/base/stable_hash.h.
constexpr uint32_t kSchemeVersion = 1;

v1::Plan PlanHeader(const v1::JobConfig& config) {
  v1::Plan plan;
  plan.set_scheme_version(kSchemeVersion);
  plan.set_job(config.name());
  plan.set_servers(ServersOf(config.distribute()));
  if (config.distribute().servers() == 0) plan.set_servers_in_trainers(true);
  plan.set_trainers(config.distribute().trainers());
  plan.set_lanes(config.train().lanes());
  plan.set_sync(config.distribute().sync());
  plan.set_batch_size(config.data().batch_size());
  plan.set_average_by_trainers(config.distribute().average() == v1::Distribute::BY_TRAINERS);
  plan.set_async_eager(config.distribute().async_apply() == v1::Distribute::EAGER);
  plan.set_seed(config.train().seed());
  const v1::Plan::MergeHosts merge_hosts = MergeHostsOf(config.distribute());
  if (merge_hosts != v1::Plan::OFF) plan.set_merge_hosts(merge_hosts);
  return plan;
}

int64_t RowElements(absl::Span<const int64_t> dims) { return dims.size() < 2 ? 1 : ElementCount(dims.subspan(1)); }

v1::PlacedBlock MakeBlock(const v1::VarDesc& param, const v1::VarDesc& grad, int index, int blocks, int64_t begin,
                          int64_t count) {
  v1::PlacedBlock block;
  block.set_name(BlockName(param.name(), index, blocks));
  block.set_parameter(param.name());
  block.set_gradient(grad.name());
  block.set_block(index);
  block.set_element_begin(begin);
  block.set_element_count(count);
  *block.mutable_dims() = param.dims();
  if (param.dims_size() > 0) block.set_dims(0, count / RowElements(Dims(param)));
  block.set_sparse_gradient(grad.kind() == v1::SELECTED_ROWS);
  return block;
}

// Returns the variable of one piece of `whole`, with the dims and the range of `block`.
v1::VarDesc PieceOf(const v1::VarDesc& whole, const std::string& name, const v1::PlacedBlock& block) {
  v1::VarDesc piece = whole;
  piece.set_name(name);
  *piece.mutable_dims() = block.dims();
  // A parameter is one variable; its pieces are where it is kept.
  piece.set_is_parameter(false);
  v1::BlockOf* of = piece.mutable_block_of();
  of->set_variable(whole.name());
  of->set_block(block.block());
  of->set_element_begin(block.element_begin());
  of->set_element_count(block.element_count());
  *of->mutable_whole_dims() = whole.dims();
  return piece;
}

}  // namespace

std::vector<int64_t> SliceElements(absl::Span<const int64_t> dims, int servers, int64_t min_block_size) {
  const int64_t elements = ElementCount(dims);
  if (elements == 0) return {0};
  const int64_t blocks = std::min<int64_t>(servers, std::max<int64_t>(1, elements / min_block_size));
  int64_t size = (elements + blocks - 1) / blocks;
  const int64_t row = RowElements(dims);
  size = (size + row - 1) / row * row;
  std::vector<int64_t> counts;
  for (int64_t begin = 0; begin < elements; begin += size) counts.push_back(std::min(size, elements - begin));
  return counts;
}

std::string BlockName(const std::string& variable, int block, int blocks) {
  return blocks == 1 ? variable : absl::StrCat(variable, ".block", block);
}

absl::StatusOr<std::vector<v1::PlacedBlock>> CutIntoBlocks(const Job& job, absl::Span<const CutParameter> parameters,
                                                           v1::ProgramDesc* main) {
  std::vector<v1::PlacedBlock> placed;
  std::vector<v1::VarDesc> pieces;
  for (const CutParameter& each : parameters) {
    const int blocks = static_cast<int>(each.counts.size());
    int64_t begin = 0;
    for (int i = 0; i < blocks; ++i) {
      const int64_t count = each.counts[static_cast<size_t>(i)];
      placed.push_back(MakeBlock(*each.param, *each.grad, i, blocks, begin, count));
      begin += count;
      if (blocks == 1) continue;
      pieces.push_back(PieceOf(*each.param, placed.back().name(), placed.back()));
      pieces.push_back(PieceOf(*each.grad, BlockName(each.grad->name(), i, blocks), placed.back()));
    }
  }
  VarIndex vars(main->blocks(0));
  for (v1::VarDesc& piece : pieces) {
    if (vars.Contains(piece.name())) {
      return job.positions.Error("model", absl::StrCat("a block of a parameter would be named '", piece.name(),
                                                       "', which is the name of another variable"));
    }
    v1::VarDesc* added = main->mutable_blocks(0)->add_vars();
    *added = std::move(piece);
    vars.Add(*added);
  }
  return placed;
}

absl::StatusOr<bool> SliceVariables(const Job& job, Programs* programs) {
  v1::ProgramDesc* main = &programs->main;
  if (main->has_plan()) return false;
  v1::Plan plan = PlanHeader(job.config);
  const v1::Distribute& distribute = job.config.distribute();
  // A parameter that every trainer holds is one block.
  const bool slices = distribute.slice_var_up() && !AllReduces(distribute);
  std::vector<CutParameter> parameters;
  const VarIndex vars(main->blocks(0));
  for (const v1::ParamGrad& pair : UpdatedParameters(*main)) {
    const v1::VarDesc* param = vars.Find(pair.param());
    const v1::VarDesc* grad = vars.Find(pair.grad());
    CHECK(param != nullptr && grad != nullptr) << pair.param() << ": the verifier has seen this update";
    if (param->kind() == v1::TABLE) continue;
    for (const int64_t d : param->dims()) {
      if (d >= 0) continue;
      return job.positions.Error(
          "model", absl::StrCat("parameter '", param->name(), "' has the unknown shape ", ShapeString(Dims(*param))));
    }
    // Not even one row could be counted in elements.
    if (ElementCount(Dims(*param)) == 0) {
      return job.positions.Error("model", absl::StrCat("parameter '", param->name(), "' has no elements: its shape is ",
                                                       ShapeString(Dims(*param))));
    }
    parameters.push_back(
        {param, grad, SliceElements(Dims(*param), slices ? plan.servers() : 1, distribute.min_block_size())});
  }
  ASSIGN_OR_RETURN(const std::vector<v1::PlacedBlock> blocks, CutIntoBlocks(job, parameters, main));
  plan.mutable_blocks()->Assign(blocks.begin(), blocks.end());
  *main->mutable_plan() = std::move(plan);
  return true;
}

REGISTER_PASS(slice_variables)
({.name = "slice_variables", .run = SliceVariables, .phase = Phase::kPlacement});

}  // namespace weir
