// Deadlines for gRPC by the monotonic clock, and a check whether gRPC's reconnect pauses can be trusted.
#ifndef WEIR_PSERVER_NETWORK_GRPC_TIMERS_H_
#define WEIR_PSERVER_NETWORK_GRPC_TIMERS_H_

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace weir {

// Returns the time `timeout` from now. For ClientContext::set_deadline and Server::Shutdown.
gpr_timespec GrpcDeadline(absl::Duration timeout);

// Returns true if the wall clock has been set back since the first call, as far as calls of this function have seen it;
// once true, always true. gRPC 1.51 keeps the pauses between attempts to connect in a thread that sleeps until a
// wall-clock time: when that clock is set back by an hour, a channel without a connection makes none for an hour.
// Deadlines of calls are not affected. Costs two clock reads. Thread-safe.
bool WallClockHasGoneBack();

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_GRPC_TIMERS_H_
