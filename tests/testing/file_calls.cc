#include "tests/testing/file_calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "framework/base/mutex.h"

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

namespace weir {
namespace {

std::atomic<bool> hooked{false};
Mutex mu;
std::function<int(const FileCall&)> hook ABSL_GUARDED_BY(mu);
// True inside the hook, whose own file system calls pass without a hook.
thread_local bool inside = false;

std::string PathOf(int fd) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t n = ::syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), path, sizeof path);
  return n < 0 ? "" : std::string(path, static_cast<size_t>(n));
}

std::string PathAt(int dir, const char* path) {
  return dir == AT_FDCWD || path[0] == '/' ? path : PathOf(dir) + "/" + path;
}

// The errno to fail with.
int Ask(FileCall call) {
  MutexLock lock(&mu);
  inside = true;
  const int error = hook ? hook(call) : 0;
  inside = false;
  return error;
}

template <typename Call>
long Asked(const std::function<FileCall()>& of, Call call) {
  if (hooked && !inside) {
    if (const int error = Ask(of()); error != 0) {
      errno = error;
      return -1;
    }
  }
  return call();
}

}  // namespace

FileCallHook::FileCallHook(std::function<int(const FileCall&)> on_call) {
  MutexLock lock(&mu);
  hook = std::move(on_call);
  hooked = true;
}

FileCallHook::~FileCallHook() {
  hooked = false;
  MutexLock lock(&mu);
  hook = nullptr;
}

}  // namespace weir

extern "C" {

int fsync(int fd) {
  return static_cast<int>(weir::Asked(
      [=] {
        return weir::FileCall{"fsync", weir::PathOf(fd), ""};
      },
      [=] { return ::syscall(SYS_fsync, fd); }));
}

int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(weir::Asked(
      [=] {
        return weir::FileCall{"rename", from, to};
      },
      [=] { return ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0); }));
}

int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned int flags) noexcept {
  return static_cast<int>(weir::Asked(
      [=] {
        return weir::FileCall{(flags & RENAME_EXCHANGE) != 0 ? "exchange" : "rename", weir::PathAt(from_dir, from),
                              weir::PathAt(to_dir, to)};
      },
      [=] { return ::syscall(SYS_renameat2, from_dir, from, to_dir, to, flags); }));
}

int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(weir::Asked(
      [=] {
        return weir::FileCall{"mkdir", path, ""};
      },
      [=] { return ::syscall(SYS_mkdirat, AT_FDCWD, path, mode); }));
}

int unlinkat(int dir, const char* path, int flags) noexcept {
  return static_cast<int>(weir::Asked(
      [=] {
        return weir::FileCall{"unlink", weir::PathAt(dir, path), ""};
      },
      [=] { return ::syscall(SYS_unlinkat, dir, path, flags); }));
}

ssize_t read(int fd, void* data, size_t size) {
  return weir::Asked(
      [=] {
        return weir::FileCall{"read", weir::PathOf(fd), ""};
      },
      [=] { return ::syscall(SYS_read, fd, data, size); });
}

ssize_t write(int fd, const void* data, size_t size) {
  // Calls on standard streams pass without the hook, whose own log lines go there.
  if (fd <= 2) return ::syscall(SYS_write, fd, data, size);
  return weir::Asked(
      [=] {
        return weir::FileCall{"write", weir::PathOf(fd), ""};
      },
      [=] { return ::syscall(SYS_write, fd, data, size); });
}

}  // extern "C"
