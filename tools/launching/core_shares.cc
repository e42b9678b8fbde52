#include "tools/launching/core_shares.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

// Position at which part i of n begins, if `whole` is divided as evenly as possible: 0, 3, 6 of 8 in 3.
int BeginOf(int i, int n, int whole) { return i * (whole / n) + std::min(i, whole % n); }

// Bounds of a node's processes, of `processes` in all.
std::pair<int, int> ProcessesOf(int node, int nodes, int processes) {
  return {BeginOf(node, nodes, processes), BeginOf(node + 1, nodes, processes)};
}

// If there are at least as many processes as nodes, each node has a run of them.
std::vector<CoreShare> ShareNodes(const Machine& machine, bool own_cores, int processes) {
  const int nodes = static_cast<int>(machine.numa_nodes.size());
  std::vector<CoreShare> shares;
  for (int node = 0; node < nodes; ++node) {
    const std::vector<int>& cpus = machine.numa_nodes[static_cast<size_t>(node)];
    const auto [begin, end] = ProcessesOf(node, nodes, processes);
    for (int i = begin; i < end; ++i) {
      const int size = static_cast<int>(cpus.size());
      const int first = BeginOf(i - begin, end - begin, size), last = BeginOf(i - begin + 1, end - begin, size);
      CoreShare share{.cpus = cpus, .threads = std::max(1, last - first)};
      if (own_cores) share.cpus.assign(cpus.begin() + first, cpus.begin() + last);
      shares.push_back(std::move(share));
    }
  }
  return shares;
}

// Fewer processes than nodes: each has a run of nodes.
std::vector<CoreShare> GatherNodes(const Machine& machine, int processes) {
  const int nodes = static_cast<int>(machine.numa_nodes.size());
  std::vector<CoreShare> shares(static_cast<size_t>(processes));
  for (int i = 0; i < processes; ++i) {
    std::vector<int>& cpus = shares[static_cast<size_t>(i)].cpus;
    for (int node = BeginOf(i, processes, nodes); node < BeginOf(i + 1, processes, nodes); ++node) {
      const std::vector<int>& more = machine.numa_nodes[static_cast<size_t>(node)];
      cpus.insert(cpus.end(), more.begin(), more.end());
    }
    shares[static_cast<size_t>(i)].threads = static_cast<int>(cpus.size());
  }
  return shares;
}

// InvalidArgument if a process has no processor.
absl::Status CheckOwnCores(const std::vector<CoreShare>& shares, int cpus) {
  for (const CoreShare& share : shares) {
    if (!share.cpus.empty()) continue;
    return absl::InvalidArgumentError(absl::StrCat("--bind=cores: ", shares.size(), " processes of a kind, but ", cpus,
                                                   cpus == 1 ? " processor" : " processors",
                                                   " to divide; start fewer, or use --bind=numa or --bind=none"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Bind> ParseBind(std::string_view text) {
  if (text == "auto") return Bind::kAuto;
  if (text == "none") return Bind::kNone;
  if (text == "cores") return Bind::kCores;
  if (text == "numa") return Bind::kNuma;
  return absl::InvalidArgumentError(absl::StrCat("--bind=", std::string(text), ": must be auto, none, cores or numa"));
}

absl::StatusOr<std::vector<CoreShare>> DivideCores(const Machine& machine, Bind bind, int processes) {
  if (processes == 0) return std::vector<CoreShare>();
  const int nodes = static_cast<int>(machine.numa_nodes.size());
  const int fair = std::max(1, machine.usable_cores / processes);
  if (bind == Bind::kAuto) bind = nodes > 1 && processes >= nodes ? Bind::kNuma : Bind::kNone;
  if (bind == Bind::kNone) {
    return std::vector<CoreShare>(static_cast<size_t>(processes), CoreShare{.cpus = {}, .threads = fair});
  }
  int cpus = 0;
  for (const std::vector<int>& node : machine.numa_nodes) cpus += static_cast<int>(node.size());
  std::vector<CoreShare> shares =
      processes < nodes ? GatherNodes(machine, processes) : ShareNodes(machine, bind == Bind::kCores, processes);
  if (bind == Bind::kCores) {
    if (const absl::Status enough = CheckOwnCores(shares, cpus); !enough.ok()) return enough;
  }
  // A control group may allow less than the processors.
  const bool limited = machine.usable_cores < cpus;
  for (CoreShare& share : shares) share.threads = limited ? std::min(share.threads, fair) : share.threads;
  return shares;
}

}  // namespace weir
