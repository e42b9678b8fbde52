// Backend WIRE of collective operations: a mesh whose messages are frames over a Transport, one call each. A call is
// answered when its message has been received, so unread messages hold their senders up. Thread-safe.
#ifndef WEIR_PSERVER_COLLECTIVE_WIRE_MESH_H_
#define WEIR_PSERVER_COLLECTIVE_WIRE_MESH_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "framework/collective/mesh.h"
#include "framework/wire/slices.h"
#include "pserver/protocol/transport.h"

namespace weir {

class WireMesh : public Mesh {
 public:
  struct Options {
    uint64_t group = 0;  // DeliverRequest.group
    int rank = 0;
    // Borrowed; must outlive the mesh. Its server r is rank r; the call reaches HandleDeliver of that rank's mesh.
    Transport* transport = nullptr;
    // Of one try; calls are repeated until the mesh ends. A transfer that is given up ends at most so much later.
    absl::Duration call_timeout = absl::Seconds(5);
    size_t most_unread_bytes = size_t{1} << 30;  // of messages from one rank that nobody has asked for yet
  };
  static std::unique_ptr<WireMesh> Create(Options options);

  // Takes a message of another rank. `reply` runs when it has been received, or when the mesh ends.
  // FailedPrecondition: of another group.
  virtual void HandleDeliver(const Slices& bytes, ReplyCallback reply) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_COLLECTIVE_WIRE_MESH_H_
