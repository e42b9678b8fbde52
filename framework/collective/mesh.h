// Bytes between the ranks of a group: the seam below collective operations, which every backend implements.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_MESH_H_
#define WEIR_FRAMEWORK_COLLECTIVE_MESH_H_

#include <cstddef>
#include <cstdint>
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
    // failed), else the error that ends the mesh, whose code is another one. Not called again after OK or an error.
    virtual absl::Status Wait(absl::Duration timeout) = 0;
  };

  virtual ~Mesh() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Name of a rank for messages: "trainer 1 (host:pid)".
  virtual std::string Describe(int rank) const = 0;

  // Begins to send `bytes` bytes to `peer`, another rank. They must stay unchanged until Wait has returned OK.
  virtual std::unique_ptr<Transfer> Send(int peer, uint64_t tag, const void* data, size_t bytes) = 0;
  // Begins to receive a message of exactly `bytes` bytes.
  virtual std::unique_ptr<Transfer> Receive(int peer, uint64_t tag, void* data, size_t bytes) = 0;

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
