// Interfaces of this machine by name: the address that is given to others, and what is said when there is none.

#include "pserver/network/interfaces.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::vector<NetworkInterface> SomeInterfaces() {
  return {{.name = "docker0", .up = true, .addresses = {"172.17.0.1"}},
          {.name = "eth0", .up = true, .addresses = {"fe80::1", "2001:db8::5", "10.0.0.5", "10.0.0.6"}},
          {.name = "eth1", .up = true, .addresses = {"fe80::2", "2001:db8::6"}},
          {.name = "eth2", .up = true, .addresses = {"fe80::3"}},
          {.name = "eth3", .up = false, .addresses = {"10.0.3.5"}},
          {.name = "eth4", .up = true},
          {.name = "lo", .up = true, .loopback = true, .addresses = {"127.0.0.1", "::1"}}};
}

TEST(InterfacesTest, Ipv4ComesBeforeIpv6) {
  EXPECT_EQ(AddressOfInterface(SomeInterfaces(), "eth0").value(), "10.0.0.5");
  EXPECT_EQ(AddressOfInterface(SomeInterfaces(), "lo").value(), "127.0.0.1");
}

TEST(InterfacesTest, AnInterfaceWithIpv6AloneGivesThatButNoneOfTheLink) {
  EXPECT_EQ(AddressOfInterface(SomeInterfaces(), "eth1").value(), "2001:db8::6");
  const absl::Status status = AddressOfInterface(SomeInterfaces(), "eth2").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'eth2' has no address that other machines can use"));
}

TEST(InterfacesTest, OneThatIsNotThereIsNamedBesideThoseThatAre) {
  const absl::Status status = AddressOfInterface(SomeInterfaces(), "ib0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            "this machine has no network interface 'ib0'; there are docker0 (172.17.0.1), eth0 (fe80::1, 2001:db8::5, "
            "10.0.0.5, 10.0.0.6), eth1 (fe80::2, 2001:db8::6), eth2 (fe80::3), eth3 (down), eth4 (no address), lo "
            "(127.0.0.1, ::1)");
}

TEST(InterfacesTest, OneThatIsDownOrHasNoAddressIsRefused) {
  EXPECT_THAT(std::string(AddressOfInterface(SomeInterfaces(), "eth3").status().message()),
              HasSubstr("network interface 'eth3' is down; there are docker0"));
  EXPECT_THAT(std::string(AddressOfInterface(SomeInterfaces(), "eth4").status().message()),
              HasSubstr("'eth4' has no address"));
}

TEST(InterfacesTest, NamesCanBeExcludedByTheirBegin) {
  EXPECT_EQ(AddressOfInterface(SomeInterfaces(), "^lo,docker").value(), "10.0.0.5");
  EXPECT_EQ(AddressOfInterface(SomeInterfaces(), "^docker,eth0").value(), "2001:db8::6");
  EXPECT_EQ(AddressOfInterface(SomeInterfaces(), "^eth,docker").value(), "127.0.0.1");
  EXPECT_THAT(std::string(AddressOfInterface(SomeInterfaces(), "^eth,docker,lo").status().message()),
              HasSubstr("no network interface but those that begin with eth or docker or lo is up and has an address"));
}

TEST(InterfacesTest, WithoutAnyInterfaceTheTextSaysSo) {
  EXPECT_EQ(AddressOfInterface({}, "eth0").status().message(),
            "this machine has no network interface 'eth0'; there are none");
}

TEST(InterfacesTest, TheLoopbackOfThisMachineIsListed) {
  const absl::StatusOr<std::vector<NetworkInterface>> interfaces = NetworkInterfaces();
  ASSERT_TRUE(interfaces.ok()) << interfaces.status();
  const auto lo = std::find_if(interfaces->begin(), interfaces->end(), [](const auto& each) { return each.loopback; });
  ASSERT_NE(lo, interfaces->end());
  EXPECT_THAT(lo->addresses, Contains("127.0.0.1"));
}

}  // namespace
}  // namespace weir
