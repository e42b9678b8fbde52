#include "tools/hosts/reserved_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

// Below are ports of well-known services and most of the registered ones.
constexpr int kFirst = 10000;
// First port for connections on Linux, unless the system says otherwise.
constexpr int kUsualEnd = 32768;
// Draws for each port; all fail only if nearly every port is taken.
constexpr int kTries = 1000;

int EndOfPorts() {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  // If the range leaves hardly any ports below it, any port may be taken by a connection.
  return range >> first && first >= kFirst + 1000 && first <= 65536 ? first : kUsualEnd;
}

// Returns a socket that is bound to the port of an address, -1 if the port is taken there.
int Bind(int type, in_addr_t host, int port) {
  const int fd = ::socket(AF_INET, type | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  // Set SO_REUSEADDR as servers do, so that remains of old connections at the port do not matter.
  if (type == SOCK_STREAM) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(host);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

}  // namespace

ReservedPorts::~ReservedPorts() {
  for (const int fd : sockets_) ::close(fd);
}

ReservedPorts::ReservedPorts(ReservedPorts&& other) noexcept
    : ports_(std::exchange(other.ports_, {})), sockets_(std::exchange(other.sockets_, {})) {}

ReservedPorts& ReservedPorts::operator=(ReservedPorts&& other) noexcept {
  std::swap(ports_, other.ports_);
  std::swap(sockets_, other.sockets_);
  return *this;
}

absl::StatusOr<ReservedPorts> ReservedPorts::Draw(int count) {
  ReservedPorts reserved;
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> any(kFirst, EndOfPorts() - 1);
  for (int tries = 0; tries < kTries * count && static_cast<int>(reserved.ports_.size()) < count; ++tries) {
    const int port = any(random);
    const int hold = Bind(SOCK_DGRAM, INADDR_LOOPBACK, port);
    if (hold < 0) continue;
    reserved.sockets_.push_back(hold);
    // Nobody may listen at any address, since the process may listen at all.
    const int probe = Bind(SOCK_STREAM, INADDR_ANY, port);
    if (probe < 0) continue;
    ::close(probe);
    reserved.ports_.push_back(port);
  }
  if (static_cast<int>(reserved.ports_.size()) == count) return reserved;
  return absl::UnavailableError(absl::StrCat("this machine has ", reserved.ports_.size(), " free ports from ", kFirst,
                                             " on, ", count, " are needed; end other programs, or use fewer trainers"));
}

}  // namespace weir
