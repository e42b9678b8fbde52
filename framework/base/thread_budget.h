// How many threads a process may compute with.
#ifndef WEIR_FRAMEWORK_BASE_THREAD_BUDGET_H_
#define WEIR_FRAMEWORK_BASE_THREAD_BUDGET_H_

#include <string>
#include <string_view>

namespace weir {

// Cores that this process may use: the smaller of its affinity mask and the CPU quota of its control group, rounded up;
// at least 1. A container with two CPUs on a machine with 96 has 2.
int UsableCores();

// Computing threads for the setting train.threads: 0 means all usable cores.
int ComputeThreads(int setting);

// Workers of the process's ThreadPool for the same setting: the thread that runs a step computes too, so one fewer.
int PoolWorkers(int setting);

// Cores that the content of a control group's cpu.max allows ("200000 100000" is 2; "max 100000" no limit: 0). For
// tests and UsableCores.
int CoresOfQuota(std::string_view cpu_max);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_THREAD_BUDGET_H_
