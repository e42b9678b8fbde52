// All-reduces of few values, which go to all ranks in one exchange.
#include "framework/collective/whole_run.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/lane_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/collective/on_ranks.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kLanes = 8;
// Tag of the first header of a rank.
constexpr uint64_t kHeaderTag = uint64_t{3} << 30;

Collective::Options Patient() { return MessagesOf(int64_t{1} << 20); }

Collective::Values SumOf(Collective* collective, const std::vector<float>& values) {
  return {.name = "x", .shape = {static_cast<int64_t>(values.size())}, .addends = collective->Own(values.data())};
}

// Addends of one rank, some without some segments.
struct Given {
  std::vector<std::vector<float>> values;
  std::vector<LaneAddend> addends;
};

// Draws those of a rank from a seed, or none.
Given Draw(int rank, int ranks, const std::vector<int64_t>& segments, uint64_t seed) {
  std::mt19937_64 random(seed * 64 + static_cast<uint64_t>(rank));
  int64_t count = 0;
  for (const int64_t each : segments) count += each;
  Given given;
  for (const LaneRange& lanes : AlignedNodes(LanesOfTrainer(kLanes, ranks, rank))) {
    if (random() % 4 == 0) continue;
    std::vector<float>& values = given.values.emplace_back();
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(static_cast<double>(random() >> 11) / 0x1p53 - 0.5));
    }
    given.addends.push_back({.lanes = lanes, .present = random()});
  }
  for (size_t a = 0; a < given.values.size(); ++a) given.addends[a].values = given.values[a].data();
  return given;
}

struct Result {
  std::vector<float> values;
  uint64_t present = 0;
  int64_t samples = 0;
  bool operator==(const Result&) const = default;
};

// Adds what the ranks draw. Returns what each has then, and what each has sent.
std::vector<Result> Reduce(int ranks, const std::vector<int64_t>& segments, Reduction reduction, uint64_t seed,
                           bool whole, std::vector<int64_t>* sent) {
  LocalMeshes meshes(ranks, seed);
  if (whole) meshes.TakeAnySize();
  std::vector<Result> results(static_cast<size_t>(ranks));
  ExpectAllOk(OnRanks(&meshes, ranks, Patient(), [&](Collective* collective, int rank) {
    Given given = Draw(rank, ranks, segments, seed);
    Result& result = results[static_cast<size_t>(rank)];
    int64_t count = 0;
    for (const int64_t each : segments) count += each;
    result.values.assign(static_cast<size_t>(count), -1);
    const Collective::PendingPtr pending = collective->AllReduce({.name = "x",
                                                                  .shape = {count},
                                                                  .segments = segments,
                                                                  .reduction = reduction,
                                                                  .lanes = kLanes,
                                                                  .addends = given.addends,
                                                                  .samples = rank + 1},
                                                                 result.values.data());
    RETURN_IF_ERROR(pending->Wait());
    for (size_t s = 0; s < segments.size(); ++s) result.present |= uint64_t{pending->present(s)} << s;
    result.samples = pending->samples();
    return absl::OkStatus();
  }));
  for (int r = 0; r < ranks; ++r) sent->push_back(meshes.sent(r));
  return results;
}

TEST(WholeRunTest, HasTheBitsOfSlicesOnAnyNumberOfRanks) {
  const std::vector<std::vector<int64_t>> shapes = {{0}, {1}, {17}, {5000}, {7, 0, 64, 3}, {16, 16, 2000}};
  for (int ranks = 1; ranks <= 5; ++ranks) {
    uint64_t seed = 1;
    for (const std::vector<int64_t>& segments : shapes) {
      for (const Reduction reduction : {Reduction::kSum, Reduction::kAverage, Reduction::kMax}) {
        std::vector<int64_t> sent, sent_whole;
        ++seed;
        EXPECT_EQ(Reduce(ranks, segments, reduction, seed, /*whole=*/true, &sent_whole),
                  Reduce(ranks, segments, reduction, seed, /*whole=*/false, &sent))
            << ranks << " ranks, seed " << seed;
        for (int r = 0; r < ranks; ++r) {
          int64_t bytes = kOperationHeaderBytes;
          for (const LaneAddend& addend : Draw(r, ranks, segments, seed).addends) {
            for (size_t s = 0; s < segments.size(); ++s) bytes += (addend.present >> s & 1) * 4 * segments[s];
          }
          EXPECT_EQ(sent_whole[static_cast<size_t>(r)], (ranks - 1) * bytes) << ranks << " ranks, rank " << r;
        }
      }
    }
  }
}

