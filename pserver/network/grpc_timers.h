// gRPC and time: deadlines by the monotonic clock, and whether its pauses can be trusted.
#ifndef WEIR_PSERVER_NETWORK_GRPC_TIMERS_H_
#define WEIR_PSERVER_NETWORK_GRPC_TIMERS_H_

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace weir {

// `timeout` from now. For ClientContext::set_deadline and Server::Shutdown.
gpr_timespec GrpcDeadline(absl::Duration timeout);

// Whether the wall clock has been set back since the first call, as far as calls of this have seen it; never false
// again. The thread in which gRPC 1.51 keeps the pauses between attempts to connect sleeps until a time of the wall
// clock: when that is set back by an hour, a channel that has no connection makes none for an hour. Deadlines of calls
// are not concerned. Costs two looks at clocks. Thread-safe.
bool WallClockHasGoneBack();

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_GRPC_TIMERS_H_
