// Forms the groups of trainers that share a host, and connects this trainer with the relay of its group.
#ifndef WEIR_PSERVER_HOST_HOST_LINK_H_
#define WEIR_PSERVER_HOST_HOST_LINK_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "proto/trainer.pb.h"
#include "pserver/client/client.h"
#include "pserver/host/host_group.h"
#include "pserver/host/host_relay.h"
#include "pserver/host/host_transport.h"
#include "pserver/network/shared_client.h"
#include "pserver/network/shared_server.h"

namespace weir {

// Returns a text that processes have in common which can share memory: of one machine, network and user. "": the kernel
// does not tell.
std::string HostIdentity();

// Returns the groups of two trainers and more that merge, by what all trainers have said; empty if nothing is merged.
// Trainers without a host or a path stay apart.
// With Plan::AUTO a group merges towards the servers that do not share memory with its sender; towards all of them if
// there is such a one and pushes are lossy, so that a node's residuals are all in one place.
std::vector<HostGroup> GroupHosts(const v1::Plan& plan, const std::vector<v1::HostPeer>& peers);

class HostLink {
 public:
  struct Options {
    // Borrowed for the life of the link. The client has joined; its transport is `way`, which speaks to `servers`.
    Client* client = nullptr;
    HostTransport* way = nullptr;
    Transport* servers = nullptr;
    ThreadPool* pool = nullptr;
    const v1::Plan* plan = nullptr;
    int trainer_id = 0;
    std::string process;  // "host:pid"
    v1::Deadlines deadlines;
    bool shared_memory = true;  // cluster.shared_memory
    std::string host;           // HostIdentity
  };
  // Called by every trainer of a job whose plan merges, before the first step. Waits for all of them as Board::Exchange
  // does. FailedPrecondition, with Plan::ON: trainers of one host cannot share memory, or do not know their host; with
  // AUTO they do not merge.
  static absl::StatusOr<std::unique_ptr<HostLink>> Form(const Options& options);
  // Ends the channels of the host. Requires: no call to a relay is under way in this process.
  ~HostLink();

  // Waits until every trainer has come to its end: a sender serves the others of its host until then.
  absl::Status AwaitOthers();

 private:
  explicit HostLink(Options options) : options_(std::move(options)) {}

  // Takes channels of shared memory at path_. FailedPrecondition: it cannot.
  absl::Status Listen();
  absl::StatusOr<std::vector<v1::HostPeer>> ExchangePeers();
  // Returns why this trainer cannot merge, "" if it can, or has nobody to merge with. `listens`: of Listen; `group`:
  // its own, null for none.
  std::string FindTrouble(const absl::Status& listens, const std::vector<v1::HostPeer>& peers, const HostGroup* group);
  // Makes the relay, or connects with it. Returns why it cannot, "" if it can.
  std::string Connect(const std::vector<v1::HostPeer>& peers, const HostGroup& group);
  // Returns the way to the relay of this trainer's group. Requires: Connect has returned "".
  HostTransport::ToRelay WayToRelay();
  std::shared_ptr<HostRelay> relay();

  const Options options_;
  std::string path_;  // at which server_ listens
  Mutex mu_;
  std::shared_ptr<HostRelay> relay_ ABSL_GUARDED_BY(mu_);  // of a sender
  std::unique_ptr<SharedServer> server_;                   // of a sender; at first of every trainer
  std::shared_ptr<SharedClient> client_;                   // of the others
  bool merges_ = false;                                    // some group of the job does
};

}  // namespace weir

#endif  // WEIR_PSERVER_HOST_HOST_LINK_H_
