// Ids of a step in the order of servers, and gradient rows that find their places by them.

#include "pserver/client/row_orders.h"

#include <cstdint>
#include <string>
#include <vector>

#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/placed_rows.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAreArray;

// Tables "a" and "b" of 16 shards and "c" of 4, and rows of parameter "w" in two blocks, on two servers.
v1::Plan MakePlan() {
  v1::Plan plan;
  plan.set_servers(2);
  for (const char* name : {"a", "b", "c"}) {
    v1::PlacedTable* const table = plan.add_tables();
    table->set_name(name);
    table->set_logical_shards(*name == 'c' ? 4 : 16);
  }
  v1::FetchedRows* const fetched = plan.add_fetched_rows();
  fetched->set_parameter("w");
  fetched->set_rows(10);
  for (int b = 0; b < 2; ++b) {
    v1::PlacedBlock* const block = plan.add_blocks();
    block->set_name("w.block" + std::to_string(b));
    block->set_parameter("w");
    block->set_server(b);
    block->set_element_begin(b * 12);
    block->set_element_count(b == 0 ? 12 : 18);
    block->add_dims(b == 0 ? 4 : 6);
    block->add_dims(3);
  }
  return plan;
}

class RowOrdersTest : public ::testing::Test {
 protected:
  static RowSource::TableRows Rows(const std::string& table, const std::vector<int64_t>& ids) {
    return {.table = table, .width = 1, .ids = &ids};
  }
  std::vector<RowOrders::Asked> Order(const std::vector<RowSource::TableRows>& tables, int64_t step = 0) {
    const auto asked = orders_.Order(tables, step, /*unfinished=*/false, &pool_);
    EXPECT_TRUE(asked.ok()) << asked.status();
    return asked.ok() ? *asked : std::vector<RowOrders::Asked>(tables.size());
  }
  static std::vector<uint32_t> Positions(const IdOrder& order) {
    return {order.positions(), order.positions() + order.size()};
  }

  const v1::Plan plan_ = MakePlan();
  const BlockPlacement placement_{&plan_};
  ThreadPool pool_{"test", 2};
  RowOrders orders_{&placement_};
  const std::vector<int64_t> ids_ = {7, 3, 11, 5};
};

TEST_F(RowOrdersTest, APlanIsFoundByName) {
  EXPECT_EQ(placement_.BlockCount("w.block1"), 18);
  EXPECT_EQ(placement_.BlockCount({.name = "w.block1", .server = 1}), 18);
  EXPECT_EQ(placement_.BlockCount({.name = "w.block1", .server = 2}), std::nullopt);
  EXPECT_EQ(placement_.BlockCount("w"), std::nullopt);
  EXPECT_EQ(placement_.FindTable("w"), nullptr);
  ASSERT_NE(placement_.FindFetched("w"), nullptr);
  EXPECT_EQ(placement_.FindFetched("w")->blocks.at(1).begin, 4);
  EXPECT_EQ(placement_.FindFetched("w")->blocks.at(1).end, 10);
}

TEST_F(RowOrdersTest, IdsAreOrderedByServer) {
  const IdOrder& order = *Order({Rows("a", ids_)})[0].order;
  EXPECT_THAT(Positions(order), UnorderedElementsAreArray({0, 1, 2, 3}));
  for (int server = 0; server < 2; ++server) {
    for (size_t i = order.begin(server); i < order.begin(server + 1); ++i) {
      EXPECT_EQ(ShardServer(LogicalShard(ids_[order[i]], 16), 16, 2), server);
    }
  }
}

TEST_F(RowOrdersTest, EqualListsOfOneShardingShareAnOrder) {
  const std::vector<int64_t> equal = ids_, other = {7, 3};
  const auto asked = Order({Rows("a", ids_), Rows("b", equal), Rows("c", ids_)});
  EXPECT_EQ(asked[0].order, asked[1].order);
  EXPECT_NE(asked[0].order, asked[2].order);  // other shards
  const auto apart = Order({Rows("a", ids_), Rows("b", other)});
  EXPECT_NE(apart[0].order, apart[1].order);
}

TEST_F(RowOrdersTest, RowsThatAreThereAreNotAskedFor) {
  const std::vector<uint8_t> there = {0, 1, 1, 0};
  RowSource::TableRows rows = Rows("a", ids_);
  rows.there = there.data();
  EXPECT_THAT(Positions(*Order({rows})[0].order), UnorderedElementsAreArray({0, 3}));
  EXPECT_EQ(orders_.Find("a", 0).order->size(), 4u);  // gradients may have any of them
}

