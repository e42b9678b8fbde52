// ROUND_ROBIN: blocks are dealt to servers in order; the cursor runs on from parameter to parameter.
#include "transpiler/dispatchers/dispatcher.h"

namespace weir {
namespace {

absl::StatusOr<std::vector<int>> RoundRobin(const v1::Distribute&, absl::Span<const v1::PlacedBlock> blocks, int servers) {
  std::vector<int> placed;
  for (size_t cursor = 0; cursor < blocks.size(); ++cursor) {
    placed.push_back(static_cast<int>(cursor % static_cast<size_t>(servers)));
  }
  return placed;
}
REGISTER_DISPATCHER(ROUND_ROBIN, RoundRobin);

}  // namespace
}  // namespace weir
