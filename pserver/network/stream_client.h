// Client's end of a stream of calls (open_stream.h).
#ifndef WEIR_PSERVER_NETWORK_STREAM_CLIENT_H_
#define WEIR_PSERVER_NETWORK_STREAM_CLIENT_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "framework/wire/slices.h"
#include "pserver/protocol/transport.h"

namespace weir {

// Thread-safe.
class StreamClient {
 public:
  // The answer; `from_server`: the server has said so, or ended the stream, and not the network.
  using Done = std::function<void(absl::StatusOr<Slices> reply, bool from_server)>;

  virtual ~StreamClient() = default;

  // Starts a call. False: the stream has ended or been closed, and `done` is not called. Else `done` runs once: with
  // Unavailable when the stream ends (FailedPrecondition: since the other process has other records, or no streams),
  // with DeadlineExceeded after `timeout`. Slices with an owner are sent without a copy.
  virtual bool Call(Method method, const Slices& request, absl::Duration timeout, Done done) = 0;
  // True before any call is ended because the stream has.
  virtual bool ended() const = 0;
  // True once the other process has said that it speaks this protocol.
  virtual bool greeted() const = 0;
  // Gives the stream up: all calls end with Unavailable soon.
  virtual void Close() = 0;
  // Closes the stream when it has no calls any more.
  virtual void CloseWhenIdle() = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_STREAM_CLIENT_H_
