// Number of threads that a process may compute with.
#ifndef WEIR_FRAMEWORK_BASE_THREAD_BUDGET_H_
#define WEIR_FRAMEWORK_BASE_THREAD_BUDGET_H_

#include <string>
#include <string_view>

namespace weir {

// Returns the cores that this process may use: the smaller of its affinity mask and the CPU quota of its control group,
// rounded up; at least 1. A container with two CPUs on a machine with 96 has 2.
int UsableCores();

// Returns the computing threads for the setting train.threads: 0 means all usable cores.
int ComputeThreads(int setting);

// Returns the workers of the process's ThreadPool for that setting: one fewer, because the thread that runs a step
// computes too.
int PoolWorkers(int setting);

// Returns the cores that the content of a control group's cpu.max allows: 2 for "200000 100000"; 0 for "max 100000" (no
// limit). For tests and UsableCores.
int CoresOfQuota(std::string_view cpu_max);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_THREAD_BUDGET_H_
