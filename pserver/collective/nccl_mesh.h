// Backend NCCL of collective operations: messages between CUDA devices by NCCL's sends and receives, through memory of
// the device; sums are Weir's own, on the host. Thread-safe.
//
// NCCL matches messages by their order, and a device runs them in the order in which they are begun; so all ranks must
// begin them in one order, or they wait for each other in a circle. Ranks therefore agree on rounds over another mesh,
// the control mesh: a receiver tells the sender what it waits for; a rank that has a message that is waited for begins
// the next round; every rank tells every other which of these messages it sends in the round; then each begins all
// sends and receives of the round at once. A message is sent only when its receiver waits for it, so none needs room on
// the other side. Small messages (headers) and the reason of an end go over the control mesh alone. A rank has a thread
// for each other rank, and three more.
#ifndef WEIR_PSERVER_COLLECTIVE_NCCL_MESH_H_
#define WEIR_PSERVER_COLLECTIVE_NCCL_MESH_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/collective/mesh.h"
#include "framework/tensor/device.h"
#include "pserver/collective/nccl_library.h"

namespace weir {

struct NcclMeshOptions {
  // Borrowed. Mesh of the same ranks, used by this object alone. An Abort on either ends both.
  Mesh* control = nullptr;
  const NcclLibrary* library = nullptr;
  // Borrowed. Its queues are used by this object alone: work that waits there for another rank would hold up computing.
  DeviceRuntime* device = nullptr;
  // Text that no other device has, on whatever machine.
  std::string device_identity;
  // Gives every rank's contribution under a key to all ranks, in the order of ranks. Called once.
  std::function<absl::StatusOr<std::vector<std::string>>(std::string key, std::string mine)> exchange;
  // Limit for forming the communicator, once the exchange is over.
  absl::Duration connect_deadline = absl::Minutes(5);
  // Messages of at most so many bytes go over the control mesh; equal on all ranks.
  size_t small_bytes = 4096;
};

// Connects every rank with every other. FailedPrecondition names two ranks with one device, or with different versions
// of NCCL. A rank that fails ends the attempt on all ranks.
absl::StatusOr<std::unique_ptr<Mesh>> ConnectNcclMesh(NcclMeshOptions options);

}  // namespace weir

#endif  // WEIR_PSERVER_COLLECTIVE_NCCL_MESH_H_
