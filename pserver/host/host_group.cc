#include "pserver/host/host_group.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

namespace weir {

int HostGroup::PlaceOf(int trainer) const {
  const auto found = std::lower_bound(trainers.begin(), trainers.end(), trainer);
  return found != trainers.end() && *found == trainer ? static_cast<int>(found - trainers.begin()) : -1;
}

HostGroup MakeHostGroup(int lanes, int trainers, std::vector<int> members, std::vector<bool> servers) {
  CHECK(!members.empty());
  HostGroup group;
  for (const int trainer : members) group.nodes_of.push_back(AlignedNodes(LanesOfTrainer(lanes, trainers, trainer)));
  group.nodes = NodesOfTrainers(lanes, trainers, members);
  group.trainers = std::move(members);
  group.servers = std::move(servers);
  return group;
}

}  // namespace weir
