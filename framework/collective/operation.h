// Begin of every collective operation: the ranks tell each other which operation they are at, and refuse to go
// on if it is not the same one. And how it waits.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_OPERATION_H_
#define WEIR_FRAMEWORK_COLLECTIVE_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/collective/collective_counters.h"
#include "framework/collective/mesh.h"
#include "framework/collective/sizes.h"
#include "proto/collective.pb.h"

namespace weir {

// Longest name of an operation, in bytes.
inline constexpr size_t kMostOperationName = 128;
// Most dimensions of the shape in a header.
inline constexpr int kMostOperationDims = 16;

// Returns "operation 12, all_reduce 'grad.0' of float32 [100, 2], sum".
std::string DescribeOperation(const v1::CollectiveHeader& header);
// Returns OK if both ranks are at the same operation, else FailedPrecondition that names both ranks and the first
// difference.
absl::Status CheckSameOperation(const v1::CollectiveHeader& mine, const std::string& self,
                                const v1::CollectiveHeader& theirs, const std::string& other);

// Times of a wait for other ranks.
struct CollectiveWaits {
  absl::Duration deadline = absl::Minutes(30);  // without a message; then the operation fails
  absl::Duration warning = absl::Seconds(10);   // between two warnings that name the rank
  // Polled while waiting, if set, on any thread and on several at once: an error ends the wait. "The job has failed:
  // trainer 1 ..."
  std::function<absl::Status()> job;
  // Polled while waiting, if set: while it is true, others have a reason to be late, and neither time runs.
  std::function<bool()> excused;
};

// Memory of messages that have come, kept from operation to operation: new memory costs as much as the copy of a
// message into it. Owned by one thread.
class MessageMemory {
 public:
  struct Block {
    std::unique_ptr<char[]> data;
    size_t bytes = 0;
  };
  // Returns a block of `bytes` or more, with any content.
  Block Take(size_t bytes);
  void Give(Block block);

 private:
  // Blocks beyond these are freed: those of a reduction among 8 ranks.
  static constexpr size_t kMostBytes = size_t{32} << 20;
  // Invariant: free_bytes_ is the sum of the sizes of free_, at most kMostBytes.
  std::vector<Block> free_;
  size_t free_bytes_ = 0;
};

// One operation on one rank, on the thread that runs it.
class Operation {
 public:
  // `mesh`, `waits` and `memory` are borrowed. `header`: of this rank; `count` is filled in for each peer. `failed` is
  // called with each error before anything else happens: messages of this operation can end only when the other ranks
  // know of it. `counters`: borrowed; null: messages are not counted.
  Operation(Mesh* mesh, const CollectiveWaits* waits, MessageMemory* memory, v1::CollectiveHeader header,
            std::function<void(const absl::Status&)> failed, const CollectiveCounters* counters = nullptr);

  int rank() const { return mesh_.rank(); }
  int size() const { return mesh_.size(); }
  const v1::CollectiveHeader& header() const { return header_; }
  MessageMemory* memory() const { return &memory_; }
  // Reports an error and returns it. The functions below have reported what they return.
  absl::Status Fail(absl::Status status);

  // Returns whether bytes can travel behind headers; equal on all ranks.
  bool attaches() const { return mesh_.TakesAnySize(); }
  // Sends this rank's header to all others. counts: CollectiveHeader.count for each rank, or empty.
  absl::Status SendHeaders(const std::vector<int64_t>& counts);
  // Sends the header with copies of `attached` behind it. EndHeaders, which may take longer then, is not to hold up the
  // caller. Requires: attaches().
  absl::Status SendAttached(const std::vector<std::string_view>& attached);
  // Asks for the headers of all others, which ReceiveHeaders does otherwise: what is asked for arrives meanwhile.
  void AskForHeaders();
  // Receives and checks the headers of all others; `headers`, by rank, also has this rank's own. The headers that this
  // rank has sent may still be under way: EndHeaders waits for them. Requires: SendHeaders.
  absl::Status ReceiveHeaders(std::vector<v1::CollectiveHeader>* headers);
  // Returns what has come behind the header of another rank, or what this one has attached. Valid as long as this
  // object. Requires: SendAttached and ReceiveHeaders.
  std::string_view attached(int of) const {
    const std::string& message = of == rank() ? sent_headers_[0] : received_headers_[static_cast<size_t>(of)];
    return std::string_view(message).substr(kOperationHeaderBytes);
  }
  absl::Status EndHeaders() { return WaitAll(&header_sends_); }
  // Returns whether all others have the headers. An error is not reported.
  absl::StatusOr<bool> HeadersHaveGone();
  absl::Status ExchangeHeaders(std::vector<v1::CollectiveHeader>* headers, const std::vector<int64_t>& counts = {});

  // A message of this operation that is on its way.
  struct Message {
    int peer = 0;
    std::unique_ptr<Mesh::Transfer> transfer;
  };
  // Begin to send and receive. Sizes of 0 are not sent. Requires: phase 0 to 2; different numbers for the messages of
  // one phase between two ranks; Receive only after ReceiveHeaders, since before it the other rank may send something
  // else.
  Message Send(int peer, int phase, int64_t number, const void* data, size_t bytes);
  Message Receive(int peer, int phase, int64_t number, void* data, size_t bytes);
  // Tell what a wait does that is not one of the functions below: a message has come or gone; the wait for `peer` goes
  // on (`why`: for the message, may be empty). Returns an error, which the caller reports with Fail, if the job has
  // failed or nothing has moved for too long.
  void Moved();
  absl::Status StillWaits(int peer, std::string_view why = "");
  Mesh& mesh() const { return mesh_; }
  // Waits for a message, and warns of the rank that it waits for.
  absl::Status Wait(Message* message);
  // Waits for all, and clears the list.
  absl::Status WaitAll(std::vector<Message>* messages);
  // Waits for all of the oldest lists, and drops these, until at most `most` lists are left.
  absl::Status WaitForOldest(size_t most, std::deque<std::vector<Message>>* lists);

 private:
  uint64_t Tag(int phase, int64_t number) const;
  absl::Status WaitFor(Message* message);
  // Returns the message with this rank's header.
  absl::StatusOr<std::string> HeaderMessage(const std::vector<std::string_view>& attached) const;
  absl::Status ReadHeader(int peer, v1::CollectiveHeader* header) const;

  Mesh& mesh_;
  const CollectiveWaits& waits_;
  MessageMemory& memory_;
  v1::CollectiveHeader header_;
  const std::function<void(const absl::Status&)> failed_;
  const CollectiveCounters* const counters_;
  absl::Time moved_;                           // when the last message has ended, or the operation has begun
  absl::Time warned_;                          // when a wait was last reported, or moved_
  std::vector<std::string> sent_headers_;      // by rank, or one for all
  std::vector<std::string> received_headers_;  // by rank
  std::vector<Message> header_sends_, header_receives_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_OPERATION_H_
