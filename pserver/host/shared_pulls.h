// Pulls of the trainers of one host from one server: what several of them want at one version is fetched once.
//
// Blocks and rows are fetched in the plan's pull format and handed on in float32, decoded once. Rows that are pulled
// ahead of their step are kept for the host; their corrections are fetched once for all of its trainers, when the first
// of them asks. What is kept belongs to a version, and goes when a later version has come: by then every trainer has
// what it wanted of it. docs/wire.md, "Merged pushes"; docs/consistency.md, "Rows ahead of their step". Thread-safe.
#ifndef WEIR_PSERVER_HOST_SHARED_PULLS_H_
#define WEIR_PSERVER_HOST_SHARED_PULLS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/counters.h"
#include "framework/base/mutex.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"
#include "pserver/client/block_placement.h"
#include "pserver/protocol/transport.h"

namespace weir {

class SharedPulls {
 public:
  struct Options {
    // Borrowed.
    const BlockPlacement* placement = nullptr;
    BufferPool* buffers = nullptr;
    // "host.rows_wanted", rows that trainers have asked for; "host.rows_fetched", those that the server was asked for.
    Counters* counters = nullptr;
    bool checksums = false;  // payloads carry checksums
    // What the server is told of its caller, the sender.
    std::function<v1::Caller()> caller;
    // Sends a pull to the server; `done` runs on any thread, possibly before the return.
    std::function<void(Slices request, ReplyCallback done)> send;
  };
  explicit SharedPulls(Options options);

  // Takes a pull of a trainer of the group, whose items have format WIRE_FLOAT32. Answers now or later, on any thread.
  // `payload` owns its memory.
  void Handle(v1::PullRequest request, const Slice& payload, ReplyCallback reply);

 private:
  struct Waiting;
  using WaitingPtr = std::shared_ptr<Waiting>;
  // A pull of the group at the server.
  struct Fetch {
    v1::PullRequest request;
    Slice ids;
    enum State { kUnderWay, kHere, kGone } state = kUnderWay;
    int64_t version = -1;       // of the answer
    v1::PullReply header;       // of the answer
    std::vector<Slice> values;  // by item, floats
    // By item of rows: where the values of each row are.
    std::vector<std::vector<const float*>> rows;
    // By item: 1 for rows that a correction has changed. Empty: none.
    std::vector<std::vector<uint8_t>> changed;
    // Rows of `corrects` that have changed, and the memory of their values.
    struct Fix {
      size_t of = 0, item = 0, row = 0;
      const float* values = nullptr;
    };
    std::vector<Fix> fixes;
    std::vector<Slice> kept;
    std::shared_ptr<Fetch> correction;             // under way, or the last
    std::vector<std::shared_ptr<Fetch>> corrects;  // the fetches that this one corrects
    std::vector<WaitingPtr> waiting;
  };
  using FetchPtr = std::shared_ptr<Fetch>;
  struct RowRef {
    FetchPtr fetch;
    uint32_t item = 0, row = 0;
  };
  // Rows of one item of a trainer's pull.
  using ItemRows = std::vector<RowRef>;
  // A trainer's pull ahead of a step, which may be corrected.
  struct Remembered {
    v1::PullRequest request;
    std::vector<ItemRows> rows;  // by item
  };
  // A trainer's pull that is not answered yet.
  struct Waiting {
    v1::PullRequest request;
    ReplyCallback reply;
    int open = 0;                                             // fetches that it waits for
    FetchPtr blocks;                                          // set for a pull of blocks
    std::vector<ItemRows> rows;                               // by item, of a pull of rows
    std::vector<std::shared_ptr<const Remembered>> corrects;  // null: not remembered
    // Why it is not answered with values: an error, or the answer of a server that is not ready.
    absl::StatusOr<v1::PullReply> trouble = v1::PullReply();
  };
  // What is kept of a version.
  struct Kept {
    std::map<std::string, FetchPtr> blocks;                                         // by items
    std::map<std::string, absl::flat_hash_map<int64_t, RowRef>, std::less<>> rows;  // by table, then id
    std::map<std::pair<int, int64_t>, std::shared_ptr<const Remembered>> ahead;     // by trainer and call
    int64_t last_call = 0;
  };
  using Actions = std::vector<std::function<void()>>;

  class RowCopies;

  absl::Status Check(const v1::PullRequest& request, const Slice& payload) const;
  absl::Status CheckItem(const v1::PullItem& item, bool of_rows, const Slice& payload) const;
  v1::WireFormat FormatOf(const v1::PullItem& item) const;
  // Returns true if the fetch has rows that the step `version` may have changed since.
  static bool MayChange(const Fetch& fetch, int64_t version);
  // Begins what a pull needs that is not kept.
  void WantBlocks(const WaitingPtr& waiting, Kept* kept, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WantRows(const WaitingPtr& waiting, const Slice& payload, Kept* kept, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the fetches that a pull's rows, and the rows that it corrects, come from.
  static std::vector<FetchPtr> FetchesOf(const Waiting& waiting);
  // Begins corrections of rows that were read before the version of the pull, and makes the pull wait for them.
  void WantFinal(const WaitingPtr& waiting, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void WaitFor(const WaitingPtr& waiting, const FetchPtr& fetch);
  void Begin(const FetchPtr& fetch, Actions* actions);
  void Arrived(const FetchPtr& fetch, const absl::StatusOr<Slices>& answer);
  // Reads an answer to the fetch into `read`, unless its header says that the server is not ready.
  absl::Status Read(const Fetch& fetch, const Slices& answer, Fetch* read) const;
  absl::Status ReadItems(const Fetch& fetch, const Slice& payload, size_t* at, Fetch* read) const;
  absl::Status ReadCorrections(const Fetch& fetch, const Slice& payload, size_t* at, Fetch* read) const;
  // Puts n floats at `at` of a payload, or their decoded form, into `values`, and advances `at`. False: they end beyond
  // the payload.
  bool Take(const Slice& payload, v1::WireFormat format, size_t n, size_t group, size_t* at, Slice* values) const;
  // Applies a correction to what it corrects; begins to fetch again what the server has forgotten.
  void Correct(const FetchPtr& fetch, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets what is kept of earlier versions.
  void Pass(int64_t version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Drop(const FetchPtr& fetch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Answers a pull that waits for no fetch, or makes it wait for corrections.
  void TryAnswer(const WaitingPtr& waiting, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AnswerBlocks(const WaitingPtr& waiting, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AnswerRows(const WaitingPtr& waiting, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static std::vector<const float*> ValuesOf(const ItemRows& rows);
  // Adds the rows of a pull that have changed to an answer. Null: the pull is not remembered.
  static void AddCorrection(const Remembered* remembered, v1::PullReply* header, RowCopies* copies);
  Slices Encode(v1::PullReply header, const Slices& payload) const;

  const Options options_;
  Counter* const wanted_;
  Counter* const fetched_;
  Mutex mu_;
  std::map<int64_t, Kept> kept_ ABSL_GUARDED_BY(mu_);  // by version
};

}  // namespace weir

#endif  // WEIR_PSERVER_HOST_SHARED_PULLS_H_
