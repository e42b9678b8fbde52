// Network interfaces of this machine, and the address by which other machines reach one of them.
#ifndef WEIR_PSERVER_NETWORK_INTERFACES_H_
#define WEIR_PSERVER_NETWORK_INTERFACES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct NetworkInterface {
  std::string name;  // "eth0"
  bool up = false;   // switched on, and has a carrier
  bool loopback = false;
  // Numeric addresses in the system's order, IPv6 without brackets. Addresses of a link alone (fe80::...) mean nothing
  // to a process on another machine without the name of its own interface.
  std::vector<std::string> addresses;
};

// Returns the interfaces in the order of their names. Internal: the system does not list them.
absl::StatusOr<std::vector<NetworkInterface>> NetworkInterfaces();

// Returns the address of the interface `name` that a process gives to others: the first IPv4 address, else the first
// IPv6 address that is not of the link alone. "^lo,docker" chooses the first interface that is up, has such an address
// and whose name begins with none of the listed words, as NCCL_SOCKET_IFNAME does. NotFound or FailedPrecondition says
// what is wrong (not there, down, without an address) and lists the interfaces that are there.
absl::StatusOr<std::string> AddressOfInterface(const std::vector<NetworkInterface>& interfaces, std::string_view name);

// Returns "eth0 (10.0.0.5), lo (127.0.0.1, ::1), wlan0 (down)".
std::string InterfacesText(const std::vector<NetworkInterface>& interfaces);

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_INTERFACES_H_
