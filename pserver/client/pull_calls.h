// Calls that pull: their headers, readiness, checksums, and values in lossy formats. Thread-safe.
#ifndef WEIR_PSERVER_CLIENT_PULL_CALLS_H_
#define WEIR_PSERVER_CLIENT_PULL_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/thread_pool.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/payload_reader.h"
#include "framework/wire/pull_plan.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"
#include "proto/table.pb.h"
#include "pserver/member/calls.h"
#include "pserver/member/waits.h"

namespace weir {

class PullCalls {
 public:
  // Borrows all.
  PullCalls(Calls* calls, Waits* waits, BufferPool* buffers, ThreadPool* pool)
      : calls_(*calls), waits_(*waits), buffers_(*buffers), pool_(*pool) {}

  // Pull that one thread makes at a version.
  struct Reader {
    Waits::Thread thread = Waits::kProgram;
    int64_t version = 0;  // wanted; 0: any
  };
  // Makes a call for a planned message, whose request is moved out of it. `ids`: its payload. `take` gets the header of
  // an answer of the right size and reads its payload; the effect counts only if the call ends well, otherwise the
  // pull is repeated. Several calls may be taken at once, each by one thread. The right size is the planned one and,
  // for a pull that corrects others, what `more` returns for the header.
  using Take = std::function<absl::Status(const v1::PullReply& reply, PayloadReader* reader)>;
  using MoreBytes = std::function<absl::StatusOr<size_t>(const v1::PullReply& reply)>;
  CallPtr New(int server, const Reader& reader, PlannedPull* planned, const Slices& ids, Take take,
              MoreBytes more = nullptr);

  // Runs `make`, which makes and begins the calls to a server, for every server, and returns the calls in order of
  // servers. Uses all threads if the `bytes` that the calls carry are worth it; `make` is then called by several.
  using Make = std::function<void(int server, std::vector<CallPtr>* calls)>;
  std::vector<CallPtr> ForEachServer(size_t bytes, const Make& make);
  // Issues a new call, unless its answer comes from inside the call: Wait then serves all calls at once.
  void Begin(const CallPtr& call);
  // Waits for all calls. Requires: Begin for each; what `take` writes to lives until Wait has returned.
  absl::Status Wait(absl::Span<const CallPtr> calls, const std::string& what, Waits::Thread thread,
                    const ProfileName& profiled_as);

  // Decodes the next n floats of an answer.
  WireBuffer ReadDecoded(PayloadReader* reader, v1::WireFormat format, size_t n, size_t group);

  BufferPool& buffers() { return buffers_; }
  ThreadPool& pool() { return pool_; }
  const CallSettings& settings() const { return calls_.settings(); }
  bool answers_inside() const { return settings().transport->answers_inside(); }

 private:
  // Reads the header of an answer; the payload is not checked yet. False: the server is not ready.
  absl::StatusOr<bool> Open(int server, Waits::Thread thread, const Slices& answer, v1::PullReply* header,
                            Slices* payload);

  Calls& calls_;
  Waits& waits_;
  BufferPool& buffers_;
  ThreadPool& pool_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_PULL_CALLS_H_
