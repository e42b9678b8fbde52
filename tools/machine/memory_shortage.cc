#include "tools/machine/memory_shortage.h"

#include <filesystem>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/atomic_file.h"

namespace weir {
namespace {

std::string TextOf(const std::string& file) {
  constexpr uint64_t kLargestFile = uint64_t{1} << 20;
  absl::StatusOr<std::string> text = ReadWholeFile(file, kLargestFile);
  return text.ok() ? *std::move(text) : "";
}

// Number behind `name` in lines such as "oom_kill 3" and "MemTotal:  16000 kB"; -1 if it is not there.
int64_t NumberOf(const std::string& text, std::string_view name) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t number = -1;
    if (words.size() >= 2 && words[0] == name && absl::SimpleAtoi(words[1], &number)) return number;
  }
  return -1;
}

// Limit in a file of a control group; -1 for "max", or a number that stands for it in version 1.
int64_t LimitIn(const std::string& file) {
  int64_t limit = -1;
  const std::string text(absl::StripAsciiWhitespace(TextOf(file)));
  constexpr int64_t kUnlimited = int64_t{1} << 60;
  return absl::SimpleAtoi(text, &limit) && limit < kUnlimited ? limit : -1;
}

// Reads the group at `path` below `top`, or the next one above it with a limit. `events` has the line "oom_kill N".
// Returns false if there is no such file.
bool ReadGroup(const std::string& top, std::string path, const char* limit, const char* events,
               MemoryFigures* figures) {
  bool found = false;
  while (true) {
    const std::string directory = path == "/" ? top : top + path;
    const int64_t killed = NumberOf(TextOf(JoinPath(directory, events)), "oom_kill");
    const int64_t most = LimitIn(JoinPath(directory, limit));
    if (killed >= 0 && (!found || most >= 0)) {
      figures->group = path;
      figures->killed_in_group = killed;
      figures->group_limit = most;
      found = true;
    }
    if (most >= 0 || path == "/" || path.empty()) return found;
    path = std::filesystem::path(path).parent_path().string();
  }
}

std::string Mebibytes(int64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

}  // namespace

MemoryFigures ReadMemoryFigures(const std::string& root) {
  MemoryFigures figures;
  figures.killed_on_machine = NumberOf(TextOf(root + "/proc/vmstat"), "oom_kill");
  const std::string memory = TextOf(root + "/proc/meminfo");
  if (const int64_t kib = NumberOf(memory, "MemTotal:"); kib >= 0) figures.total = kib << 10;
  if (const int64_t kib = NumberOf(memory, "MemAvailable:"); kib >= 0) figures.available = kib << 10;
  const std::string top = root + "/sys/fs/cgroup";
  // "0::/path" in version 2, "4:memory:/path" in version 1.
  for (const absl::string_view line : absl::StrSplit(TextOf(root + "/proc/self/cgroup"), '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool second = parts[0] == "0" && parts[1].empty();
    if (second && ReadGroup(top, parts[2], "memory.max", "memory.events", &figures)) break;
    if (parts[1] == "memory" &&
        ReadGroup(top + "/memory", parts[2], "memory.limit_in_bytes", "memory.oom_control", &figures)) {
      break;
    }
  }
  return figures;
}

bool MayBeShort(const MemoryFigures& before, const MemoryFigures& now) {
  const bool counted = before.killed_in_group >= 0 || before.killed_on_machine >= 0;
  return !counted || (before.killed_in_group >= 0 && now.killed_in_group > before.killed_in_group) ||
         (before.killed_on_machine >= 0 && now.killed_on_machine > before.killed_on_machine);
}

std::string DescribeKills(const MemoryFigures& before, const MemoryFigures& now) {
  std::string text;
  if (before.killed_in_group >= 0 && now.killed_in_group > before.killed_in_group) {
    text = absl::StrCat("the system has meanwhile killed for memory in the control group ", now.group, ": ",
                        now.killed_in_group - before.killed_in_group);
  } else if (before.killed_on_machine >= 0 && now.killed_on_machine > before.killed_on_machine) {
    text = absl::StrCat("the system has meanwhile killed for memory on this machine: ",
                        now.killed_on_machine - before.killed_on_machine);
  } else if (!MayBeShort(before, now)) {
    text = "the system has counted no kill for memory meanwhile: somebody may have sent the signal";
  } else {
    text = "the system does that when memory is short (see dmesg)";
  }
  if (now.group_limit >= 0) absl::StrAppend(&text, "; the group may have ", Mebibytes(now.group_limit));
  if (now.total >= 0) absl::StrAppend(&text, "; the machine has ", Mebibytes(now.total));
  if (now.available >= 0) absl::StrAppend(&text, ", of which ", Mebibytes(now.available), " are free now");
  return text;
}

}  // namespace weir
