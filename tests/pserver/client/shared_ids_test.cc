// Tables that a step reads by the same ids: a client orders those ids once, asks for both tables together, and finds
// the rows of all lanes once. Answers and the state of servers must equal those of separate calls for each table.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "gtest/gtest.h"
#include "pserver/client/client.h"
#include "tests/testing/hand_made_cluster.h"
#include "tests/testing/hand_made_job.h"
#include "tests/testing/in_process_cluster.h"

namespace weir {
namespace {

constexpr int kSteps = 4;

// Variants of reading and sending the tables t and u (width 4 and 1) of a step.
struct Way {
  // u is pulled by another vector that holds the same ids.
  bool equal_vectors = false;
  // Each table is pulled by a call of its own, so nothing is shared.
  bool apart = false;
  // Every third row of u is present already.
  bool some_there = false;
  // The lanes of u bring their rows in another order, and one of them leaves some out.
  bool other_rows = false;
  // Gradients come without places, which the client then looks up.
  bool no_places = false;
  // t is pulled once more, by other ids, after the pull of both.
  bool t_again = false;
  // Both gradients are sent at once.
  bool at_once = false;
};

struct Result {
  std::vector<float> rows;  // pulled in all steps
  InProcessCluster::Digest digest;
  int64_t bytes_sent = 0, rows_pulled = 0;
};

struct Lane {
  std::vector<int64_t> ids;
  std::vector<int32_t> places;
};

SelectedRows GradientOf(const Lane& lane, int width, const std::vector<float>& rows, bool turned, bool places) {
  Lane brought = lane;
  if (turned) {
    std::reverse(brought.ids.begin(), brought.ids.end());
    std::reverse(brought.places.begin(), brought.places.end());
  }
  SelectedRows gradient;
  gradient.ids = brought.ids;
  if (places) gradient.step_rows = brought.places;
  gradient.merged = gradient.present = true;
  gradient.values.Resize(v1::FLOAT32, {static_cast<int64_t>(brought.ids.size()), width});
  float* out = gradient.values.data<float>();
  for (const int32_t place : brought.places) {
    for (int j = 0; j < width; ++j) {
      *out++ =
          static_cast<float>(place % 7 + j) * 0.25f - rows[static_cast<size_t>(place) * static_cast<size_t>(width)];
    }
  }
  return gradient;
}

absl::Status RunStep(const HandMadeJob& job, const Way& way, int step, InProcessCluster* cluster, Result* result) {
  Client& client = cluster->client(0);
  RETURN_IF_ERROR(client.steps().BeginStep(step, /*read_only=*/false));
  std::vector<Lane> lanes(static_cast<size_t>(job.lanes));
  std::vector<int64_t> ids;
  std::map<int64_t, int32_t> place;
  for (size_t l = 0; l < lanes.size(); ++l) {
    std::set<int64_t> of_lane = {INT64_MIN, INT64_MAX};
    for (uint64_t i = 0; i < 300; ++i) {
      const uint64_t h = MixId(static_cast<uint64_t>(step) * 1000 + l * 90 + i);
      of_lane.insert(i % 3 == 0 ? static_cast<int64_t>(h) : static_cast<int64_t>(h % 200) - 100);
    }
    for (const int64_t id : of_lane) {
      const auto [at, fresh] = place.emplace(id, static_cast<int32_t>(ids.size()));
      if (fresh) ids.push_back(id);
      lanes[l].ids.push_back(id);
      lanes[l].places.push_back(at->second);
    }
  }
  const std::vector<int64_t> copy = ids, other = {5, 3, -7};
  std::vector<float> t(ids.size() * 4), u(ids.size()), rest(other.size() * 4);
  ParamChannel::TableRows pull_t = {"t", 4, &ids, t.data()},
                          pull_u = {"u", 1, way.equal_vectors ? &copy : &ids, u.data()};
  std::vector<uint8_t> there(ids.size(), 0);
  if (way.some_there) {
    // Stands in for a cache of rows, which holds the servers' values of some ids.
    RETURN_IF_ERROR(client.steps().PullRows({pull_u}));
    for (size_t i = 0; i < there.size(); ++i) {
      there[i] = i % 3 == 0;
      if (there[i] == 0) u[i] = -1;
    }
    pull_u.there = there.data();
  }
  if (way.apart) {
    RETURN_IF_ERROR(client.steps().PullRows({pull_t}));
    RETURN_IF_ERROR(client.steps().PullRows({pull_u}));
  } else {
    RETURN_IF_ERROR(client.steps().PullRows({pull_t, pull_u}));
  }
  if (way.t_again) {
    RETURN_IF_ERROR(client.steps().PullRows({{"t", 4, &other, rest.data()}}));
    RETURN_IF_ERROR(client.steps().PullRows({pull_t}));
  }
  result->rows.insert(result->rows.end(), t.begin(), t.end());
  result->rows.insert(result->rows.end(), u.begin(), u.end());

  std::vector<SelectedRows> t_grads(lanes.size()), u_grads(lanes.size());
  std::vector<Tensor> counts(lanes.size());
  std::vector<ParamChannel::LaneRows> send_t, send_u;
  for (size_t l = 0; l < lanes.size(); ++l) {
    if (static_cast<int>(l) % 4 == step) continue;  // without examples
    t_grads[l] = GradientOf(lanes[l], 4, t, /*turned=*/false, !way.no_places);
    Lane of_u = lanes[l];
    if (way.other_rows && l == 5) {
      of_u.ids.resize(100);
      of_u.places.resize(100);
    }
    u_grads[l] = GradientOf(of_u, 1, u, way.other_rows && l == 2, !way.no_places);
    if (job.shows) {
      counts[l].Resize(v1::FLOAT32, {static_cast<int64_t>(lanes[l].ids.size()), 2});
      for (int64_t i = 0; i < counts[l].size(); ++i) counts[l].data<float>()[i] = static_cast<float>(1 + i % 3);
    }
    send_t.push_back({static_cast<int>(l), &t_grads[l], job.shows ? &counts[l] : nullptr});
    send_u.push_back({static_cast<int>(l), &u_grads[l]});
  }
  const auto send = [&](int64_t table) {
    return table == 0 ? client.steps().SendRows({"t", -1, 0}, 4, send_t)
                      : client.steps().SendRows({"u", -1, 0}, 1, send_u);
  };
  if (way.at_once) {
    std::vector<absl::Status> sent(2);
    cluster->pool()->ParallelFor(2, [&](int64_t table) { sent[static_cast<size_t>(table)] = send(table); });
    for (const absl::Status& status : sent) RETURN_IF_ERROR(status);
  } else {
    for (int64_t table = 0; table < 2; ++table) RETURN_IF_ERROR(send(table));
  }
  RETURN_IF_ERROR(client.steps().FinishSends(64, v1::APPLY));
  return client.steps().FinishReceives(nullptr);
}

Result Train(const HandMadeJob& job, const Way& way) {
  ClusterOptions options = OptionsFor(job);
  Result result;
  const absl::Status status = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<InProcessCluster> cluster, InProcessCluster::Create(std::move(options)));
    RETURN_IF_ERROR(cluster->client(0).Join());
    for (int step = 0; step < kSteps; ++step) RETURN_IF_ERROR(RunStep(job, way, step, cluster.get(), &result));
    ASSIGN_OR_RETURN(result.digest, cluster->GetDigest());
    result.bytes_sent = cluster->client(0).counters().bytes_sent;
    result.rows_pulled = cluster->client(0).counters().rows_pulled;
    return absl::OkStatus();
  }();
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

class SharedIdsTest : public ::testing::TestWithParam<int> {
 protected:
  static void ExpectSame(const Result& a, const Result& b) {
    EXPECT_EQ(a.rows, b.rows);
    EXPECT_EQ(a.digest, b.digest);
  }
};

TEST_P(SharedIdsTest, TheSameIdsInOneVectorOrTwoGiveWhatTablesOfTheirOwnGive) {
  const HandMadeJob job{.servers = GetParam()};
  const Result apart = Train(job, {.apart = true}), one = Train(job, {}), two = Train(job, {.equal_vectors = true});
  ExpectSame(one, apart);
  ExpectSame(two, apart);
  ExpectSame(Train(job, {.no_places = true}), apart);
  ExpectSame(Train(job, {.at_once = true}), apart);
  // Pulling u does not send its ids a second time. The tolerance is for occasional heart-beats.
  EXPECT_EQ(one.rows_pulled, apart.rows_pulled);
  const int64_t ids_of_u = apart.rows_pulled / 2 * static_cast<int64_t>(sizeof(int64_t));
  EXPECT_LT(one.bytes_sent, apart.bytes_sent - ids_of_u * 9 / 10);
  EXPECT_LT(two.bytes_sent, apart.bytes_sent - ids_of_u * 9 / 10);
}

TEST_P(SharedIdsTest, WhatIsThereAlreadyIsATablesOwn) {
  const HandMadeJob job{.servers = GetParam()};
  ExpectSame(Train(job, {.some_there = true}), Train(job, {.apart = true}));
}

TEST_P(SharedIdsTest, LanesThatBringOtherRowsOfOneTableAreNotTakenForTheOthers) {
  const HandMadeJob job{.servers = GetParam()};
  const Result apart = Train(job, {.apart = true, .other_rows = true});
  ExpectSame(Train(job, {.other_rows = true}), apart);
  ExpectSame(Train(job, {.other_rows = true, .at_once = true}), apart);
  EXPECT_FALSE(apart.digest == Train(job, {.apart = true}).digest);
}

TEST_P(SharedIdsTest, ATableThatIsAskedForOtherIdsSinceIsNotFollowed) {
  const HandMadeJob job{.servers = GetParam()};
  ExpectSame(Train(job, {.t_again = true}), Train(job, {.apart = true}));
}

TEST_P(SharedIdsTest, ATableThatCountsShowsAndHasACapacityGoesWithOneThatDoesNot) {
  const HandMadeJob job{.servers = GetParam(), .table_capacity = 100'000, .shows = true};
  ExpectSame(Train(job, {}), Train(job, {.apart = true}));
}

TEST_P(SharedIdsTest, OneLaneDoesAsSeveral) {
  const HandMadeJob job{.servers = GetParam(), .lanes = 1};
  ExpectSame(Train(job, {}), Train(job, {.apart = true}));
}

INSTANTIATE_TEST_SUITE_P(Servers, SharedIdsTest, ::testing::Values(1, 3));

}  // namespace
}  // namespace weir