TEST(WholeRunTest, AddsInPlace) {
  LocalMeshes meshes(3);
  meshes.TakeAnySize();
  ExpectAllOk(OnRanks(&meshes, 3, Patient(), [&](Collective* collective, int rank) {
    std::vector<float> values = {static_cast<float>(rank), 1};
    RETURN_IF_ERROR(collective->AllReduce(SumOf(collective, values), values.data())->Wait());
    EXPECT_THAT(values, ElementsAre(3, 3));
    return absl::OkStatus();
  }));
}

TEST(WholeRunTest, ManyValuesGoInSlices) {
  LocalMeshes meshes(3);
  meshes.TakeAnySize();
  const int64_t count = kMostWholeBytes / 2 / 4 + 1;
  ExpectAllOk(OnRanks(&meshes, 3, Patient(), [&](Collective* collective, int /*rank*/) {
    std::vector<float> values(static_cast<size_t>(count), 1);
    RETURN_IF_ERROR(collective->AllReduce(SumOf(collective, values), values.data())->Wait());
    EXPECT_EQ(values.back(), 3);
    return absl::OkStatus();
  }));
  // Its own slice to two ranks, and theirs to them.
  EXPECT_LT(meshes.sent(0), 2 * 1024 + 4 * count * 3 / 2);
}

TEST(WholeRunTest, OthersHaveTheirSumsBeforeTheSenderWaits) {
  LocalMeshes meshes(2);
  meshes.TakeAnySize();
  absl::Notification other_has_it;
  ExpectAllOk(OnRanks(&meshes, 2, Patient(), [&](Collective* collective, int rank) {
    std::vector<float> values = {1};
    const Collective::PendingPtr sum = collective->AllReduce(SumOf(collective, values), values.data());
    if (rank == 0) {
      collective->SendBegun();
      other_has_it.WaitForNotification();
    }
    const absl::Status status = sum->Wait();
    if (rank == 1) other_has_it.Notify();
    return status;
  }));
}

TEST(WholeRunTest, AWaitForAnotherOperationSendsToo) {
  LocalMeshes meshes(2);
  meshes.TakeAnySize();
  ExpectAllOk(OnRanks(&meshes, 2, Patient(), [&](Collective* collective, int rank) {
    std::vector<float> values = {1};
    const Collective::PendingPtr sum = collective->AllReduce(SumOf(collective, values), values.data());
    if (rank == 1) RETURN_IF_ERROR(sum->Wait());
    RETURN_IF_ERROR(collective->Barrier("b")->Wait());
    return sum->Wait();
  }));
}

TEST(WholeRunTest, ACollectiveThatEndsHasSentWhatItHasBegun) {
  LocalMeshes meshes(2);
  meshes.TakeAnySize();
  std::vector<std::vector<float>> values = {{1}, {2}};
  ExpectAllOk(OnRanks(&meshes, 2, Patient(), [&](Collective* collective, int rank) {
    std::vector<float>& own = values[static_cast<size_t>(rank)];
    const Collective::PendingPtr sum = collective->AllReduce(SumOf(collective, own), own.data());
    return rank == 0 ? absl::OkStatus() : sum->Wait();
  }));
  EXPECT_THAT(values[0], ElementsAre(3));
  EXPECT_THAT(values[1], ElementsAre(3));
}

// ------------------------------------------------------------------------------------------------------------ failures

