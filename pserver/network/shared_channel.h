// Memory that two processes of one machine have mapped, through which they send each other messages.
//
// It is an anonymous file (memfd) that the connecting process makes and hands over a Unix-domain socket. The file is
// sealed: neither side can make it smaller under the other. For each direction it has
//
//   slots     a ring of kSlots descriptions of messages, written by the sender, read by the receiver
//   bell      a futex on which the receiver sleeps while the ring is empty
//   used      a bit for each granule of kGranule bytes of the data; the sender sets bits, the receiver clears them
//   data      the bytes of messages; a message lies in consecutive granules
//
// A received message is read where it lies; its granules are free again when its last slice is gone, in any order. A
// sender never waits: a message that finds no room is refused, and takes another way. Data that the other side could
// still change is copied before it is checked, and no number in it is used unchecked: nonsense ends the channel.
#ifndef WEIR_PSERVER_NETWORK_SHARED_CHANNEL_H_
#define WEIR_PSERVER_NETWORK_SHARED_CHANNEL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/wire/slices.h"

namespace weir {

// Head of a message. The channel carries it and does not read it.
struct SharedHead {
  // Kinds of answers: what was asked for, a v1::Status, and nothing, because the answer found no room.
  enum Answer : uint32_t { kReply = 0, kError = 1, kNoRoom = 2 };

  // Number of the call, which its answer repeats.
  uint64_t call = 0;
  // The Method of a request, the Answer of an answer.
  uint32_t kind = 0;
  // Server that a request to the relay of a host is for.
  uint32_t server = 0;
  // The ProfiledCall of a request that is recorded.
  uint64_t profiled_id = 0;
  int64_t profiled_step = -1;
  // When the caller of a request wants to know of the answer.
  enum When : uint32_t {
    kAtOnce = 0,
    kWithNext = 1,  // with the answer of another call that is open
    kSomeTime = 2,  // when others have come, or within a second
  };
  When wanted = kAtOnce;
};

// An end of the channel. Thread-safe.
class SharedChannel {
 public:
  static constexpr uint32_t kSlots = 256;
  static constexpr size_t kGranule = 4096;
  // Largest sum of the messages that are under way in one direction.
  static constexpr size_t kDataBytes = size_t{64} << 20;

  // Makes the memory. Unavailable: the system has no sealed memory files, or no address space.
  static absl::StatusOr<std::shared_ptr<SharedChannel>> Create();
  // Maps memory that another process has made. Takes the descriptor. InvalidArgument: it is not what Create makes.
  static absl::StatusOr<std::shared_ptr<SharedChannel>> Open(int descriptor);
  ~SharedChannel();
  SharedChannel(const SharedChannel&) = delete;
  SharedChannel& operator=(const SharedChannel&) = delete;

  // Descriptor of the memory, for the other side, and closed with CloseDescriptor when that has it.
  int descriptor() const { return descriptor_; }
  void CloseDescriptor();

  enum class Wakes {
    kNow,
    // When the next message comes, many have gathered, or its receiver calls Collect.
    kLater,
  };
  // Copies a message to the other side. False: it has no room, or the channel is closed.
  bool Send(const SharedHead& head, const Slices& bytes, Wakes wakes = Wakes::kNow);
  // Wakes the other side for messages that were sent to wake it later.
  void WakeOther();

  struct Message {
    SharedHead head;
    // One slice, aligned to kGranule; empty for a message without bytes.
    Slices bytes;
  };
  // Waits for the next message, in the order in which they were sent; several threads may wait. Nothing: the channel is
  // closed, or finished and empty. DataLoss: the other side has written what no sender writes; close the channel.
  absl::StatusOr<std::optional<Message>> Receive();
  // Wakes the receivers of this end if messages lie there that were sent to wake them later.
  void Collect();

  // Ends all waits of this end. Messages that were received stay readable.
  void Close();
  // Likewise, when the messages that are there have been received: the other side is gone.
  void Finish();

 private:
  struct Ring;
  struct Mapping;
  // First granule and number of granules.
  struct Place {
    uint32_t first = 0, count = 0;
  };

  SharedChannel(std::shared_ptr<Mapping> mapping, int descriptor, bool creator);
  static absl::StatusOr<std::shared_ptr<SharedChannel>> Map(int descriptor, bool creator);

  // Sets the bits of a place for a message. Nothing: there is none.
  std::optional<Place> Allocate(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(send_mu_);
  std::optional<Place> Reserve(size_t bytes);
  // Puts a message that lies in its place into the ring. False: the ring is full, or the channel closed.
  bool Post(const SharedHead& head, size_t bytes, Place place);
  // Takes the next message out of the ring. Nothing: it is empty.
  absl::StatusOr<std::optional<Message>> Take();
  bool Empty();
  static void Free(Ring* ring, Place place);
  void WakeReceivers();

  const std::shared_ptr<Mapping> mapping_;
  int descriptor_;
  Ring* const out_;
  Ring* const in_;
  char* const out_data_;
  char* const in_data_;
  std::atomic<bool> closed_{false}, finished_{false};
  // A futex: 1 when one of these is set. Receivers sleep on it as well as on the bell.
  std::atomic<uint32_t> ended_{0};
  // Messages that may be received yet once the channel is finished.
  std::atomic<int64_t> last_messages_{kSlots};
  Mutex send_mu_, receive_mu_;
  // Copies of what this end alone writes.
  uint32_t head_ ABSL_GUARDED_BY(send_mu_) = 0;
  uint32_t tail_ ABSL_GUARDED_BY(receive_mu_) = 0;
};

// Connection over which an end of a channel is handed to a process on this machine: a socket of type SOCK_SEQPACKET.
// Both ends keep it open; its end tells them that the other process is gone.

// Sends the descriptor of `channel` and waits at most two seconds for the other side's consent. Unavailable otherwise.
absl::Status OfferChannel(int socket, const SharedChannel& channel);
// Receives an offer that has arrived, and consents if it can be used.
absl::StatusOr<std::shared_ptr<SharedChannel>> AcceptChannel(int socket);

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_SHARED_CHANNEL_H_
