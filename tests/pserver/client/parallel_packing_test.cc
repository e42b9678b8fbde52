// Orders of ids, unions of rows, and calls to several servers: the same on several threads as on one.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/thread_pool.h"
#include "framework/wire/buffer_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/id_order.h"
#include "pserver/client/lane_sums.h"
#include "pserver/client/pull_calls.h"
#include "pserver/client/row_puller.h"
#include "tests/pserver/client/played_member.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/played_servers.h"

namespace weir {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

// Distinct ids in an order of their own, or in that of servers.
std::vector<int64_t> Ids(size_t n, bool sorted) {
  std::vector<int64_t> ids(n);
  for (size_t i = 0; i < n; ++i) {
    ids[i] = static_cast<int64_t>(sorted ? UnmixId(i << 44) : static_cast<uint64_t>(i) * 1'000'003);
  }
  return ids;
}

TEST(OrderOnThreadsTest, IsThatOfOneThread) {
  IdOrder order;  // keeps its memory
  for (const int threads : {0, 1, 3, 6}) {
    ThreadPool pool("test", threads);
    for (const size_t n : {0, 1, 16'383, 16'384, 16'385, 70'000}) {
      for (const bool sorted : {false, true}) {
        const std::vector<int64_t> ids = Ids(n, sorted);
        for (const int servers : {1, 3, 40}) {
          IdOrder plain;
          plain.Sort(ids, 4096, servers);
          order.Sort(ids, 4096, servers, &pool);
          ASSERT_EQ(order.size(), n);
          for (size_t i = 0; i < n; ++i)
            ASSERT_EQ(order[i], plain[i]) << "place " << i << ", " << threads << " threads";
          for (int s = 0; s <= servers; ++s) ASSERT_EQ(order.begin(s), plain.begin(s)) << "server " << s;
        }
      }
    }
  }
}

// Rows of width 2 with these positions among the step's ids; every 50th value is -0.0.
SelectedRows Rows(std::vector<int32_t> positions, std::mt19937_64* random) {
  SelectedRows rows;
  rows.values.Resize(v1::FLOAT32, {static_cast<int64_t>(positions.size()), 2});
  float* const values = rows.values.data<float>();
  for (size_t i = 0; i < positions.size() * 2; ++i) {
    values[i] = (*random)() % 50 == 0 ? -0.0f : static_cast<float>((*random)() % 1'000'003) * 1e-3f;
  }
  rows.ids.assign(positions.begin(), positions.end());
  rows.step_rows = std::move(positions);
  return rows;
}

class UnionOnThreadsTest : public ::testing::Test {
 protected:
  UnionOnThreadsTest() { order_.Sort(ids_, 4096, 3); }

  // Rows of a lane: every id with this chance in 100, in any order.
  SelectedRows Lane(uint64_t percent) {
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < static_cast<int32_t>(ids_.size()); ++i) {
      if (random_() % 100 < percent) positions.push_back(i);
    }
    std::shuffle(positions.begin(), positions.end(), random_);
    return Rows(std::move(positions), &random_);
  }
  struct Sums {
    std::vector<int64_t> ids;
    std::vector<float> values;
  };
  Sums SumsOf(const RowUnion& rows, absl::Span<const StepChannel::LaneRows> lanes, size_t begin, size_t end) const {
    const RowUnion::Range range = rows.At(order_, ids_, begin, end);
    Sums sums = {std::vector<int64_t>(range.size()), std::vector<float>(2 * range.size())};
    rows.WriteIds(ids_, range, sums.ids.data());
    rows.WriteSums(lanes, range, 2, sums.values.data());
    return sums;
  }
  void ExpectEqual(const RowUnion& got, const RowUnion& plain, absl::Span<const StepChannel::LaneRows> lanes) const {
    for (const auto& [begin, end] : {std::pair<size_t, size_t>{0, ids_.size()}, {1'000, 5'000}, {9'999, 10'000}}) {
      const Sums sums = SumsOf(got, lanes, begin, end), expected = SumsOf(plain, lanes, begin, end);
      ASSERT_EQ(sums.ids, expected.ids);
      ASSERT_EQ(std::memcmp(sums.values.data(), expected.values.data(), expected.values.size() * sizeof(float)), 0);
    }
  }

