// Decides which processes of a job run where: the forms of launch for one machine, for one node of several, and for
// several hosts.
#ifndef WEIR_TOOLS_LAUNCHING_PLACEMENT_H_
#define WEIR_TOOLS_LAUNCHING_PLACEMENT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/hosts/hosts.h"

namespace weir {

// Flags that place processes; -1 and "": not given.
struct PlacementFlags {
  int servers = -1;
  int trainers = -1;
  // A launch for each node.
  int nnodes = -1;
  int node_rank = -1;
  int nproc_per_node = -1;
  // This node in --pservers, or where its servers listen.
  std::string node_addr;
  std::string master_addr;
  int master_port = -1;
  // One launch for several hosts.
  int np = -1;
  std::vector<Host> hosts;
  // "-H" or the name of the hostfile, for messages.
  std::string hosts_from;
  std::string server_hosts;
  // Addresses and ports at which servers listen.
  std::string pservers;
  std::string pserver_ports;
};

// Numbers in the job, for those that no flag gives; -1: the job cannot be read here.
struct JobNumbers {
  int servers = -1;
  int trainers = -1;
};

struct PlacedHost {
  // Name for messages and ssh; "" in the forms without hosts.
  std::string name;
  // True if it is reached by ssh.
  bool remote = false;
  // Host part of the endpoints of its processes: "127.0.0.1", "ps-1", "[fe80::1]".
  std::string address = "127.0.0.1";
  // Address at which its processes listen: `address`, or every interface if that is a name, which the host itself may
  // resolve to a loopback address.
  std::string listen = "127.0.0.1";
  // Place among the nodes with trainers; -1 for a host with servers alone.
  int node = 0;
  int first_trainer = 0;
  int trainers = 0;
};

struct PlacedServer {
  // Index of its host; -1: it is not this launch that starts it.
  int host = 0;
  // "": the others learn it where the processes meet.
  std::string address = "127.0.0.1";
  std::string listen = "127.0.0.1";
  // 0: a free one, which the server tells.
  int port = 0;
};

struct Placement {
  // Numbers of the whole job.
  int trainers = 0;
  int nodes = 1;
  std::vector<PlacedServer> servers;
  // Hosts on which this launch starts processes.
  std::vector<PlacedHost> hosts;
  // Address and port of rank 0 for programs that meet there. "": not known. Port 0: a free one of hosts[0].
  std::string master_addr;
  int master_port = 0;
  // True if processes find one another there, because no launch knows the addresses of all that listen: with --nnodes,
  // if there are several servers or none.
  bool meet_at_master = false;

  // True if every trainer has a server inside.
  bool trainers_serve() const { return servers.empty(); }
  // True if this launch starts all processes of the job.
  bool whole_job() const;
};

// Returns for each name or address whether it is this machine (host_names.h).
using AreHere = std::function<std::vector<bool>(const std::vector<std::string>& names)>;

// Places the processes of a job.
//
//   one machine    servers and trainers at free ports of 127.0.0.1
//   --nnodes       trainers node_rank * nproc_per_node and following; server s on node s mod nnodes, at master_addr
//                  (node 0) or node_addr, port master_port + 1 + s
//   -H             trainers by host in order; server s on host s mod H of the H hosts that have trainers, or on
//                  --server_hosts in turns, at free ports
//
// Slots do not count for servers: every server has an equal share of the rows, so hosts of equal networks should have
// the same number of them, and a server stays on its host when slots or the number of servers change.
//
// --pserver_ports names the ports of servers in each form. --pservers names address and port of each: this launch
// starts those that are at --node_addr, or on this machine, or, with -H, on the host of that name or at its place in
// --server_hosts.
//
// InvalidArgument names the flags that contradict each other, with both values.
absl::StatusOr<Placement> Place(const PlacementFlags& flags, const JobNumbers& job, const AreHere& are_here);

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_PLACEMENT_H_
