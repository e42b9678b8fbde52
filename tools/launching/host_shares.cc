#include "tools/launching/host_shares.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "tools/launching/gpus.h"

namespace weir {
namespace {

std::string Count(size_t n, const char* what) { return absl::StrCat(n, " ", what, n == 1 ? "" : "s"); }

// "2 threads a trainer", or "2 to 3 threads a trainer".
std::string Threads(const std::vector<CoreShare>& shares, const char* what) {
  const auto [least, most] = std::minmax_element(
      shares.begin(), shares.end(), [](const CoreShare& a, const CoreShare& b) { return a.threads < b.threads; });
  const std::string range = least->threads == most->threads ? "" : absl::StrCat(least->threads, " to ");
  return absl::StrCat(", ", range, Count(static_cast<size_t>(most->threads), "thread"), " a ", what);
}

// "2 servers and 3 trainers", "3 trainers, each with a server".
std::string Processes(size_t servers, size_t trainers, bool trainers_serve) {
  if (trainers_serve) return absl::StrCat(Count(trainers, "trainer"), trainers == 1 ? "" : ", each", " with a server");
  if (servers == 0) return Count(trainers, "trainer");
  if (trainers == 0) return Count(servers, "server");
  return absl::StrCat(Count(servers, "server"), " and ", Count(trainers, "trainer"));
}

// "2 servers and 3 trainers on 4 cores, 2 threads a server, 1 thread a trainer".
std::string DescribeHost(const LaunchOptions& options, const HostShares& shares) {
  std::string text =
      absl::StrCat(Processes(shares.servers.size(), shares.trainers.size(), options.placement.trainers_serve()), " on ",
                   Count(static_cast<size_t>(shares.cores), "core"));
  if (options.threads_by_job) {
    text += ", threads by --set";
  } else {
    if (!shares.servers.empty()) text += Threads(shares.servers, "server");
    if (!shares.trainers.empty()) text += Threads(shares.trainers, "trainer");
  }
  const std::vector<CoreShare>& any = shares.trainers.empty() ? shares.servers : shares.trainers;
  if (!any.empty() && !any.front().cpus.empty()) text += ", bound to processors";
  if (!shares.gpus.empty()) text += absl::StrCat(", devices ", shares.gpus);
  return text;
}

}  // namespace

absl::StatusOr<HostShares> ShareHost(const LaunchOptions& options, size_t host, const Machine& machine) {
  const PlacedHost& placed = options.placement.hosts[host];
  const auto servers = std::count_if(options.placement.servers.begin(), options.placement.servers.end(),
                                     [&](const PlacedServer& server) { return server.host == static_cast<int>(host); });
  HostShares shares{.cores = machine.usable_cores};
  const auto divide = [&](int processes) -> absl::StatusOr<std::vector<CoreShare>> {
    absl::StatusOr<std::vector<CoreShare>> divided = DivideCores(machine, options.bind, processes);
    if (divided.ok() || placed.name.empty()) return divided;
    return absl::Status(divided.status().code(),
                        absl::StrCat("host ", placed.name, ": ", std::string(divided.status().message())));
  };
  ASSIGN_OR_RETURN(shares.servers, divide(static_cast<int>(servers)));
  ASSIGN_OR_RETURN(shares.trainers, divide(placed.trainers));
  if (!options.gpus.empty() && placed.trainers > 0) {
    const auto given = options.environment.find("CUDA_VISIBLE_DEVICES");
    const std::optional<std::string> visible =
        given == options.environment.end() ? machine.visible_gpus : std::optional<std::string>(given->second);
    ASSIGN_OR_RETURN(shares.gpus, ChooseGpus(options.gpus, visible, placed.trainers, placed.name));
  }
  return shares;
}

std::vector<std::string> Describe(const LaunchOptions& options, const std::vector<HostShares>& shares) {
  const Placement& placement = options.placement;
  const std::string logs = absl::StrCat("; logs in ", options.log_dir);
  if (placement.hosts.size() == 1 && !placement.hosts[0].remote) {
    const std::string node =
        placement.nodes == 1 ? "" : absl::StrCat("node ", placement.hosts[0].node, " of ", placement.nodes, ": ");
    return {absl::StrCat(node, DescribeHost(options, shares[0]), logs)};
  }
  std::vector<std::string> lines = {absl::StrCat(
      Processes(placement.servers.size(), static_cast<size_t>(placement.trainers), placement.trainers_serve()), " on ",
      Count(placement.hosts.size(), "host"), logs)};
  for (size_t i = 0; i < placement.hosts.size(); ++i) {
    lines.push_back(absl::StrCat(placement.hosts[i].name, ": ", DescribeHost(options, shares[i])));
  }
  return lines;
}

}  // namespace weir
