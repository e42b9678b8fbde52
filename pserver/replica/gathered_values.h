// Copy of all dense parameters in a trainer that updates a share of them (distribute.update is SHARDED): what its
// program receives. All trainers hold the same bits. Not thread-safe.
//
// A block with a dense gradient changes in every step; one with a gradient by rows changes in the rows of the step
// alone, and is never exchanged whole but at the beginning.
#ifndef WEIR_PSERVER_REPLICA_GATHERED_VALUES_H_
#define WEIR_PSERVER_REPLICA_GATHERED_VALUES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/collective/collective.h"
#include "proto/plan.pb.h"

namespace weir {

class GatheredValues {
 public:
  // `blocks`: those of the plan, each with its trainer. `collective`: its ranks are the trainers; borrowed.
  GatheredValues(std::vector<v1::PlacedBlock> blocks, Collective* collective);

  // Returns the values of a block.
  absl::Span<float> values(int block);
  absl::Span<const float> values(int block) const { return const_cast<GatheredValues*>(this)->values(block); }
  // Returns the blocks that this trainer updates.
  const std::vector<int>& own() const { return own_; }

  // Copies rows `ids` of a parameter with a gradient by rows to out [ids.size(), width]. InvalidArgument: the parameter
  // is no such matrix, or has no such row.
  absl::Status CopyRows(std::string_view parameter, absl::Span<const int64_t> ids, int width, float* out) const;

  // The following exchange values. This trainer's own blocks have their new values; those of all others become theirs.
  // Requires: every trainer calls them in the same order, since each waits for all.
  absl::Status GatherAll();
  // Does so after a step. `rows`: of own blocks with a gradient by rows, the rows that may have changed, ascending.
  absl::Status GatherStep(const std::map<int, std::vector<int64_t>>& rows);
  // The values of trainer `root` become those of all.
  absl::Status Broadcast(int root);

  // Return the rows of own blocks as bytes for the others, and write rows that trainer `from` has sent so. DataLoss:
  // the bytes are no rows of blocks that it updates.
  std::string PackRows(const std::map<int, std::vector<int64_t>>& rows) const;
  absl::Status ReadRows(const std::string& bytes, int from);

 private:
  // Blocks with dense gradients, or those with gradients by rows: values in order of trainers.
  struct Region {
    std::vector<float> values;
    std::vector<int64_t> begins;  // of the trainers, and the end of the last one
  };
  static constexpr size_t kDense = 0, kRows = 1;
  static size_t RegionOf(const v1::PlacedBlock& block) { return block.sparse_gradient() ? kRows : kDense; }
  absl::Status Gather(size_t region);
  // Returns a name for the next collective operation, equal on all trainers.
  std::string NextName(std::string_view what);

  const std::vector<v1::PlacedBlock> blocks_;
  Collective& collective_;
  // Constant after construction, but for the values.
  std::vector<int64_t> begins_;  // of each block in its region
  std::vector<int> own_;
  std::map<std::string, std::vector<int>, std::less<>> by_rows_;  // blocks of parameters with gradients by rows
  std::array<Region, 2> regions_;
  int64_t exchanges_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_REPLICA_GATHERED_VALUES_H_
