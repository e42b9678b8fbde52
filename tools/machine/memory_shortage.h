// Explains the death of a process by SIGKILL that nobody of ours has sent: the system kills so when memory is short.
#ifndef WEIR_TOOLS_MACHINE_MEMORY_SHORTAGE_H_
#define WEIR_TOOLS_MACHINE_MEMORY_SHORTAGE_H_

#include <cstdint>
#include <string>

namespace weir {

// Figures of the system about memory, in bytes; -1 if it has none.
struct MemoryFigures {
  // Control group of this process, or the next one above it that has a limit: "/kubepods/pod1". "": none is known.
  std::string group;
  int64_t group_limit = -1;
  // Processes that the system has killed for memory: in the group and those below it, and on the machine.
  int64_t killed_in_group = -1;
  int64_t killed_on_machine = -1;
  // Memory of the machine.
  int64_t total = -1;
  int64_t available = -1;
};

// Reads the figures of this machine, of control groups of version 2 or 1. `root`: "", or a directory with the files
// /proc/self/cgroup, /proc/vmstat, /proc/meminfo and /sys/fs/cgroup in tests.
MemoryFigures ReadMemoryFigures(const std::string& root = "");

// Returns false if the system counts what it kills for memory, and has killed nothing between the two.
bool MayBeShort(const MemoryFigures& before, const MemoryFigures& now);
// Returns one line, without a newline, that says whether the system has killed a process for memory between the two,
// and how much there is; or that neither counter has moved.
std::string DescribeKills(const MemoryFigures& before, const MemoryFigures& now);

}  // namespace weir

#endif  // WEIR_TOOLS_MACHINE_MEMORY_SHORTAGE_H_
