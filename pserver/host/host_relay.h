// Speaks to servers for all trainers of a host: runs in the process of the lowest of them, the sender.
//
// Pushes are merged (merged_pushes.h), pulls shared (shared_pulls.h); each server by itself. The relay holds no timers:
// a trainer that gets no answer in time repeats its call. docs/wire.md, "Merged pushes". Thread-safe.
#ifndef WEIR_PSERVER_HOST_HOST_RELAY_H_
#define WEIR_PSERVER_HOST_HOST_RELAY_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "framework/base/counters.h"
#include "framework/base/thread_pool.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/residuals.h"
#include "pserver/host/host_group.h"
#include "pserver/host/merged_pushes.h"
#include "pserver/host/shared_pulls.h"
#include "pserver/member/call_counters.h"
#include "pserver/protocol/transport.h"

namespace weir {

class HostRelay : public std::enable_shared_from_this<HostRelay> {
 public:
  struct Options {
    HostGroup group;
    v1::Plan plan;
    absl::Duration rpc;  // limit of one try of a call to a server
    // Borrowed as long as Handle is called. `transport`: to the servers. `residuals`: of the sender.
    Transport* transport = nullptr;
    Residuals* residuals = nullptr;
    ThreadPool* pool = nullptr;
    Counters* counters = nullptr;         // of the process
    std::shared_ptr<CallCounters> calls;  // of the sender: what the relay sends and gets is its traffic
    // What a server is told of its caller, the sender.
    std::function<v1::Caller(int server)> caller;
  };
  // Calls that are under way when the last owner is gone keep the relay until they have ended.
  static std::shared_ptr<HostRelay> Create(Options options);

  // Takes a Push or a Pull of a trainer of the group for a server of the group. Answers now or later, on any thread.
  // The request is copied unless it is the sender's own.
  void Handle(Method method, int server, const Slices& request, const ReplyCallback& reply, bool own = false);

  const HostGroup& group() const { return options_.group; }

 private:
  explicit HostRelay(Options options);
  struct OfServer {
    std::unique_ptr<MergedPushes> pushes;
    std::unique_ptr<SharedPulls> pulls;
  };
  std::function<void(Slices, ReplyCallback)> SenderTo(int server, Method method);

  const Options options_;
  const BlockPlacement placement_;
  BufferPool buffers_;
  std::vector<OfServer> servers_;  // by index; empty for those that are not relayed
};

}  // namespace weir

#endif  // WEIR_PSERVER_HOST_HOST_RELAY_H_
