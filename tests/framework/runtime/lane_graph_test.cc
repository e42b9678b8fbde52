#include "framework/runtime/lane_graph.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Accesses = std::vector<LaneGraph::Access>;

TEST(LaneGraphTest, AReaderWaitsForTheWriterBefore) {
  const LaneGraph graph(Accesses{{{}, {"a"}}, {{}, {"b"}}, {{"a", "b"}, {"c"}}});
  EXPECT_TRUE(graph.independent());
  EXPECT_EQ(graph.waits(0), 0);
  EXPECT_EQ(graph.waits(1), 0);
  EXPECT_EQ(graph.waits(2), 2);
  EXPECT_THAT(graph.after(0), ElementsAre(2));
  EXPECT_THAT(graph.after(1), ElementsAre(2));
  EXPECT_THAT(graph.after(2), IsEmpty());
}

TEST(LaneGraphTest, AWriterWaitsForTheReadersAndTheWriterBefore) {
  const LaneGraph graph(Accesses{{{}, {"a"}}, {{"a"}, {"b"}}, {{"a"}, {"c"}}, {{}, {"a"}}, {{"a"}, {}}});
  EXPECT_EQ(graph.waits(3), 3);
  EXPECT_THAT(graph.after(0), ElementsAre(1, 2, 3));
  // Only for the last writer.
  EXPECT_EQ(graph.waits(4), 1);
  EXPECT_THAT(graph.after(3), ElementsAre(4));
}

TEST(LaneGraphTest, AnOpInPlaceDoesNotWaitForItself) {
  const LaneGraph graph(Accesses{{{"a"}, {"a"}}, {{"a"}, {"a"}}});
  EXPECT_EQ(graph.waits(0), 0);
  EXPECT_EQ(graph.waits(1), 1);
}

TEST(LaneGraphTest, AChainHasNothingIndependent) {
  EXPECT_FALSE(LaneGraph(Accesses{{{}, {"a"}}, {{"a"}, {"b"}}, {{"b"}, {"c"}}}).independent());
}

TEST(LaneGraphQueueTest, NodesThatHaveBecomeReadyComeFirst) {
  const LaneGraph graph(Accesses{{{}, {"a"}}, {{}, {"b"}}, {{"a"}, {"c"}}, {{"a"}, {"d"}}});
  LaneGraphQueue queue;
  for (int run = 0; run < 2; ++run) {
    queue.Begin(&graph, 1);
    std::vector<int> order;
    while (const std::optional<LaneGraphQueue::Node> node = queue.Take()) {
      order.push_back(node->index);
      queue.Done(*node);
    }
    EXPECT_THAT(order, ElementsAre(0, 2, 3, 1));
  }
}

TEST(LaneGraphQueueTest, EveryNodeRunsOnceInEachLaneAfterThoseItWaitsFor) {
  const LaneGraph graph(Accesses{{{}, {"a"}}, {{"a"}, {"b"}}, {{"a"}, {"c"}}, {{"b", "c"}, {"d"}}});
  constexpr int kLanes = 3;
  ThreadPool pool("test", 3);
  LaneGraphQueue queue;
  for (int run = 0; run < 50; ++run) {
    Mutex mu;
    std::vector<std::vector<int>> ended(kLanes);
    queue.Begin(&graph, kLanes);
    pool.ParallelFor(4, [&](int64_t) {
      while (const std::optional<LaneGraphQueue::Node> node = queue.Take()) {
        {
          MutexLock lock(&mu);
          ended[static_cast<size_t>(node->lane)].push_back(node->index);
        }
        queue.Done(*node);
      }
    });
    for (const std::vector<int>& order : ended) {
      ASSERT_EQ(order.size(), 4u);
      EXPECT_EQ(order.front(), 0);
      EXPECT_EQ(order.back(), 3);
      EXPECT_NE(order[1], order[2]);
    }
  }
}

}  // namespace
}  // namespace weir
