// Trainers of one host that merge their pushes and share their pulls. A value.
#ifndef WEIR_PSERVER_HOST_HOST_GROUP_H_
#define WEIR_PSERVER_HOST_HOST_GROUP_H_

#include <vector>

#include "framework/runtime/lane_tree.h"

namespace weir {

struct HostGroup {
  // Ascending, at least one. The first is the sender: it speaks to the servers for all.
  std::vector<int> trainers;
  // By server: true if the group speaks to it through the sender.
  std::vector<bool> servers;
  // Largest aligned nodes of the lanes of all trainers of the group together.
  std::vector<LaneRange> nodes;
  // Nodes of each trainer, in the order of `trainers`.
  std::vector<std::vector<LaneRange>> nodes_of;

  int sender() const { return trainers[0]; }
  // Returns the place of a trainer in `trainers`, or -1.
  int PlaceOf(int trainer) const;
  bool Relays(int server) const {
    return server >= 0 && server < static_cast<int>(servers.size()) && servers[static_cast<size_t>(server)];
  }
};

// `lanes`, `trainers`: of the job. `members`: ascending, at least one.
HostGroup MakeHostGroup(int lanes, int trainers, std::vector<int> members, std::vector<bool> servers);

}  // namespace weir

#endif  // WEIR_PSERVER_HOST_HOST_GROUP_H_
