#include "pserver/trainer_group.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "proto/trainer.pb.h"
#include "pserver/cluster/endpoint.h"
#include "pserver/collective/backends.h"
#include "pserver/collective/gloo_mesh.h"
#include "pserver/collective/nccl_mesh.h"
#include "pserver/collective/peers.h"
#include "pserver/host/host_link.h"
#include "pserver/network/grpc_transport.h"

namespace weir {

namespace {

constexpr char kPeers[] = "collective.peers";
// Time for answers on their way when this trainer has ended.
constexpr absl::Duration kGrace = absl::Seconds(2);

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// All trainers are there and connect at once: one that is not connected by then is dead, or cannot be reached.
absl::Duration ConnectDeadline(const v1::Deadlines& deadlines) {
  return absl::Seconds(std::min(deadlines.connect_deadline_s(), 2 * deadlines.lease_s() + deadlines.rpc_s()));
}

absl::StatusOr<std::vector<v1::CollectivePeer>> ExchangePeers(Client* client, const v1::CollectivePeer& own) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all, client->board().Exchange(kPeers, own.SerializeAsString()));
  return ReadPeers(all);
}

// Gives what each trainer says under a key to all, for the forming of a mesh.
auto ExchangeOf(Client* client) {
  return [client](const std::string& key, const std::string& mine) {
    return client->board().Exchange(absl::StrCat(kPeers, ".", key), mine);
  };
}

}  // namespace

TrainerGroup::~TrainerGroup() {
  // Ends what is under way if this trainer has failed.
  collective_ = nullptr;
  // After a failure the others have been told, and a process that is stopped would keep its call open.
  if (server_ != nullptr) server_->Shutdown(closed_ ? absl::ZeroDuration() : kGrace);
  mesh_ = nullptr;
  control_ = nullptr;
}

Hosts TrainerGroup::HostsOf(const std::vector<v1::CollectivePeer>& peers) {
  std::vector<std::string> names;
  for (size_t t = 0; t < peers.size(); ++t) {
    // One that shares no memory is a host by itself.
    names.push_back(!peers[t].host().empty() ? peers[t].host() : absl::StrCat("trainer ", t));
  }
  return Hosts::Named(names);
}

