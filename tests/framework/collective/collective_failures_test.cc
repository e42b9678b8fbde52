// Ranks of a group that do not agree, and ranks that are missing, stop or fail: all ranks end, and name the reason.

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/collective.pb.h"
#include "tests/framework/collective/on_ranks.h"
#include "tests/testing/collective_mismatches.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Small messages, so that few elements are many messages.
Collective::Options SmallMessages() { return MessagesOf(256); }

class MismatchTest : public ::testing::TestWithParam<CollectiveMismatch> {};

TEST_P(MismatchTest, IsRefusedOnAllRanksNamingBoth) {
  for (int odd = 0; odd < 3; ++odd) {
    LocalMeshes meshes(3);
    const absl::Time begin = Clock::Real()->Now();
    const std::vector<absl::Status> statuses =
        OnRanks(&meshes, 3, SmallMessages(), [&](Collective* collective, int rank) {
          std::vector<float> values(4000, 1), later(10);
          // A right one before, and one after, which must fail too.
          const auto first = collective->AllReduce(SumOf(collective, "before", 4000, &values), values.data());
          if (absl::Status status = first->Wait(); !status.ok()) return status;
          const absl::Status status = GetParam().begin(collective, rank == odd, &values)->Wait();
          const auto after = collective->AllReduce(SumOf(collective, "after", 10, &later), later.data());
          EXPECT_EQ(after->Wait(), status);
          return status;
        });
    EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(2));
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(GetParam().expected), HasSubstr(absl::StrCat("trainer ", odd)), HasSubstr("'x'")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, MismatchTest, ::testing::ValuesIn(CollectiveMismatches()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CollectiveFailuresTest, RanksMustCutMessagesAlike) {
  LocalMeshes meshes(2);
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Collective collective(meshes.mesh(r), {.message_bytes = 256 << r});
      statuses[static_cast<size_t>(r)] = collective.Barrier("x")->Wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("size of messages"));
  }
}

struct Refusal {
  const char* what;
  std::function<Collective::PendingPtr(Collective*, std::vector<float>* values)> begin;
  const char* expected;
};

class RefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, EndsTheOtherRanksToo) {
  LocalMeshes meshes(2);
  const std::vector<absl::Status> statuses = OnRanks(&meshes, 2, SmallMessages(), [](Collective* collective, int rank) {
    std::vector<float> values(10);
    if (rank == 1) return collective->Barrier("b")->Wait();
    const auto refused = GetParam().begin(collective, &values);
    const absl::Status status = refused->Wait();
    EXPECT_EQ(collective->Barrier("later")->Wait(), status);
    return status;
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().expected));
  }
}

std::vector<std::string> nowhere;  // NOLINT: refused operations never write it

INSTANTIATE_TEST_SUITE_P(
    Each, RefusalTest,
    ::testing::Values(Refusal{"RootOfABroadcast",
                              [](Collective* c, std::vector<float>* v) {
                                return c->Broadcast("x", v1::FLOAT32, {10}, 5, v->data());
                              },
                              "there is no rank 5 among 2"},
                      Refusal{"NegativeRootOfABroadcast",
                              [](Collective* c, std::vector<float>* v) {
                                return c->Broadcast("x", v1::FLOAT32, {10}, -1, v->data());
                              },
                              "there is no rank -1 among 2"},
                      Refusal{"NegativeRootOfAReduction",
                              [](Collective* c, std::vector<float>* v) {
                                return c->Reduce(SumOf(c, "x", 10, v), -1, v->data());
                              },
                              "there is no rank -1 among 2"},
                      Refusal{"NegativeRootOfAGather",
                              [](Collective* c, std::vector<float>*) {
                                return c->GatherBytes("x", "b", -1, &nowhere);
                              },
                              "there is no rank -1 among 2"},
                      Refusal{"NumberOfMessages",
                              [](Collective* c, std::vector<float>*) {
                                return c->AllToAllBytes("x", {"a"}, &nowhere);
                              },
                              "messages for 1"},
                      Refusal{"Dimension",
                              [](Collective* c, std::vector<float>* v) {
                                return c->AllReduce(SumOf(c, "x", -10, v), v->data());
                              },
                              "a dimension is -10"},
                      Refusal{"MoreBytesThanThereAre",
                              [](Collective* c, std::vector<float>* v) {
                                return c->Broadcast("x", v1::FLOAT64, {1 << 30, 1 << 30, 1}, 0, v->data());
                              },
                              "take more than"},
                      Refusal{"SlicesThatOverflow",
                              [](Collective* c, std::vector<float>* v) {
                                return c->AllGather("x", v1::FLOAT64, {0, 1, int64_t{1} << 62}, v->data());
                              },
                              "take more than"},
                      Refusal{"SlicesThatDescend",
                              [](Collective* c, std::vector<float>* v) {
                                return c->ReduceScatter(SumOf(c, "x", 10, v), {0, 11, 10}, v->data());
                              },
                              "begins must be 3 ascending numbers from 0 to 10"},
                      Refusal{"NoSlices",
                              [](Collective* c, std::vector<float>* v) {
                                return c->ReduceScatter(SumOf(c, "x", 10, v), {}, v->data());
                              },
                              "begins must be 3 ascending numbers from 0 to 10"},
                      Refusal{"AverageOfIntegers",
                              [](Collective* c, std::vector<float>* v) {
                                Collective::Values values = SumOf(c, "x", 10, v);
                                values.dtype = v1::INT32;
                                values.reduction = Reduction::kAverage;
                                return c->AllReduce(values, v->data());
                              },
                              "have no average"},
                      Refusal{"TooManySegments",
                              [](Collective* c, std::vector<float>* v) {
                                Collective::Values values = SumOf(c, "x", 10, v);
                                values.segments.assign(65, 0);
                                return c->AllReduce(values, v->data());
                              },
                              "65 segments; at most 64"},
                      Refusal{"SegmentsOfOtherElements",
                              [](Collective* c, std::vector<float>* v) {
                                Collective::Values values = SumOf(c, "x", 10, v);
                                values.segments = {INT64_MAX, INT64_MAX, 12};
                                return c->AllReduce(values, v->data());
                              },
                              "12 elements are not the 10 of the shape"},
                      Refusal{"TooManyAddends",
                              [](Collective* c, std::vector<float>* v) {
                                Collective::Values values = SumOf(c, "x", 10, v);
                                values.lanes = 256;
                                values.addends.assign(65, {.lanes = {0, 1}, .values = v->data()});
                                return c->AllReduce(values, v->data());
                              },
                              "65 addends; at most 64"},
                      Refusal{"LongName",
                              [](Collective* c, std::vector<float>*) { return c->Barrier(std::string(129, 'n')); },
                              "the name has 129 bytes"}),
    [](const auto& info) { return std::string(info.param.what); });

