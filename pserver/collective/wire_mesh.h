// Backend WIRE of collective operations: a mesh whose messages are frames over a Transport, one call each. A call is
// answered when its message has been received, so unread messages hold their senders up. Thread-safe.
//
// A process with a server forms a group so:
//
//   WireInbox inbox;                                          // lives as long as the server
//   server: GrpcServerOptions.deliver = inbox.HandleDeliver   // listens before the others' endpoints are used
//   transport: MakeGrpcTransport({.endpoints = of all ranks, in their order})
//   WireMesh::Connect({.group, .rank, .transport, .inbox, .describe}, waits)
//   Collective collective(mesh)
//
// A rank that has ended its last operation has received everything that is meant for it, and the others may still wait
// for its answers: shut the server down with time for calls in flight, or after all ranks are known to be done.
#ifndef WEIR_PSERVER_COLLECTIVE_WIRE_MESH_H_
#define WEIR_PSERVER_COLLECTIVE_WIRE_MESH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "framework/collective/mesh.h"
#include "framework/collective/operation.h"
#include "framework/wire/slices.h"
#include "pserver/protocol/transport.h"

namespace weir {

class WireMesh;

// Hands calls Deliver of a server to a mesh, which may begin after the server and end before it. Thread-safe.
class WireInbox {
 public:
  // Unavailable while there is no mesh: the caller tries again.
  void HandleDeliver(const Slices& message, ReplyCallback reply);

  // Open and close the inbox for a mesh, which calls them. Close returns when no call is inside the mesh any more.
  // Requires: at most one mesh is open.
  void Open(WireMesh* mesh);
  void Close();

 private:
  Mutex mu_;
  CondVar changed_;
  WireMesh* mesh_ ABSL_GUARDED_BY(mu_) = nullptr;
  int inside_ ABSL_GUARDED_BY(mu_) = 0;  // calls that the mesh handles at the moment
};

class WireMesh : public Mesh {
 public:
  struct Options {
    uint64_t group = 0;  // DeliverRequest.group
    int rank = 0;
    // Borrowed; must outlive the mesh. Its server r is rank r; the call reaches HandleDeliver of that rank's mesh.
    Transport* transport = nullptr;
    // Borrowed; must outlive the mesh. Null: the caller hands messages to HandleDeliver itself, not later than the
    // destructor begins.
    WireInbox* inbox = nullptr;
    // Name of a rank for messages: "trainer 1 (host:pid)". Not set: the transport's name of the server.
    std::function<std::string(int rank)> describe = {};
    // Limit of one try; calls are repeated until the mesh ends. A transfer that is given up ends at most twice so much
    // later.
    absl::Duration call_timeout = absl::Seconds(5);
    // A rank that has been there and whose address refuses connections for so long is gone, and ends the mesh. Much
    // shorter than a lease, since only a process that has ended refuses: one that is stopped or slow does not.
    absl::Duration gone_after = absl::Seconds(2);
    // Ends all calls of the transport and lets go of their messages. Called once, when the mesh has ended and the
    // others have been told; a transfer that is given up then ends soon. Not set: it waits for its call.
    std::function<void()> close = {};
    size_t most_unread_bytes = size_t{1} << 30;  // of messages from one rank that nobody has asked for yet
  };
  // Returns at once; messages to ranks that do not listen yet are repeated.
  static std::unique_ptr<WireMesh> Create(Options options);
  // Returns once every rank has come, and has said that the group has as many ranks. DeadlineExceeded names the ranks
  // that have not come; FailedPrecondition: a rank is of another group, or of another number of ranks. The error ends
  // Connect on the other ranks too, as far as they are reached.
  static absl::StatusOr<std::unique_ptr<WireMesh>> Connect(Options options, const CollectiveWaits& waits);

  // Takes a message of another rank. `reply` runs when it has been received, or when the mesh ends.
  // FailedPrecondition: of another group. Aborted: the mesh has ended. A question whether this rank is there is
  // answered at once.
  virtual void HandleDeliver(const Slices& bytes, ReplyCallback reply) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_COLLECTIVE_WIRE_MESH_H_
