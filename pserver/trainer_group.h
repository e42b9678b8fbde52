// The trainers of a job as ranks of a collective group, over the network.
#ifndef WEIR_PSERVER_TRAINER_GROUP_H_
#define WEIR_PSERVER_TRAINER_GROUP_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/collective/collective.h"
#include "framework/collective/hosts.h"
#include "framework/tensor/device.h"
#include "proto/job.pb.h"
#include "proto/trainer.pb.h"
#include "pserver/client/client.h"
#include "pserver/collective/nccl_library.h"
#include "pserver/collective/wire_mesh.h"
#include "pserver/network/grpc_server.h"
#include "pserver/protocol/transport.h"

namespace weir {

class TrainerGroup {
 public:
  struct Options {
    // Borrowed for the life of the group; has joined. Trainers learn each other's addresses through it.
    Client* client = nullptr;
    int trainer_id = 0;
    int trainers = 1;
    // Name or address of this machine at which the other trainers reach it; an IPv6 address without brackets. The
    // system chooses the port.
    std::string host;
    // Backend WIRE: connections of the job.
    v1::Cluster network;
    v1::Comm settings;
    // Backend WIRE: what trainers of one host send to others is added, or sent once, for all of them (Hosts).
    bool merge_hosts = false;
    v1::Deadlines deadlines;
    // Set for backend NCCL. Borrowed for the life of the group; the queues of `device` are used by nobody else.
    const NcclLibrary* nccl = nullptr;
    DeviceRuntime* device = nullptr;
    std::string device_identity;  // CudaDeviceIdentity
  };
  // Returns when all trainers are connected. Requires: the client has joined; every trainer calls it once. Learning the
  // addresses takes as long as Board::Exchange may; then the error names a trainer that is not connected within
  // connect_deadline_s. FailedPrecondition: trainers name different backends, or some a loopback address and others
  // not. The job's failure comes before other errors.
  static absl::StatusOr<std::unique_ptr<TrainerGroup>> Form(const Options& options);
  // Gives answers that are on their way time to leave.
  ~TrainerGroup();

  // Rank r is trainer r. A wait that finds the job failed ends with that failure.
  Collective* collective() { return collective_.get(); }

 private:
  TrainerGroup() = default;
  absl::Status Connect(const Options& options, const CollectiveWaits& waits);
  // Returns the hosts of the trainers; none if no two that merge share one.
  static Hosts HostsOf(const std::vector<v1::CollectivePeer>& peers);
  absl::Status ConnectWire(const Options& options, const CollectiveWaits& waits);
  // `backend`: of the group that it is for, GLOO or NCCL.
  absl::StatusOr<std::unique_ptr<Mesh>> ConnectGloo(const Options& options, const std::string& backend);
  absl::Status ConnectNccl(const Options& options);

  // Set by a thread of the mesh when it has ended, which is before the destructor only after a failure.
  std::atomic<bool> closed_{false};
  // Destroyed in reverse order.
  WireInbox inbox_;
  std::unique_ptr<GrpcServer> server_;  // with backend WIRE
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Mesh> control_;  // with backend NCCL
  std::unique_ptr<Mesh> mesh_;
  Hosts hosts_;  // of the trainers, if what leaves a host is merged
  std::unique_ptr<Collective> collective_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_TRAINER_GROUP_H_
