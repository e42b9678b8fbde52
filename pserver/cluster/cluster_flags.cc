#include "pserver/cluster/cluster_flags.h"

#include <cstdlib>
#include <utility>

#include "absl/flags/flag.h"

// Text, so that a wrong value gets the same message from a flag and from a variable, and "not given" can be told.
ABSL_FLAG(std::string, role, "",
          "pserver, trainer, local or predict; else TRAINING_ROLE or TF_CONFIG; default: the program's own");
ABSL_FLAG(std::string, pservers, "",
          "host:port of every server in order of their index, with commas; else PADDLE_PSERVERS_IP_PORT_LIST, else "
          "cluster.pserver of the job; with distribute.servers: 0 of every trainer, else PADDLE_TRAINER_ENDPOINTS");
ABSL_FLAG(std::string, current_endpoint, "",
          "host:port of this server, or of this trainer with distribute.servers: 0; else PADDLE_CURRENT_ENDPOINT, else "
          "POD_IP and PADDLE_PORT (a server), else the list at --server_id or --trainer_id; port 0: any free one (a "
          "server)");
ABSL_FLAG(std::string, endpoint, "", "the same as --current_endpoint");
ABSL_FLAG(
    std::string, server_id, "",
    "index of this server, from 0; default: the place of its endpoint in the list, else the rank that the launcher "
    "of the servers gives");
ABSL_FLAG(std::string, trainer_id, "",
          "id of this trainer, from 0; else PADDLE_TRAINER_ID, or the rank that torchrun (RANK), mpirun "
          "(OMPI_COMM_WORLD_RANK) or srun (SLURM_PROCID) gives, else the place of its endpoint in the list");
ABSL_FLAG(std::string, trainers, "",
          "number of trainers; else PADDLE_TRAINERS_NUM or PADDLE_NUM_TRAINERS, or what torchrun (WORLD_SIZE), mpirun "
          "(OMPI_COMM_WORLD_SIZE) or srun (SLURM_NTASKS) gives to trainers, else distribute.trainers of the job");
ABSL_FLAG(
    std::string, init_method, "",
    "where all processes of the job meet to learn each other's addresses, instead of --pservers: tcp://HOST:PORT "
    "(trainer 0 listens there), file:///PATH (a directory that all see), or env:// (MASTER_ADDR and MASTER_PORT; "
    "under torchrun the 16 ports behind it), which trainers of a job with distribute.servers: 0 use by themselves");
ABSL_FLAG(std::string, run_id, "",
          "name of this run: processes of another run are refused where they meet; *: that of trainer 0; default: the "
          "launcher's for trainers, none for servers, which then take part in any run");

namespace weir {

ClusterFlags ClusterFlagsOfThisProcess(std::vector<std::string> overrides) {
  return {.role = absl::GetFlag(FLAGS_role),
          .pservers = absl::GetFlag(FLAGS_pservers),
          .current_endpoint = absl::GetFlag(FLAGS_current_endpoint),
          .endpoint = absl::GetFlag(FLAGS_endpoint),
          .server_id = absl::GetFlag(FLAGS_server_id),
          .trainer_id = absl::GetFlag(FLAGS_trainer_id),
          .trainers = absl::GetFlag(FLAGS_trainers),
          .init_method = absl::GetFlag(FLAGS_init_method),
          .run_id = absl::GetFlag(FLAGS_run_id),
          .overrides = std::move(overrides)};
}

Environment EnvironmentOfThisProcess() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  };
}

}  // namespace weir
