#include "tools/launching/placement.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/invalid.h"
#include "framework/base/status_macros.h"
#include "framework/net/socket_address.h"
#include "pserver/cluster/cluster.h"
#include "tools/hosts/host_names.h"

namespace weir {
namespace {

// More processes exhaust the ports and descriptors of one machine.
constexpr int kMostOnMachine = 256;
constexpr int kMostNodes = 4096;
// Default port of torch.distributed.launch.
constexpr int kMasterPort = 29500;
constexpr int kLastPort = 65535;

// "2 servers"
std::string Count(int64_t n, const char* what) { return absl::StrCat(n, " ", what, n == 1 ? "" : "s"); }

absl::Status AtMost(const std::string& what, int count, int most) {
  if (count <= most) return absl::OkStatus();
  return Invalid(what, "=", count, ": at most ", most);
}

// Refuses flags of one form beside those of another.
absl::Status CheckForm(const PlacementFlags& f) {
  const bool hosts = !f.hosts.empty();
  const std::vector<std::pair<const char*, bool>> of_nodes = {{"--nnodes", f.nnodes >= 0},
                                                              {"--node_rank", f.node_rank >= 0},
                                                              {"--nproc_per_node", f.nproc_per_node >= 0},
                                                              {"--node_addr", !f.node_addr.empty()}};
  for (const auto& [name, given] : of_nodes) {
    if (hosts && given) {
      return Invalid(name, " is for a launch on each node, but with ", f.hosts_from,
                     " one launch starts the processes of all hosts: give one of them");
    }
  }
  if (!hosts && !f.server_hosts.empty()) {
    return Invalid("--server_hosts=", f.server_hosts, " goes with -H or --hostfile");
  }
  if (f.nnodes == 0) return Invalid("--nnodes=0: at least 1 is needed");
  RETURN_IF_ERROR(AtMost("--nnodes", f.nnodes, kMostNodes));
  const int nodes = std::max(1, f.nnodes);
  if (f.node_rank >= nodes) {
    return Invalid("--node_rank=", f.node_rank, ", but --nnodes is ", nodes, ": ranks are 0 to ", nodes - 1);
  }
  if (nodes > 1 && f.np >= 0) {
    return Invalid("-np counts the trainers of all hosts that one launch starts; with --nnodes=", nodes,
                   " use --nproc_per_node");
  }
  if (f.master_port == 0 || f.master_port > kLastPort) {
    return Invalid("--master_port=", f.master_port, ": must be 1 to ", kLastPort);
  }
  if (!f.master_addr.empty()) {
    const absl::StatusOr<Endpoint> endpoint = ParseEndpoint(absl::StrCat(EndpointHost(f.master_addr), ":1"));
    if (!endpoint.ok()) return Invalid("--master_addr=", f.master_addr, ": must be a host name or an address");
    if (endpoint->IsWildcard()) return Invalid("--master_addr=", f.master_addr, " is no address that others reach");
  }
  return absl::OkStatus();
}

// The number of trainers that flags give; -1 if none does.
absl::StatusOr<int> TrainersOfFlags(const PlacementFlags& f) {
  const int nodes = std::max(1, f.nnodes);
  std::vector<std::pair<std::string, int>> given;
  if (f.trainers >= 0) given.emplace_back(absl::StrCat("--trainers=", f.trainers), f.trainers);
  if (f.np >= 0) given.emplace_back(absl::StrCat("-np ", f.np), f.np);
  if (f.nproc_per_node >= 0) {
    RETURN_IF_ERROR(AtMost("--nproc_per_node", f.nproc_per_node, kMostOnMachine));
    given.emplace_back(absl::StrCat(f.nnodes > 0 ? absl::StrCat("--nnodes=", f.nnodes, " ") : "",
                                    "--nproc_per_node=", f.nproc_per_node),
                       nodes * f.nproc_per_node);
  }
  for (const auto& [text, count] : given) {
    if (count < 1) return Invalid(text, ": at least 1 is needed; to train in one process use trainer --role=local");
    if (count == given[0].second) continue;
    return Invalid(given[0].first, " and ", text, " contradict each other: ", Count(given[0].second, "trainer"),
                   " and ", count);
  }
  return given.empty() ? -1 : given[0].second;
}

// Trainers by flag, else by the job.
absl::StatusOr<int> Trainers(const PlacementFlags& f, const JobNumbers& job) {
  ASSIGN_OR_RETURN(const int flags, TrainersOfFlags(f));
  if (flags < 0 && job.trainers < 0) return Invalid("--trainers is required");
  if (flags < 0 && job.trainers < 1) return Invalid("distribute.trainers is ", job.trainers, ": at least 1 is needed");
  return flags >= 0 ? flags : job.trainers;
}

absl::StatusOr<int> Servers(const PlacementFlags& f, const JobNumbers& job) {
  int listed = -1;
  if (!f.pservers.empty()) {
    listed = static_cast<int>(std::count(f.pservers.begin(), f.pservers.end(), ',')) + 1;
    if (f.servers == 0) {
      return Invalid(
          "--servers=0 puts the rows on the trainers, for which launch chooses ports itself, but --pservers "
          "lists ",
          listed, ": leave out one of the two");
    }
    if (f.servers >= 0 && f.servers != listed) {
      return Invalid("--servers=", f.servers, ", but --pservers lists ", listed, ": they must be equal");
    }
  }
  const int servers = listed >= 0 ? listed : f.servers >= 0 ? f.servers : job.servers;
  if (servers < 0) return Invalid("--servers is required");
  RETURN_IF_ERROR(AtMost("--servers", servers, kMostOnMachine));
  return servers;
}

// Ports of --pserver_ports, one for each server; empty if it is not given.
absl::StatusOr<std::vector<int>> PserverPorts(const PlacementFlags& f, int servers) {
  std::vector<int> ports;
  if (f.pserver_ports.empty()) return ports;
  if (!f.pservers.empty()) return Invalid("--pservers and --pserver_ports both give ports: give one of them");
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(f.pserver_ports, ','))) {
    int port = 0;
    if (!absl::SimpleAtoi(text, &port) || port < 1 || port > kLastPort) {
      return Invalid("--pserver_ports=", f.pserver_ports, ": '", text, "' must be a port from 1 to ", kLastPort);
    }
    ports.push_back(port);
  }
  if (static_cast<int>(ports.size()) != servers) {
    return Invalid("--pserver_ports=", f.pserver_ports, " has ", Count(static_cast<int64_t>(ports.size()), "port"),
                   " for ", Count(servers, "server"), ": each needs one");
  }
  return ports;
}

