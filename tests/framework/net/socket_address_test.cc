#include "framework/net/socket_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>
#include <string>

#include "gtest/gtest.h"

namespace weir {
namespace {

SocketAddress Of(int family, const char* text, int port) {
  SocketAddress address;
  address.address.ss_family = static_cast<sa_family_t>(family);
  void* const bytes = family == AF_INET
                          ? static_cast<void*>(&reinterpret_cast<sockaddr_in*>(&address.address)->sin_addr)
                          : static_cast<void*>(&reinterpret_cast<sockaddr_in6*>(&address.address)->sin6_addr);
  EXPECT_EQ(::inet_pton(family, text, bytes), 1) << text;
  address.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  address.set_port(port);
  return address;
}

TEST(SocketAddressTest, TextHasThePort) {
  EXPECT_EQ(Of(AF_INET, "10.0.0.1", 6170).ToString(), "10.0.0.1:6170");
  EXPECT_EQ(Of(AF_INET6, "fe80::1", 65535).ToString(), "[fe80::1]:65535");
  EXPECT_EQ(Of(AF_INET6, "::", 0).port(), 0);
}

TEST(SocketAddressTest, HostsThatOnlyThisMachineReaches) {
  for (const char* host : {"127.0.0.1", "127.255.3.4", "::1", "[::1]", "localhost", "LocalHost", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"", "10.0.0.1", "128.0.0.1", "1127.0.0.1", "127.example.com", "localhost.example.com",
                           "::", "::2", "[::1", "127.0.0.1:80", "[127.0.0.1]", "fe80::1", "ps-1"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
  EXPECT_TRUE(IsLoopback(Of(AF_INET, "127.0.1.1", 1).raw()));
  EXPECT_TRUE(IsLoopback(Of(AF_INET6, "::1", 1).raw()));
  EXPECT_FALSE(IsLoopback(Of(AF_INET6, "::2", 1).raw()));
  const sockaddr unix_socket = {.sa_family = AF_UNIX, .sa_data = {}};
  EXPECT_FALSE(IsLoopback(&unix_socket));
  EXPECT_FALSE(IsLoopback(static_cast<const sockaddr*>(nullptr)));
}

TEST(SocketAddressTest, AnIpv4AddressInAnIpv6OneIsTheIpv4One) {
  EXPECT_EQ(IpBytes("::ffff:10.1.2.3"), IpBytes("10.1.2.3"));
  EXPECT_EQ(IpBytes(Of(AF_INET6, "::ffff:10.1.2.3", 1).raw()), IpBytes("10.1.2.3"));
  EXPECT_EQ(IpBytes("10.1.2.3").size(), 4u);
  EXPECT_EQ(IpBytes("[fe80::1]").size(), 16u);
  EXPECT_EQ(IpBytes("fe80::1"), IpBytes(Of(AF_INET6, "fe80::1", 1).raw()));
  for (const char* name : {"", "ps-1", "10.1.2", "10.1.2.3:4", "[]", "[ps]"}) EXPECT_EQ(IpBytes(name), "") << name;
}

}  // namespace
}  // namespace weir
