#include "pserver/meet_others.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

InitMethod Tcp(const std::string& host) {
  InitMethod method;
  method.address = {.host = host, .port = 6170};
  return method;
}

// A name that leads to 127.0.0.1 here, without an entry in /etc/hosts: inet_aton's way to write it.
constexpr char kOwnName[] = "2130706433";

TEST(MeetOthersTest, OthersAreToldTheAddressThatLeadsToTheMeetingPoint) {
  EXPECT_EQ(*HostForOthers(Tcp("127.0.0.1")), "127.0.0.1");
  EXPECT_EQ(*WhereToListen({.init_method = Tcp("127.0.0.1")}), "127.0.0.1:0");
}

TEST(MeetOthersTest, AMachineThatLooksItsNameUpAsLoopbackIsKnownByTheName) {
  EXPECT_EQ(*HostForOthers(Tcp(kOwnName)), kOwnName);
  EXPECT_EQ(*WhereToListen({.init_method = Tcp(kOwnName)}), "0.0.0.0:0");
}

TEST(MeetOthersTest, AGivenEndpointIsWhereAServerListens) {
  EXPECT_EQ(*WhereToListen({.endpoint = "10.0.0.1:7", .init_method = Tcp(kOwnName)}), "10.0.0.1:7");
}

}  // namespace
}  // namespace weir