// A rank that sends what it likes: the header of operation 0 to rank 0, and nothing else.
absl::Status AgainstHeader(const std::function<void(v1::CollectiveHeader*)>& change,
                           const std::function<Collective::PendingPtr(Collective*, std::vector<float>*)>& begin,
                           const std::function<void(std::string*)>& damage = nullptr) {
  LocalMeshes meshes(2);
  Collective::Options options = SmallMessages();
  options.waits.deadline = absl::Seconds(1);
  Collective collective(meshes.mesh(0), options);
  std::vector<float> values(10);
  const auto pending = begin(&collective, &values);
  constexpr uint64_t kHeaderTag = uint64_t{3} << 30;
  std::string theirs(1024, '\0');
  const auto receive = meshes.mesh(1)->Receive(0, kHeaderTag, theirs.data(), theirs.size());
  EXPECT_TRUE(receive->Wait(absl::Seconds(20)).ok());
  uint32_t length = 0;
  std::memcpy(&length, theirs.data(), sizeof(length));
  v1::CollectiveHeader header;
  EXPECT_TRUE(header.ParseFromArray(theirs.data() + sizeof(length), static_cast<int>(length)));
  change(&header);
  const std::string text = header.SerializeAsString();
  length = static_cast<uint32_t>(text.size());
  std::string mine(1024, '\0');
  std::memcpy(mine.data(), &length, sizeof(length));
  std::copy(text.begin(), text.end(), mine.begin() + sizeof(length));
  if (damage) damage(&mine);
  const auto send = meshes.mesh(1)->Send(0, kHeaderTag, mine.data(), mine.size());
  return pending->Wait();
}

TEST(CollectiveFailuresTest, WhatAHeaderSaysIsNotTrusted) {
  const auto sum = [](Collective* c, std::vector<float>* v) { return c->AllReduce(SumOf(c, "x", 10, v), v->data()); };
  std::vector<std::string> all;
  const auto gather = [&all](Collective* c, std::vector<float>*) { return c->AllGatherBytes("x", "b", &all); };
  const auto unchanged = [](v1::CollectiveHeader*) {};
  const auto header_says = [&](const char* expected, const absl::Status& status) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  };
  header_says("is damaged", AgainstHeader(unchanged, sum, [](std::string* bytes) { bytes->replace(0, 4, 4, '\xff'); }));
  header_says("is damaged", AgainstHeader(unchanged, sum, [](std::string* bytes) { bytes->replace(4, 4, 4, '\xff'); }));
  header_says("says that it sends -1 bytes", AgainstHeader([](auto* h) { h->set_count(-1); }, gather));
  header_says("is negative", AgainstHeader([](auto* h) { h->set_samples(-1); }, sum));
  header_says("addends", AgainstHeader([](auto* h) { h->add_node_begin(1); }, sum));
  header_says("rank 1 has an addend", AgainstHeader([](auto* h) { h->set_node_count(0, INT32_MAX); }, sum));
  const auto present_says = [](uint64_t present, int addends) {
    return [present, addends](v1::CollectiveHeader* h) {
      h->set_node_begin(0, 1);
      h->mutable_present()->Resize(addends, present);
    };
  };
  header_says("segments that are not among the 1", AgainstHeader(present_says(2, 1), sum));
  header_says("which segments 2 of its 1 addends have", AgainstHeader(present_says(1, 2), sum));
  // No memory is taken for bytes that do not come.
  header_says("nothing from trainer 1", AgainstHeader([](auto* h) { h->set_count(int64_t{1} << 39); }, gather));
}

