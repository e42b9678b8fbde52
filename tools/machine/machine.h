// Describes the machine that a process runs on: what launch divides among the processes it starts there.
#ifndef WEIR_TOOLS_MACHINE_MACHINE_H_
#define WEIR_TOOLS_MACHINE_MACHINE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct Machine {
  // Cores that a process may use (framework/base/thread_budget.h); fewer than the processors below if a control group
  // limits them.
  int usable_cores = 1;
  // Processors of the affinity mask, by NUMA node; nodes without any are left out, and there is at least one. Threads
  // of one core are neighbours.
  std::vector<std::vector<int>> numa_nodes;
  // CUDA_VISIBLE_DEVICES; nullopt: not set.
  std::optional<std::string> visible_gpus;
};

// Reads the machine that this process runs on.
Machine ThisMachine();

// Divides `usable` processors by the nodes that <sys>/devices/system/node tells, all in one if it tells none. Orders
// them by core with <sys>/devices/system/cpu. `sys`: "/sys", or a directory like it in tests.
std::vector<std::vector<int>> NumaNodes(const std::string& sys, const std::vector<int>& usable);

// Parses the kernel's form of a set of numbers, "0-3,8". At most 65536 numbers. InvalidArgument shows the text.
absl::StatusOr<std::vector<int>> ParseCpuList(std::string_view text);
// Inverse of ParseCpuList. `cpus` may be in any order.
std::string FormatCpuList(std::vector<int> cpus);

}  // namespace weir

#endif  // WEIR_TOOLS_MACHINE_MACHINE_H_
