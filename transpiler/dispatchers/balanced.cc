// BALANCED_BYTES and BALANCED_LOAD: largest block first, each to the server that has least so far, of bytes at rest or
// of estimated work in a step.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <queue>
#include <utility>

#include "transpiler/dispatchers/dispatcher.h"

namespace weir {

std::vector<int> PlaceLargestFirst(const Placement& placement, absl::Span<const int64_t> weights) {
  std::vector<int64_t> sums(static_cast<size_t>(placement.servers), 0);
  std::vector<int> placed(placement.assigned.begin(), placement.assigned.end());
  for (size_t i = 0; i < placed.size(); ++i) {
    if (placed[i] >= 0) sums[static_cast<size_t>(placed[i])] += weights[i];
  }
  using Entry = std::pair<int64_t, int>;  // sum, server
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> least;
  for (int s = 0; s < placement.servers; ++s) least.emplace(sums[static_cast<size_t>(s)], s);
  std::vector<size_t> order(placed.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  for (const size_t i : order) {
    if (placed[i] >= 0) continue;
    const auto [sum, server] = least.top();
    least.pop();
    placed[i] = server;
    least.emplace(sum + weights[i], server);
  }
  return placed;
}

namespace {

absl::StatusOr<std::vector<int>> BalancedBytes(const v1::Distribute&, const Placement& placement) {
  std::vector<int64_t> weights;
  for (const BlockCost& cost : placement.costs) weights.push_back(cost.bytes);
  return PlaceLargestFirst(placement, weights);
}
REGISTER_DISPATCHER(BALANCED_BYTES, BalancedBytes);

absl::StatusOr<std::vector<int>> BalancedLoad(const v1::Distribute&, const Placement& placement) {
  std::vector<int64_t> weights;
  for (const BlockCost& cost : placement.costs) weights.push_back(cost.load);
  return PlaceLargestFirst(placement, weights);
}
REGISTER_DISPATCHER(BALANCED_LOAD, BalancedLoad);

}  // namespace
}  // namespace weir
