#include "pserver/host/host_link.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "framework/base/counters.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "pserver/client/residual_exchange.h"
#include "pserver/sockets/unix_socket.h"

namespace weir {

namespace {

constexpr char kPeers[] = "host.peers", kLinks[] = "host.links", kEnd[] = "host.end";

std::vector<bool> RelayedServers(const v1::Plan& plan, const v1::HostPeer& sender) {
  std::vector<bool> relayed(static_cast<size_t>(plan.servers()), plan.merge_hosts() == v1::Plan::ON);
  if (plan.merge_hosts() != v1::Plan::AUTO) return relayed;
  for (size_t s = 0; s < relayed.size(); ++s) {
    relayed[s] = static_cast<int>(s) >= sender.near_size() || !sender.near(static_cast<int>(s));
  }
  const bool any = std::find(relayed.begin(), relayed.end(), true) != relayed.end();
  if (any && PushesAreLossy(plan)) relayed.assign(relayed.size(), true);
  return relayed;
}

// Residuals that each trainer has: a sender those of its group's nodes, the others of a group none. Empty: each has
// those of its own nodes.
std::vector<std::vector<LaneRange>> NodesOf(const v1::Plan& plan, const std::vector<HostGroup>& groups) {
  std::vector<std::vector<LaneRange>> nodes;
  if (groups.empty() || !PushesAreLossy(plan)) return nodes;
  for (int t = 0; t < plan.trainers(); ++t) {
    nodes.push_back(AlignedNodes(LanesOfTrainer(plan.lanes(), plan.trainers(), t)));
  }
  for (const HostGroup& group : groups) {
    for (const int t : group.trainers) nodes[static_cast<size_t>(t)].clear();
    nodes[static_cast<size_t>(group.sender())] = group.nodes;
  }
  return nodes;
}

}  // namespace

std::string HostIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  // The first network of two machines has the same number.
  if (boot.empty()) return "";
  // Servers of another network namespace are reached by its own addresses: another host, as a job sees it.
  struct stat network = {};
  const bool known = ::stat("/proc/self/ns/net", &network) == 0;
  return absl::StrCat(boot, " network ", known ? network.st_ino : 0, " user ", ::getuid());
}

std::vector<HostGroup> GroupHosts(const v1::Plan& plan, const std::vector<v1::HostPeer>& peers) {
  std::map<std::string, std::vector<int>> hosts;
  for (size_t t = 0; t < peers.size(); ++t) {
    if (!peers[t].host().empty() && !peers[t].path().empty()) hosts[peers[t].host()].push_back(static_cast<int>(t));
  }
  std::vector<HostGroup> groups;
  for (auto& [host, trainers] : hosts) {
    const std::vector<bool> relayed = RelayedServers(plan, peers[static_cast<size_t>(trainers[0])]);
    if (trainers.size() < 2 || std::find(relayed.begin(), relayed.end(), true) == relayed.end()) continue;
    groups.push_back(MakeHostGroup(plan.lanes(), plan.trainers(), std::move(trainers), relayed));
  }
  return groups;
}

std::shared_ptr<HostRelay> HostLink::relay() {
  MutexLock lock(&mu_);
  return relay_;
}

