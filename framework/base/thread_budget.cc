#include "framework/base/thread_budget.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace weir {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int CoresOfAffinity() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  // The call fails on machines with more cores than a cpu_set_t holds.
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace

int CoresOfQuota(std::string_view cpu_max) {
  const std::vector<std::string> parts =
      absl::StrSplit(absl::string_view(cpu_max.data(), cpu_max.size()), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t quota = 0, period = 0;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &quota) || !absl::SimpleAtoi(parts[1], &period)) return 0;
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::min<int64_t>((quota + period - 1) / period, 1 << 16));
}

int UsableCores() {
  int cores = CoresOfAffinity();
  // Read the quota of cgroup version 2, which a container sees at the root, or else of version 1, which has two files.
  int quota = CoresOfQuota(FirstLine("/sys/fs/cgroup/cpu.max"));
  if (quota == 0) {
    quota = CoresOfQuota(FirstLine("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") + " " +
                         FirstLine("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  }
  return quota == 0 ? cores : std::max(1, std::min(cores, quota));
}

int ComputeThreads(int setting) { return setting > 0 ? setting : UsableCores(); }

int PoolWorkers(int setting) { return ComputeThreads(setting) - 1; }

}  // namespace weir
