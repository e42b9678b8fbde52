#include "tools/launching/placement.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// This machine is 10.0.0.1, or a loopback address.
std::vector<bool> AreHere(const std::vector<std::string>& names) {
  std::vector<bool> here;
  for (const std::string& name : names) {
    here.push_back(name == "10.0.0.1" || name == "localhost" || absl::StartsWith(name, "127."));
  }
  return here;
}

absl::StatusOr<Placement> PlaceFlags(const PlacementFlags& flags, const JobNumbers& job = {1, 2}) {
  return Place(flags, job, AreHere);
}

std::string Refusal(const PlacementFlags& flags, const JobNumbers& job = {1, 2}) {
  const auto placement = PlaceFlags(flags, job);
  return placement.ok() ? "placed" : std::string(placement.status().message());
}

// "name@address node first+trainers", with ssh if it is remote.
std::vector<std::string> HostsOf(const absl::StatusOr<Placement>& placement) {
  if (!placement.ok()) return {std::string(placement.status().message())};
  std::vector<std::string> texts;
  for (const PlacedHost& host : placement->hosts) {
    texts.push_back(absl::StrCat(host.name, "@", host.address, host.remote ? " ssh " : " ", host.node, " ",
                                 host.first_trainer, "+", host.trainers));
  }
  return texts;
}

// "host listen address:port" for each server.
std::vector<std::string> ServersOf(const absl::StatusOr<Placement>& placement) {
  if (!placement.ok()) return {std::string(placement.status().message())};
  std::vector<std::string> texts;
  for (const PlacedServer& server : placement->servers) {
    texts.push_back(absl::StrCat(server.host, " ", server.listen, " ", server.address, ":", server.port));
  }
  return texts;
}

// "host listen:port" for each server.
std::vector<std::string> ListenersOf(const absl::StatusOr<Placement>& placement) {
  if (!placement.ok()) return {std::string(placement.status().message())};
  std::vector<std::string> texts;
  for (const PlacedServer& server : placement->servers) {
    texts.push_back(server.host < 0 ? absl::StrCat(server.host, " :", server.port)
                                    : absl::StrCat(server.host, " ", server.listen, ":", server.port));
  }
  return texts;
}

const std::vector<Host>& Two() {
  static const auto* const hosts =
      new std::vector<Host>{{.name = "10.0.0.1", .slots = 2}, {.name = "10.0.0.2", .slots = 3}};
  return *hosts;
}

TEST(PlacementTest, OneMachineHasFreePortsOfLoopback) {
  const auto placement = PlaceFlags({.servers = 2, .trainers = 3});
  EXPECT_THAT(HostsOf(placement), ElementsAre("@127.0.0.1 0 0+3"));
  EXPECT_THAT(ServersOf(placement), ElementsAre("0 127.0.0.1 127.0.0.1:0", "0 127.0.0.1 127.0.0.1:0"));
  EXPECT_EQ(placement->trainers, 3);
  EXPECT_EQ(placement->nodes, 1);
  EXPECT_EQ(placement->master_addr, "127.0.0.1");
  EXPECT_EQ(placement->master_port, 0);
}

TEST(PlacementTest, TheJobGivesNumbersThatNoFlagGives) {
  EXPECT_EQ(PlaceFlags({}, {.servers = 3, .trainers = 4})->trainers, 4);
  EXPECT_EQ(PlaceFlags({}, {.servers = 3, .trainers = 4})->servers.size(), 3u);
  EXPECT_EQ(Refusal({}, {}), "--trainers is required");
  EXPECT_EQ(Refusal({.trainers = 1}, {}), "--servers is required");
}

TEST(PlacementTest, OtherLaunchersNamesOfTheNumberAreUnderstood) {
  EXPECT_EQ(PlaceFlags({.np = 5})->trainers, 5);
  EXPECT_EQ(PlaceFlags({.nproc_per_node = 5})->trainers, 5);
  EXPECT_EQ(PlaceFlags({.trainers = 5, .nnodes = 1, .nproc_per_node = 5, .np = 5})->trainers, 5);
}

TEST(PlacementTest, NumbersThatContradictEachOtherAreRefused) {
  EXPECT_EQ(Refusal({.trainers = 4, .np = 5}), "--trainers=4 and -np 5 contradict each other: 4 trainers and 5");
  EXPECT_THAT(Refusal({.trainers = 4, .nnodes = 2, .node_rank = 0, .nproc_per_node = 3, .master_addr = "a"}),
              HasSubstr("--trainers=4 and --nnodes=2 --nproc_per_node=3 contradict each other: 4 trainers and 6"));
  EXPECT_THAT(Refusal({.servers = 2, .pservers = "10.0.0.1:1"}), HasSubstr("--servers=2, but --pservers lists 1"));
  EXPECT_THAT(Refusal({.servers = 0, .pservers = "10.0.0.1:1,10.0.0.2:1"}),
              HasSubstr("launch chooses ports itself, but --pservers lists 2: leave out one of the two"));
  EXPECT_THAT(Refusal({.np = 0}), HasSubstr("-np 0: at least 1 is needed"));
}

