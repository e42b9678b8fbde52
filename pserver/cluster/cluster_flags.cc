#include "pserver/cluster/cluster_flags.h"

#include <cstdlib>
#include <utility>

#include "absl/flags/flag.h"

// Text, so that a wrong value gets the same message from a flag and from a variable, and "not given" can be told.
ABSL_FLAG(std::string, role, "", "pserver, trainer, local or predict; else TRAINING_ROLE; default: the program's own");
ABSL_FLAG(std::string, pservers, "",
          "host:port of every server in order of their index, with commas; else PADDLE_PSERVERS_IP_PORT_LIST, else "
          "cluster.pserver of the job; with distribute.servers: 0 of every trainer, else PADDLE_TRAINER_ENDPOINTS");
ABSL_FLAG(std::string, current_endpoint, "",
          "host:port of this server, or of this trainer with distribute.servers: 0; else PADDLE_CURRENT_ENDPOINT, else "
          "POD_IP and PADDLE_PORT (a server), else the list at --server_id or --trainer_id; port 0: any free one (a "
          "server)");
ABSL_FLAG(std::string, endpoint, "", "the same as --current_endpoint");
ABSL_FLAG(std::string, server_id, "", "index of this server, from 0; default: the place of its endpoint in the list");
ABSL_FLAG(std::string, trainer_id, "",
          "id of this trainer, from 0; else PADDLE_TRAINER_ID, else the place of its endpoint in the list");
ABSL_FLAG(std::string, trainers, "",
          "number of trainers; else PADDLE_TRAINERS_NUM or PADDLE_NUM_TRAINERS, else distribute.trainers of the job");

namespace weir {

ClusterFlags ClusterFlagsOfThisProcess(std::vector<std::string> overrides) {
  return {.role = absl::GetFlag(FLAGS_role),
          .pservers = absl::GetFlag(FLAGS_pservers),
          .current_endpoint = absl::GetFlag(FLAGS_current_endpoint),
          .endpoint = absl::GetFlag(FLAGS_endpoint),
          .server_id = absl::GetFlag(FLAGS_server_id),
          .trainer_id = absl::GetFlag(FLAGS_trainer_id),
          .trainers = absl::GetFlag(FLAGS_trainers),
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
