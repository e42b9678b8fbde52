#include "pserver/network/local_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "pserver/cluster/cluster.h"

namespace weir {

namespace {

// Returns the address of this end of a datagram socket that is connected to `to`; "" if no route leads there.
std::string OwnEnd(const addrinfo& to) {
  const int fd = ::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  sockaddr_storage own{};
  socklen_t bytes = sizeof(own);
  char text[INET6_ADDRSTRLEN] = "";
  if (::connect(fd, to.ai_addr, to.ai_addrlen) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes) == 0) {
    const void* const address = own.ss_family == AF_INET
                                    ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(&own)->sin_addr)
                                    : static_cast<const void*>(&reinterpret_cast<sockaddr_in6*>(&own)->sin6_addr);
    if (::inet_ntop(own.ss_family, address, text, sizeof(text)) == nullptr) text[0] = '\0';
  }
  ::close(fd);
  return text;
}

}  // namespace

absl::StatusOr<std::string> LocalAddressTowards(const std::string& endpoint) {
  ASSIGN_OR_RETURN(const Endpoint to, ParseEndpoint(endpoint));
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(to.BareHost().c_str(), absl::StrCat(to.port).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(absl::StrCat("host ", to.host, ": ", ::gai_strerror(error)));
  std::string own;
  for (const addrinfo* each = found; each != nullptr && own.empty(); each = each->ai_next) own = OwnEnd(*each);
  ::freeaddrinfo(found);
  if (!own.empty()) return own;
  return absl::UnavailableError(absl::StrCat("no route from this machine leads to ", endpoint));
}

}  // namespace weir
