#include "tools/machine/machine.h"

#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/atomic_file.h"
#include "framework/base/thread_budget.h"

namespace weir {
namespace {

// Files below /sys/devices/system are a page at most.
constexpr uint64_t kLargestFile = 4096;
constexpr int kMostCpus = 65536;

// Numbers in a file of /sys; nothing if it cannot be read or has another form.
std::vector<int> CpusIn(const std::string& file) {
  const absl::StatusOr<std::string> text = ReadWholeFile(file, kLargestFile);
  if (!text.ok()) return {};
  return ParseCpuList(*text).value_or(std::vector<int>());
}

std::vector<int> CpusOfAffinity() {
  std::vector<cpu_set_t> sets(kMostCpus / (8 * sizeof(cpu_set_t)));
  const size_t bytes = sets.size() * sizeof(cpu_set_t);
  std::vector<int> cpus;
  if (sched_getaffinity(0, bytes, sets.data()) == 0) {
    for (int cpu = 0; cpu < kMostCpus; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, sets.data())) cpus.push_back(cpu);
    }
  }
  return cpus;
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseCpuList(std::string_view text) {
  const std::string stripped(absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size())));
  std::set<int> cpus;
  if (stripped.empty()) return std::vector<int>();
  for (const std::string& range : std::vector<std::string>(absl::StrSplit(stripped, ','))) {
    const std::vector<std::string> ends = absl::StrSplit(range, '-');
    int first = 0, last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) ||
        first < 0 || last < first || last >= kMostCpus) {
      return absl::InvalidArgumentError(absl::StrCat("'", stripped, "' is no list of processors such as 0-3,8"));
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return std::vector<int>(cpus.begin(), cpus.end());
}

std::string FormatCpuList(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i]);
    if (end > i + 1) absl::StrAppend(&text, "-", cpus[end - 1]);
    i = end;
  }
  return text;
}

std::vector<std::vector<int>> NumaNodes(const std::string& sys, const std::vector<int>& usable) {
  std::set<int> left(usable.begin(), usable.end());
  std::vector<std::vector<int>> nodes;
  for (const int node : CpusIn(JoinPath(sys, "devices/system/node/online"))) {
    std::vector<int> cpus;
    for (const int cpu : CpusIn(JoinPath(sys, absl::StrCat("devices/system/node/node", node, "/cpulist")))) {
      if (left.erase(cpu) > 0) cpus.push_back(cpu);
    }
    if (!cpus.empty()) nodes.push_back(std::move(cpus));
  }
  // Without NUMA in the kernel, or with a processor that no node has.
  if (!left.empty()) nodes.emplace_back(left.begin(), left.end());
  if (nodes.empty()) nodes.push_back({0});
  for (std::vector<int>& cpus : nodes) {
    // The first thread of a core stands for the core.
    std::map<int, int> core_of;
    for (const int cpu : cpus) {
      const std::vector<int> siblings =
          CpusIn(JoinPath(sys, absl::StrCat("devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list")));
      core_of[cpu] = siblings.empty() ? cpu : siblings.front();
    }
    std::stable_sort(cpus.begin(), cpus.end(), [&](int a, int b) { return core_of[a] < core_of[b]; });
  }
  return nodes;
}

Machine ThisMachine() {
  Machine machine{.usable_cores = UsableCores(), .numa_nodes = NumaNodes("/sys", CpusOfAffinity())};
  if (const char* const gpus = getenv("CUDA_VISIBLE_DEVICES"); gpus != nullptr) machine.visible_gpus = gpus;
  return machine;
}

}  // namespace weir
