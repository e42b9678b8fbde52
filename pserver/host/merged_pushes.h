// Pushes of the trainers of one host to one server, added before they leave the host.
//
// The trainers push the sums of their lane nodes, in float32. When all have pushed a step, siblings among the nodes are
// added to the largest aligned nodes of the group, in the order of the lane tree, so that the server gets the bits that
// it would have made itself. A dense block leaves as soon as every trainer has brought all of it. docs/wire.md, "Merged
// pushes".
//
// A trainer's last part is acknowledged when the server has acknowledged all of the merged step; an error of the server
// is the answer to the last part of every trainer, whose repeat then repeats what has failed. Thread-safe.
#ifndef WEIR_PSERVER_HOST_MERGED_PUSHES_H_
#define WEIR_PSERVER_HOST_MERGED_PUSHES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/base/counters.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/push_plan.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/push_builder.h"
#include "pserver/client/residuals.h"
#include "pserver/host/host_group.h"
#include "pserver/protocol/merge_gradients.h"
#include "pserver/protocol/transport.h"

namespace weir {

class MergedPushes {
 public:
  struct Options {
    // Borrowed; `residuals` are the sender's.
    const HostGroup* group = nullptr;
    const BlockPlacement* placement = nullptr;
    Residuals* residuals = nullptr;
    BufferPool* buffers = nullptr;
    ThreadPool* pool = nullptr;
    Counter* merged = nullptr;  // "host.pushes_merged": steps of trainers
    bool checksums = false;     // payloads carry checksums
    // What the server is told of its caller, the sender.
    std::function<v1::Caller()> caller;
    // Sends a push to the server; `done` runs on any thread, possibly before the return.
    std::function<void(Slices request, ReplyCallback done)> send;
  };
  explicit MergedPushes(Options options);

  // Takes a part that a trainer of the group has pushed. Answers now or later, on any thread. `payload` owns its
  // memory.
  void Handle(const v1::PushRequest& request, const Slice& payload, ReplyCallback reply);

 private:
  // Rows of one trainer's node.
  struct Rows {
    LaneRange node;
    absl::Span<const int64_t> ids;
    const float* values = nullptr;
    const float* counts = nullptr;  // shows and clicks
    std::vector<uint32_t> order;    // empty: ascending by MixId
  };
  // What a step brings of one block or table.
  struct Gathered {
    std::vector<DenseRun> runs;
    int64_t elements = 0;  // of all runs
    std::vector<Rows> rows;
  };
  // A checked tensor of a part.
  struct Tensor {
    std::string name;
    DenseRun run;  // without values: the tensor has rows
    Rows rows;
  };
  struct Member {
    std::vector<bool> parts;
    int received = 0;
    int part_count = -1;
    uint64_t session = 0;
    v1::PushRequest last;  // header of the last part
    std::vector<ReplyCallback> waiting;
    bool Complete() const { return part_count >= 0 && received == part_count; }
    bool Has(int part) const { return static_cast<size_t>(part) < parts.size() && parts[static_cast<size_t>(part)]; }
  };
  // A part of the merged step.
  struct Sent {
    enum State { kUnderWay, kFailed, kAcknowledged };
    Slices request;
    State state = kUnderWay;
  };
  using Actions = std::vector<std::function<void()>>;
  struct RowSums;

  absl::Status Read(const v1::PushRequest& request, const Slice& payload, int place,
                    std::vector<Tensor>* tensors) const;
  absl::Status ReadDense(const v1::PushItem& item, const Slice& payload, Tensor* tensor) const;
  absl::Status ReadRows(const v1::PushItem& item, const Slice& payload, Tensor* tensor) const;
  // Begins the step of a part, or returns why the part cannot be taken.
  absl::Status CheckTurn(const v1::PushRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Book(const v1::PushRequest& request, int place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes a part that has come before.
  void Repeated(const v1::PushRequest& request, Member* member, const ReplyCallback& reply, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the tensors of a part. Returns what can be merged: blocks that every trainer has brought; all, if every
  // trainer has pushed its step.
  std::map<std::string, Gathered> Gather(std::vector<Tensor> tensors) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AllComplete() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if every trainer has brought all elements of the block.
  bool IsWhole(const std::string& name, const Gathered& gathered) const;
  // Adds and packs blocks and tables. Called by one thread or several at a time.
  void Merge(const std::map<std::string, Gathered>& whole);
  void MergeDense(const std::string& name, const Gathered& gathered);
  void MergeRowsOf(const std::string& name, const Gathered& gathered);
  absl::Status AddNode(const std::string& name, const Gathered& gathered, const LaneRange& node, const RowForm& form,
                       RowSums* sums) const;
  void WriteDense(const std::string& name, const std::vector<DenseRun>& runs, const LaneRange& node, int64_t begin,
                  int64_t count, char* out, v1::PushItem* item);
  void WriteRows(const std::string& name, const RowSums& sums, size_t begin, size_t end, const RowForm& form,
                 const PushRowLayout& layout, char* out, v1::PushItem* item);
  // Ends the work of one thread in Merge, and sends the last part if it was the last of all.
  void Merged();
  v1::PushRequest LastHeader() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SendPart(v1::PushRequest header, const Slices& payload);
  void Issue(int64_t step, size_t part, Slices request);
  void Answered(int64_t step, size_t part, const absl::StatusOr<Slices>& answer);
  // Returns true if the server has acknowledged all parts of the merged step, of which the last has been packed.
  bool AllAcknowledged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Repeats the parts that have failed.
  void Repeat(Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AnswerWaiting(const absl::StatusOr<Slices>& answer, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fail(const absl::Status& why);
  RowForm FormOf(const std::string& name) const;

  const Options options_;
  PushBuilder builder_;
  Mutex mu_;
  int64_t step_ ABSL_GUARDED_BY(mu_) = -1;
  bool over_ ABSL_GUARDED_BY(mu_) = true;  // the server has acknowledged all of step_
  std::vector<Member> members_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Gathered> gathered_ ABSL_GUARDED_BY(mu_);  // not merged yet
  std::vector<Slice> kept_ ABSL_GUARDED_BY(mu_);                   // payloads, until the step is over
  int merging_ ABSL_GUARDED_BY(mu_) = 0;                           // threads in Merge
  bool finished_ ABSL_GUARDED_BY(mu_) = false;                     // all is merged: the last part is being packed
  absl::Status wrong_ ABSL_GUARDED_BY(mu_);                        // why the step cannot be merged
  std::vector<Sent> sent_ ABSL_GUARDED_BY(mu_);
  int part_count_ ABSL_GUARDED_BY(mu_) = -1;  // of the merged step; -1: its last part has not been packed
};

}  // namespace weir

#endif  // WEIR_PSERVER_HOST_MERGED_PUSHES_H_
