// HASH_NAME: xxh3 of the name of the parameter block, modulo the number of servers.
#include "framework/base/stable_hash.h"
#include "transpiler/dispatchers/dispatcher.h"

namespace weir {
namespace {

absl::StatusOr<std::vector<int>> HashName(const v1::Distribute&, absl::Span<const v1::PlacedBlock> blocks,
                                          int servers) {
  std::vector<int> placed;
  for (const v1::PlacedBlock& block : blocks) {
    placed.push_back(static_cast<int>(StableHash(block.name()) % static_cast<uint64_t>(servers)));
  }
  return placed;
}
REGISTER_DISPATCHER(HASH_NAME, HashName);

}  // namespace
}  // namespace weir
