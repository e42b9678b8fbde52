#include "framework/base/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "framework/base/string_views.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

namespace weir {
namespace {

absl::Status Failed(std::string_view what, std::string_view path, int error = errno) {
  return absl::ErrnoToStatus(
      error, absl::StrCat(absl::string_view(what.data(), what.size()), " ", absl::string_view(path.data(), path.size()),
                          FileSizeLimitText(error)));
}

// File descriptor that is closed at the end of its scope.
struct Descriptor {
  int fd;
  explicit Descriptor(int f) : fd(f) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

// Returns a suffix that differs between calls and processes and, nearly always, machines. Callers also check that the
// name does not exist.
std::string UniqueSuffix() {
  static std::atomic<uint64_t> calls{0};
  return absl::StrCat(getpid(), "-", absl::Hex(absl::ToUnixNanos(absl::Now())), "-", calls.fetch_add(1));
}

// Attempts to find a name. mkstemp and mkdtemp are not used because their files are private: servers of several users
// may share a directory, so files have the mode that the process gives its files.
constexpr int kTries = 100;

// Links that a name leads through at most, as in the kernel.
constexpr int kMostLinks = 40;
// Time for a reader to open a FIFO that is written.
constexpr std::chrono::seconds kReaderWait{10};
constexpr std::chrono::milliseconds kReaderPause{10};
// Silence of a pipe that is read whole, and its bytes: those of a job file by far, and far fewer than /dev/zero has.
constexpr int kWriterWaitMs = 60'000;
constexpr uint64_t kMostPipeBytes = uint64_t{256} << 20;

std::string RealPath(const std::string& path) {
  char* const resolved = ::realpath(path.c_str(), nullptr);
  std::string real = resolved == nullptr ? "" : resolved;
  ::free(resolved);
  return real;
}

// Returns N if the path is /proc/self/fd/N under any name, else -1. The link there leads to a name that may belong to
// another file by now, or to none at all.
int OwnDescriptor(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  int fd = -1;
  if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos || !absl::SimpleAtoi(name, &fd)) {
    return -1;
  }
  const std::string directory = RealPath(DirectoryOf(path));
  if (directory.empty()) return -1;
  for (const char* own : {"/proc/self/fd", "/proc/thread-self/fd"}) {
    if (directory == RealPath(own)) return fd;
  }
  return -1;
}

// File that a name to be written leads to, behind symbolic links.
struct Target {
  std::string path;  // not a symbolic link
  mode_t mode = 0;   // 0: there is no such file
  int own = -1;      // its descriptor in this process
};

absl::StatusOr<Target> FollowLinks(const std::string& path) {
  Target target{.path = path};
  for (int links = 0; links <= kMostLinks; ++links) {
    struct stat info;
    target.own = OwnDescriptor(target.path);
    if (target.own >= 0) return target;
    if (::lstat(target.path.c_str(), &info) != 0) {
      // Creating the file says what is missing.
      if (errno == ENOENT) return target;
      return Failed("cannot look at", target.path);
    }
    target.mode = info.st_mode;
    if (!S_ISLNK(info.st_mode)) return target;
    target.mode = 0;
    std::error_code error;
    const std::string next = std::filesystem::read_symlink(target.path, error).string();
    if (error) return Failed("cannot read the link", target.path, error.value());
    target.path = JoinPath(DirectoryOf(target.path), next);
  }
  return Failed("cannot write", path, ELOOP);
}

absl::StatusOr<int> Duplicate(const Target& target) {
  const int flags = ::fcntl(target.own, F_GETFL);
  if (flags < 0) return Failed("cannot write", target.path);
  if ((flags & O_ACCMODE) == O_RDONLY) {
    return absl::InvalidArgumentError(absl::StrCat(target.path, " is open for reading only; name another file"));
  }
  const int fd = ::fcntl(target.own, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return Failed("cannot write", target.path);
  return fd;
}

// Opens a device or a FIFO.
absl::StatusOr<int> OpenDirectly(const Target& target) {
  const auto deadline = std::chrono::steady_clock::now() + kReaderWait;
  while (true) {
    // O_NONBLOCK: opening a FIFO would otherwise wait for its reader, and no signal would end that wait.
    const int fd = ::open(target.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd >= 0) {
      ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      return fd;
    }
    if (errno != ENXIO || !S_ISFIFO(target.mode)) return Failed("cannot write", target.path);
    if (std::chrono::steady_clock::now() >= deadline) {
      return absl::FailedPreconditionError(absl::StrCat(target.path,
                                                        " is a FIFO that no process has opened for reading within ",
                                                        kReaderWait.count(), " s; start its reader first"));
    }
    std::this_thread::sleep_for(kReaderPause);
  }
}

// Reads a descriptor to its end into `data`, which may hold bytes to be overwritten.
absl::Status ReadToEnd(int fd, const std::string& path, bool waits, uint64_t most, std::string* data) {
  size_t have = 0;
  while (true) {
    if (have == data->size()) data->resize(data->size() * 2);
    pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
    if (waits && ::poll(&readable, 1, kWriterWaitMs) == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("nothing has come from ", path, " for ", kWriterWaitMs / 1000, " s"));
    }
    const ssize_t got = ::read(fd, data->data() + have, data->size() - have);
    if (got < 0 && (errno == EINTR || (waits && errno == EAGAIN))) continue;
    if (got < 0) return Failed("cannot read", path);
    if (got == 0) break;
    have += static_cast<size_t>(got);
    if (have > most) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, " has ", have, " bytes or more; at most ", most, " are read"));
    }
  }
  data->resize(have);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t most, Links links, bool regular_only) {
  const auto refused = [&path](mode_t mode) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is ", Av(KindOfFile(mode)), "; a regular file was expected"));
  };
  const Descriptor file(OpenForReading(path, links));
  if (file.fd < 0 && errno == ELOOP && links == Links::kRefuse) return refused(S_IFLNK);
  if (file.fd < 0) return Failed("cannot open", path);
  struct stat info;
  if (fstat(file.fd, &info) != 0) return Failed("cannot look at", path);
  if (S_ISDIR(info.st_mode)) return Failed("cannot read", path, EISDIR);
  const bool regular = S_ISREG(info.st_mode);
  if (!regular && regular_only) return refused(info.st_mode);
  const uint64_t expected = regular ? static_cast<uint64_t>(info.st_size) : 0;
  if (!regular) most = std::min(most, kMostPipeBytes);
  if (expected > most) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, " has ", expected, " bytes or more; at most ", most, " are read"));
  }
  std::string data;
  // Read one byte more than expected, so that a pipe or a file that has grown is read to its end.
  data.resize(expected + 1);
  RETURN_IF_ERROR(ReadToEnd(file.fd, path, /*waits=*/!regular, most, &data));
  return data;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path, Links links) {
  Target target{.path = path};
  if (links == Links::kFollow) {
    ASSIGN_OR_RETURN(target, FollowLinks(path));
    const mode_t mode = target.mode;
    if (S_ISDIR(mode) || S_ISBLK(mode) || S_ISSOCK(mode)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is ", Av(KindOfFile(mode)), "; name a file to be written"));
    }
    if (target.own >= 0 || (mode != 0 && !S_ISREG(mode))) {
      ASSIGN_OR_RETURN(const int fd, target.own >= 0 ? Duplicate(target) : OpenDirectly(target));
      return std::unique_ptr<AtomicFile>(new AtomicFile(std::move(target.path), "", fd));
    }
  }
  for (int i = 0; i < kTries; ++i) {
    std::string temporary = absl::StrCat(target.path, ".tmp.", UniqueSuffix());
    const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return std::unique_ptr<AtomicFile>(new AtomicFile(target.path, std::move(temporary), fd));
    if (errno != EEXIST) break;
  }
  return Failed("cannot create a file beside", target.path);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!direct()) unlink(temporary_.c_str());
}