// The host part as it was written, without brackets.
std::string PlainHost(const std::string& host) {
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

std::string ListenAt(const std::string& address) {
  const std::string plain = PlainHost(address);
  return IsAddress(plain) || IsLoopback(plain) ? address : "0.0.0.0";
}

PlacedServer ServerAt(int host, const std::string& address, int port) {
  return {.host = host, .address = address, .listen = ListenAt(address), .port = port};
}

absl::StatusOr<std::vector<Endpoint>> Listed(const PlacementFlags& f) {
  std::vector<Endpoint> endpoints;
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(f.pservers, ','))) {
    absl::StatusOr<Endpoint> endpoint = ParseEndpoint(text);
    if (!endpoint.ok()) return Invalid("--pservers: ", endpoint.status().message());
    if (endpoint->port == 0) return Invalid("--pservers: ", text, " has port 0, where nobody can find it");
    if (std::find(endpoints.begin(), endpoints.end(), *endpoint) != endpoints.end()) {
      return Invalid("--pservers has ", text, " twice");
    }
    endpoints.push_back(*std::move(endpoint));
  }
  return endpoints;
}

// Servers of --pservers in the forms without hosts.
absl::StatusOr<std::vector<PlacedServer>> ListedServers(const PlacementFlags& f, const AreHere& are_here) {
  ASSIGN_OR_RETURN(const std::vector<Endpoint> endpoints, Listed(f));
  std::vector<std::string> names;
  names.reserve(endpoints.size());
  for (const Endpoint& endpoint : endpoints) names.push_back(PlainHost(endpoint.host));
  std::vector<bool> here(names.size());
  if (f.node_addr.empty()) {
    here = are_here(names);
  } else {
    std::transform(names.begin(), names.end(), here.begin(),
                   [&](const std::string& name) { return name == PlainHost(f.node_addr); });
  }
  std::vector<PlacedServer> servers;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    servers.push_back(ServerAt(here[i] ? 0 : -1, endpoints[i].host, endpoints[i].port));
  }
  return servers;
}

