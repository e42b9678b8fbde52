// Connects trainers and servers of one process through gRPC, for calibrations. For job_questions_main.cc; the rooms
// below do not know the network.
#ifndef WEIR_TRANSPILER_LOOPBACK_H_
#define WEIR_TRANSPILER_LOOPBACK_H_

#include <memory>

#include "absl/status/statusor.h"

namespace weir {

class InProcessServers;
class Transport;

// Returns a transport to `servers`, which are borrowed, through shared memory or, where the machine has none, sockets.
absl::StatusOr<std::unique_ptr<Transport>> LoopbackTo(InProcessServers* servers);

// Returns a transport to one server that answers every Deliver with an empty message, through shared memory or over
// TCP.
absl::StatusOr<std::unique_ptr<Transport>> LoopbackEcho(bool unix_socket);

}  // namespace weir

#endif  // WEIR_TRANSPILER_LOOPBACK_H_