TEST(WholeRunTest, RanksAtOtherOperationsAreNamed) {
  using Begin = std::function<Collective::PendingPtr(Collective*, std::vector<float>*)>;
  const Begin others[] = {
      [](Collective* c, std::vector<float>* v) {
        v->resize(1 << 20);
        return c->AllReduce(SumOf(c, *v), v->data());
      },
      [](Collective* c, std::vector<float>* v) {
        v->resize(5);
        return c->AllReduce(SumOf(c, *v), v->data());
      },
      [](Collective* c, std::vector<float>*) { return c->Barrier("x"); },
  };
  for (const Begin& other : others) {
    LocalMeshes meshes(3);
    meshes.TakeAnySize();
    for (const absl::Status& status : OnRanks(&meshes, 3, Patient(), [&](Collective*collective, int rank) {
           std::vector<float> values(4);
           if (rank == 1) return other(collective, &values)->Wait();
           return collective->AllReduce(SumOf(collective, values), values.data())->Wait();
         })) {
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("the ranks are at different operations"), HasSubstr("trainer 1 at operation 0"),
                        HasSubstr("all_reduce 'x' of float32 [4], sum")));
    }
  }
}

TEST(WholeRunTest, ARankThatDoesNotComeIsNamed) {
  LocalMeshes meshes(3);
  meshes.TakeAnySize();
  meshes.Cut(1);
  const auto options = [](int rank) {
    Collective::Options of_rank = Patient();
    // Rank 2 would wait for much longer, and ends because rank 0 does.
    of_rank.waits.deadline = rank == 0 ? absl::Milliseconds(300) : absl::Seconds(60);
    return of_rank;
  };
  const std::vector<absl::Status> statuses =
      OnRanksWith(&meshes, 3, options, [&](Collective* collective, int rank) -> absl::Status {
        if (rank == 1) return absl::OkStatus();
        std::vector<float> values(4);
        return collective->AllReduce(SumOf(collective, values), values.data())->Wait();
      });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded);
  for (const int r : {0, 2}) {
    EXPECT_THAT(std::string(statuses[static_cast<size_t>(r)].message()), HasSubstr("nothing from trainer 1"));
  }
}

TEST(WholeRunTest, AnErrorOfAnotherThreadEndsAWait) {
  LocalMeshes meshes(2);
  meshes.TakeAnySize();
  Collective collective(meshes.mesh(0), Patient());
  std::vector<float> values(4);
  const Collective::PendingPtr sum = collective.AllReduce(SumOf(&collective, values), values.data());
  std::thread aborts([&] { collective.Abort(absl::CancelledError("enough")); });
  EXPECT_THAT(std::string(sum->Wait().message()), HasSubstr("enough"));
  aborts.join();
}

// Returns the error of rank 0 when rank 1 answers with what `change` makes of the message that it got.
absl::Status AgainstMessage(const std::function<void(std::string*)>& change) {
  LocalMeshes meshes(2);
  meshes.TakeAnySize();
  Collective collective(meshes.mesh(0), Patient());
  std::vector<float> values(4);
  const Collective::PendingPtr sum = collective.AllReduce(SumOf(&collective, values), values.data());
  collective.SendBegun();
  std::string message;
  const auto receive = meshes.mesh(1)->ReceiveAny(0, kHeaderTag, 1 << 20, &message);
  EXPECT_TRUE(receive->Wait(absl::Seconds(10)).ok());
  v1::CollectiveHeader header;
  uint32_t length = 0;
  std::copy_n(message.data(), sizeof(length), reinterpret_cast<char*>(&length));
  EXPECT_TRUE(header.ParseFromArray(message.data() + sizeof(length), static_cast<int>(length)));
  header.set_node_begin(0, 1);
  const std::string text = header.SerializeAsString();
  length = static_cast<uint32_t>(text.size());
  message.replace(0, sizeof(length), reinterpret_cast<const char*>(&length), sizeof(length));
  message.replace(sizeof(length), text.size(), text);
  change(&message);
  const auto send = meshes.mesh(1)->Send(0, kHeaderTag, message.data(), message.size());
  return sum->Wait();
}

TEST(WholeRunTest, WhatIsBehindAHeaderIsNotTrusted) {
  EXPECT_TRUE(AgainstMessage([](std::string*) {}).ok());
  for (const size_t size : {size_t{1024}, size_t{1036}, size_t{1044}}) {
    const absl::Status status = AgainstMessage([size](std::string* message) { message->resize(size); });
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr("the addends that a rank has sent are not those of"));
  }
  const absl::Status status = AgainstMessage([](std::string* message) { message->resize(100); });
  EXPECT_THAT(std::string(status.message()), HasSubstr("the header of trainer 1 is damaged"));
}

}  // namespace
}  // namespace weir
