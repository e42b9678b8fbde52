#include "framework/checkpoint/process_identity.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/atomic_file.h"

namespace weir {
namespace {

std::string Boot() {
  const absl::StatusOr<std::string> id = ReadWholeFile("/proc/sys/kernel/random/boot_id");
  return id.ok() ? std::string(absl::StripAsciiWhitespace(*id)) : "";
}

std::string PidNamespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
}

// State and start of a process: fields 3 and 22 of its stat (proc(5)). The name in field 2 may hold anything,
// parentheses too.
struct Stat {
  char state = '?';
  int64_t start = -1;
};
bool ReadStat(int64_t pid, Stat* stat) {
  const absl::StatusOr<std::string> text = ReadWholeFile(absl::StrCat("/proc/", pid, "/stat"));
  if (!text.ok()) return false;
  const size_t name_end = text->rfind(')');
  if (name_end == std::string::npos) return false;
  const std::vector<std::string> fields = absl::StrSplit(text->substr(name_end + 1), ' ', absl::SkipEmpty());
  if (fields.size() < 20 || fields[0].size() != 1 || !absl::SimpleAtoi(fields[19], &stat->start)) return false;
  stat->state = fields[0][0];
  return true;
}

}  // namespace

v1::ProcessIdentity ThisProcess() {
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  v1::ProcessIdentity process;
  process.set_pid(getpid());
  process.set_name(absl::StrCat(host, ":", process.pid()));
  process.set_boot(Boot());
  process.set_pid_namespace(PidNamespace());
  Stat stat;
  if (ReadStat(process.pid(), &stat)) process.set_start(stat.start);
  return process;
}

bool HasEnded(const v1::ProcessIdentity& process) {
  if (process.boot().empty() || process.boot() != Boot()) return false;
  if (process.pid_namespace().empty() || process.pid_namespace() != PidNamespace()) return false;
  if (process.pid() <= 0 || !process.has_start()) return false;
  if (kill(static_cast<pid_t>(process.pid()), 0) != 0 && errno == ESRCH) return true;
  // /proc may hide the processes of other users; the process then counts as alive.
  Stat stat;
  if (!ReadStat(process.pid(), &stat)) return false;
  return stat.start != process.start() || stat.state == 'Z' || stat.state == 'X';
}

}  // namespace weir
