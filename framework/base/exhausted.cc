#include "framework/base/exhausted.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/exit_code.h"

namespace weir {
namespace {

const char* program_name = "weir";

// Limits of descriptors before RaiseDescriptorLimit, written once by main. `raised`: they have been changed.
rlimit limits_before = {};
bool raised = false;

// Writes "; it has 290 MiB of address space, ulimit -v allows 300 MiB". Does not allocate.
void DescribeMemory(char* out, size_t size) {
  char text[64] = "";
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    const ssize_t got = ::read(file, text, sizeof text - 1);
    text[got > 0 ? got : 0] = '\0';
    ::close(file);
  }
  const long long in_use = std::atoll(text) * (::sysconf(_SC_PAGESIZE) >> 10) >> 10;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    std::snprintf(out, size, "; it has %lld MiB of address space", in_use);
  } else {
    std::snprintf(out, size, "; it has %lld MiB of address space, ulimit -v allows %llu MiB", in_use,
                  static_cast<unsigned long long>(limit.rlim_cur >> 20));
  }
}

}  // namespace

// Does not allocate. Another thread that enters meanwhile waits for the end of the process.
void ExitExhausted(const char* what) {
  static std::atomic<bool> begun{false};
  if (begun.exchange(true)) {
    while (true) ::pause();
  }
  char memory[160];
  DescribeMemory(memory, sizeof memory);
  char line[512];
  const int length = std::snprintf(line, sizeof line, "%s: %s%s\n", program_name, what, memory);
  const ssize_t written = ::write(STDERR_FILENO, line, std::min(static_cast<size_t>(length), sizeof line - 1));
  (void)written;
  ::_exit(kExitFailure);
}

std::thread StartThread(const std::string& name, std::function<void()> body) {
  try {
    return std::thread([name, body = std::move(body)] {
      pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
      body();
    });
  } catch (const std::system_error& error) {
    char what[256];
    std::snprintf(what, sizeof what,
                  "cannot start thread %s: %s (see ulimit -u and -v, and pids.max of the control group)", name.c_str(),
                  error.code().message().c_str());
    ExitExhausted(what);
  }
}

void RaiseDescriptorLimit() {
  if (raised || ::getrlimit(RLIMIT_NOFILE, &limits_before) != 0) return;
  rlimit limit = limits_before;
  limit.rlim_cur = limit.rlim_max;
  raised = limits_before.rlim_cur < limit.rlim_max && ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

void RestoreDescriptorLimit() {
  if (raised) (void)::setrlimit(RLIMIT_NOFILE, &limits_before);
}

absl::Status WantDescriptors(int64_t more, const std::string& what_for) {
  std::error_code ignored;
  int64_t open = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", ignored), end; it != end; it.increment(ignored)) ++open;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return absl::OkStatus();
  const rlim_t wanted = static_cast<rlim_t>(open + more);
  if (limit.rlim_cur >= wanted) return absl::OkStatus();
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  if (limit.rlim_cur == wanted && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("this process needs ", wanted, " file descriptors: ", open,
                                                   " that are open and ", more, " for ", what_for, "; ",
                                                   DescriptorLimitText(), ": raise it"));
}

std::string DescriptorLimitText() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "";
  return absl::StrCat("ulimit -n allows this process ", limit.rlim_cur);
}

std::string FileSizeLimitText(int error) {
  rlimit limit = {};
  if (error != EFBIG || ::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return absl::StrCat(" (ulimit -f allows this process files of ", limit.rlim_cur, " bytes)");
}

void ExitWhenOutOfMemory(const char* program) {
  program_name = program;
  std::set_new_handler([] { ExitExhausted("out of memory: the system gives this process no more"); });
}

}  // namespace weir
