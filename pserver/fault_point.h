// Planted process faults: a process dies, freezes or stalls at a named moment, so that tests can observe the others.
// Off unless the environment variable WEIR_FAULT_POINT asks for it:
//
//   WEIR_FAULT_POINT=<action>:<role>.<id>:<point>[:<step>]      kill:server.1:last_part:20
//
// All processes of a job may have the same variable; the process it names obeys, once.
//
//   actions
//   kill           sends SIGKILL to itself
//   stop           sends SIGSTOP to itself; another process may continue it
//   stall          the thread that reaches the point never goes on; heart-beats do, except to a server whose joins
//                  stall: one thread serves both
//
//   points         of a trainer                                      of a server
//   connecting     its first join is about to be sent                a join has come, not answered
//   first_part     the first part of a step is about to be sent      the first part of a step has come, not yet taken
//   between_parts  the first acknowledgement of a part has come      the first part of a step is taken, not answered
//   last_part      a last part is acknowledged, nobody knows yet     a last part is taken, not answered
//   publishing     all shards are written, nothing is published      its shard is written, not answered
//   reader         batch <step> of a stream is about to be read      (no such point)
#ifndef WEIR_PSERVER_FAULT_POINT_H_
#define WEIR_PSERVER_FAULT_POINT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "pserver/protocol/transport.h"
#include "pserver/server/server_core.h"

namespace weir {

enum class FaultAction { kKill, kStop, kStall };
enum class FaultMoment { kConnecting, kFirstPart, kBetweenParts, kLastPart, kPublishing, kReader };

struct FaultPoint {
  FaultAction action = FaultAction::kKill;
  std::string role;  // "server", "trainer"
  int id = 0;
  FaultMoment moment = FaultMoment::kConnecting;
  int64_t step = 0;
};

// Parses the value of WEIR_FAULT_POINT. InvalidArgument says what was expected.
absl::StatusOr<FaultPoint> ParseFaultPoint(std::string_view text);

// Wraps the core, or the transport, if the environment names this process; else returns it unchanged. InvalidArgument
// if the variable cannot be parsed.
absl::StatusOr<std::unique_ptr<ServerCore>> WithFaultPoint(std::unique_ptr<ServerCore> core, int server);
absl::StatusOr<std::unique_ptr<Transport>> WithFaultPoint(std::unique_ptr<Transport> transport, int trainer);
// Returns a function for LaneReaderOptions.before_batch; empty if the environment does not name this trainer's reader.
absl::StatusOr<std::function<void(int stream, int64_t batch)>> ReaderFaultPoint(int trainer);

}  // namespace weir

#endif  // WEIR_PSERVER_FAULT_POINT_H_
