#include "framework/process/lock_holder.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "framework/base/atomic_file.h"
#include "framework/base/printable.h"

namespace weir {
namespace {

// Largest table of locks that is read. It lists the locks of the whole machine, in lines of some 50 bytes.
constexpr uint64_t kLargestFile = uint64_t{16} << 20;

std::string TextOf(const std::string& file) { return ReadWholeFile(file, kLargestFile).value_or(""); }

// State letter in the text of /proc/<pid>/stat, "4711 (name) S ..."; the name may hold anything.
char StateIn(const std::string& stat) {
  const size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos || name_end + 2 >= stat.size() ? '?' : stat[name_end + 2];
}

}  // namespace

pid_t LockHolderIn(std::string_view locks, unsigned device_major, unsigned device_minor, uint64_t inode) {
  const std::string file = absl::StrFormat("%02x:%02x:%d", device_major, device_minor, inode);
  for (const absl::string_view line : absl::StrSplit(absl::string_view(locks.data(), locks.size()), '\n')) {
    // "3: POSIX  ADVISORY  WRITE 4711 fe:00:11092737 0 EOF"; one that waits has "->" as its second word.
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() < 6 || words[1] == "->" || words[5] != file) continue;
    pid_t holder = 0;
    if (absl::SimpleAtoi(words[4], &holder) && holder > 0) return holder;
  }
  return 0;
}

std::string LockHolder(const std::string& file) {
  struct stat info;
  pid_t holder = 0;
  if (::stat(file.c_str(), &info) == 0) {
    holder = LockHolderIn(TextOf("/proc/locks"), major(info.st_dev), minor(info.st_dev), info.st_ino);
  }
  if (holder == 0) return "a process that /proc/locks does not name";
  const std::string directory = absl::StrCat("/proc/", holder);
  const std::string name(absl::StripAsciiWhitespace(TextOf(directory + "/comm")));
  const bool stopped = StateIn(TextOf(directory + "/stat")) == 'T';
  return absl::StrCat("process ", holder, name.empty() ? "" : absl::StrCat(" (", Printable(name, /*most=*/64), ")"),
                      stopped ? ", which is stopped" : "");
}

}  // namespace weir
