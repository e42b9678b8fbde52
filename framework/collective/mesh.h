// Bytes between the ranks of a group: the seam below collective operations, which every backend implements.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_MESH_H_
#define WEIR_FRAMEWORK_COLLECTIVE_MESH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace weir {

// Sends and receives messages, each under a tag that is used once per direction and pair of ranks. A message and its
// receiver agree on its size. A message moves whether anybody waits for it or not. Thread-safe.
class Mesh {
 public:
  // A message on its way. The destructor gives it up: once it returns, the memory of the message is not used again.
  // Must not outlive the mesh.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    // Waits until the bytes have arrived, or until those to be sent may be changed, for `timeout` at most. Returns OK
    // then, DeadlineExceeded if the time is over (wait again, or give up; the message, if any, says why the last try
    // failed), else the error that ends the mesh, whose code is another one. Requires: no earlier call has returned OK
    // or an error other than DeadlineExceeded.
    virtual absl::Status Wait(absl::Duration timeout) = 0;
  };

  virtual ~Mesh() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Name of a rank for messages: "trainer 1 (host:pid)".
  virtual std::string Describe(int rank) const = 0;

  // Begins to send `bytes` bytes to `peer`. Requires: `peer` is another rank; the tag is new for this direction and
  // pair; the bytes stay unchanged until Wait has returned OK or the transfer is destroyed.
  virtual std::unique_ptr<Transfer> Send(int peer, uint64_t tag, const void* data, size_t bytes) = 0;
  // Does the same for a message that nobody waits for soon: it may take the mesh a second to learn that it has arrived.
  virtual std::unique_ptr<Transfer> SendPatiently(int peer, uint64_t tag, const void* data, size_t bytes) {
    return Send(peer, tag, data, bytes);
  }
  // Begins to receive a message of exactly `bytes` bytes. Requires: as Send; `data` is left alone until then.
  virtual std::unique_ptr<Transfer> Receive(int peer, uint64_t tag, void* data, size_t bytes) = 0;

  // Returns whether the mesh has ReceiveAny; equal on all ranks.
  virtual bool TakesAnySize() const { return false; }
  // Begins to receive a message whose size its sender alone knows: `bytes` becomes the message. One of more than `most`
  // bytes ends the transfer with DataLoss. Requires: TakesAnySize; else as Receive.
  virtual std::unique_ptr<Transfer> ReceiveAny(int /*peer*/, uint64_t /*tag*/, size_t /*most*/,
                                               std::string* /*bytes*/) {
    return nullptr;
  }

  // An all-reduce that the mesh does by itself, in an order of sums of its own.
  struct OwnAllReduce {
    // Number of the operation, equal on all ranks. Two that are under way have different ones.
    uint64_t number = 0;
    // `count` elements of `element_bytes` (4 or 8) bytes each, which the result replaces.
    void* values = nullptr;
    size_t count = 0;
    size_t element_bytes = 0;
    // Sets out[i] to the sum of a[i] and b[i], n elements; `out` may be `a` or `b`. Runs on the thread of the caller.
    std::function<void(void* out, const void* a, const void* b, size_t n)> add;
    // Called about ten times a second while the caller waits for `peer`. An error ends the operation.
    std::function<absl::Status(int peer)> waits;
    // Called when a message has come or gone.
    std::function<void()> moved;
  };
  // Returns whether the mesh has an AllReduce of its own; equal on all ranks.
  virtual bool HasAllReduce() const { return false; }
  // Adds the values of all ranks, each of which calls it with the same number and sizes. All get the same bits. Returns
  // the error of `waits`, or one that names a rank. After an error the values may be anything. Requires: HasAllReduce;
  // after an error the caller aborts the mesh.
  virtual absl::Status AllReduce(const OwnAllReduce& /*operation*/) {
    return absl::UnimplementedError("this backend has no all-reduce of its own");
  }

  // Ends the mesh: all transfers, those of peers too as far as they can be told, end with EndOfMesh(status) or an error
  // of the connection. Only the first call counts.
  virtual void Abort(const absl::Status& status) = 0;
};

// Returns the error of transfers after Abort(status): `status`, but not with code DeadlineExceeded, which means that a
// transfer has not ended.
inline absl::Status EndOfMesh(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) ? absl::AbortedError(status.message()) : status;
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_MESH_H_
