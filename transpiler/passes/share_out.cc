#include "transpiler/passes/share_out.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <tuple>

#include "framework/tensor/tensor.h"
#include "glog/logging.h"

namespace weir {
namespace {

// Bytes of a block, or of what a trainer has so far.
struct Share {
  int64_t state = 0, values = 0;
};

// Chooses the trainers of the blocks of one parameter; `shares`: those of all blocks.
void ShareOutParameter(std::vector<int> blocks, const std::vector<Share>& shares, v1::Plan* plan,
                       std::vector<Share>* trainers) {
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

void ShareOut(absl::Span<const int64_t> state_bytes, v1::Plan* plan) {
  CHECK_EQ(state_bytes.size(), static_cast<size_t>(plan->blocks_size()));
  std::vector<Share> shares;
  std::map<std::string_view, size_t> place;  // in `parameters`
  struct Parameter {
    std::vector<int> blocks;
    int64_t bytes = 0;
  };
  std::vector<Parameter> parameters;
  for (int i = 0; i < plan->blocks_size(); ++i) {
    const int64_t values = plan->blocks(i).element_count() * static_cast<int64_t>(sizeof(float));
    shares.push_back({.state = state_bytes[static_cast<size_t>(i)], .values = values});
    const auto [found, fresh] = place.emplace(plan->blocks(i).parameter(), parameters.size());
    if (fresh) parameters.emplace_back();
    parameters[found->second].blocks.push_back(i);
    parameters[found->second].bytes += shares.back().state + values;
  }
  std::stable_sort(parameters.begin(), parameters.end(),
                   [](const Parameter& a, const Parameter& b) { return a.bytes > b.bytes; });
  std::vector<Share> trainers(static_cast<size_t>(plan->trainers()));
  for (const Parameter& parameter : parameters) ShareOutParameter(parameter.blocks, shares, plan, &trainers);
}

}  // namespace weir