TEST(PlacementTest, ANodeHasItsPartOfTheTrainers) {
  const auto placement = PlaceFlags(
      {.servers = 2, .nnodes = 3, .node_rank = 2, .nproc_per_node = 4, .master_addr = "10.0.0.7", .master_port = 7000});
  EXPECT_THAT(HostsOf(placement), ElementsAre("@127.0.0.1 2 8+4"));
  EXPECT_EQ(placement->trainers, 12);
  EXPECT_EQ(placement->nodes, 3);
  EXPECT_EQ(placement->master_addr, "10.0.0.7");
  EXPECT_EQ(placement->master_port, 7000);
}

TEST(PlacementTest, NodesHaveServersInTurnsAboveThePortWhereTheyMeet) {
  PlacementFlags flags{.servers = 5, .trainers = 6, .nnodes = 3, .node_rank = 0, .master_addr = "10.0.0.7"};
  EXPECT_THAT(ListenersOf(PlaceFlags(flags)),
              ElementsAre("0 10.0.0.7:29501", "-1 :29502", "-1 :29503", "0 10.0.0.7:29504", "-1 :29505"));
  EXPECT_TRUE(PlaceFlags(flags)->meet_at_master);
  // The others hear where it is when they meet.
  flags.node_rank = 1;
  flags.master_port = 7000;
  EXPECT_THAT(ListenersOf(PlaceFlags(flags)),
              ElementsAre("-1 :7001", "0 0.0.0.0:7002", "-1 :7003", "-1 :7004", "0 0.0.0.0:7005"));
  flags.node_rank = 2;
  flags.node_addr = "fe80::2";
  flags.pserver_ports = "1,2,3,4,5";
  EXPECT_THAT(ListenersOf(PlaceFlags(flags)), ElementsAre("-1 :1", "-1 :2", "0 [fe80::2]:3", "-1 :4", "-1 :5"));
  EXPECT_TRUE(PlaceFlags(flags)->meet_at_master);
}

TEST(PlacementTest, AServerOfANodeStaysWhereItIsWhenOthersAreAdded) {
  for (const int servers : {2, 3, 4}) {
    const auto placement =
        PlaceFlags({.servers = servers, .trainers = 2, .nnodes = 2, .node_rank = 1, .master_addr = "10.0.0.7"});
    ASSERT_TRUE(placement.ok()) << placement.status();
    for (int i = 0; i < servers; ++i) {
      EXPECT_EQ(placement->servers[static_cast<size_t>(i)].host, i % 2 == 1 ? 0 : -1) << i << " of " << servers;
    }
  }
}

TEST(PlacementTest, TheOnlyServerIsOnNodeZeroWhereNobodyHasToMeet) {
  PlacementFlags flags{.servers = 1, .trainers = 2, .nnodes = 2, .node_rank = 0, .master_addr = "fe80::1"};
  EXPECT_THAT(ServersOf(PlaceFlags(flags)), ElementsAre("0 [fe80::1] [fe80::1]:29501"));
  EXPECT_FALSE(PlaceFlags(flags)->meet_at_master);
  // A name may be looked up as a loopback address on its own host, so the server listens everywhere.
  flags.master_addr = "ps-1";
  flags.pserver_ports = "6170";
  EXPECT_THAT(ServersOf(PlaceFlags(flags)), ElementsAre("0 0.0.0.0 ps-1:6170"));
  flags.node_rank = 1;
  EXPECT_THAT(ServersOf(PlaceFlags(flags)), ElementsAre("-1 0.0.0.0 ps-1:6170"));
}

TEST(PlacementTest, NodesWithoutServersMeetAtTheMaster) {
  const auto placement =
      PlaceFlags({.servers = 0, .trainers = 2, .nnodes = 2, .node_rank = 1, .master_addr = "10.0.0.7"});
  EXPECT_THAT(ServersOf(placement), IsEmpty());
  EXPECT_TRUE(placement->meet_at_master);
}

