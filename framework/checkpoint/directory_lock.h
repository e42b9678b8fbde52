// Locks a directory for one process of this host at a time: an advisory lock that the kernel releases when its holder
// dies.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_DIRECTORY_LOCK_H_
#define WEIR_FRAMEWORK_CHECKPOINT_DIRECTORY_LOCK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace weir {

class DirectoryLock {
 public:
  // Creates the directory if missing and takes the lock. Waits at most a minute; Unavailable names the directory.
  static absl::StatusOr<std::unique_ptr<DirectoryLock>> Take(const std::string& dir);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_DIRECTORY_LOCK_H_
