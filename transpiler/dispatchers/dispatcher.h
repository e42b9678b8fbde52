// Which server gets which block. One file per rule; a user's own is a message of his own and
//   REGISTER_CUSTOM_DISPATCHER(mine, my::Dispatcher, [](const my::Dispatcher&, absl::Span<const v1::PlacedBlock>
//   blocks,
//                                                       int servers) -> absl::StatusOr<std::vector<int>> {...});
// or, when it wants to know what a block weighs or which blocks distribute.assign has placed,
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
#include "transpiler/setting.h"

namespace weir {

// What a block is to its server.
struct BlockCost {
  // At rest: values and optimizer state.
  int64_t bytes = 0;
  // Of a step, in eighths of a nanosecond: what comes in and goes out, and the update (transpiler/block_costs.h).
  int64_t load = 0;
};

// What is to be placed. Spans have one element per block of the job, in placement order, and live for the call.
struct Placement {
  absl::Span<const v1::PlacedBlock> blocks;
  absl::Span<const BlockCost> costs;
  // Server by distribute.assign; -1: the dispatcher decides.
  absl::Span<const int> assigned;
  int servers = 1;
};

// A server in [0, servers) for every block, in their order; called once with all blocks of the job, cut or not. A
// gradient follows its parameter. What it says of an assigned block counts for nothing. The same input gives the same
// answer in every process: no clock, no environment, no salted hash.
using DispatcherRule = std::function<absl::StatusOr<std::vector<int>>(const google::protobuf::Message& message,
                                                                      const Placement& placement)>;
// By the name of a v1::Distribute::SplitMethod, or by the message type of distribute.custom_dispatcher.
KindRegistry<DispatcherRule>& DispatcherRegistry();

// Largest weight first (of equals the earlier block), each to the server with the smallest sum so far (of equals the
// lower one); assigned blocks count from the beginning. The greedy rule: the fullest server holds at most 4/3 of the
// best possible.
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
// At namespace scope. `name`: of the split method; the rule is given v1::Distribute.
#define REGISTER_DISPATCHER(name, ...) \
  static const ::weir::DispatcherRegistrar<::weir::v1::Distribute> weir_dispatcher_##name(#name, __VA_ARGS__)
#define REGISTER_CUSTOM_DISPATCHER(name, Message, ...)                                                         \
  static const ::weir::DispatcherRegistrar<Message> weir_dispatcher_##name(Message::descriptor()->full_name(), \
                                                                           __VA_ARGS__)

}  // namespace weir

#endif  // WEIR_TRANSPILER_DISPATCHERS_DISPATCHER_H_
