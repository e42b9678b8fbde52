// Divides the cores of a machine among processes of one kind: --bind of launch.
#ifndef WEIR_TOOLS_LAUNCHING_CORE_SHARES_H_
#define WEIR_TOOLS_LAUNCHING_CORE_SHARES_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/machine/machine.h"

namespace weir {

enum class Bind {
  // kNuma on a machine with several NUMA nodes, if there are at least as many processes as nodes; else kNone. A process
  // then keeps its memory near, while the scheduler still moves threads among the cores of a node, so neither another
  // program nor a process that has more to do than its neighbours is tied to a core. On a machine with one node nothing
  // is gained, and two jobs beside each other would be bound to the same cores.
  kAuto,
  kNone,
  // Each process has cores of its own, all in one NUMA node if there are as many processes as nodes.
  kCores,
  // Each process has a NUMA node, which it may share with others, or several if there are fewer processes.
  kNuma,
};

// Parses "auto", "none", "cores" or "numa". InvalidArgument lists them.
absl::StatusOr<Bind> ParseBind(std::string_view text);

struct CoreShare {
  // Processors that the process may use; empty: all.
  std::vector<int> cpus;
  // Threads to compute with, at least 1. The shares of all processes have as many as there are cores, or one each.
  int threads = 1;
};

// Returns the share of each of `processes` (at least 0) of one kind. Neighbours in the order of processes are
// neighbours on the machine. InvalidArgument with kCores if there are fewer processors than processes.
absl::StatusOr<std::vector<CoreShare>> DivideCores(const Machine& machine, Bind bind, int processes);

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_CORE_SHARES_H_
