// Connections of this process by the address at their other end.
#ifndef WEIR_PSERVER_SOCKETS_PEER_ADDRESS_H_
#define WEIR_PSERVER_SOCKETS_PEER_ADDRESS_H_

#include <sys/socket.h>

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "framework/net/socket_address.h"

namespace weir {

// Writes an address as gRPC does, "10.0.0.1:51504" or "[fe80::1]:51504": an IPv4 address in an IPv6 one is an IPv4
// address. The path of a Unix-domain socket; "" for others.
std::string AddressText(const sockaddr_storage& address);

// Parses the name that gRPC gives the other end of a connection over TCP: "ipv4:10.0.0.1:6170",
// "ipv6:%5Bfe80::1%25eth0%5D:6170". Returns nullopt for others.
std::optional<SocketAddress> AddressOfPeer(std::string_view peer);

// Lets connections of this process through the Unix-domain socket at `path`, its own or that of another process, hold
// more bytes that the other end has not read: by default 208 KiB, after which writer and reader take turns, each woken
// by the other. The raw step of wire_bench gains 9 %. Gets as much more as net.core.wmem_max allows. Returns how many
// connections got more. Does nothing where there is no /proc.
int GiveSendRoom(const std::string& path);

// Shuts down the connections of this process whose other end is one of `addresses` (as AddressText). Reads and writes
// that are under way fail then. Does nothing where there is no /proc.
void ShutDownConnectionsTo(const std::set<std::string>& addresses);

}  // namespace weir

#endif  // WEIR_PSERVER_SOCKETS_PEER_ADDRESS_H_
