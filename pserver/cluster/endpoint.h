// Addresses of the form host:port.
#ifndef WEIR_PSERVER_CLUSTER_ENDPOINT_H_
#define WEIR_PSERVER_CLUSTER_ENDPOINT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weir {

// The host of an IPv6 address keeps its brackets.
struct Endpoint {
  std::string host;
  int port = 0;

  std::string ToString() const;
  // Returns true for every interface of the machine: 0.0.0.0 or [::].
  bool IsWildcard() const;
  // Returns true for an address that leads to the own machine only: 127.x.x.x, [::1], localhost.
  bool IsLoopback() const;
  // Returns the host as the resolver takes it, without brackets.
  std::string BareHost() const;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// Parses "127.0.0.1:6170", "ps-0.cluster:6170" or "[::1]:6170"; port 0 to 65535. InvalidArgument says what is wrong
// with `text`.
absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text);

// Returns "host:port" of an address without a port: an IPv6 address gets brackets.
std::string JoinHostPort(std::string_view host, int port);

}  // namespace weir

#endif  // WEIR_PSERVER_CLUSTER_ENDPOINT_H_
