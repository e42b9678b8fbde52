// Answers to pulls: checks what a pull asks for and copies the values. Thread-safe; works without the server's lock.
#ifndef WEIR_PSERVER_SERVER_PULL_ANSWERS_H_
#define WEIR_PSERVER_SERVER_PULL_ANSWERS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "framework/base/thread_pool.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"
#include "pserver/consistency/consistency.h"
#include "pserver/params/server_params.h"
#include "pserver/protocol/transport.h"
#include "pserver/server/handled_call.h"
#include "pserver/server/rows_ahead.h"

namespace weir {

// A pull that waits for its version.
struct WaitingPull {
  int trainer;
  v1::PullRequest request;
  Slice payload;
  size_t bytes;  // taken while it waits: the request as it came, and its header as a message
  absl::Time deadline;
  ReplyCallback reply;
  HandledCallPtr handled;
  // Set once the pull is ready: the answer's bytes of the trainer's credits.
  std::shared_ptr<const void> credit = nullptr;
};

// Returns true if the pull is a reader's (docs/wire.md, "Readers").
bool IsOfReader(const v1::PullRequest& request);
// Returns true if the pull asks for rows or corrections; it then asks for nothing else.
bool AsksForRows(const v1::PullRequest& request);
// Returns the answer to a pull whose wait is over before its version is there.
Slices NotReady(int64_t version, const std::string& waiting_for);

class PullAnswers {
 public:
  struct Options {
    int server_id = 0;
    ServerParams* params = nullptr;  // borrowed, like the next two
    ThreadPool* pool = nullptr;
    BufferPool* buffers = nullptr;
    bool checksums = true;  // answers carry checksums of their payloads
    // Rows may be pulled ahead of their step: a step changes rows only when all trainers have pushed it.
    bool ahead = false;
    // Most bytes of values in an answer to a reader.
    size_t reader_bytes = SIZE_MAX;
    // Bytes that the pulls ahead of each trainer may take.
    std::vector<size_t> ahead_room = {};
  };
  explicit PullAnswers(Options options);

  // Returns OK if this server has everything that the pull asks for, and the answer fits in one message.
  // InvalidArgument names the item. `payload` holds the ids.
  absl::Status Check(const v1::PullRequest& request, const Slice& payload) const;
  // Returns the most bytes that the payload of the answer has, for a request that Check has accepted.
  size_t MostBytes(const v1::PullRequest& request) const;
  // Copies the values and answers. `credit` lives as long as the answer's bytes. Requires: Check, and CheckAhead in
  // sync, have accepted the request; the caller does not hold the server's lock.
  void Serve(const v1::PullRequest& request, const Slice& payload, const VersionInfo& info,
             std::shared_ptr<const void> credit, const ReplyCallback& reply, const HandledCallPtr& handled) const;

 private:
  // Returns OK if a reader may ask for this version.
  static absl::Status CheckReader(const v1::PullRequest& request);
  // Returns OK if a pull ahead of a step, or one that asks for corrections, may come.
  absl::Status CheckAhead(const v1::PullRequest& request) const;
  // Appends the values of the items to the payload of the answer.
  absl::Status AppendItems(const v1::PullRequest& request, const Slice& payload,
                           const std::shared_ptr<const void>& credit, Slices* values) const;
  // Appends the changed rows of one call that the trainer has made ahead of this version, and describes them.
  absl::Status AppendCorrection(const RowsAhead::Pull& call, const std::shared_ptr<const void>& credit,
                                v1::Correction* correction, Slices* values) const;
  // Remembers a pull ahead of a step.
  void Remember(const v1::PullRequest& request, const Slice& payload) const;
  absl::Status AppendCorrections(const v1::PullRequest& request, int64_t version,
                                 const std::shared_ptr<const void>& credit, v1::PullReply* header,
                                 Slices* values) const;
  // Returns OK if the server has what an item asks for. Sets the wire format and number of the item's values.
  absl::Status CheckRows(const v1::PullItem& item, const Slice& payload, v1::WireFormat* format,
                         uint64_t* floats) const;
  absl::Status CheckElements(const v1::PullItem& item) const;
  // Copies the values of an item that Check has accepted, as floats. `reader`: the trainer that pulls, or kReader.
  absl::Status CopyItem(const v1::PullItem& item, const Slice& payload, int reader, float* out) const;

  const Options options_;
  const std::unique_ptr<RowsAhead> ahead_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_PULL_ANSWERS_H_
