// Path from a client to servers: over gRPC (pserver/network/grpc_transport.h), by a call in the same process
// (pserver/inside/in_process.h), or through a test transport that drops, repeats and delays calls (tests/testing).
#ifndef WEIR_PSERVER_PROTOCOL_TRANSPORT_H_
#define WEIR_PSERVER_PROTOCOL_TRANSPORT_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/wire/slices.h"

namespace weir {

// Methods of weir.v1.ParameterServer, in its order, and of weir.v1.Collective.
enum class Method { kJoin, kHeartbeat, kPush, kPull, kExchange, kControl, kNorms, kDeliver };
inline constexpr int kMethods = 8;
// Returns the name of the method in its service: "Join", ...
std::string_view MethodName(Method method);
// Returns the path of the method in a gRPC request: "/weir.v1.ParameterServer/Join", ...
std::string MethodPath(Method method);

using ReplyCallback = std::function<void(absl::StatusOr<Slices>)>;

// Calls servers by their index in the job. Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;
  // Sends one request. `done` runs exactly once, on any thread, possibly before Call returns and at the latest shortly
  // after `timeout`. Request and reply bytes are a serialized message (Join, Heartbeat, Exchange, Control, Norms) or a
  // frame (Push, Pull, Deliver). Unavailable: the server was not reached; DeadlineExceeded: no answer in time. The
  // caller may repeat the call after both. Other codes are the server's (proto/parameter_server.proto).
  virtual void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) = 0;
  // Does the same for a call whose answer is not waited for by itself: it may come a second later, or when the next
  // answer of the server does, so that no thread has to wake up for it.
  virtual void CallPatiently(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) {
    Call(server, method, std::move(request), timeout, std::move(done));
  }
  // Name of the server for messages: "server 1 at 127.0.0.1:6171".
  virtual std::string Describe(int server) const = 0;
  virtual int servers() const = 0;
  // True if Call does the server's work before it returns; it is then worth making several calls on several threads.
  virtual bool answers_inside() const { return false; }
  // True if bytes may be corrupted on the way: payloads of Push and Pull then carry checksums, and both ends compare
  // them.
  virtual bool checks_payloads() const { return true; }
  // True if the server is inside the calling trainer although others are not, or calls of the method go to a relay on
  // this host: they are no traffic, and the trainer does not count them.
  virtual bool is_own(int /*server*/, Method /*method*/) const { return false; }
  // True if calls of tensors reach the server through memory that it shares with this process: it is on this machine.
  // Known after the first answer of the server.
  virtual bool shares_memory(int /*server*/) const { return false; }
};

}  // namespace weir

#endif  // WEIR_PSERVER_PROTOCOL_TRANSPORT_H_