TEST_F(RowOrdersTest, RowsThatAParameterDoesNotHaveAreZero) {
  const std::vector<int64_t> ids = {9, -1, 2, 10};
  std::vector<float> values(4, 5);
  RowSource::TableRows rows = Rows("w", ids);
  rows.rows = values.data();
  const auto asked = Order({rows});
  EXPECT_EQ(asked[0].order, nullptr);
  EXPECT_THAT(*asked[0].fetched, ElementsAre(2, 0));  // ascending by row
  EXPECT_THAT(values, ElementsAre(5, 0, 5, 0));
}

TEST_F(RowOrdersTest, ATableThatThePlanDoesNotHaveIsNamed) {
  const std::vector<RowSource::TableRows> tables = {Rows("d", ids_)};
  EXPECT_EQ(orders_.Order(tables, 0, false, &pool_).status().message(),
            "pull of table d, which the plan does not have");
}

TEST_F(RowOrdersTest, OnlyIdsOfTheStepAreKnown) {
  Order({Rows("a", ids_)}, /*step=*/3);
  EXPECT_NE(orders_.Find("a", 3).order, nullptr);
  EXPECT_EQ(orders_.Find("a", 4).order, nullptr);
  EXPECT_EQ(orders_.Find("b", 3).order, nullptr);
}

TEST_F(RowOrdersTest, AnOrderThatHasChangedSinceIsNotShared) {
  Order({Rows("a", ids_), Rows("b", ids_)});
  EXPECT_EQ(orders_.Find("b", 0).order, orders_.Find("a", 0).order);
  const std::vector<int64_t> other = {1, 2};
  Order({Rows("a", other)});
  EXPECT_EQ(orders_.Find("b", 0).order, nullptr);
}

class PlacedRowsTest : public RowOrdersTest {
 protected:
  // A row of each id; `step_rows`: their places among the pulled ids, if they know them.
  static SelectedRows Gradient(std::vector<int64_t> ids, std::vector<int32_t> step_rows) {
    SelectedRows rows;
    rows.values.Resize(v1::FLOAT32, {static_cast<int64_t>(ids.size()), 1});
    rows.ids = std::move(ids);
    rows.step_rows = std::move(step_rows);
    return rows;
  }
  const std::vector<LaneRange> nodes_ = {{0, 1}};
};

TEST_F(PlacedRowsTest, RowsThatKnowTheirPlacesStandAmongThePulledIds) {
  Order({Rows("a", ids_)});
  const SelectedRows gradient = Gradient({11, 7}, {2, 0});
  const std::vector<StepChannel::LaneRows> lanes = {{.lane = 0, .value = &gradient}};
  PlacedRows rows(lanes, orders_.Find("a", 0), 16, 2);
  ASSERT_TRUE(rows.Unite(nodes_, &pool_));
  EXPECT_EQ(rows.ids().data(), ids_.data());
  EXPECT_EQ(rows.unions()[0].At(rows.order(), rows.ids(), 0, rows.order().size()).size(), 2u);
}

TEST_F(PlacedRowsTest, OtherRowsArePlacedAmongTheirOwnIds) {
  Order({Rows("a", ids_)});
  const SelectedRows one = Gradient({11, 7}, {}), two = Gradient({7, 1}, {});
  const std::vector<StepChannel::LaneRows> lanes = {{.lane = 0, .value = &one}, {.lane = 1, .value = &two}};
  PlacedRows rows(lanes, orders_.Find("a", 0), 16, 2);
  ASSERT_TRUE(rows.Unite({{{0, 2}}}, &pool_));
  EXPECT_THAT(rows.ids(), ElementsAre(1, 7, 11));
  EXPECT_THAT(rows.lanes()[1].value->step_rows, ElementsAre(1, 0));
}

TEST_F(PlacedRowsTest, AnIdTwiceInALaneIsRefused) {
  const SelectedRows gradient = Gradient({7, 7}, {});
  const std::vector<StepChannel::LaneRows> lanes = {{.lane = 0, .value = &gradient}};
  PlacedRows rows(lanes, {}, 16, 2);
  EXPECT_FALSE(rows.Unite(nodes_, &pool_));
}

}  // namespace
}  // namespace weir
