// Messages and bytes of one end of the wire, among the counters of the process (framework/base/counters.h).
//
//   trainer.<id>.<method>.messages    calls that the trainer has made, tries counted one by one
//   trainer.<id>.<method>.bytes_out   of their requests
//   trainer.<id>.<method>.bytes_in    of their answers
//   server.<id>.<method>.messages     calls that have come, .bytes_in and .bytes_out as the server sees them
//
// <method>: join, heartbeat, push, pull, exchange, control, norms. Bytes are those of requests and answers as Transport
// carries them; what gRPC and TCP put around them is not counted.
#ifndef WEIR_PSERVER_PROTOCOL_WIRE_COUNTERS_H_
#define WEIR_PSERVER_PROTOCOL_WIRE_COUNTERS_H_

#include <array>
#include <cstddef>
#include <string_view>

#include "framework/base/counters.h"
#include "pserver/protocol/transport.h"

namespace weir {

// Thread-safe.
class WireCounters {
 public:
  // `role`: "trainer" or "server".
  WireCounters(std::string_view role, int id, Counters* counters = &Counters::Process());

  // A call begins: its request goes out (trainer) or has come in (server).
  void Request(Method method, size_t bytes) const;
  // Its answer, when it is none of an error.
  void Answer(Method method, size_t bytes) const;

 private:
  struct Of {
    Counter* messages;
    Counter* requests;  // bytes
    Counter* answers;   // bytes
  };
  std::array<Of, kMethods> of_;  // by Method; constant after construction
};

}  // namespace weir

#endif  // WEIR_PSERVER_PROTOCOL_WIRE_COUNTERS_H_
