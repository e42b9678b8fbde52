// Index of the blocks and tables that a plan has placed on servers. Constant after construction.
#ifndef WEIR_PSERVER_CLIENT_BLOCK_PLACEMENT_H_
#define WEIR_PSERVER_CLIENT_BLOCK_PLACEMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "framework/runtime/param_channel.h"
#include "proto/plan.pb.h"

namespace weir {

// Dense parameter whose rows are fetched.
struct FetchedParameter {
  struct Block {
    std::string name;
    int server = 0;
    int64_t begin = 0, end = 0;  // rows
  };
  int64_t rows = 0;
  std::vector<Block> blocks;  // ascending
};

class BlockPlacement {
 public:
  // Borrows the plan.
  explicit BlockPlacement(const v1::Plan* plan);

  const v1::Plan& plan() const { return plan_; }
  // Return the number of elements of a block, null if the plan does not have the block; the first also if the server of
  // `block` is none of the plan's.
  std::optional<int64_t> BlockCount(const BlockRef& block) const;
  std::optional<int64_t> BlockCount(std::string_view name) const;
  // Return the table or parameter of a name; null if there is none.
  const v1::PlacedTable* FindTable(std::string_view name) const;
  const FetchedParameter* FindFetched(std::string_view name) const;

  // Error for a block that the plan does not have on that server.
  static absl::Status NoBlock(const BlockRef& block);

 private:
  const v1::Plan& plan_;
  std::map<std::string, int64_t, std::less<>> block_counts_;
  std::map<std::string, const v1::PlacedTable*, std::less<>> tables_;
  std::map<std::string, FetchedParameter, std::less<>> fetched_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_BLOCK_PLACEMENT_H_
