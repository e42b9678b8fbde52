// IP addresses: their bytes, their text, and which of them are of the loopback interface.
#ifndef WEIR_FRAMEWORK_NET_SOCKET_ADDRESS_H_
#define WEIR_FRAMEWORK_NET_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include <string>
#include <string_view>

namespace weir {

// Returns the bytes of an IPv4 (4) or IPv6 address (16), in network order; "" for null and other families. An IPv4
// address in an IPv6 one is the IPv4 one.
std::string IpBytes(const sockaddr* address);
// Returns these bytes of an address that is written as such, with or without brackets; "" for a name.
std::string IpBytes(std::string_view text);
// Returns "10.0.0.1" or "fe80::1"; "" for null and other families.
std::string IpText(const sockaddr* address);

// Returns whether only processes of this machine reach the address: 127.0.0.0/8, ::1.
bool IsLoopback(const sockaddr* address);
// Returns whether a host, as it is written, is such an address, with or without brackets, or "localhost". Looks nothing
// up: a name that this machine takes for 127.0.1.1 is none.
bool IsLoopback(std::string_view host);

// An address with a port.
struct SocketAddress {
  sockaddr_storage address = {};
  socklen_t bytes = 0;

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&address); }
  // 0 to 65535.
  int port() const;
  void set_port(int port);
  // Returns "10.0.0.1:6170" or "[fe80::1]:6170".
  std::string ToString() const;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_NET_SOCKET_ADDRESS_H_