absl::Status AtomicFile::Append(std::string_view data) {
  if (fd_ < 0) return absl::FailedPreconditionError(absl::StrCat(path_, " is committed; nothing can be appended"));
  while (!data.empty()) {
    const ssize_t written = write(fd_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN && direct()) {
      // A descriptor that does not wait was inherited; its reader takes its time, as with one that does.
      pollfd writable{.fd = fd_, .events = POLLOUT, .revents = 0};
      (void)poll(&writable, 1, /*timeout=*/1000);
      continue;
    }
    if (written < 0) return Failed("cannot write", path_);
    data.remove_prefix(static_cast<size_t>(written));
    size_ += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (fd_ < 0) return absl::FailedPreconditionError(absl::StrCat(path_, " is committed already"));
  if (direct()) {
    // A device or a pipe cannot be synced.
    return close(std::exchange(fd_, -1)) == 0 ? absl::OkStatus() : Failed("cannot close", path_);
  }
  if (fsync(fd_) != 0) return Failed("cannot bring to disk", path_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return Failed("cannot rename to", path_);
  close(fd_);
  fd_ = -1;
  return SyncPath(DirectoryOf(path_));
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view data, Links links) {
  ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path, links));
  RETURN_IF_ERROR(file->Append(data));
  return file->Commit();
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes) {
  return ReadFile(path, max_bytes, Links::kFollow, /*regular_only=*/false);
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, uint64_t max_bytes, Links links) {
  return ReadFile(path, max_bytes, links, /*regular_only=*/true);
}

