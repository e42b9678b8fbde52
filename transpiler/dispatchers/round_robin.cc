// ROUND_ROBIN: blocks are dealt to servers in order; the cursor runs on from parameter to parameter. Blocks that
// distribute.assign has placed are not dealt and do not move it.
#include "transpiler/dispatchers/dispatcher.h"

namespace weir {
namespace {

absl::StatusOr<std::vector<int>> RoundRobin(const v1::Distribute&, const Placement& placement) {
  std::vector<int> placed;
  size_t cursor = 0;
  for (const int assigned : placement.assigned) {
    placed.push_back(assigned >= 0 ? assigned : static_cast<int>(cursor++ % static_cast<size_t>(placement.servers)));
  }
  return placed;
}
REGISTER_DISPATCHER(ROUND_ROBIN, RoundRobin);

}  // namespace
}  // namespace weir
