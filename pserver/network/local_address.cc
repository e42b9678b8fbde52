#include "pserver/network/local_address.h"

#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/net/resolve.h"
#include "pserver/cluster/cluster.h"

namespace weir {

namespace {

// Returns the address of this end of a datagram socket that is connected to `to`; "" if no route leads there.
std::string OwnEnd(const SocketAddress& to) {
  const int fd = ::socket(to.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  SocketAddress own = {.bytes = sizeof own.address};
  const bool known = ::connect(fd, to.raw(), to.bytes) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&own.address), &own.bytes) == 0;
  ::close(fd);
  return known ? IpText(own.raw()) : "";
}

}  // namespace

absl::StatusOr<std::string> LocalAddressTowards(const std::string& endpoint) {
  ASSIGN_OR_RETURN(const Endpoint to, ParseEndpoint(endpoint));
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, Resolve(to.host, to.port));
  for (const SocketAddress& address : addresses) {
    if (std::string own = OwnEnd(address); !own.empty()) return own;
  }
  return absl::UnavailableError(absl::StrCat("no route from this machine leads to ", endpoint));
}

}  // namespace weir
