// Shares of one host for the processes of a launch: cores, threads and devices.
#ifndef WEIR_TOOLS_LAUNCHING_HOST_SHARES_H_
#define WEIR_TOOLS_LAUNCHING_HOST_SHARES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/launching/core_shares.h"
#include "tools/launching/launch_options.h"
#include "tools/machine/machine.h"

namespace weir {

struct HostShares {
  // Shares of the processes on this host, in the order of their index.
  std::vector<CoreShare> servers;
  std::vector<CoreShare> trainers;
  // CUDA_VISIBLE_DEVICES of its trainers; "": left as it is.
  std::string gpus;
  // Cores of the host.
  int cores = 1;
};

// Divides a host. Servers and trainers take turns within a step, so each kind gets all cores. InvalidArgument names the
// host and what it has too little of.
absl::StatusOr<HostShares> ShareHost(const LaunchOptions& options, size_t host, const Machine& machine);

// Returns the sentences with which launch begins: how many processes run where, with how many threads.
std::vector<std::string> Describe(const LaunchOptions& options, const std::vector<HostShares>& shares);

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_HOST_SHARES_H_
