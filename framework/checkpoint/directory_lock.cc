#include "framework/checkpoint/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/file.h"

namespace weir {
namespace {

constexpr std::chrono::seconds kLockWait{60};
constexpr std::chrono::milliseconds kLockPause{10};

}  // namespace

absl::StatusOr<std::unique_ptr<DirectoryLock>> DirectoryLock::Take(const std::string& dir) {
  RETURN_IF_ERROR(MakeCheckpointDirectory(dir));
  const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError("cannot open directory", dir, errno);
  std::unique_ptr<DirectoryLock> lock(new DirectoryLock(fd));
  const auto deadline = std::chrono::steady_clock::now() + kLockWait;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return FileError("cannot lock directory", dir, errno);
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::UnavailableError(absl::StrCat("another process of this host has held the checkpoint directory ", dir,
                                                 " for ", kLockWait.count(), " s"));
    }
    std::this_thread::sleep_for(kLockPause);
  }
  return lock;
}

DirectoryLock::~DirectoryLock() { ::close(fd_); }

}  // namespace weir
