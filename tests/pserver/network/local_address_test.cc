// The address from which this machine sends to another process.

#include "pserver/network/local_address.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

bool HasIpv6Loopback() {
  const int fd = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_in6 address{.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  const bool bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  ::close(fd);
  return bound;
}

TEST(LocalAddressTest, LoopbackIsReachedFromItself) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1:6170").value(), "127.0.0.1");
}

TEST(LocalAddressTest, AnIpv6AddressLosesItsBrackets) {
  if (!HasIpv6Loopback()) GTEST_SKIP() << "this machine has no ::1";
  EXPECT_EQ(LocalAddressTowards("[::1]:6170").value(), "::1");
}

TEST(LocalAddressTest, AnUnknownHostIsNamed) {
  const absl::Status status = LocalAddressTowards("no-such-name.invalid:6170").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message().substr(0, 27), "host no-such-name.invalid: ");
}

}  // namespace
}  // namespace weir
