// Calls of a client through one stream, whatever carries its batches.
#ifndef WEIR_PSERVER_NETWORK_STREAM_CALLS_H_
#define WEIR_PSERVER_NETWORK_STREAM_CALLS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "framework/base/mutex.h"
#include "framework/wire/slices.h"
#include "pserver/network/stream_client.h"
#include "pserver/sockets/call_deadlines.h"
#include "pserver/sockets/stream_writer.h"

namespace weir {

// Thread-safe. Must be owned by a shared_ptr.
class StreamCalls : public StreamClient, public std::enable_shared_from_this<StreamCalls> {
 public:
  bool Call(Method method, const Slices& request, absl::Duration timeout, Done done) override;
  bool ended() const override { return ended_flag_; }
  void CloseWhenIdle() override;

 protected:
  // `write` as in StreamWriter. `deadlines` is borrowed.
  StreamCalls(CallDeadlines* deadlines, std::function<bool(Slices batch)> write);

  StreamWriter& writer() { return writer_; }
  // Ends the calls that a batch has answers to; calls `read_on` before. Does neither if it is no batch: the error ends
  // the stream. `ended`: the other process has said why it ends the stream.
  absl::Status HandOut(const Slices& batch, const std::function<void()>& read_on, absl::Status* ended);
  // Takes no more calls. Returns false if it took none before.
  bool Stop();
  // Ends all calls, for a stream that has ended with `why`. Requires: Stop, and no HandOut runs.
  void EndCalls(const absl::Status& why, bool from_server);

 private:
  struct Pending {
    Done done;
    uint64_t deadline = 0;
  };

  static void Expire(const std::weak_ptr<StreamCalls>& weak, uint64_t call);
  void Answer(uint64_t call, absl::StatusOr<Slices> reply, bool from_server);

  CallDeadlines* const deadlines_;
  StreamWriter writer_;
  std::atomic<bool> ended_flag_{false};  // ended_, for those without the lock
  Mutex mu_;
  std::map<uint64_t, Pending> calls_ ABSL_GUARDED_BY(mu_);
  uint64_t last_call_ ABSL_GUARDED_BY(mu_) = 0;
  bool ended_ ABSL_GUARDED_BY(mu_) = false, closes_when_idle_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_STREAM_CALLS_H_
