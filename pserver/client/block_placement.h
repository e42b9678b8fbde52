// Index of the blocks and tables that a plan has placed on servers, and of the formats in which their values travel.
// Constant but for SetRelayed.
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
  // Returns the floats in a row of a table, or of a block whose gradient comes as rows; 0 if the name is of neither.
  int RowWidth(std::string_view name) const;
  // Sets the servers that are spoken to through the relay of this host (pserver/host): values travel to it in float32.
  // Requires: called before the first push and pull, if at all.
  void SetRelayed(std::vector<bool> relayed) { relayed_ = std::move(relayed); }
  // Return the formats of dense values, and of the rows of a table, to and from a server.
  v1::WireFormat PushFormat(int server) const { return IsRelayed(server) ? v1::WIRE_FLOAT32 : plan_.wire().push(); }
  v1::WireFormat PullFormat(int server) const { return IsRelayed(server) ? v1::WIRE_FLOAT32 : plan_.wire().pull(); }
  v1::WireFormat PushFormat(const v1::PlacedTable& table, int server) const {
    return IsRelayed(server) ? v1::WIRE_FLOAT32 : table.wire().push();
  }
  v1::WireFormat PullFormat(const v1::PlacedTable& table, int server) const {
    return IsRelayed(server) ? v1::WIRE_FLOAT32 : table.wire().pull();
  }

  // Return the table or parameter of a name; null if there is none.
  const v1::PlacedTable* FindTable(std::string_view name) const;
  const FetchedParameter* FindFetched(std::string_view name) const;

  // Error for a block that the plan does not have on that server.
  static absl::Status NoBlock(const BlockRef& block);

 private:
  bool IsRelayed(int server) const { return !relayed_.empty() && relayed_[static_cast<size_t>(server)]; }

  const v1::Plan& plan_;
  std::vector<bool> relayed_;  // by server; empty: none is
  std::map<std::string, int64_t, std::less<>> block_counts_;
  std::map<std::string, int, std::less<>> row_widths_;  // of blocks
  std::map<std::string, const v1::PlacedTable*, std::less<>> tables_;
  std::map<std::string, FetchedParameter, std::less<>> fetched_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_BLOCK_PLACEMENT_H_
