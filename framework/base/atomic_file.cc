#include "framework/base/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "framework/base/status_macros.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

namespace weir {
namespace {

absl::Status Failed(std::string_view what, std::string_view path, int error = errno) {
  return absl::ErrnoToStatus(error, absl::StrCat(absl::string_view(what.data(), what.size()), " ",
                                                 absl::string_view(path.data(), path.size())));
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

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path) {
  for (int i = 0; i < kTries; ++i) {
    std::string temporary = absl::StrCat(path, ".tmp.", UniqueSuffix());
    const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return std::unique_ptr<AtomicFile>(new AtomicFile(path, std::move(temporary), fd));
    if (errno != EEXIST) break;
  }
  return Failed("cannot create a file beside", path);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

absl::Status AtomicFile::Append(std::string_view data) {
  if (fd_ < 0) return absl::FailedPreconditionError(absl::StrCat(path_, " is committed; nothing can be appended"));
  while (!data.empty()) {
    const ssize_t written = write(fd_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("cannot write", path_);
    data.remove_prefix(static_cast<size_t>(written));
    size_ += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (fd_ < 0) return absl::FailedPreconditionError(absl::StrCat(path_, " is committed already"));
  if (fsync(fd_) != 0) return Failed("cannot bring to disk", path_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return Failed("cannot rename to", path_);
  close(fd_);
  fd_ = -1;
  return SyncPath(DirectoryOf(path_));
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view data) {
  ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file->Append(data));
  return file->Commit();
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return Failed("cannot open", path);
  struct stat info;
  if (fstat(file.fd, &info) != 0) return Failed("cannot look at", path);
  if (S_ISDIR(info.st_mode)) return Failed("cannot read", path, EISDIR);
  const uint64_t expected = S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0;
  const auto too_large = [&](uint64_t size) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, " has ", size, " bytes or more; at most ", max_bytes, " are read"));
  };
  if (expected > max_bytes) return too_large(expected);
  std::string data;
  // Read one byte more than expected, so that a pipe or a file that has grown is read to its end.
  data.resize(expected + 1);
  size_t have = 0;
  while (true) {
    if (have == data.size()) data.resize(data.size() * 2);
    const ssize_t got = read(file.fd, data.data() + have, data.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("cannot read", path);
    if (got == 0) break;
    have += static_cast<size_t>(got);
    if (have > max_bytes) return too_large(have);
  }
  data.resize(have);
  return data;
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
