// Variables of other launchers in the environment of launch: what they tell, and whether they contradict its flags.
#ifndef WEIR_TOOLS_LAUNCHING_INHERITED_VARIABLES_H_
#define WEIR_TOOLS_LAUNCHING_INHERITED_VARIABLES_H_

#include "absl/status/status.h"
#include "pserver/cluster/cluster.h"
#include "tools/launching/placement.h"

namespace weir {

// Fills in node_rank, master_addr and master_port of a launch with --nnodes from the environment, where no flag gives
// them: launch is then the one process of its node that another launcher has started, so the rank that this one gives
// it is the node's.
//
//   node_rank     NODE_RANK, GROUP_RANK, RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK, SLURM_PROCID or PADDLE_TRAINER_ID
//   master_addr   MASTER_ADDR
//   master_port   MASTER_PORT; under torchrun, whose agent listens there, the next port
//
// InvalidArgument names a variable that contradicts a flag or another variable, and both values:
//
//   * one of those above; Open MPI's and Slurm's if they have started several processes, and Slurm's only in a step;
//   * GROUP_WORLD_SIZE or OMPI_COMM_WORLD_SIZE other than the number of nodes;
//   * without several nodes, a rank but 0 or such a size but 1: the launch was itself started several times, and each
//     would start the whole job. PADDLE_TRAINER_ID does not count there, since cluster scripts set it for other jobs.
absl::Status ReadInherited(const Environment& environment, PlacementFlags* flags);

// Checks WORLD_SIZE, LOCAL_WORLD_SIZE and, with several nodes, PADDLE_TRAINERS_NUM and PADDLE_NUM_TRAINERS against the
// numbers that were placed: they must count trainers or nodes, and those of one node. InvalidArgument as above.
absl::Status CheckInherited(const Environment& environment, const Placement& placement);

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_INHERITED_VARIABLES_H_