  std::mt19937_64 random_{4};
  const std::vector<int64_t> ids_ = Ids(20'000, /*sorted=*/false);
  IdOrder order_;
};

TEST_F(UnionOnThreadsTest, HasTheRowsAndSumsOfOneThread) {
  // Uneven lanes, one without rows; lanes 4 and 6 of the node are absent.
  const SelectedRows lanes[] = {Lane(100), Lane(1), Lane(0), Lane(60), Lane(30), Lane(99)};
  const std::vector<StepChannel::LaneRows> given = {{0, &lanes[0]}, {1, &lanes[1]}, {2, &lanes[2]},
                                                    {3, &lanes[3]}, {5, &lanes[4]}, {7, &lanes[5]}};
  RowUnion got, plain;  // keep their memory
  for (const LaneRange& node : {LaneRange{0, 8}, LaneRange{0, 4}, LaneRange{4, 4}, LaneRange{6, 1}}) {
    ASSERT_TRUE(plain.Build(node, given, order_, ids_));
    for (const int threads : {1, 2, 6}) {
      ThreadPool pool("test", threads);
      ASSERT_TRUE(got.Build(node, given, order_, ids_, &pool));
      ExpectEqual(got, plain, given);
    }
  }
}

TEST_F(UnionOnThreadsTest, FewIdsOfAllLanesAreAddedAsByOneThread) {
  // Every lane has the first ids alone, so that most ranges of the order are nearly empty.
  std::vector<SelectedRows> lanes(8);
  std::vector<StepChannel::LaneRows> given;
  for (size_t l = 0; l < lanes.size(); ++l) {
    std::vector<int32_t> positions(3'000);
    std::iota(positions.begin(), positions.end(), 0);
    lanes[l] = Rows(std::move(positions), &random_);
    given.push_back({static_cast<int>(l), &lanes[l]});
  }
  ThreadPool pool("test", 3);
  RowUnion got, plain;
  ASSERT_TRUE(plain.Build({0, 8}, given, order_, ids_));
  ASSERT_TRUE(got.Build({0, 8}, given, order_, ids_, &pool));
  ExpectEqual(got, plain, given);
}

TEST_F(UnionOnThreadsTest, AnIdTwiceInALaneOrOutsideTheStepIsRefused) {
  ThreadPool pool("test", 2);
  const SelectedRows right = Lane(100);
  for (const int32_t wrong : {-1, 20'000, 5}) {
    std::vector<int32_t> positions(20'000);
    std::iota(positions.begin(), positions.end(), 0);
    positions[19'000] = wrong;
    const SelectedRows rows = Rows(std::move(positions), &random_);
    const StepChannel::LaneRows lanes[] = {{0, &right}, {1, &rows}}, valid[] = {{0, &right}};
    RowUnion both;
    EXPECT_FALSE(both.Build({0, 2}, lanes, order_, ids_, &pool)) << wrong;
    EXPECT_TRUE(both.Build({0, 2}, valid, order_, ids_, &pool));
  }
}

TEST_F(UnionOnThreadsTest, TablesOfAStepShareOneFromSeveralThreads) {
  ThreadPool pool("test", 3);
  const SelectedRows a = Lane(90), b = Lane(80);
  const std::vector<StepChannel::LaneRows> lanes = {{0, &a}, {1, &b}};
  const std::vector<LaneRange> nodes = {{0, 2}};
  StepUnions unions;
  std::vector<std::vector<RowUnion>> own(4);
  std::vector<const std::vector<RowUnion>*> made(4);
  pool.ParallelFor(4, [&](int64_t i) {
    const size_t table = static_cast<size_t>(i);
    made[table] = unions.Of(nodes, lanes, order_, ids_, &own[table], &pool);
  });
  ASSERT_NE(made[0], nullptr);
  EXPECT_THAT(made, Each(made[0]));
}

// Rows of 5,000 ids on each of 8 servers, enough for several threads to ask and to place.
class CallsOnThreadsTest : public PlayedMember {
 protected:
  static constexpr int kServers = 8;
  static constexpr size_t kRows = 5'000;

  static v1::Plan MakePlan() {
    v1::Plan plan;
    plan.set_servers(kServers);
    plan.set_trainers(2);
    plan.set_sync(true);
    v1::PlacedTable* const table = plan.add_tables();
    table->set_name("t");
    table->set_logical_shards(16);
    return plan;
  }
  CallsOnThreadsTest() : PlayedMember(/*trainer=*/1, {.servers = kServers}) {
    for (size_t i = 0; i < kServers * kRows; ++i) {
      const uint64_t server = i % kServers;
      ids_.push_back(static_cast<int64_t>(UnmixId((server << 61) + i)));
    }
    values_.assign(ids_.size() * 2, -1);
  }

  // Row i of server s is [s, i].
  static std::string RowsOf(int server) {
    std::vector<float> rows;
    for (size_t i = 0; i < kRows; ++i) {
      rows.push_back(static_cast<float>(server));
      rows.push_back(static_cast<float>(i));
    }
    return Encoded(rows);
  }
  absl::Status Pull(int threads) {
    ThreadPool pool("test", threads);
    PullCalls pulls(&member_.calls(), &member_.waits(), &buffers_, &pool);
    RowPuller rows(&placement_, &pulls, /*in_turn=*/true, Waits::kProgram);
    rows.BeginStep(7, /*read_only=*/false);
    return rows.PullRows({{{.table = "t", .width = 2, .ids = &ids_, .rows = values_.data()}}});
  }
  void ExpectAllRows() const {
    for (size_t i = 0; i < ids_.size(); ++i) {
      ASSERT_EQ(values_[2 * i], static_cast<float>(i % kServers));
      ASSERT_EQ(values_[2 * i + 1], static_cast<float>(i / kServers));
    }
  }

  const v1::Plan plan_ = MakePlan();
  const BlockPlacement placement_{&plan_};
  BufferPool buffers_;
  std::vector<int64_t> ids_;
  std::vector<float> values_;
};

TEST_F(CallsOnThreadsTest, EveryServerIsAskedOnceAndItsRowsArePlaced) {
  for (const int threads : {0, 1, 3}) {
    for (int s = 0; s < kServers; ++s) servers_.AnswerPull(s, {}, RowsOf(s));
    values_.assign(values_.size(), -1);
    ASSERT_TRUE(Pull(threads).ok());
    ExpectAllRows();
  }
  for (int s = 0; s < kServers; ++s) {
    const std::vector<std::string> requests = servers_.RequestBytes(s, Method::kPull);
    ASSERT_THAT(requests, SizeIs(3));
    EXPECT_THAT(requests, Each(requests[0]));
  }
}

TEST_F(CallsOnThreadsTest, AnswersThatAreLateOrDamagedAreAskedForAgain) {
  v1::PullReply not_ready, damaged;
  not_ready.set_ready(false);
  damaged.set_checksum(1);
  for (int s = 0; s < kServers; ++s) {
    if (s == 2) servers_.AnswerFrame(s, Method::kPull, not_ready, "");
    if (s == 5) servers_.AnswerFrame(s, Method::kPull, damaged, RowsOf(0));
    servers_.AnswerPull(s, {}, RowsOf(s));
  }
  ASSERT_TRUE(Pull(/*threads=*/3).ok());
  ExpectAllRows();
  EXPECT_THAT(servers_.RequestBytes(1, Method::kPull), SizeIs(1));
  EXPECT_THAT(servers_.RequestBytes(2, Method::kPull), SizeIs(2));
  EXPECT_THAT(servers_.RequestBytes(5, Method::kPull), SizeIs(2));
}

TEST_F(CallsOnThreadsTest, AnErrorAmongAnswersEndsTheWait) {
  for (int s = 0; s < kServers; ++s) {
    if (s == 3) {
      servers_.Answer(s, Method::kPull, absl::InvalidArgumentError("no such table"));
    } else {
      servers_.AnswerPull(s, {}, RowsOf(s));
    }
  }
  EXPECT_STATUS(Pull(/*threads=*/3), kInvalidArgument, "server 3: no such table");
}

}  // namespace
}  // namespace weir
