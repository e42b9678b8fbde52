#include "pserver/rendezvous/tcp_sockets.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

constexpr int kBacklog = 512;

Socket NewSocket(int family) { return Socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

void SetOption(const Socket& socket, int level, int option, int value) {
  ::setsockopt(socket.fd(), level, option, &value, sizeof value);
}

SocketAddress WithPort(SocketAddress of, int port) {
  of.set_port(port);
  return of;
}

// Returns the address of every interface, in the family of `like`.
SocketAddress AnyAddress(const SocketAddress& like) {
  SocketAddress any = {.bytes = like.bytes};
  any.address.ss_family = like.address.ss_family;
  return any;
}

// Returns the addresses of this machine, for messages.
std::string OwnAddresses() {
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) return "unknown";
  std::vector<std::string> texts;
  for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    if (std::string text = IpText(each->ifa_addr); !text.empty()) texts.push_back(std::move(text));
  }
  ::freeifaddrs(interfaces);
  return absl::StrJoin(texts, ", ");
}

// Returns a socket that is bound to the address, or the system's reason in *error.
Socket Bind(const SocketAddress& to, int* error) {
  Socket socket = NewSocket(to.address.ss_family);
  *error = errno;
  if (socket.fd() < 0) return socket;
  // Remains of old connections at the port do not matter.
  SetOption(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (to.address.ss_family == AF_INET6) SetOption(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.fd(), to.raw(), to.bytes) == 0 && ::listen(socket.fd(), kBacklog) == 0) {
    *error = 0;
    return socket;
  }
  *error = errno;
  return Socket();
}

// Returns the first of the host's addresses that this machine has.
std::optional<SocketAddress> OwnAmong(const std::vector<SocketAddress>& addresses) {
  for (const SocketAddress& each : addresses) {
    int error = 0;
    if (Bind(WithPort(each, 0), &error).fd() >= 0) return each;
  }
  return std::nullopt;
}

// A port of this machine at which nobody listens may be the one that the system gives to the connecting socket, and the
// two ends are then one.
bool IsConnectedToItself(const Socket& socket) {
  SocketAddress own, other;
  own.bytes = other.bytes = sizeof(sockaddr_storage);
  return ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own.address), &own.bytes) == 0 &&
         ::getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&other.address), &other.bytes) == 0 &&
         own.ToString() == other.ToString();
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<Socket> ListenAt(const InitMethod& method, int* port) {
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, Resolve(method.address.host, method.address.port));
  const std::optional<SocketAddress> own = OwnAmong(addresses);
  if (!own.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat(method.source, ": trainer 0 listens at the meeting point, but this machine has no address ",
                     addresses[0].ToString().substr(0, addresses[0].ToString().rfind(':')), " (it has ", OwnAddresses(),
                     "); name the host of trainer 0"));
  }
  // A name that this machine looks up as a loopback address (127.0.1.1) may be another address to the others.
  const SocketAddress at = method.address.IsLoopback() ? *own : AnyAddress(*own);
  int error = 0;
  for (int i = 0; i < method.ports; ++i) {
    *port = method.address.port + i;
    Socket socket = Bind(WithPort(at, *port), &error);
    if (socket.fd() >= 0) return socket;
    if (error != EADDRINUSE) break;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      method.source, ": trainer 0 cannot listen at ", method.ToString(), ": ", std::strerror(error),
      error == EADDRINUSE ? "; another program, or an earlier run, has the port: end it, or name a free one" : ""));
}

absl::StatusOr<Socket> ConnectTo(const SocketAddress& to, absl::Duration limit, const Cancellation& cancellation) {
  const auto failed = [&to](int error) {
    return absl::UnavailableError(absl::StrCat(to.ToString(), ": ", std::strerror(error)));
  };
  Socket socket = NewSocket(to.address.ss_family);
  if (socket.fd() < 0) return failed(errno);
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  if (::connect(socket.fd(), to.raw(), to.bytes) != 0 && errno != EINPROGRESS) return failed(errno);
  const absl::Time until = Clock::Real()->Now() + limit;
  pollfd events[] = {{.fd = socket.fd(), .events = POLLOUT, .revents = 0},
                     {.fd = cancellation.fd(), .events = POLLIN, .revents = 0}};
  while (events[0].revents == 0) {
    if (events[1].revents != 0) return absl::CancelledError("cancelled");
    const absl::Duration left = until - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return failed(ETIMEDOUT);
    ::poll(events, 2, PollTimeout(left));
  }
  int error = 0;
  socklen_t bytes = sizeof error;
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error != 0) return failed(error);
  if (IsConnectedToItself(socket)) return failed(ECONNREFUSED);
  return socket;
}

}  // namespace weir
