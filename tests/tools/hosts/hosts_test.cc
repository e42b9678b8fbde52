#include "tools/hosts/hosts.h"

#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/hosts/host_names.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "ps-1 4 10.0.0.1": name, slots, address.
std::vector<std::string> Texts(const std::vector<Host>& hosts) {
  std::vector<std::string> texts;
  for (const Host& host : hosts) {
    texts.push_back(absl::StrCat(host.name, " ", host.slots, host.address.empty() ? "" : " " + host.address));
  }
  return texts;
}

TEST(HostsTest, AListGivesSlots) {
  const auto hosts = ParseHostList("ps-1:4,10.0.0.2,[fe80::1]:8,[::2],a_b.example:1");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(Texts(*hosts), ElementsAre("ps-1 4", "10.0.0.2 1", "fe80::1 8", "::2 1", "a_b.example 1"));
}

TEST(HostsTest, AHostThatIsThereTwiceHasTheSlotsOfBothAtItsFirstPlace) {
  const auto hosts = ParseHostList("b,a:2,b:3");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(Texts(*hosts), ElementsAre("b 4", "a 2"));
}

TEST(HostsTest, AFileHasCommentsAndBlankLines) {
  const auto hosts = ParseHostfile(
      "# the cluster\n"
      "\n"
      "  ps-1   slots=4  # fast\r\n"
      "\tps-2:2\n"
      "[fe80::1] address=[fe80::2] slots=8\n"
      "ps-3",
      "hosts.txt");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_THAT(Texts(*hosts), ElementsAre("ps-1 4", "ps-2 2", "fe80::1 8 fe80::2", "ps-3 1"));
}

TEST(HostsTest, AWrongTokenOfAListIsNamedWithItsColumn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a:2,b:x", "-H: column 5: 'b:x' must have a number of slots from 1 to 65536, got 'x'"},
      {"a:0", "-H: column 1: 'a:0' must have a number of slots"},
      {"a:99999999999", "must have a number of slots"},
      {"a,,b", "-H: column 3: '' is no host name or address"},
      {"a,", "-H: column 3: '' is no host name"},
      {"a b", "-H: column 1: 'a b' is no host name"},
      {"-oProxyCommand=x", "is no host name"},
      {"fe80::1", "-H: column 1: 'fe80::1' has more than one ':'; an IPv6 address stands in brackets"},
      {"[fe80::1", "'[fe80::1' has a [ without its ]"},
      {"[fe80::g]:2", "'[fe80::g]:2' is no IPv6 address in brackets"},
      {"[10.0.0.1]:2", "is no IPv6 address in brackets"},
      {"[]:2", "is no IPv6 address in brackets"},
      {"joe@ps-1:2", "'joe@ps-1:2' has a user; write it into ~/.ssh/config, or give --ssh_options='-l USER'"},
      {"a:2:3", "has more than one ':'"},
      {"http://ps-1:80", "-H: column 1: 'http://ps-1:80' is a URL; a host is a name or an address without a scheme"},
  };
  for (const auto& [text, message] : cases) {
    const auto hosts = ParseHostList(text);
    ASSERT_FALSE(hosts.ok()) << text;
    EXPECT_EQ(hosts.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(hosts.status().message()), HasSubstr(message));
  }
}

TEST(HostsTest, AWrongTokenOfAFileIsNamedWithFileLineAndColumn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\n\n  b slots=two # x\n", "hosts.txt:3:5: 'slots=two' must have a number of slots from 1 to 65536, got 'two'"},
      {"a max_slots=3\n",
       "hosts.txt:1:3: 'max_slots=3' is not known here; after a host stand slots=N and address=HOST"},
      {"a b\n", "hosts.txt:1:3: 'b' is not known here"},
      {"a slots=2 slots=2\n", "hosts.txt:1:11: 'slots=2' gives slots a second time"},
      {"a:2 slots=2\n", "hosts.txt:1:5: 'slots=2' gives slots a second time"},
      {"a address=\n", "hosts.txt:1:3: 'address=' is no host name or address"},
      {"a address=x\na address=y\n", "hosts.txt:2:1: 'a' has address y, but 'x' before"},
      {"# nothing\n", "hosts.txt has no host"},
      {"", "hosts.txt has no host"},
  };
  for (const auto& [text, message] : cases) {
    const auto hosts = ParseHostfile(text, "hosts.txt");
    ASSERT_FALSE(hosts.ok()) << text;
    EXPECT_THAT(std::string(hosts.status().message()), HasSubstr(message));
  }
}

TEST(HostsTest, SlotsAreFilledInOrder) {
  const std::vector<Host> hosts = {{.name = "a", .slots = 2}, {.name = "b", .slots = 3}, {.name = "c"}};
  EXPECT_THAT(*DealTrainers(hosts, 4, "-H"), ElementsAre(2, 2, 0));
  EXPECT_THAT(*DealTrainers(hosts, -1, "-H"), ElementsAre(2, 3, 1));
}

TEST(HostsTest, TooFewSlotsAreRefusedWithTheNumbers) {
  const auto dealt = DealTrainers({{.name = "a", .slots = 2}, {.name = "b"}}, 5, "-H");
  EXPECT_THAT(std::string(dealt.status().message()),
              HasSubstr("5 trainers need as many slots, -H has 3 (a 2, b 1); add hosts or slots"));
}

TEST(HostNamesTest, EndpointsHaveIpv6InBrackets) {
  EXPECT_EQ(EndpointHost("fe80::1"), "[fe80::1]");
  EXPECT_EQ(EndpointHost("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(EndpointHost("ps-1"), "ps-1");
}

TEST(HostNamesTest, ThisMachineKnowsItsNames) {
  char own[256] = {};
  ASSERT_EQ(gethostname(own, sizeof own - 1), 0);
  // 203.0.113.0/24 is for documentation; no machine has an address of it.
  const std::vector<bool> here =
      AreThisMachine({"localhost", "203.0.113.1", own, "127.0.0.1", "::1", "no-such-name.invalid"}, absl::Seconds(20));
  EXPECT_THAT(here, ElementsAre(true, false, true, true, true, false));
}

TEST(HostNamesTest, ALookUpThatTakesTooLongIsAnotherMachine) {
  EXPECT_THAT(AreThisMachine({"no-such-name.invalid", "localhost"}, absl::ZeroDuration()), ElementsAre(false, true));
}

}  // namespace
}  // namespace weir
