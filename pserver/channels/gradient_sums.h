// Sums of the gradients of several batches, lane by lane, to be pushed once: for gradient accumulation, and for the
// threads of one trainer.
//
// A lane's gradients are added in the order in which they are given; an absent one is skipped, never added as zero.
// Rows are merged by id. So the sums are a function only of the batches and their order.
#ifndef WEIR_PSERVER_CHANNELS_GRADIENT_SUMS_H_
#define WEIR_PSERVER_CHANNELS_GRADIENT_SUMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/tensor.h"

namespace weir {

// Thread-safe for different blocks; one block is added to, or sent, by one thread at a time.
class GradientSums {
 public:
  // Forgets everything. Requires: no sum that was sent is still read, and no other call is under way.
  void Clear();

  // Adds one batch's gradient of a block or table. InvalidArgument when it does not have the size of an earlier one.
  absl::Status AddDense(const BlockRef& block, absl::Span<const StepChannel::LaneTensor> lanes);
  absl::Status AddRows(const BlockRef& block, int width, absl::Span<const StepChannel::LaneRows> lanes);

  // Returns true if something has been added for this block and has not been sent.
  bool Has(const BlockRef& block);
  // Sends the sums of one block to the channel, if it has any that were not sent. They stay until Clear.
  absl::Status Send(const BlockRef& block, StepChannel* channel);
  // Sends the sums of all other blocks, in order of names and servers.
  absl::Status SendRest(StepChannel* channel);

 private:
  // Sum of a lane's rows, in order of first appearance.
  struct Rows {
    std::vector<int64_t> ids;
    std::vector<float> values;                      // [ids, width]
    std::vector<float> counts;                      // [ids, 2], of tables that count shows and clicks
    absl::flat_hash_map<int64_t, size_t> place_of;  // positions in ids
    SelectedRows out;                               // made when the sum is sent
    Tensor out_counts;
  };
  struct Block {
    BlockRef ref;
    int width = 0;  // 0: dense
    int64_t height = -1;
    bool sent = false;
    bool counts = false;          // of a table that counts: its rows come with shows and clicks, even if there are none
    std::map<int, Tensor> dense;  // by lane
    std::map<int, Rows> rows;
  };
  using Key = std::pair<std::string, int>;  // name, server

  Block* Find(const BlockRef& ref, int width);
  static absl::Status SendBlock(Block* block, StepChannel* channel);

  Mutex mu_;
  // Blocks never move; their contents belong to the thread that adds to them.
  std::map<Key, std::unique_ptr<Block>> blocks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_GRADIENT_SUMS_H_