TEST(PlacementTest, ANodeStartsTheListedServersThatAreItsOwn) {
  PlacementFlags flags{.trainers = 2, .nnodes = 2, .node_rank = 1, .pservers = "10.0.0.2:6170,10.0.0.1:6171"};
  EXPECT_THAT(ServersOf(PlaceFlags(flags)), ElementsAre("-1 10.0.0.2 10.0.0.2:6170", "0 10.0.0.1 10.0.0.1:6171"));
  flags.node_addr = "10.0.0.2";
  EXPECT_THAT(ServersOf(PlaceFlags(flags)), ElementsAre("0 10.0.0.2 10.0.0.2:6170", "-1 10.0.0.1 10.0.0.1:6171"));
  EXPECT_FALSE(PlaceFlags(flags)->meet_at_master);
}

TEST(PlacementTest, ANodeHasAPartOfTheJobAndOneLaunchForAllHostsTheWhole) {
  EXPECT_TRUE(PlaceFlags({.servers = 2, .trainers = 3})->whole_job());
  EXPECT_TRUE(PlaceFlags({.servers = 1, .hosts = Two(), .hosts_from = "-H"})->whole_job());
  const auto node = [](int rank) {
    return PlaceFlags({.servers = 1, .nnodes = 2, .node_rank = rank, .nproc_per_node = 1, .master_addr = "10.0.0.1"});
  };
  EXPECT_FALSE(node(0)->whole_job()) << "the servers and half of the trainers";
  EXPECT_FALSE(node(1)->whole_job());
  // All trainers, and servers elsewhere.
  EXPECT_FALSE(PlaceFlags({.servers = 1, .trainers = 2, .pservers = "10.0.0.9:6170"})->whole_job());
}

TEST(PlacementTest, NodesThatContradictAreRefused) {
  const auto node = [](PlacementFlags flags) {
    if (flags.master_addr.empty()) flags.master_addr = "10.0.0.7";
    return Refusal(flags);
  };
  EXPECT_EQ(node({.trainers = 4, .nnodes = 2, .node_rank = 2}), "--node_rank=2, but --nnodes is 2: ranks are 0 to 1");
  EXPECT_EQ(node({.trainers = 4, .node_rank = 1}), "--node_rank=1, but --nnodes is 1: ranks are 0 to 0");
  EXPECT_THAT(node({.trainers = 4, .nnodes = 2}), HasSubstr("--nnodes=2 needs --node_rank=R, 0 to 1"));
  EXPECT_THAT(node({.trainers = 4, .nnodes = 3, .node_rank = 0}),
              HasSubstr("4 trainers on --nnodes=3 are not the same number on each; give --nproc_per_node"));
  EXPECT_THAT(node({.nnodes = 0}), HasSubstr("--nnodes=0: at least 1"));
  EXPECT_THAT(node({.nnodes = 2, .node_rank = 0, .np = 4}), HasSubstr("use --nproc_per_node"));
  EXPECT_THAT(node({.trainers = 4, .nnodes = 2, .node_rank = 0, .master_port = 65535}),
              HasSubstr("servers take the 1 ports above it"));
  EXPECT_THAT(node({.servers = 2, .trainers = 4, .nnodes = 2, .node_rank = 1, .node_addr = "ps-2"}),
              HasSubstr("--node_addr=ps-2: servers listen at an address, not at a name, unless --pservers lists them"));
  EXPECT_THAT(node({.master_port = 0}), HasSubstr("--master_port=0: must be 1 to 65535"));
  EXPECT_THAT(node({.master_addr = "a b"}), HasSubstr("--master_addr=a b: must be a host name or an address"));
  EXPECT_THAT(node({.master_addr = "0.0.0.0"}), HasSubstr("is no address that others reach"));
  EXPECT_THAT(Refusal({.trainers = 4, .nnodes = 2, .node_rank = 0}),
              HasSubstr("--nnodes=2 needs --master_addr=HOST, where the other nodes reach node 0"));
}

TEST(PlacementTest, HostsHaveTrainersInOrderAndTheFirstHasTheOnlyServer) {
  const auto placement = PlaceFlags({.servers = 1, .np = 4, .hosts = Two(), .hosts_from = "-H"});
  EXPECT_THAT(HostsOf(placement), ElementsAre("10.0.0.1@10.0.0.1 0 0+2", "10.0.0.2@10.0.0.2 ssh 1 2+2"));
  EXPECT_THAT(ServersOf(placement), ElementsAre("0 10.0.0.1 10.0.0.1:0"));
  EXPECT_EQ(placement->trainers, 4);
  EXPECT_EQ(placement->nodes, 2);
  EXPECT_EQ(placement->master_addr, "10.0.0.1");
}

