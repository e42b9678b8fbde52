#include "pserver/sockets/unix_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

bool FitsAddress(const std::string& path) { return path.size() < sizeof(sockaddr_un{}.sun_path); }

constexpr timeval kConnectDeadline = {.tv_sec = 2, .tv_usec = 0};
// Connections that the system takes before they are accepted: all trainers of a machine may come at once.
constexpr int kBacklog = 4096;

// Returns the address of a path, which fits.
sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

bool IsOwnSocket(const std::string& path) {
  struct stat found = {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode) && found.st_uid == ::geteuid();
}

// 0, or why nobody answers: ECONNREFUSED when nobody listens any more, EPROTOTYPE when it is a socket of packets.
int Connect(const std::string& path) {
  if (!FitsAddress(path)) return ENAMETOOLONG;
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  const sockaddr_un address = AddressOf(path);
  const int error = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
  ::close(fd);
  return error;
}

void RemoveStale(const std::string& directory) {
  DIR* const dir = ::opendir(directory.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    if (!absl::EndsWith(name, ".sock")) continue;
    const std::string path = absl::StrCat(directory, "/", name);
    // Between bind and listen a living one refuses too: only those are removed whose process is gone.
    const pid_t pid = static_cast<pid_t>(std::strtol(name.c_str(), nullptr, 10));
    if (pid > 0 && ::kill(pid, 0) == 0 && pid != ::getpid()) continue;
    if (Connect(path) == ECONNREFUSED) ::unlink(path.c_str());
  }
  ::closedir(dir);
}

absl::Status MakeDirectory(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::FailedPreconditionError(absl::StrCat("cannot make ", directory, ": ", std::strerror(errno)));
  }
  struct stat found = {};
  if (::lstat(directory.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() ||
      (found.st_mode & 077) != 0) {
    return absl::AlreadyExistsError(directory);
  }
  return absl::OkStatus();
}

// Makes the directory of this user in `parent`. Where somebody has made another one of that name (everybody may, in
// /tmp), makes one of a name that nobody can foresee.
absl::StatusOr<std::string> OwnDirectory(const std::string& parent) {
  std::string directory = absl::StrCat(parent, "/weir-", ::geteuid());
  const absl::Status made = MakeDirectory(directory);
  if (made.ok()) return directory;
  if (!absl::IsAlreadyExists(made)) return made;
  std::string other = directory + "-XXXXXX";
  if (::mkdtemp(other.data()) != nullptr) return other;
  return absl::FailedPreconditionError(
      absl::StrCat(directory, " is not a directory of this user alone (mode 0700), and ", other,
                   " cannot be made: ", std::strerror(errno), "; remove the first or set TMPDIR"));
}

}  // namespace

absl::StatusOr<std::string> NewUnixSocketPath(const std::string& parent) {
  std::random_device random;
  const std::string name = absl::StrFormat("/%d-%08x%08x.sock", ::getpid(), random(), random());
  const auto check_length = [&](const std::string& directory) {
    const std::string path = directory + name;
    if (FitsAddress(path)) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("the name of a socket has at most ",
                                                      sizeof(sockaddr_un{}.sun_path) - 1, " bytes, ", path, " has ",
                                                      path.size(), "; set TMPDIR to a shorter one"));
  };
  // Before anything is made.
  RETURN_IF_ERROR(check_length(absl::StrCat(parent, "/weir-", ::geteuid())));
  ASSIGN_OR_RETURN(const std::string directory, OwnDirectory(parent));
  RETURN_IF_ERROR(check_length(directory));
  RemoveStale(directory);
  return directory + name;
}

absl::StatusOr<std::string> NewUnixSocketPath() {
  const char* const set = std::getenv("TMPDIR");
  return NewUnixSocketPath(set != nullptr && set[0] == '/' ? set : "/tmp");
}

std::string TensorPathOf(const std::string& unix_socket) {
  return absl::StrCat(absl::StripSuffix(unix_socket, ".sock"), "-t.sock");
}

bool ListensAt(const std::string& path) { return IsOwnSocket(path) && Connect(path) == 0; }

absl::StatusOr<int> ConnectTo(const std::string& path, int type) {
  if (!FitsAddress(path) || !IsOwnSocket(path)) {
    return absl::UnavailableError(absl::StrCat("no socket of this user at ", path));
  }
  const int fd = ::socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("socket: ", std::strerror(errno)));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kConnectDeadline, sizeof(kConnectDeadline));
  const sockaddr_un address = AddressOf(path);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  const std::string why = std::strerror(errno);
  ::close(fd);
  return absl::UnavailableError(absl::StrCat("nobody answers at ", path, ": ", why));
}

absl::StatusOr<int> ListenOn(const std::string& path, int type) {
  if (!FitsAddress(path)) return absl::FailedPreconditionError(absl::StrCat(path, " is too long for a socket"));
  const int fd = ::socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::FailedPreconditionError(absl::StrCat("socket: ", std::strerror(errno)));
  const sockaddr_un address = AddressOf(path);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::chmod(path.c_str(), 0600) == 0 && ::listen(fd, kBacklog) == 0) {
    return fd;
  }
  const std::string why = std::strerror(errno);
  ::close(fd);
  return absl::FailedPreconditionError(absl::StrCat("cannot listen at ", path, ": ", why));
}

}  // namespace weir