absl::Status HostLink::Listen() {
  if (!options_.shared_memory) return absl::FailedPreconditionError("cluster.shared_memory is false");
  if (options_.host.empty()) return absl::FailedPreconditionError("/proc/sys/kernel/random/boot_id cannot be read");
  ASSIGN_OR_RETURN(std::string path, NewUnixSocketPath());
  ASSIGN_OR_RETURN(
      server_, SharedServer::Start(path, [this](Method method, int server, const Slices& request, ReplyCallback reply) {
        if (const std::shared_ptr<HostRelay> relay = this->relay(); relay != nullptr) {
          return relay->Handle(method, server, request, reply);
        }
        reply(absl::UnavailableError("this trainer speaks to no server for others"));
      }));
  path_ = std::move(path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::HostPeer>> HostLink::ExchangePeers() {
  v1::HostPeer own;
  own.set_host(options_.host);
  own.set_path(path_);
  own.set_process(options_.process);
  for (int s = 0; s < options_.plan->servers(); ++s) own.add_near(options_.servers->shares_memory(s));
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   options_.client->board().Exchange(kPeers, own.SerializeAsString()));
  std::vector<v1::HostPeer> peers(all.size());
  for (size_t t = 0; t < all.size(); ++t) {
    if (!peers[t].ParseFromString(all[t])) {
      return absl::InternalError(absl::StrCat("trainer ", t, " has said nothing readable of its host"));
    }
  }
  return peers;
}

std::string HostLink::Connect(const std::vector<v1::HostPeer>& peers, const HostGroup& group) {
  if (group.sender() == options_.trainer_id) {
    Client& client = *options_.client;
    const std::shared_ptr<HostRelay> relay = HostRelay::Create({.group = group,
                                                                .plan = *options_.plan,
                                                                .rpc = absl::Seconds(options_.deadlines.rpc_s()),
                                                                .transport = options_.servers,
                                                                .residuals = &client.steps().pusher().residuals(),
                                                                .pool = options_.pool,
                                                                .counters = &Counters::Process(),
                                                                .calls = client.member().shared_counters(),
                                                                .caller = client.member().Caller()});
    MutexLock lock(&mu_);
    relay_ = relay;
    return "";
  }
  absl::StatusOr<std::shared_ptr<SharedClient>> connected =
      SharedClient::Connect(peers[static_cast<size_t>(group.sender())].path());
  if (!connected.ok()) {
    return absl::StrCat("trainer ", options_.trainer_id, " (", options_.process, ") cannot share memory with trainer ",
                        group.sender(), " (", peers[static_cast<size_t>(group.sender())].process(),
                        "): ", connected.status().message());
  }
  client_ = *std::move(connected);
  return "";
}

std::string HostLink::FindTrouble(const absl::Status& listens, const std::vector<v1::HostPeer>& peers,
                                  const HostGroup* group) {
  if (listens.ok()) return group == nullptr ? "" : Connect(peers, *group);
  const auto of_host =
      std::count_if(peers.begin(), peers.end(), [&](const v1::HostPeer& peer) { return peer.host() == options_.host; });
  if (of_host < 2) return "";
  return absl::StrCat("trainer ", options_.trainer_id, " (", options_.process,
                      ") cannot share memory with others of its host: ", listens.message());
}

absl::StatusOr<std::unique_ptr<HostLink>> HostLink::Form(const Options& options) {
  std::unique_ptr<HostLink> link(new HostLink(options));
  const absl::Status listens = link->Listen();
  ASSIGN_OR_RETURN(const std::vector<v1::HostPeer> peers, link->ExchangePeers());
  const bool wanted = options.plan->merge_hosts() == v1::Plan::ON;
  std::vector<HostGroup> groups = GroupHosts(*options.plan, peers);
  const auto own_group = [&]() -> const HostGroup* {
    for (const HostGroup& group : groups) {
      if (group.PlaceOf(options.trainer_id) >= 0) return &group;
    }
    return nullptr;
  };
  const std::string trouble = link->FindTrouble(listens, peers, own_group());
  if (!groups.empty() || wanted) {
    ASSIGN_OR_RETURN(const std::vector<std::string> troubles, options.client->board().Exchange(kLinks, trouble));
    for (const std::string& each : troubles) {
      if (!each.empty() && wanted) {
        return absl::FailedPreconditionError(
            absl::StrCat("distribute.merge_hosts is true, but ", each,
                         "; let trainers of a host share TMPDIR and memory, or set merge_hosts: AUTO or false"));
      }
    }
    std::erase_if(groups, [&](const HostGroup& group) {
      return std::any_of(group.trainers.begin(), group.trainers.end(),
                         [&](int t) { return !troubles[static_cast<size_t>(t)].empty(); });
    });
  }
  LOG_IF(WARNING, !trouble.empty() && options.shared_memory)
      << "trainers of this host do not merge what they send: " << trouble;
  link->merges_ = !groups.empty();
  const HostGroup* const group = own_group();
  if (group == nullptr || group->sender() != options.trainer_id) link->server_ = nullptr;
  options.client->UseRelay(group == nullptr ? std::vector<bool>() : group->servers, NodesOf(*options.plan, groups));
  if (group == nullptr) return link;
  LOG(INFO) << "trainers " << absl::StrJoin(group->trainers, ", ") << " of this host merge what they send to "
            << std::count(group->servers.begin(), group->servers.end(), true) << " of " << options.plan->servers()
            << " servers; trainer " << group->sender() << " sends";
  options.way->Relay(
      group->servers, link->WayToRelay(),
      absl::StrCat("trainer ", group->sender(), " (", peers[static_cast<size_t>(group->sender())].process(), ")"));
  return link;
}

HostTransport::ToRelay HostLink::WayToRelay() {
  if (const std::shared_ptr<HostRelay> relay = this->relay(); relay != nullptr) {
    return [relay](Method method, int server, const Slices& request, absl::Duration /*timeout*/, ReplyCallback done) {
      relay->Handle(method, server, request, done, /*own=*/true);
      return true;
    };
  }
  return
      [client = client_](Method method, int server, const Slices& request, absl::Duration timeout, ReplyCallback done) {
        return client->Call(
            method, request, timeout,
            [done = std::move(done)](std::optional<absl::StatusOr<Slices>> answer) {
              done(answer.has_value()
                       ? *std::move(answer)
                       : absl::UnavailableError("no room in the memory shared with the sender of this host"));
            },
            /*patient=*/false, server);
      };
}

HostLink::~HostLink() {
  if (client_ != nullptr) {
    client_->Close();
    client_->Join();
  }
  server_ = nullptr;
}

absl::Status HostLink::AwaitOthers() {
  return merges_ ? options_.client->board().Exchange(kEnd, "").status() : absl::OkStatus();
}

}  // namespace weir