TEST(PlacementTest, ServersGoToTheHostsWithTrainersInTurnsWhateverTheirSlots) {
  const std::vector<Host> hosts = {
      {.name = "10.0.0.1", .slots = 1}, {.name = "10.0.0.2", .slots = 4}, {.name = "10.0.0.3", .slots = 1}};
  PlacementFlags flags{.servers = 5, .np = 6, .hosts = hosts, .hosts_from = "-H"};
  EXPECT_THAT(ServersOf(PlaceFlags(flags)),
              ElementsAre("0 10.0.0.1 10.0.0.1:0", "1 10.0.0.2 10.0.0.2:0", "2 10.0.0.3 10.0.0.3:0",
                          "0 10.0.0.1 10.0.0.1:0", "1 10.0.0.2 10.0.0.2:0"));
  // The third host has nothing to do.
  flags.np = 5;
  flags.pserver_ports = "7,7,8,8,9";
  EXPECT_THAT(ServersOf(PlaceFlags(flags)),
              ElementsAre("0 10.0.0.1 10.0.0.1:7", "1 10.0.0.2 10.0.0.2:7", "0 10.0.0.1 10.0.0.1:8",
                          "1 10.0.0.2 10.0.0.2:8", "0 10.0.0.1 10.0.0.1:9"));
  EXPECT_EQ(PlaceFlags(flags)->hosts.size(), 2u);
}

TEST(PlacementTest, AllSlotsAreFilledUnlessAFlagSaysHowMany) {
  EXPECT_EQ(PlaceFlags({.hosts = Two(), .hosts_from = "-H"})->trainers, 5);
  EXPECT_EQ(PlaceFlags({.trainers = 3, .hosts = Two(), .hosts_from = "-H"})->trainers, 3);
  EXPECT_THAT(Refusal({.np = 6, .hosts = Two(), .hosts_from = "-H"}),
              HasSubstr("6 trainers need as many slots, -H has 5 (10.0.0.1 2, 10.0.0.2 3)"));
}

TEST(PlacementTest, AHostWithNothingToDoIsLeftAlone) {
  EXPECT_THAT(HostsOf(PlaceFlags({.np = 2, .hosts = Two(), .hosts_from = "-H"})),
              ElementsAre("10.0.0.1@127.0.0.1 0 0+2"));
}

TEST(PlacementTest, ServersGoToTheirHostsInTurns) {
  const auto placement = PlaceFlags({.servers = 3,
                                     .np = 2,
                                     .hosts = Two(),
                                     .hosts_from = "-H",
                                     .server_hosts = "ps-9,10.0.0.1",
                                     .pserver_ports = "7,8,9"});
  EXPECT_THAT(HostsOf(placement), ElementsAre("10.0.0.1@10.0.0.1 0 0+2", "ps-9@ps-9 ssh -1 2+0"));
  EXPECT_THAT(ServersOf(placement), ElementsAre("1 0.0.0.0 ps-9:7", "0 10.0.0.1 10.0.0.1:8", "1 0.0.0.0 ps-9:9"));
  EXPECT_EQ(placement->nodes, 1);
}

TEST(PlacementTest, ListedServersRunOnTheHostsOfTheirNames) {
  PlacementFlags flags{.np = 5, .hosts = Two(), .hosts_from = "-H", .pservers = "10.0.0.2:6170,10.0.0.1:6171"};
  EXPECT_THAT(ServersOf(PlaceFlags(flags)), ElementsAre("1 10.0.0.2 10.0.0.2:6170", "0 10.0.0.1 10.0.0.1:6171"));
  flags.pservers = "ps-9:6170";
  EXPECT_THAT(Refusal(flags), HasSubstr("--pservers: ps-9:6170 is at no host of -H or --hostfile"));
  // A host may have several addresses.
  flags.server_hosts = "10.0.0.2";
  EXPECT_THAT(ServersOf(PlaceFlags(flags)), ElementsAre("1 0.0.0.0 ps-9:6170"));
}

TEST(PlacementTest, AHostMayBeReachedAtAnotherAddress) {
  const auto placement = PlaceFlags(
      {.servers = 0,
       .hosts = {{.name = "a", .slots = 1, .address = "192.168.0.1"}, {.name = "b", .slots = 1, .address = "fe80::2"}},
       .hosts_from = "hosts.txt"});
  EXPECT_THAT(HostsOf(placement), ElementsAre("a@192.168.0.1 ssh 0 0+1", "b@[fe80::2] ssh 1 1+1"));
  EXPECT_FALSE(placement->meet_at_master);
}

