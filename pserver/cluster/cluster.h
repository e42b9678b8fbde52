// Role of this process in the cluster and the addresses of the servers, from flags, environment and job file.
//
// Precedence, for each setting by itself: flag > environment > file > default. The machine is read only through
// `environment`, so the result is a pure function of the arguments.
//
//   setting         flag                             environment                                  file
//   role            --role                           TRAINING_ROLE, PADDLE_TRAINING_ROLE          -
//   servers' list   --pservers                       PADDLE_PSERVERS_IP_PORT_LIST                 cluster.pserver
//   own endpoint    --current_endpoint, --endpoint   PADDLE_CURRENT_ENDPOINT, POD_IP:PADDLE_PORT  list at --server_id
//   server's index  --server_id                      launcher's rank                              place in the list
//   trainer's id    --trainer_id                     PADDLE_TRAINER_ID, launcher's rank           0 of 1 trainer
//   trainers        --trainers, or --set             PADDLE_TRAINERS_NUM, PADDLE_NUM_TRAINERS,    distribute.trainers
//                                                    launcher's number
//   meeting point   --init_method                    -                                            -
//   name of the run --run_id                         launcher's (a trainer)                       -
//
// With distribute.servers: 0 each trainer listens, as server i inside trainer i. The list then has one entry per
// trainer, and the other settings of a trainer are:
//
//   trainers' list  --pservers                       PADDLE_TRAINER_ENDPOINTS or                  cluster.pserver
//                                                    PADDLE_PSERVERS_IP_PORT_LIST
//   own endpoint    --current_endpoint, --endpoint   PADDLE_CURRENT_ENDPOINT                      list at its id
//   trainer's id    --trainer_id                     PADDLE_TRAINER_ID, launcher's rank           place in the list
//   meeting point   --init_method                    MASTER_ADDR and MASTER_PORT, if there is     -
//                                                    no list
//
// The launcher's variables (RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID, ...) are those of launched.h. A rank or number
// that contradicts a flag or one of Fluid's variables is refused. One exception: Fluid's TRAINING_ROLE together with
// PADDLE_TRAINER_ID, in a job with servers, comes from a script that deals roles to a launcher's processes, and the
// launcher's ranks do not count. A server reads the launcher's rank only if it has no --server_id, and either no
// endpoint of its own or a meeting point; a rank that differs is then not noticed.
//
// A process with a meeting point learns the addresses of the others there (pserver/rendezvous), and no list counts
// beside it.
//
// Two names of one setting in one place (--endpoint and --current_endpoint, TRAINING_ROLE and PADDLE_TRAINING_ROLE,
// ...) must not contradict each other. PADDLE_CURRENT_ENDPOINT takes precedence over POD_IP and PADDLE_PORT, which
// clusters set for other uses too. PADDLE_NUM_TRAINERS is the number of nodes; Fluid runs one trainer per node, so it
// means the same here. TensorFlow's TF_CONFIG (tf_config.h) is another name, in the environment, of the role, both
// lists, the server's index, the trainer's id and the number of trainers; with --role=local it is not read. Variables
// of Fluid's oldest scripts count, too: PADDLE_PSERVER_IPS with PADDLE_PSERVER_PORT (6174 if not set) for the servers,
// PADDLE_CURRENT_IP for the own host, PADDLE_TRAINERS for the number of trainers.
#ifndef WEIR_PSERVER_CLUSTER_CLUSTER_H_
#define WEIR_PSERVER_CLUSTER_CLUSTER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "pserver/cluster/endpoint.h"
#include "pserver/cluster/environment.h"
#include "pserver/cluster/init_method.h"

namespace weir {

enum class Role { kPserver, kTrainer, kLocal, kPredict, kImportance };
// Returns "pserver", "trainer", "local", "predict" or "importance".
std::string_view RoleName(Role role);
// Returns whether the role scores examples with a checkpoint and trains nothing.
inline bool IsScoring(Role role) { return role == Role::kPredict || role == Role::kImportance; }

// Flag values from the command line; empty: not given.
struct ClusterFlags {
  std::string role;
  std::string pservers;
  std::string current_endpoint;
  std::string endpoint;
  std::string server_id;
  std::string trainer_id;
  std::string trainers;
  std::string init_method;
  std::string run_id;
  // Values of --set. distribute.trainers among them counts as a flag, because the job no longer shows where its value
  // came from.
  std::vector<std::string> overrides;
};

struct ClusterConfig {
  Role role = Role::kTrainer;
  // Servers by index. Empty when the process does not need it: a server that knows its index and endpoint, a role
  // without servers; and with init_method, until the processes have met.
  std::vector<std::string> pservers;
  // True for a trainer, or a process that predicts in a cluster, that has a server inside: distribute.servers is 0.
  // pservers[i] is then where trainer i listens.
  bool servers_in_trainers = false;
  // Index of a server (role pserver).
  int server_id = -1;
  // Address on which a server listens (role pserver, and trainers with servers_in_trainers). Port 0: the system chooses
  // one; possible only for role pserver, or with init_method. "", only with init_method: any port at the address of
  // this machine that the others reach.
  std::string endpoint;
  // Set if the processes meet to learn each other's addresses.
  std::optional<InitMethod> init_method;
  // Name of the run at the meeting point; "": none is given; kAnyRun: until the processes have met.
  std::string run_id;
  // Place of this process on its machine by the environment, as text that nobody has checked.
  MaybeSourced local_rank;
  // Id of a trainer (all other roles).
  int trainer_id = -1;
  int servers = 1;
  int trainers = 1;
  // Overrides for settings in which the job differs: call LoadJob again with these after the user's own
  // ("distribute.trainers=4").
  std::vector<std::string> overrides;
  // Sentences about settings that are legal and probably not meant, to be logged once.
  std::vector<std::string> warnings;
};

// Resolves the cluster settings of this process. `program`: kPserver or kTrainer; the trainer program also has the
// roles local and predict. A role of the other program is refused.
//
// InvalidArgument names the setting and where it came from: an unknown role; an endpoint that is blank, a duplicate or
// without port; a list of another length than distribute.servers, or than the number of trainers if that is 0; an id
// that is missing, not a number or out of range; an endpoint that is not in the list, or is at another place than
// --server_id or --trainer_id; a required setting that is missing, by flag and variable; a server of a job whose
// distribute.servers is 0; a launcher's variable that contradicts another one or a flag; --init_method with --pservers;
// a TF_CONFIG that cannot be read, has the task evaluator, or lists servers of such a job; kAnyRun where no name of the
// run can be learned.
//
// A server whose own endpoint has port 0 reports its port elsewhere (--port_file) and reads no list, so it needs
// --server_id unless it is the only server. One that listens on every interface needs --server_id if there is a list,
// and its port must be that of the list. --role=local reads only the role, --run_id and the local rank.
absl::StatusOr<ClusterConfig> ResolveCluster(Role program, const ClusterFlags& flags, const Environment& environment,
                                             const v1::JobConfig& job);

}  // namespace weir

#endif  // WEIR_PSERVER_CLUSTER_CLUSTER_H_
