// Which server gets which block. One file per rule; a user's own is a message of his own and
//   REGISTER_CUSTOM_DISPATCHER(mine, my::Dispatcher, [](const my::Dispatcher&, absl::Span<const v1::PlacedBlock> blocks,
//                                                       int servers) -> absl::StatusOr<std::vector<int>> {...});
#ifndef WEIR_TRANSPILER_DISPATCHERS_DISPATCHER_H_
#define WEIR_TRANSPILER_DISPATCHERS_DISPATCHER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "transpiler/setting.h"

namespace weir {

// A server in [0, servers) for every block, in their order; called once with all blocks of the job, cut or not. A gradient
// follows its parameter. The same input gives the same answer in every process: no clock, no environment, no salted hash.
using DispatcherRule = std::function<absl::StatusOr<std::vector<int>>(
    const google::protobuf::Message& message, absl::Span<const v1::PlacedBlock> blocks, int servers)>;
// By the name of a v1::Distribute::SplitMethod, or by the message type of distribute.custom_dispatcher.
KindRegistry<DispatcherRule>& DispatcherRegistry();

template <typename M>
struct DispatcherRegistrar {
  using Function = absl::StatusOr<std::vector<int>> (*)(const M&, absl::Span<const v1::PlacedBlock>, int);
  DispatcherRegistrar(const std::string& key, Function rule) {
    DispatcherRegistry().Register(key, [rule](const google::protobuf::Message& message,
                                              absl::Span<const v1::PlacedBlock> blocks, int servers) {
      return rule(static_cast<const M&>(message), blocks, servers);
    });
  }
};
// At namespace scope. `name`: of the split method; the rule is given v1::Distribute.
#define REGISTER_DISPATCHER(name, ...) \
  static const ::weir::DispatcherRegistrar<::weir::v1::Distribute> weir_dispatcher_##name(#name, __VA_ARGS__)
#define REGISTER_CUSTOM_DISPATCHER(name, Message, ...) \
  static const ::weir::DispatcherRegistrar<Message> weir_dispatcher_##name(Message::descriptor()->full_name(), __VA_ARGS__)

}  // namespace weir

#endif  // WEIR_TRANSPILER_DISPATCHERS_DISPATCHER_H_