absl::Status TrainerGroup::ConnectWire(const Options& o, const CollectiveWaits& waits) {
  ASSIGN_OR_RETURN(
      server_,
      GrpcServer::Start({.endpoint = JoinHostPort(o.host, 0),
                         .deliver = [this](const Slices& message,
                                           ReplyCallback reply) { inbox_.HandleDeliver(message, std::move(reply)); },
                         .expected_descriptors = int64_t{4} * o.trainers,
                         .network = o.network}));
  v1::CollectivePeer own;
  own.set_backend("WIRE");
  own.set_endpoint(server_->endpoint());
  own.set_unix_socket(server_->unix_socket());
  own.set_group(RandomNumber());
  if (o.merge_hosts && o.network.shared_memory()) own.set_host(HostIdentity());
  ASSIGN_OR_RETURN(const std::vector<v1::CollectivePeer> peers, ExchangePeers(o.client, own));
  hosts_ = HostsOf(peers);
  if (hosts_.worth_merging()) {
    LOG(INFO) << "trainers of " << hosts_.count() << " hosts, up to " << hosts_.most_ranks()
              << " on one, merge what leaves a host";
  }
  GrpcTransportOptions transport{.network = o.network};
  RETURN_IF_ERROR(WantDescriptors(4 * static_cast<int64_t>(peers.size()) + 64,
                                  absl::StrCat("4 connections with each of ", peers.size(), " trainers and 64 more")));
  for (const v1::CollectivePeer& peer : peers) {
    // Nothing goes to this rank itself.
    const bool is_own = static_cast<int>(transport.endpoints.size()) == o.trainer_id;
    transport.endpoints.push_back(peer.endpoint());
    transport.sockets.push_back(is_own ? "" : peer.unix_socket());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ClosableTransport> made, MakeGrpcTransport(transport));
  ClosableTransport* const closable = made.get();
  transport_ = std::move(made);
  const auto describe = [endpoints = transport.endpoints](int rank) {
    return absl::StrCat("trainer ", rank, " at ", endpoints[static_cast<size_t>(rank)]);
  };
  ASSIGN_OR_RETURN(mesh_, WireMesh::Connect({.group = peers[0].group(),
                                             .rank = o.trainer_id,
                                             .transport = transport_.get(),
                                             .inbox = &inbox_,
                                             .describe = describe,
                                             .close =
                                                 [this, closable] {
                                                   closed_ = true;
                                                   closable->Close();
                                                 }},
                                            waits));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Mesh>> TrainerGroup::ConnectGloo(const Options& o, const std::string& backend) {
  v1::CollectivePeer own;
  own.set_backend(backend);
  own.set_endpoint(o.host);
  own.set_group(RandomNumber());
  ASSIGN_OR_RETURN(const std::vector<v1::CollectivePeer> peers, ExchangePeers(o.client, own));
  const auto describe = [hosts = peers](int rank) {
    return absl::StrCat("trainer ", rank, " at ", hosts[static_cast<size_t>(rank)].endpoint());
  };
  return ConnectGlooMesh({.group = peers[0].group(),
                          .rank = o.trainer_id,
                          .size = o.trainers,
                          .host = o.host,
                          .exchange = ExchangeOf(o.client),
                          .describe = describe,
                          .connect_deadline = ConnectDeadline(o.deadlines),
                          .job = [client = o.client] { return client->member().JobStatus(); }});
}

absl::Status TrainerGroup::ConnectNccl(const Options& o) {
  CHECK(o.nccl != nullptr && o.device != nullptr);
  ASSIGN_OR_RETURN(control_, ConnectGloo(o, "NCCL"));
  ASSIGN_OR_RETURN(mesh_, ConnectNcclMesh({.control = control_.get(),
                                           .library = o.nccl,
                                           .device = o.device,
                                           .device_identity = o.device_identity,
                                           .exchange = ExchangeOf(o.client),
                                           .connect_deadline = absl::Seconds(o.deadlines.connect_deadline_s())}));
  return absl::OkStatus();
}

absl::Status TrainerGroup::Connect(const Options& o, const CollectiveWaits& waits) {
  const v1::Comm::Backend named = o.settings.backend();
  switch (named == v1::Comm::AUTO ? AutoBackend() : named) {
    case v1::Comm::WIRE:
      return ConnectWire(o, waits);
    case v1::Comm::NCCL:
      return ConnectNccl(o);
    default:
      break;
  }
  ASSIGN_OR_RETURN(mesh_, ConnectGloo(o, "GLOO"));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TrainerGroup>> TrainerGroup::Form(const Options& o) {
  CHECK(o.client != nullptr);
  std::unique_ptr<TrainerGroup> group(new TrainerGroup());
  CollectiveWaits waits = {.deadline = absl::Seconds(o.deadlines.connect_deadline_s()),
                           .warning = absl::Seconds(o.deadlines.slow_warning_s()),
                           .job = [client = o.client] { return client->member().JobStatus(); }};
  const absl::Status connected = group->Connect(o, waits);
  if (!connected.ok()) {
    const absl::Status job = o.client->member().JobStatus();
    return job.ok() ? connected : job;
  }
  waits.deadline = absl::Seconds(o.deadlines.progress_deadline_s());
  waits.excused = [client = o.client] { return client->member().AnyAwaitsFiles(); };
  group->collective_ = std::make_unique<Collective>(
      group->mesh_.get(),
      Collective::Options{
          .waits = std::move(waits), .hosts = group->hosts_, .counted_as = absl::StrCat("trainer.", o.trainer_id)});
  return group;
}

}  // namespace weir
