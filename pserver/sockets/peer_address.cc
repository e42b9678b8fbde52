#include "pserver/sockets/peer_address.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace weir {

std::string AddressText(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return absl::StrCat(text, ":", ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_UNIX) {
    const auto& path = reinterpret_cast<const sockaddr_un&>(address).sun_path;
    return std::string(path, std::find(path, path + sizeof(path), '\0'));
  }
  if (address.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    ::inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
    return absl::StrCat(text, ":", ntohs(v6.sin6_port));
  }
  ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return absl::StrCat("[", text, "]:", ntohs(v6.sin6_port));
}

std::optional<SocketAddress> AddressOfPeer(std::string_view peer) {
  std::string text =
      absl::StrReplaceAll(absl::string_view(peer.data(), peer.size()), {{"%5B", "["}, {"%5D", "]"}, {"%25", "%"}});
  if (!absl::StartsWith(text, "ipv4:") && !absl::StartsWith(text, "ipv6:")) return std::nullopt;
  text = text.substr(5);
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return std::nullopt;
  }
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return std::nullopt;
  SocketAddress address;
  address.bytes = found->ai_addrlen;
  std::memcpy(&address.address, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  address.set_port(port);
  return address;
}

namespace {

// Calls `visit` with the descriptor and the address of its other end, of each connected socket of this process.
void ForEachConnection(const std::function<void(int descriptor, const std::string& peer)>& visit) {
  DIR* const descriptors = ::opendir("/proc/self/fd");
  if (descriptors == nullptr) return;
  while (const dirent* const entry = ::readdir(descriptors)) {
    char* end = nullptr;
    const auto descriptor = static_cast<int>(std::strtol(entry->d_name, &end, 10));
    if (end == entry->d_name || *end != '\0') continue;
    sockaddr_storage peer = {};
    socklen_t size = sizeof(peer);
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    visit(descriptor, AddressText(peer));
  }
  ::closedir(descriptors);
}

// Bytes that a connection may hold; the system counts its own memory for them, about as much again.
constexpr int kSendRoom = 1 << 20;

}  // namespace

int GiveSendRoom(const std::string& path) {
  int given = 0;
  ForEachConnection([&](int descriptor, const std::string& peer) {
    sockaddr_storage own = {};
    socklen_t size = sizeof(own);
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &size) != 0 || own.ss_family != AF_UNIX) return;
    if (peer != path && AddressText(own) != path) return;
    int before = 0, after = 0;
    size = sizeof(before);
    if (::getsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &before, &size) != 0 || before >= kSendRoom) return;
    ::setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &kSendRoom, sizeof(kSendRoom));
    if (::getsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &after, &size) == 0 && after > before) ++given;
  });
  return given;
}

void ShutDownConnectionsTo(const std::set<std::string>& addresses) {
  ForEachConnection([&](int descriptor, const std::string& peer) {
    if (!peer.empty() && addresses.contains(peer)) ::shutdown(descriptor, SHUT_RDWR);
  });
}

}  // namespace weir
