// Dispatchers: rules that assign a server to each block. One file per rule; a user's own is a user-defined message and
//
//   REGISTER_CUSTOM_DISPATCHER(mine, my::Dispatcher,
//                              [](const my::Dispatcher&, absl::Span<const v1::PlacedBlock> blocks, int servers)
//                                  -> absl::StatusOr<std::vector<int>> {...});
//
// or, if the rule uses the costs of blocks or the placements of distribute.assign,
//
//   REGISTER_CUSTOM_DISPATCHER(mine, my::Dispatcher, [](const my::Dispatcher&, const Placement& placement)
//                                                        -> absl::StatusOr<std::vector<int>> {...});
#ifndef WEIR_TRANSPILER_DISPATCHERS_DISPATCHER_H_
#define WEIR_TRANSPILER_DISPATCHERS_DISPATCHER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "transpiler/base/setting.h"

namespace weir {

// Cost of a block to its server.
struct BlockCost {
  // Bytes at rest: values and optimizer state.
  int64_t bytes = 0;
  // Work per step, in eighths of a nanosecond: traffic in and out, and the update (transpiler/passes/block_costs.h).
  int64_t load = 0;
};

// Blocks to be placed. Spans have one element per block of the job, in placement order, and are valid during the call.
struct Placement {
  absl::Span<const v1::PlacedBlock> blocks;
  absl::Span<const BlockCost> costs;
  // Server by distribute.assign; -1: the dispatcher decides.
  absl::Span<const int> assigned;
  int servers = 1;
};

// Returns a server in [0, servers) for every block, in order; called once with all blocks of the job, cut or not. A
// gradient goes to the server of its parameter. The result for an assigned block is ignored. Equal input must give
// equal results in every process: no clock, no environment, no salted hash.
using DispatcherRule = std::function<absl::StatusOr<std::vector<int>>(const google::protobuf::Message& message,
                                                                      const Placement& placement)>;
// Registry by the name of a v1::Distribute::SplitMethod, or by the message type of distribute.custom_dispatcher.
KindRegistry<DispatcherRule>& DispatcherRegistry();

// Places the largest weight first (of equals the earlier block), each on the server with the smallest sum so far (of
// equals the lower one); assigned blocks count from the beginning. With this greedy rule the fullest server holds at
// most 4/3 of the best possible.
std::vector<int> PlaceLargestFirst(const Placement& placement, absl::Span<const int64_t> weights);

template <typename M>
struct DispatcherRegistrar {
  using Simple = absl::StatusOr<std::vector<int>> (*)(const M&, absl::Span<const v1::PlacedBlock>, int);
  using Weighing = absl::StatusOr<std::vector<int>> (*)(const M&, const Placement&);
  DispatcherRegistrar(const std::string& key, Simple rule) {
    DispatcherRegistry().Register(key, [rule](const google::protobuf::Message& message, const Placement& placement) {
      return rule(static_cast<const M&>(message), placement.blocks, placement.servers);
    });
  }
  DispatcherRegistrar(const std::string& key, Weighing rule) {
    DispatcherRegistry().Register(key, [rule](const google::protobuf::Message& message, const Placement& placement) {
      return rule(static_cast<const M&>(message), placement);
    });
  }
};
// Use at namespace scope. `name`: name of the split method; the rule receives v1::Distribute.
#define REGISTER_DISPATCHER(name, ...) \
  static const ::weir::DispatcherRegistrar<::weir::v1::Distribute> weir_dispatcher_##name(#name, __VA_ARGS__)
#define REGISTER_CUSTOM_DISPATCHER(name, Message, ...)                                                         \
  static const ::weir::DispatcherRegistrar<Message> weir_dispatcher_##name(Message::descriptor()->full_name(), \
                                                                           __VA_ARGS__)

}  // namespace weir

#endif  // WEIR_TRANSPILER_DISPATCHERS_DISPATCHER_H_
