// Addresses of hosts by their names. A name service that does not answer keeps nobody beyond a deadline.
#ifndef WEIR_FRAMEWORK_NET_RESOLVE_H_
#define WEIR_FRAMEWORK_NET_RESOLVE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/net/socket_address.h"

namespace weir {

struct Resolved {
  // IPv4 and IPv6, at least one if the status is OK; ports are 0.
  std::vector<SocketAddress> addresses;
  // Unavailable: "host NAME: why".
  absl::Status status;
  // True if another attempt may succeed: the name service has not answered, or cannot for now.
  bool again = false;
};

// Time that a look-up has when nothing else says how long.
inline constexpr absl::Duration kResolveDeadline = absl::Seconds(30);

// Looks the hosts up together, for `deadline` in all. A host is a name, or an address with or without brackets.
// Thread-safe.
std::vector<Resolved> ResolveAll(const std::vector<std::string>& hosts, absl::Duration deadline);

// Returns the addresses of a host, with the port, or Resolved.status. Sets *again, if not null, to Resolved.again.
absl::StatusOr<std::vector<SocketAddress>> Resolve(std::string_view host, int port,
                                                   absl::Duration deadline = kResolveDeadline, bool* again = nullptr);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_NET_RESOLVE_H_