absl::StatusOr<Placement> PlaceHere(const PlacementFlags& f, const JobNumbers& job, const AreHere& are_here) {
  Placement placement;
  ASSIGN_OR_RETURN(placement.trainers, Trainers(f, job));
  RETURN_IF_ERROR(AtMost("--trainers", placement.trainers, kMostOnMachine));
  ASSIGN_OR_RETURN(const int servers, Servers(f, job));
  ASSIGN_OR_RETURN(const std::vector<int> ports, PserverPorts(f, servers));
  if (!f.pservers.empty()) {
    ASSIGN_OR_RETURN(placement.servers, ListedServers(f, are_here));
  }
  for (int i = static_cast<int>(placement.servers.size()); i < servers; ++i) {
    placement.servers.push_back({.port = ports.empty() ? 0 : ports[static_cast<size_t>(i)]});
  }
  placement.hosts = {{.trainers = placement.trainers}};
  placement.master_addr = f.master_addr.empty() ? "127.0.0.1" : f.master_addr;
  placement.master_port = std::max(0, f.master_port);
  return placement;
}

// Returns the place of server `server` of a launch on each node; its port is known to all nodes.
PlacedServer ServerOfNodes(const PlacementFlags& f, int server, int port) {
  const int node = server % f.nnodes;
  const int host = node == f.node_rank ? 0 : -1;
  if (node == 0) return ServerAt(host, EndpointHost(f.master_addr), port);
  if (host < 0 || f.node_addr.empty()) return {.host = host, .address = "", .listen = "0.0.0.0", .port = port};
  return ServerAt(host, EndpointHost(PlainHost(f.node_addr)), port);
}

absl::Status PlaceServersOfNodes(const PlacementFlags& f, int servers, const AreHere& are_here, Placement* placement) {
  placement->meet_at_master = servers == 0 || (servers > 1 && f.pservers.empty());
  if (!f.pservers.empty()) {
    ASSIGN_OR_RETURN(placement->servers, ListedServers(f, are_here));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<int> ports, PserverPorts(f, servers));
  if (f.master_addr.empty()) {
    return Invalid("--nnodes=", f.nnodes, " needs --master_addr=HOST, where the other nodes reach node 0");
  }
  if (servers > 0 && !f.node_addr.empty() && !IsAddress(PlainHost(f.node_addr))) {
    return Invalid("--node_addr=", f.node_addr, ": servers listen at an address, not at a name, unless --pservers ",
                   "lists them; write the node's address, or leave it out");
  }
  if (ports.empty() && placement->master_port + servers > kLastPort) {
    return Invalid("--master_port=", placement->master_port, ": servers take the ", servers,
                   " ports above it, which end at ", kLastPort, "; give --pserver_ports or a lower port");
  }
  for (int i = 0; i < servers; ++i) {
    const int port = ports.empty() ? placement->master_port + 1 + i : ports[static_cast<size_t>(i)];
    placement->servers.push_back(ServerOfNodes(f, i, port));
  }
  return absl::OkStatus();
}

absl::StatusOr<Placement> PlaceOnNode(const PlacementFlags& f, const JobNumbers& job, const AreHere& are_here) {
  if (f.node_rank < 0) {
    return Invalid("--nnodes=", f.nnodes, " needs --node_rank=R, 0 to ", f.nnodes - 1, ": which node this is");
  }
  Placement placement{.nodes = f.nnodes};
  ASSIGN_OR_RETURN(placement.trainers, Trainers(f, job));
  if (placement.trainers % f.nnodes != 0) {
    return Invalid(Count(placement.trainers, "trainer"), " on --nnodes=", f.nnodes,
                   " are not the same number on each; give --nproc_per_node, or use -H with slots");
  }
  const int each = placement.trainers / f.nnodes;
  RETURN_IF_ERROR(AtMost("--nproc_per_node", each, kMostOnMachine));
  ASSIGN_OR_RETURN(const int servers, Servers(f, job));
  placement.master_addr = f.master_addr;
  placement.master_port = f.master_port > 0 ? f.master_port : kMasterPort;
  RETURN_IF_ERROR(PlaceServersOfNodes(f, servers, are_here, &placement));
  placement.hosts = {{.node = f.node_rank, .first_trainer = f.node_rank * each, .trainers = each}};
  return placement;
}

