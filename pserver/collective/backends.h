// Backends of collective operations (comm.backend), and which of them this process can use.
#ifndef WEIR_PSERVER_COLLECTIVE_BACKENDS_H_
#define WEIR_PSERVER_COLLECTIVE_BACKENDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "pserver/collective/nccl_library.h"

namespace weir {

struct CollectiveBackend {
  std::string name;     // as comm.backend has it
  absl::Status usable;  // OK, or the reason why it is not
};

// Returns all but AUTO. nccl: NcclLibrary::Load().status(). device: OK if this process has a CUDA device, else why not.
std::vector<CollectiveBackend> CollectiveBackends(const absl::Status& nccl, const absl::Status& device);

// Returns what comm.backend: AUTO is (docs/collective.md, "Backends").
v1::Comm::Backend AutoBackend();

// Returns "WIRE, GLOO".
std::string UsableBackends(const std::vector<CollectiveBackend>& backends);

}  // namespace weir

#endif  // WEIR_PSERVER_COLLECTIVE_BACKENDS_H_
