#include "framework/net/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weir {
namespace {

const in_addr& V4(const sockaddr* address) { return reinterpret_cast<const sockaddr_in*>(address)->sin_addr; }
const in6_addr& V6(const sockaddr* address) { return reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr; }

template <typename Bytes>
std::string AsString(const Bytes& bytes) {
  return std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes);
}

bool IsLoopbackBytes(std::string_view bytes) {
  return bytes.size() == 4 ? bytes[0] == 127 : bytes == std::string(15, '\0') + '\1';
}

std::string BytesOfV6(const in6_addr& address) {
  const std::string bytes = AsString(address);
  return IN6_IS_ADDR_V4MAPPED(&address) ? bytes.substr(12) : bytes;
}

}  // namespace

std::string IpBytes(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) return AsString(V4(address));
  return address->sa_family == AF_INET6 ? BytesOfV6(V6(address)) : "";
}

std::string IpBytes(std::string_view text) {
  const bool brackets = text.size() > 2 && text.front() == '[' && text.back() == ']';
  const std::string plain(brackets ? text.substr(1, text.size() - 2) : text);
  in_addr v4;
  if (!brackets && ::inet_pton(AF_INET, plain.c_str(), &v4) == 1) return AsString(v4);
  in6_addr v6;
  return ::inet_pton(AF_INET6, plain.c_str(), &v6) == 1 ? BytesOfV6(v6) : "";
}

std::string IpText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &V4(address), text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &V6(address), text, sizeof text);
  }
  return text;
}

bool IsLoopback(const sockaddr* address) { return IsLoopbackBytes(IpBytes(address)); }

bool IsLoopback(std::string_view host) {
  return absl::EqualsIgnoreCase({host.data(), host.size()}, "localhost") || IsLoopbackBytes(IpBytes(host));
}

int SocketAddress::port() const {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

void SocketAddress::set_port(int port) {
  const auto number = htons(static_cast<uint16_t>(port));
  if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address)->sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in*>(&address)->sin_port = number;
  }
}

std::string SocketAddress::ToString() const {
  const std::string host = IpText(raw());
  return address.ss_family == AF_INET6 ? absl::StrCat("[", host, "]:", port()) : absl::StrCat(host, ":", port());
}

}  // namespace weir
