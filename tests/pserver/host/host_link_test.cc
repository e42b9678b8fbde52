#include "pserver/host/host_link.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/plan.pb.h"
#include "proto/trainer.pb.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Eight lanes.
v1::Plan MakePlan(v1::Plan::MergeHosts merge, int trainers, int servers) {
  v1::Plan plan;
  plan.set_merge_hosts(merge);
  plan.set_trainers(trainers);
  plan.set_servers(servers);
  plan.set_lanes(8);
  plan.add_tables()->set_name("t");
  return plan;
}

// A trainer on a host, and which servers share memory with it.
v1::HostPeer On(const std::string& host, const std::vector<bool>& near, const std::string& path = "/tmp/socket") {
  v1::HostPeer peer;
  peer.set_host(host);
  peer.set_path(path);
  for (const bool each : near) peer.add_near(each);
  return peer;
}

TEST(HostIdentityTest, ProcessesOfOneHostAndUserHaveOneIdentity) {
  EXPECT_EQ(HostIdentity(), HostIdentity());
  EXPECT_THAT(HostIdentity(), ::testing::MatchesRegex("[0-9a-f-]+ network [0-9]+ user [0-9]+"));
}

TEST(GroupHostsTest, TrainersOfOneHostAreAGroupWhoseLowestSends) {
  const std::vector<v1::HostPeer> peers = {On("a", {false}), On("b", {false}), On("a", {false}), On("c", {false}),
                                           On("b", {false})};
  const std::vector<HostGroup> groups = GroupHosts(MakePlan(v1::Plan::AUTO, 5, 1), peers);
  ASSERT_THAT(groups, SizeIs(2));
  EXPECT_THAT(groups[0].trainers, ElementsAre(0, 2));
  EXPECT_EQ(groups[0].sender(), 0);
  EXPECT_THAT(groups[1].trainers, ElementsAre(1, 4));
  EXPECT_EQ(groups[1].PlaceOf(4), 1);
  EXPECT_EQ(groups[1].PlaceOf(2), -1);
}

// Lanes 0 and 1, 2 and 3, 4 and 5, 6, 7 of five trainers.
TEST(GroupHostsTest, LanesOfAdjacentTrainersAreLargerNodes) {
  const std::vector<v1::HostPeer> peers = {On("a", {false}), On("a", {false}), On("b", {false}), On("a", {false}),
                                           On("a", {false})};
  const std::vector<HostGroup> groups = GroupHosts(MakePlan(v1::Plan::ON, 5, 1), peers);
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_THAT(groups[0].nodes, ElementsAre(LaneRange{0, 4}, LaneRange{6, 2}));
  EXPECT_THAT(groups[0].nodes_of, ElementsAre(ElementsAre(LaneRange{0, 2}), ElementsAre(LaneRange{2, 2}),
                                              ElementsAre(LaneRange{6, 1}), ElementsAre(LaneRange{7, 1})));
}

TEST(GroupHostsTest, AutoMergesTowardsServersThatShareNoMemoryWithTheSender) {
  const std::vector<v1::HostPeer> peers = {On("a", {true, false, true}), On("a", {true, true, true})};
  const std::vector<HostGroup> groups = GroupHosts(MakePlan(v1::Plan::AUTO, 2, 3), peers);
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_THAT(groups[0].servers, ElementsAre(false, true, false));
  EXPECT_TRUE(groups[0].Relays(1));
  EXPECT_FALSE(groups[0].Relays(0));
  EXPECT_FALSE(groups[0].Relays(-1));
  EXPECT_FALSE(groups[0].Relays(3));
}

TEST(GroupHostsTest, AutoMergesNothingIfAllServersShareMemory) {
  const std::vector<v1::HostPeer> peers = {On("a", {true, true}), On("a", {true, true})};
  EXPECT_THAT(GroupHosts(MakePlan(v1::Plan::AUTO, 2, 2), peers), IsEmpty());
}

TEST(GroupHostsTest, OnMergesTowardsAllServers) {
  const std::vector<v1::HostPeer> peers = {On("a", {true, false}), On("a", {true, true})};
  const std::vector<HostGroup> groups = GroupHosts(MakePlan(v1::Plan::ON, 2, 2), peers);
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_THAT(groups[0].servers, ElementsAre(true, true));
}

// A node's residuals are in one place.
TEST(GroupHostsTest, LossyPushesMergeTowardsAllServersOrNone) {
  const std::vector<v1::HostPeer> mixed = {On("a", {true, false}), On("a", {true, false})};
  const std::vector<v1::HostPeer> near = {On("a", {true, true}), On("a", {true, true})};
  v1::Plan of_blocks = MakePlan(v1::Plan::AUTO, 2, 2), of_table = of_blocks;
  of_blocks.mutable_wire()->set_push(v1::WIRE_BFLOAT16);
  of_table.mutable_tables(0)->mutable_wire()->set_push(v1::WIRE_INT8);
  for (const v1::Plan& plan : {of_blocks, of_table}) {
    const std::vector<HostGroup> groups = GroupHosts(plan, mixed);
    ASSERT_THAT(groups, SizeIs(1));
    EXPECT_THAT(groups[0].servers, ElementsAre(true, true));
    EXPECT_THAT(GroupHosts(plan, near), IsEmpty());
  }
}

TEST(GroupHostsTest, TrainersThatCannotShareMemoryStayApart) {
  const v1::Plan plan = MakePlan(v1::Plan::ON, 3, 1);
  EXPECT_THAT(GroupHosts(plan, {On("a", {false}), On("a", {false}, ""), On("b", {false})}), IsEmpty());
  const std::vector<HostGroup> groups = GroupHosts(plan, {On("a", {false}, ""), On("a", {false}), On("a", {false})});
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_THAT(groups[0].trainers, ElementsAre(1, 2));
}

// Two trainers that do not know their hosts may be on two.
TEST(GroupHostsTest, TrainersThatDoNotKnowTheirHostStayApart) {
  EXPECT_THAT(GroupHosts(MakePlan(v1::Plan::ON, 2, 1), {On("", {false}), On("", {false})}), IsEmpty());
}

TEST(GroupHostsTest, NoPlanOfServersOrTrainersIsTooSmall) {
  EXPECT_THAT(GroupHosts(MakePlan(v1::Plan::ON, 1, 1), {On("a", {false})}), IsEmpty());
  // A trainer that has not said what shares memory with it shares none.
  const std::vector<HostGroup> groups = GroupHosts(MakePlan(v1::Plan::AUTO, 2, 2), {On("a", {}), On("a", {})});
  ASSERT_THAT(groups, SizeIs(1));
  EXPECT_THAT(groups[0].servers, ElementsAre(true, true));
}

}  // namespace
}  // namespace weir
