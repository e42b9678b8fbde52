// Counters of messages and bytes at one end of the wire, among the counters of the process (framework/base/counters.h).
//
//   trainer.<id>.<method>.messages    calls made by the trainer, each try counted; without those to a server that is
//                                     inside it while others are not (Transport::is_own)
//   trainer.<id>.<method>.bytes_out   bytes of their requests
//   trainer.<id>.<method>.bytes_in    bytes of their answers
//   trainer.<id>.<method>.call_time   microseconds from a try to its answer, whatever that is: a histogram
//   server.<id>.<method>.messages     calls received; .bytes_in and .bytes_out are from the server's point of view
//   server.<id>.<method>.call_time    microseconds from a call to its answer, with what the call waits for
//
// <method>: join, heartbeat, push, pull, exchange, control, norms. Bytes are those of requests and answers as Transport
// carries them; the overhead of gRPC and TCP is not counted.
#ifndef WEIR_PSERVER_PROTOCOL_WIRE_COUNTERS_H_
#define WEIR_PSERVER_PROTOCOL_WIRE_COUNTERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "framework/base/counters.h"
#include "pserver/protocol/transport.h"

namespace weir {

// Thread-safe.
class WireCounters {
 public:
  // `role`: "trainer" or "server".
  WireCounters(std::string_view role, int id, Counters* counters = &Counters::Process());

  // Counts a request that goes out (trainer) or has come in (server).
  void Request(Method method, size_t bytes) const;
  // Counts an answer that is not an error.
  void Answer(Method method, size_t bytes) const;
  // Records the time of a call that has been answered.
  void Took(Method method, int64_t nanoseconds) const;

 private:
  struct Of {
    Counter* messages;
    Counter* requests;  // bytes
    Counter* answers;   // bytes
    Histogram* times;   // microseconds
  };
  std::array<Of, kMethods> of_;  // by Method; constant after construction
};

}  // namespace weir

#endif  // WEIR_PSERVER_PROTOCOL_WIRE_COUNTERS_H_
