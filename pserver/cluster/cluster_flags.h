// Command-line flags of cluster.h, for main files: --role, --pservers, --current_endpoint, --endpoint, --server_id,
// --trainer_id, --trainers, --init_method, --run_id. Linking this target defines them.
#ifndef WEIR_PSERVER_CLUSTER_CLUSTER_FLAGS_H_
#define WEIR_PSERVER_CLUSTER_CLUSTER_FLAGS_H_

#include <string>
#include <vector>

#include "pserver/cluster/cluster.h"

namespace weir {

// Returns the flag values; call after ParseCommandLine. overrides: values of --set.
ClusterFlags ClusterFlagsOfThisProcess(std::vector<std::string> overrides);

// Returns the environment of this process.
Environment EnvironmentOfThisProcess();

}  // namespace weir

#endif  // WEIR_PSERVER_CLUSTER_CLUSTER_FLAGS_H_
