// Calls that the clients of a server make through streams, whatever carries their batches.
#ifndef WEIR_PSERVER_NETWORK_STREAM_SESSION_H_
#define WEIR_PSERVER_NETWORK_STREAM_SESSION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "framework/wire/slices.h"
#include "pserver/protocol/transport.h"
#include "pserver/sockets/stream_records.h"
#include "pserver/sockets/stream_writer.h"

namespace weir {

// Handles a request on a thread of gRPC or of SocketEvents; `reply` may be called at any later time, once. Several
// requests of one client may be handled at once.
using StreamHandler = std::function<void(Method method, const Slices& request, ReplyCallback reply)>;
// Most calls of one client that have no answer: a trainer has some tens.
inline constexpr size_t kMostStreamCalls = 4096;

class StreamSessions;

// One stream. Answers to its calls may come when it is gone. Thread-safe.
class StreamSession : public std::enable_shared_from_this<StreamSession> {
 public:
  // Ends the stream with an error for its client, or OK if that knows.
  using End = std::function<void(const absl::Status& why)>;

  // `write` as in StreamWriter.
  StreamSession(std::shared_ptr<StreamSessions> sessions, std::function<bool(Slices batch)> write);

  // To be called before all others. False: the server takes no streams any more, and has ended this one.
  bool Begin(End end);
  // Handles the requests of a batch, and calls `read_on` before. Does neither and ends the stream if it is no batch, or
  // there are too many calls; returns the error. This object may be gone when `read_on` returns.
  absl::Status Handle(const Slices& batch, const std::function<void()>& read_on);
  // Ends the stream, unless it has ended.
  void EndWith(const absl::Status& why);
  // True from EndWith or Gone on.
  bool ended();
  // The stream is gone: nothing is written any more.
  void Gone();
  StreamWriter& writer() { return writer_; }
  // A call has been answered with something other than an error: the client is one of the job, or a reader.
  bool proven() const { return proven_; }

 private:
  // Counts a request. False: the client has too many open, or does not read its answers.
  bool BeginCall(const RecordHead& request);
  void HandleRecord(const Record& record);
  void Answer(const RecordHead& request, const absl::StatusOr<Slices>& reply);

  const std::shared_ptr<StreamSessions> sessions_;
  StreamWriter writer_;
  std::atomic<bool> proven_{false};
  Mutex mu_;
  // Calls without an answer; those whose answers may wait are counted apart.
  size_t open_ ABSL_GUARDED_BY(mu_) = 0, may_wait_ ABSL_GUARDED_BY(mu_) = 0;
  End end_ ABSL_GUARDED_BY(mu_);
};

// All streams of a server. Answers that its handler holds keep it alive. Thread-safe.
class StreamSessions {
 public:
  explicit StreamSessions(StreamHandler handler) : handler_(std::move(handler)) {}

  void Refuse();
  // Refuses, waits at most `grace` until no call is open and all answers are written, and ends all streams.
  void Shutdown(absl::Duration grace);

 private:
  friend class StreamSession;

  // False: new streams are refused.
  bool Add(std::shared_ptr<StreamSession> session);
  void Remove(const std::shared_ptr<StreamSession>& session);
  // Counts a call. False: new calls are refused.
  bool BeginCall();
  void EndCall();

  const StreamHandler handler_;
  Mutex mu_;
  CondVar fewer_;
  std::set<std::shared_ptr<StreamSession>> sessions_ ABSL_GUARDED_BY(mu_);
  int64_t open_ ABSL_GUARDED_BY(mu_) = 0;  // calls of all streams
  bool refuses_ ABSL_GUARDED_BY(mu_) = false;
};

// The record with which a server tells its client why it ends the stream.
Record EndRecord(const absl::Status& why);

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_STREAM_SESSION_H_