TEST(CollectiveFailuresTest, AddendsMustBeNodesThatDoNotOverlap) {
  // Lanes 1 and 2 together are no node; lane 0 is on both ranks; lane 4 does not exist.
  for (const LaneRange& lanes : {LaneRange{1, 2}, LaneRange{0, 1}, LaneRange{4, 1}, LaneRange{2, 0}}) {
    LocalMeshes meshes(2);
    const std::vector<absl::Status> statuses =
        OnRanks(&meshes, 2, SmallMessages(), [&](Collective* collective, int rank) {
          std::vector<float> values(10);
          const LaneRange own = rank == 0 ? LaneRange{0, 1} : lanes;
          return collective
              ->AllReduce(
                  {.name = "x", .shape = {10}, .lanes = 4, .addends = {{.lanes = own, .values = values.data()}}},
                  values.data())
              ->Wait();
        });
    for (const absl::Status& status : statuses) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 has an addend of lanes"));
    }
  }
}

TEST(CollectiveFailuresTest, ARankThatDoesNotComeIsNamed) {
  LocalMeshes meshes(3);
  meshes.Cut(1);
  const absl::Time begin = Clock::Real()->Now();
  std::vector<absl::Status> statuses(3);
  std::vector<std::thread> threads;
  for (const int r : {0, 2}) {
    threads.emplace_back([&, r] {
      Collective::Options options = SmallMessages();
      // Rank 2 would wait for much longer, and ends because rank 0 does.
      options.waits.deadline = r == 0 ? absl::Milliseconds(300) : absl::Seconds(60);
      Collective collective(meshes.mesh(r), options);
      statuses[static_cast<size_t>(r)] = collective.Barrier("b")->Wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(20));
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded);
  for (const int r : {0, 2}) {
    EXPECT_THAT(std::string(statuses[static_cast<size_t>(r)].message()), HasSubstr("nothing from trainer 1"));
  }
}

TEST(CollectiveFailuresTest, ARankThatStopsInALargeOperationIsNamed) {
  LocalMeshes meshes(3);
  meshes.Cut(1, 1 << 17);
  std::vector<absl::Status> statuses(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      Collective::Options options = SmallMessages();
      // Rank 2 is held up as well, and could name rank 0, which is held up by rank 1.
      options.waits.deadline = r == 0 ? absl::Seconds(1) : absl::Seconds(60);
      Collective collective(meshes.mesh(r), options);
      std::vector<float> values(1 << 20, 1);
      statuses[static_cast<size_t>(r)] =
          collective.AllReduce(SumOf(&collective, "x", 1 << 20, &values), values.data())->Wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(meshes.sent(1), 1 << 17);
  for (const int r : {0, 2}) {
    EXPECT_THAT(std::string(statuses[static_cast<size_t>(r)].message()), HasSubstr("nothing from trainer 1"));
  }
}

TEST(CollectiveFailuresTest, AbortEndsWhatIsUnderWayOnAllRanks) {
  LocalMeshes meshes(2);
  const std::vector<absl::Status> statuses = OnRanks(&meshes, 2, SmallMessages(), [](Collective* collective, int rank) {
    if (rank == 1) {
      collective->Abort(absl::CancelledError("the trainer is asked to stop"));
      return collective->Barrier("b")->Wait();
    }
    return collective->Barrier("b")->Wait();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("the trainer is asked to stop"));
  }
}

TEST(CollectiveFailuresTest, AJobThatHasFailedEndsTheWait) {
  LocalMeshes meshes(2);
  Collective::Options options = SmallMessages();
  options.waits.job = [] { return absl::AbortedError("the job has failed: trainer 1 is dead"); };
  Collective collective(meshes.mesh(0), options);
  EXPECT_EQ(collective.Barrier("b")->Wait().message(), "the job has failed: trainer 1 is dead");
  EXPECT_EQ(collective.Barrier("c")->Wait().message(), "the job has failed: trainer 1 is dead");
}

}  // namespace
}  // namespace weir
