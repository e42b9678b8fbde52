// Adasum among ranks (framework/collective/adasum.h): each rank owns blocks of the values, gets every other rank's
// addends of them, and combines them level by level of the lane tree. For each level the owners exchange the products
// of their blocks, 24 bytes a block, and add them in the order of the blocks; so large values are spread over all
// ranks, and the bits are those of one rank alone. The results then go to all ranks, or to one.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_ADASUM_RUN_H_
#define WEIR_FRAMEWORK_COLLECTIVE_ADASUM_RUN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "framework/collective/adasum.h"
#include "framework/collective/addend_nodes.h"
#include "framework/collective/flows.h"
#include "framework/collective/operation.h"
#include "framework/collective/reduction.h"
#include "framework/runtime/lane_tree.h"
#include "framework/tensor/dtype.h"

namespace weir {

// A reduction on one rank.
class AdasumRun {
 public:
  static constexpr int kAll = -1;
  struct Options {
    DType dtype = v1::FLOAT32;
    int lanes = 1;
    std::vector<LaneAddend> addends;  // of this rank: adasums of the nodes' lanes
    std::vector<int64_t> segments;    // their numbers of elements; at least one. Each has an adasum of its own
    int reader = kAll;                // rank that gets the results, or kAll
    char* out = nullptr;              // all elements, on a rank that gets the results; may be one addend's memory
    int64_t message_bytes = 0;
  };
  // `operation` is borrowed, with its header complete.
  AdasumRun(Operation* operation, Options options);

  absl::Status Run();
  // Returns bits of the segments of which any rank has had an addend; nothing was written to others. Requires: Run has
  // returned OK.
  uint64_t present() const { return all_.present; }
  int64_t samples() const { return all_.samples; }

 private:
  struct Block {
    size_t segment = 0;
    int64_t begin = 0, count = 0;  // elements
  };
  struct Part {
    int64_t begin = 0, count = 0;
  };
  using Products = std::vector<AdasumProducts>;

  int64_t Bytes(int64_t elements) const { return elements * element_bytes_; }
  bool Reads(int rank) const { return options_.reader == kAll || options_.reader == rank; }
  // Returns the longest runs of elements of a rank's blocks whose segments are present.
  std::vector<Part> PartsOf(int rank, uint64_t present) const;
  // Returns the place of a node's values of one of this rank's blocks.
  char* ValuesOf(int node, const Block& block);
  absl::Status ExchangeAddends();
  // Combines nodes that depend on no other pair of `adds`.
  absl::Status CombineLevel(const std::vector<LaneAdd>& adds, int level);
  // Returns the products of all pairs over the blocks of this rank that both have: by pair, in the order of blocks.
  Products OwnProducts(const std::vector<LaneAdd>& adds);
  // Exchanges them with all ranks; by rank.
  absl::Status ExchangeProducts(const std::vector<LaneAdd>& adds, int level, std::vector<Products>* by_rank);
  absl::Status SendResults();

  Operation& operation_;
  const Options options_;
  const int64_t element_bytes_;
  std::vector<Block> blocks_;   // of all segments
  std::vector<size_t> begins_;  // first block of each rank, and their end
  AddendNodes all_;
  int64_t own_begin_ = 0, own_count_ = 0;  // elements of this rank's blocks
  // Values of this rank's blocks, of one node behind the other; those of a pair's left node become its result.
  MessageMemory::Block values_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_ADASUM_RUN_H_