int OpenForReading(const std::string& path, Links links) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | (links == Links::kRefuse ? O_NOFOLLOW : 0);
  const int fd = ::open(path.c_str(), flags | O_NONBLOCK);
  if (fd >= 0 || errno != EWOULDBLOCK) return fd;
  // A regular file that another program holds a lease on (Samba) is given back while an open without O_NONBLOCK waits.
  struct stat info;
  if (::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) return ::open(path.c_str(), flags);
  errno = EWOULDBLOCK;
  return -1;
}

std::string_view KindOfFile(uint32_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISBLK(mode)) return "a block device";
  if (S_ISCHR(mode)) return "a device";
  return "a regular file";
}

bool IsStream(const std::string& path) {
  for (const std::string_view prefix : {"/dev/stdin", "/dev/fd/", "/proc/"}) {
    if (std::string_view(path).starts_with(prefix)) return true;
  }
  struct stat info;
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

absl::Status CreateDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Failed("cannot make directory", path, error.value());
  // create_directories reports no error if the path is a file.
  if (!std::filesystem::is_directory(path, error)) return Failed("cannot make directory", path, ENOTDIR);
  return absl::OkStatus();
}

absl::StatusOr<std::string> CreateUniqueDirectory(const std::string& parent, std::string_view prefix) {
  for (int i = 0; i < kTries; ++i) {
    std::string path = JoinPath(parent, std::string(prefix) + UniqueSuffix());
    if (mkdir(path.c_str(), 0777) == 0) return path;
    if (errno != EEXIST) break;
  }
  return Failed("cannot make a directory in", parent);
}

absl::Status PublishDirectory(const std::string& from, const std::string& to) {
  std::error_code error;
  std::vector<std::string> inside = {from};
  for (std::filesystem::recursive_directory_iterator entry(from, error), end; !error && entry != end;
       entry.increment(error)) {
    inside.push_back(entry->path().string());
  }
  if (error) return Failed("cannot list", from, error.value());
  // Sync files before the directories that name them.
  std::reverse(inside.begin(), inside.end());
  for (const std::string& path : inside) RETURN_IF_ERROR(SyncPath(path));
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) return Failed(absl::StrCat("cannot rename ", from, " to").c_str(), to);
    // On a file system without RENAME_NOREPLACE (NFS) use rename, which replaces at most an empty directory.
    if (PathExists(to)) return Failed(absl::StrCat("cannot rename ", from, " to").c_str(), to, EEXIST);
    if (rename(from.c_str(), to.c_str()) != 0) return Failed(absl::StrCat("cannot rename ", from, " to").c_str(), to);
  }
  return SyncPath(DirectoryOf(to));
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return Failed("cannot list", path, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status SyncPath(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return Failed("cannot open", path);
  // Some network file systems cannot sync a directory and say EINVAL; they keep names themselves.
  if (fsync(file.fd) != 0 && errno != EINVAL) return Failed("cannot bring to disk", path);
  return absl::OkStatus();
}

absl::Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) return Failed("cannot remove", path, error.value());
  return absl::OkStatus();
}

bool PathExists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string JoinPath(std::string_view directory, std::string_view name) {
  if (directory.empty() || (!name.empty() && name[0] == '/')) return std::string(name);
  std::string path(directory);
  if (path.back() != '/') path += '/';
  return path.append(name);
}

std::string DirectoryOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

}  // namespace weir