// Hosts of servers in turns: those of --server_hosts, else those that have trainers; `dealt`: trainers of each host.
// Adds hosts that are not among `hosts` yet.
absl::StatusOr<std::vector<int>> ServerHosts(const PlacementFlags& f, const std::vector<int>& dealt,
                                             std::vector<Host>* hosts) {
  std::vector<int> places;
  if (f.server_hosts.empty()) {
    for (size_t i = 0; i < dealt.size(); ++i) {
      if (dealt[i] > 0) places.push_back(static_cast<int>(i));
    }
    return places;
  }
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(f.server_hosts, ','))) {
    const absl::StatusOr<std::vector<Host>> host = ParseHostList(name);
    if (!host.ok() || host->size() != 1 || host->front().slots != 1) {
      return Invalid("--server_hosts=", f.server_hosts, ": '", name, "' is no host name or address");
    }
    const auto found =
        std::find_if(hosts->begin(), hosts->end(), [&](const Host& each) { return each.name == host->front().name; });
    places.push_back(static_cast<int>(found - hosts->begin()));
    if (found == hosts->end()) hosts->push_back({.name = host->front().name, .slots = 0});
  }
  return places;
}

// Index of the host at which an endpoint of --pservers is.
absl::StatusOr<int> HostOf(const Endpoint& endpoint, const std::vector<Host>& hosts) {
  const std::string plain = PlainHost(endpoint.host);
  const auto found = std::find_if(hosts.begin(), hosts.end(),
                                  [&](const Host& host) { return host.name == plain || host.address == plain; });
  if (found != hosts.end()) return static_cast<int>(found - hosts.begin());
  return Invalid("--pservers: ", endpoint.ToString(),
                 " is at no host of -H or --hostfile; name the hosts of servers by ", "--server_hosts");
}

// Servers of the form with hosts; addresses are filled in when those of hosts are known.
absl::StatusOr<std::vector<PlacedServer>> ServersOnHosts(const PlacementFlags& f, int count,
                                                         const std::vector<int>& places,
                                                         const std::vector<Host>& hosts) {
  ASSIGN_OR_RETURN(const std::vector<int> ports, PserverPorts(f, count));
  std::vector<Endpoint> listed;
  if (!f.pservers.empty()) {
    ASSIGN_OR_RETURN(listed, Listed(f));
  }
  std::vector<PlacedServer> servers;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    PlacedServer server{.host = places[i % places.size()], .address = "", .port = ports.empty() ? 0 : ports[i]};
    if (!listed.empty()) {
      server.address = listed[i].host;
      server.port = listed[i].port;
      if (f.server_hosts.empty()) {
        ASSIGN_OR_RETURN(server.host, HostOf(listed[i], hosts));
      }
    }
    servers.push_back(std::move(server));
  }
  return servers;
}

// Leaves out the hosts that have nothing to do.
void DropIdle(Placement* placement) {
  std::set<int> busy;
  for (const PlacedServer& server : placement->servers) busy.insert(server.host);
  std::vector<PlacedHost> kept;
  std::vector<int> place(placement->hosts.size(), -1);
  for (size_t i = 0; i < placement->hosts.size(); ++i) {
    if (placement->hosts[i].trainers == 0 && !busy.contains(static_cast<int>(i))) continue;
    place[i] = static_cast<int>(kept.size());
    kept.push_back(std::move(placement->hosts[i]));
  }
  placement->hosts = std::move(kept);
  for (PlacedServer& server : placement->servers) server.host = place[static_cast<size_t>(server.host)];
}

