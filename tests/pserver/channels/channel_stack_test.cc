#include "pserver/channels/channel_stack.h"

#include <memory>
#include <string>
#include <utility>

#include "framework/graph/training_mode.h"
#include "glog/logging.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_made_cluster.h"

namespace weir {
namespace {

// A joined client of an async job.
class ChannelStackTest : public testing::Test {
 protected:
  ChannelStackTest() {
    auto cluster = InProcessCluster::Create(OptionsFor({.sync = false}));
    CHECK(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    CHECK_EQ(client().Join(), absl::OkStatus());
    programs_.main.add_blocks();
  }

  Client& client() { return cluster_->client(0); }
  v1::TrainingMode* mode() { return MutableMode(&programs_.main); }
  void CacheTable() {
    v1::Table* const table = config_.add_table();
    table->set_name("t");
    table->mutable_cache()->set_rows(10);
    table->mutable_cache()->set_max_steps(2);
  }
  std::unique_ptr<ChannelStack> Make() {
    auto stack = ChannelStack::Create(
        {.client = &client(), .pool = cluster_->pool(), .config = &config_, .programs = &programs_});
    CHECK(stack.ok()) << stack.status();
    return *std::move(stack);
  }

  std::unique_ptr<InProcessCluster> cluster_;
  v1::JobConfig config_;
  Programs programs_;
};

TEST_F(ChannelStackTest, APlainJobTalksToItsServers) {
  const auto stack = Make();
  EXPECT_EQ(stack->ForSteps(0), &client().steps());
  EXPECT_EQ(stack->ForRowsAhead(), nullptr);
  int ran = 0;
  EXPECT_EQ(stack->RunWorkers([&](int worker) {
    ran += 1 + worker;
    return absl::OkStatus();
  }),
            absl::OkStatus());
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(stack->Finish(), absl::OkStatus());
}

TEST_F(ChannelStackTest, ACacheLiesBetweenTheProgramAndTheServers) {
  CacheTable();
  const auto stack = Make();
  EXPECT_NE(dynamic_cast<ChannelWithRows*>(stack->ForSteps(0)), nullptr);
}

TEST_F(ChannelStackTest, WhereRowsArePulledAheadTheCacheIsOnTheirWay) {
  mode()->set_prefetch_rows(true);
  CacheTable();
  const auto stack = Make();
  EXPECT_EQ(stack->ForSteps(0), &client().steps());
  EXPECT_NE(dynamic_cast<CachedRowSource*>(stack->ForRowsAhead()), nullptr);
}

TEST_F(ChannelStackTest, RowsAheadWithoutACacheComeFromTheClient) {
  mode()->set_prefetch_rows(true);
  EXPECT_EQ(Make()->ForRowsAhead(), &client().ahead());
}

TEST_F(ChannelStackTest, WorkersHaveAChannelEachAndRunAtTheSameTime) {
  mode()->set_workers(2);
  const auto stack = Make();
  EXPECT_NE(stack->ForSteps(0), &client().steps());
  EXPECT_NE(stack->ForSteps(0), stack->ForSteps(1));
  EXPECT_EQ(
      stack->RunWorkers([&](int worker) { return worker == 1 ? absl::DataLossError("worker 1") : absl::OkStatus(); }),
      absl::DataLossError("worker 1"));
}

}  // namespace
}  // namespace weir
