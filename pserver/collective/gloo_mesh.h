// Backend GLOO of collective operations: messages over the TCP connections of the library Gloo, in the clear. Gloo
// moves bytes; sums are Weir's own, but for all-reduces in any order, which are Gloo's ring. Thread-safe.
#ifndef WEIR_PSERVER_COLLECTIVE_GLOO_MESH_H_
#define WEIR_PSERVER_COLLECTIVE_GLOO_MESH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/collective/mesh.h"

namespace weir {

struct GlooMeshOptions {
  uint64_t group = 0;  // random number, equal on all ranks and new for each attempt
  int rank = 0;
  int size = 1;
  // Name or address of this host at which the other ranks reach it. The system chooses the ports.
  std::string host;
  // Gives every rank's contribution under a key to all ranks, in the order of ranks. Called once. Its errors end
  // ConnectGlooMesh; an error names the ranks that have not come in time.
  std::function<absl::StatusOr<std::vector<std::string>>(std::string key, std::string mine)> exchange;
  // Name of a rank for messages: "trainer 1 (host:pid)".
  std::function<std::string(int rank)> describe;
  // Limit for making the connections, once the exchange is over.
  absl::Duration connect_deadline = absl::Minutes(5);
  // Polled while the ranks connect, if set: an error ends that. "The job has failed: trainer 1 ..."
  std::function<absl::Status()> job = {};
};

// Connects every rank with every other. Unavailable names a rank that does not connect in time or cannot be reached;
// the job's failure is returned as it is. The process ignores SIGPIPE from then on, unless it handles it.
absl::StatusOr<std::unique_ptr<Mesh>> ConnectGlooMesh(GlooMeshOptions options);

}  // namespace weir

#endif  // WEIR_PSERVER_COLLECTIVE_GLOO_MESH_H_