// Finds out which hosts are this machine, and at which address the others reach each.
absl::Status ResolveHosts(const PlacementFlags& f, const std::vector<Host>& hosts, const AreHere& are_here,
                          Placement* placement) {
  std::vector<std::string> names;
  for (const PlacedHost& host : placement->hosts) names.push_back(host.name);
  const std::vector<bool> here = are_here(names);
  std::optional<size_t> local;
  for (size_t i = 0; i < here.size(); ++i) {
    if (here[i] && local.has_value()) {
      return Invalid(f.hosts_from, ": ", names[*local], " and ", names[i],
                     " are both this machine; write it once, with the slots of both");
    }
    if (here[i]) local = i;
    placement->hosts[i].remote = !here[i];
  }
  const bool alone = placement->hosts.size() == 1 && local.has_value();
  for (size_t i = 0; i < names.size(); ++i) {
    PlacedHost& host = placement->hosts[i];
    const auto written =
        std::find_if(hosts.begin(), hosts.end(), [&](const Host& each) { return each.name == host.name; });
    std::string address = written->address;
    if (address.empty() && names[i] == hosts[0].name) address = f.master_addr;
    if (address.empty() && alone) address = "127.0.0.1";
    const bool listens = placement->trainers_serve() ||
                         std::any_of(placement->servers.begin(), placement->servers.end(), [&](const auto& server) {
                           return server.host == static_cast<int>(i) && server.address.empty();
                         });
    if (address.empty() && listens && IsLoopback(host.name)) {
      return Invalid(f.hosts_from, ": processes on ", host.name,
                     " listen for those of other hosts, which cannot reach ",
                     "it there; write this machine's own address, or --master_addr for the first host",
                     placement->trainers_serve() ? "" : ", or give the hosts of the servers by --server_hosts");
    }
    host.address = EndpointHost(address.empty() ? host.name : address);
    host.listen = ListenAt(host.address);
  }
  return absl::OkStatus();
}

absl::StatusOr<Placement> PlaceOnHosts(const PlacementFlags& f, const JobNumbers& job, const AreHere& are_here) {
  ASSIGN_OR_RETURN(const int trainers, TrainersOfFlags(f));
  ASSIGN_OR_RETURN(const std::vector<int> dealt, DealTrainers(f.hosts, trainers, f.hosts_from));
  ASSIGN_OR_RETURN(const int count, Servers(f, job));
  std::vector<Host> hosts = f.hosts;
  ASSIGN_OR_RETURN(const std::vector<int> places, ServerHosts(f, dealt, &hosts));
  Placement placement{.nodes = 0};
  ASSIGN_OR_RETURN(placement.servers, ServersOnHosts(f, count, places, hosts));
  for (size_t i = 0; i < hosts.size(); ++i) {
    PlacedHost host{.name = hosts[i].name, .node = -1, .first_trainer = placement.trainers};
    if (i < dealt.size() && dealt[i] > 0) {
      host.node = placement.nodes++;
      host.trainers = dealt[i];
      RETURN_IF_ERROR(AtMost(absl::StrCat("slots of ", host.name), host.trainers, kMostOnMachine));
      placement.trainers += host.trainers;
    }
    placement.hosts.push_back(std::move(host));
  }
  DropIdle(&placement);
  RETURN_IF_ERROR(ResolveHosts(f, hosts, are_here, &placement));
  for (PlacedServer& server : placement.servers) {
    const PlacedHost& host = placement.hosts[static_cast<size_t>(server.host)];
    server.listen = server.address.empty() ? host.listen : ListenAt(server.address);
    if (server.address.empty()) server.address = host.address;
  }
  const std::string first = PlainHost(placement.hosts[0].address);
  // Other hosts would find themselves there.
  if (placement.hosts.size() == 1 || !IsLoopback(first) || first == f.master_addr) placement.master_addr = first;
  placement.master_port = std::max(0, f.master_port);
  return placement;
}

}  // namespace

absl::StatusOr<Placement> Place(const PlacementFlags& flags, const JobNumbers& job, const AreHere& are_here) {
  RETURN_IF_ERROR(CheckForm(flags));
  if (!flags.hosts.empty()) return PlaceOnHosts(flags, job, are_here);
  if (flags.nnodes > 1) return PlaceOnNode(flags, job, are_here);
  return PlaceHere(flags, job, are_here);
}

bool Placement::whole_job() const {
  int here = 0;
  for (const PlacedHost& host : hosts) here += host.trainers;
  return here == trainers &&
         std::all_of(servers.begin(), servers.end(), [](const PlacedServer& server) { return server.host >= 0; });
}

}  // namespace weir
