// Role of this process in the cluster and the addresses of the servers, from flags, environment and job file.
//
// Precedence, for each setting by itself: flag > environment > file > default. The machine is read only through
// `environment`, so the result is a pure function of the arguments.
//
//   setting         flag                             environment                                  file
//   role            --role                           TRAINING_ROLE, PADDLE_TRAINING_ROLE          -
//   servers' list   --pservers                       PADDLE_PSERVERS_IP_PORT_LIST                 cluster.pserver
//   own endpoint    --current_endpoint, --endpoint   PADDLE_CURRENT_ENDPOINT, POD_IP:PADDLE_PORT  list at --server_id
//   server's index  --server_id                      -                                            place in the list
//   trainer's id    --trainer_id                     PADDLE_TRAINER_ID                            0 of 1 trainer
//   trainers        --trainers, or --set             PADDLE_TRAINERS_NUM, PADDLE_NUM_TRAINERS     distribute.trainers
//
// With distribute.servers: 0 each trainer listens, as server i inside trainer i. The list then has one entry per
// trainer, and the other settings of a trainer are:
//
//   trainers' list  --pservers                       PADDLE_TRAINER_ENDPOINTS or                  cluster.pserver
//                                                    PADDLE_PSERVERS_IP_PORT_LIST
//   own endpoint    --current_endpoint, --endpoint   PADDLE_CURRENT_ENDPOINT                      list at the trainer's
//   id trainer's id    --trainer_id                     PADDLE_TRAINER_ID                            place in the list
//
// Two names of one setting in one place (--endpoint and --current_endpoint, TRAINING_ROLE and PADDLE_TRAINING_ROLE,
// ...) must not contradict each other. PADDLE_CURRENT_ENDPOINT takes precedence over POD_IP and PADDLE_PORT, which
// clusters set for other uses too. PADDLE_NUM_TRAINERS is the number of nodes; Fluid runs one trainer per node, so it
// means the same here.
#ifndef WEIR_PSERVER_CLUSTER_CLUSTER_H_
#define WEIR_PSERVER_CLUSTER_CLUSTER_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir {

// host:port. The host of an IPv6 address keeps its brackets.
struct Endpoint {
  std::string host;
  int port = 0;

  std::string ToString() const;
  // Returns true for every interface of the machine: 0.0.0.0 or [::].
  bool IsWildcard() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// Parses "127.0.0.1:6170", "ps-0.cluster:6170" or "[::1]:6170"; port 0 to 65535. InvalidArgument says what is wrong
// with `text`.
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);

enum class Role { kPserver, kTrainer, kLocal, kPredict };
// Returns "pserver", "trainer", "local" or "predict".
std::string_view RoleName(Role role);

// Flag values from the command line; empty: not given.
struct ClusterFlags {
  std::string role;
  std::string pservers;
  std::string current_endpoint;
  std::string endpoint;
  std::string server_id;
  std::string trainer_id;
  std::string trainers;
  // Values of --set. distribute.trainers among them counts as a flag, because the job no longer shows where its value
  // came from.
  std::vector<std::string> overrides;
};

// Returns the value of a variable; nullopt or "" when it is not set.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;

struct ClusterConfig {
  Role role = Role::kTrainer;
  // Servers by index. Empty when the process does not need it: a server that knows its index and endpoint, a role
  // without servers.
  std::vector<std::string> pservers;
  // True for a trainer, or a process that predicts in a cluster, that has a server inside: distribute.servers is 0.
  // pservers[i] is then where trainer i listens.
  bool servers_in_trainers = false;
  // For role pserver: its index.
  int server_id = -1;
  // For role pserver and with servers_in_trainers: the address it listens on. Port 0, for role pserver only: the system
  // chooses one.
  std::string endpoint;
  // For all other roles.
  int trainer_id = -1;
  int servers = 1;
  int trainers = 1;
  // Overrides for settings in which the job differs: call LoadJob again with these after the user's own
  // ("distribute.trainers=4").
  std::vector<std::string> overrides;
  // Sentences about settings that are legal and probably not meant, to be logged once.
  std::vector<std::string> warnings;
};

// Resolves the cluster settings of this process. `program`: kPserver or kTrainer (the trainer program also serves local
// and predict); another role is refused.
//
// InvalidArgument names the setting and where it came from: an unknown role; an endpoint that is blank, a duplicate or
// without port; a list of another length than distribute.servers, or than the number of trainers if that is 0; an id
// that is missing, not a number or out of range; an endpoint that is not in the list, or is at another place than
// --server_id or --trainer_id; a required setting that is missing, by flag and variable; a server of a job whose
// distribute.servers is 0.
//
// A server whose own endpoint has port 0 reports its port elsewhere (--port_file), so it needs --server_id and reads no
// list. One that listens on every interface needs --server_id, and its port must be that of the list. --role=local
// reads nothing but the role.
absl::StatusOr<ClusterConfig> ResolveCluster(Role program, const ClusterFlags& flags, const Environment& environment,
                                             const v1::JobConfig& job);

}  // namespace weir

#endif  // WEIR_PSERVER_CLUSTER_CLUSTER_H_