TEST(PlacementTest, ThisMachineAloneNeedsNoAddress) {
  for (const char* name : {"localhost", "10.0.0.1"}) {
    const auto placement = PlaceFlags({.np = 2, .hosts = {{.name = name, .slots = 2}}, .hosts_from = "-H"});
    EXPECT_THAT(HostsOf(placement), ElementsAre(absl::StrCat(name, "@127.0.0.1 0 0+2")));
    EXPECT_THAT(ServersOf(placement), ElementsAre("0 127.0.0.1 127.0.0.1:0"));
  }
}

TEST(PlacementTest, ALoopbackAddressBesideOtherHostsIsRefused) {
  PlacementFlags flags{.np = 2, .hosts = {{.name = "localhost"}, {.name = "ps-2"}}, .hosts_from = "-H"};
  EXPECT_THAT(
      Refusal(flags),
      HasSubstr("-H: processes on localhost listen for those of other hosts, which cannot reach it there; write "
                "this machine's own address, or --master_addr for the first host, or give the hosts of the servers by "
                "--server_hosts"));
  // As the second host it has the second server.
  EXPECT_THAT(Refusal({.servers = 2, .np = 2, .hosts = {{.name = "ps-2"}, {.name = "localhost"}}, .hosts_from = "-H"}),
              HasSubstr("-H: processes on localhost listen for those of other hosts"));
  // Nobody connects to it.
  flags.server_hosts = "ps-2";
  EXPECT_THAT(HostsOf(PlaceFlags(flags)), ElementsAre("localhost@localhost 0 0+1", "ps-2@ps-2 ssh 1 1+1"));
  EXPECT_EQ(PlaceFlags(flags)->master_addr, "");
  flags.server_hosts = "";
  flags.master_addr = "10.0.0.1";
  EXPECT_THAT(ServersOf(PlaceFlags(flags)), ElementsAre("0 10.0.0.1 10.0.0.1:0"));
  EXPECT_EQ(PlaceFlags(flags)->master_addr, "10.0.0.1");
}

TEST(PlacementTest, ThisMachineUnderTwoNamesIsRefused) {
  EXPECT_THAT(Refusal({.hosts = {{.name = "localhost"}, {.name = "127.0.0.1"}}, .hosts_from = "-H"}),
              HasSubstr("-H: localhost and 127.0.0.1 are both this machine; write it once"));
}

TEST(PlacementTest, FlagsOfTwoFormsAreRefused) {
  const PlacementFlags hosts{.hosts = Two(), .hosts_from = "hosts.txt"};
  PlacementFlags flags = hosts;
  flags.nnodes = 2;
  EXPECT_THAT(Refusal(flags), HasSubstr("--nnodes is for a launch on each node, but with hosts.txt one launch starts"));
  flags = hosts;
  flags.node_rank = 0;
  EXPECT_THAT(Refusal(flags), HasSubstr("--node_rank is for a launch on each node"));
  EXPECT_THAT(Refusal({.server_hosts = "a"}), HasSubstr("--server_hosts=a goes with -H or --hostfile"));
}

TEST(PlacementTest, WrongAddressesOfServersAreNamed) {
  EXPECT_THAT(Refusal({.pservers = "10.0.0.1"}), HasSubstr("--pservers: '10.0.0.1' has no port"));
  EXPECT_THAT(Refusal({.pservers = "10.0.0.1:0"}), HasSubstr("10.0.0.1:0 has port 0"));
  EXPECT_THAT(Refusal({.pservers = "10.0.0.1:1,10.0.0.1:1"}), HasSubstr("--pservers has 10.0.0.1:1 twice"));
  EXPECT_THAT(Refusal({.servers = 2, .pserver_ports = "1"}), HasSubstr("--pserver_ports=1 has 1 port for 2 servers"));
  EXPECT_THAT(Refusal({.servers = 1, .pserver_ports = "x"}), HasSubstr("'x' must be a port from 1 to 65535"));
  EXPECT_THAT(Refusal({.pservers = "10.0.0.1:1", .pserver_ports = "1"}), HasSubstr("both give ports"));
  EXPECT_THAT(Refusal({.hosts = Two(), .hosts_from = "-H", .server_hosts = "a:2"}),
              HasSubstr("--server_hosts=a:2: 'a:2' is no host name or address"));
}

TEST(PlacementTest, TooManyProcessesForAMachineAreRefused) {
  EXPECT_EQ(Refusal({.servers = 1000, .trainers = 1}), "--servers=1000: at most 256");
  EXPECT_EQ(Refusal({.servers = 1, .trainers = 1000}), "--trainers=1000: at most 256");
  EXPECT_EQ(Refusal({.hosts = {{.name = "a", .slots = 257}}, .hosts_from = "-H"}), "slots of a=257: at most 256");
}

}  // namespace
}  // namespace weir
