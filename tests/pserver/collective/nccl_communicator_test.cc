// Calls into NCCL, with a library made for tests on emulated devices: results, errors, deadlines and aborts.

#include "pserver/collective/nccl_communicator.h"

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/device_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/emulated_device.h"
#include "tests/testing/devices/fake_nccl.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A rank: its device, its communicator, and memory on both sides.
class Rank {
  EmulatedDevice device_;
  DeviceMemory memory_;
  std::vector<std::shared_ptr<DeviceBlock>> blocks_;
  std::vector<std::shared_ptr<PinnedBlock>> pinned_;

 public:
  Rank(int rank, int size, const NcclUniqueId& id, absl::Duration deadline = absl::Seconds(20))
      : device_({.seed = static_cast<uint64_t>(rank) + 1, .memory = size_t{16} << 20, .pinned = size_t{16} << 20}),
        memory_(&device_) {
    absl::StatusOr<std::unique_ptr<NcclCommunicator>> formed =
        NcclCommunicator::Connect({.library = FakeNccl(),
                                   .id = id,
                                   .rank = rank,
                                   .size = size,
                                   .device = &device_,
                                   .connect_deadline = deadline});
    status = formed.status();
    if (formed.ok()) communicator = *std::move(formed);
  }
  // Memory of the device with these values.
  template <typename T>
  T* Put(const std::vector<T>& values) {
    blocks_.push_back(*memory_.Allocate(values.size() * sizeof(T), "test"));
    pinned_.push_back(*memory_.AllocatePinned(values.size() * sizeof(T)));
    std::memcpy(pinned_.back()->data(), values.data(), values.size() * sizeof(T));
    EXPECT_TRUE(
        device_.CopyIn(DeviceQueue::kCompute, blocks_.back()->data(), pinned_.back()->data(), values.size() * sizeof(T))
            .ok());
    return static_cast<T*>(blocks_.back()->data());
  }
  template <typename T>
  std::vector<T> Get(const T* from, size_t count) {
    pinned_.push_back(*memory_.AllocatePinned(count * sizeof(T)));
    EXPECT_TRUE(device_.CopyOut(DeviceQueue::kCompute, pinned_.back()->data(), from, count * sizeof(T)).ok());
    EXPECT_TRUE(device_.WaitForAll().ok());
    const T* const values = static_cast<const T*>(pinned_.back()->data());
    return std::vector<T>(values, values + count);
  }
  EmulatedDevice* device() { return &device_; }

  absl::Status status;
  std::unique_ptr<NcclCommunicator> communicator;
};

NcclUniqueId NewId() {
  NcclUniqueId id;
  EXPECT_EQ(FakeNccl()->functions().get_unique_id(&id), kNcclSuccess);
  return id;
}

// Runs `body` on every rank, each on its own thread.
void OnRanks(int size, const std::function<void(Rank*, int rank)>& body) {
  const NcclUniqueId id = NewId();
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(r, size, id);
      ASSERT_TRUE(rank.status.ok()) << rank.status;
      body(&rank, r);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(NcclCommunicatorTest, MessagesBetweenTwoRanksMatchInTheirOrder) {
  FakeNcclSet("aborts", 0);
  OnRanks(3, [](Rank* rank, int r) {
    const int next = (r + 1) % 3, before = (r + 2) % 3;
    float* const a = rank->Put<float>({static_cast<float>(r), 10});
    float* const b = rank->Put<float>({static_cast<float>(r) + 100});
    float* const x = rank->Put<float>({0, 0});
    float* const y = rank->Put<float>({0});
    const absl::Status status =
        rank->communicator->Exchange({{next, a, 8}, {next, b, 4}}, {{before, x, 8}, {before, y, 4}});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(rank->Get(x, 2), ElementsAre(static_cast<float>(before), 10));
    EXPECT_THAT(rank->Get(y, 1), ElementsAre(static_cast<float>(before) + 100));
  });
  EXPECT_EQ(FakeNcclSet("living", 0), 0);
  EXPECT_EQ(FakeNcclSet("aborts", 0), 0) << "communicators end in order";
}

TEST(NcclCommunicatorTest, NothingToExchangeTakesNoCall) {
  OnRanks(2, [](Rank* rank, int) { EXPECT_TRUE(rank->communicator->Exchange({}, {}).ok()); });
}

TEST(NcclCommunicatorTest, AllReduceHasEachReduction) {
  OnRanks(3, [](Rank* rank, int r) {
    const float mine = static_cast<float>(r) + 2;
    const std::pair<Reduction, float> expected[] = {
        {Reduction::kSum, 9}, {Reduction::kProduct, 24}, {Reduction::kMin, 2}, {Reduction::kMax, 4}};
    for (const auto& [reduction, result] : expected) {
      float* const values = rank->Put<float>({mine, -mine});
      ASSERT_TRUE(rank->communicator->AllReduce(values, values, 2, v1::FLOAT32, reduction).ok());
      EXPECT_EQ(rank->Get(values, 2)[0], result);
    }
    int64_t* const large = rank->Put<int64_t>({int64_t{1} << 40});
    ASSERT_TRUE(rank->communicator->AllReduce(large, large, 1, v1::INT64, Reduction::kSum).ok());
    EXPECT_THAT(rank->Get(large, 1), ElementsAre(int64_t{3} << 40));
  });
}

TEST(NcclCommunicatorTest, ReduceScatterAndAllGatherHaveOneSliceForEachRank) {
  OnRanks(2, [](Rank* rank, int r) {
    double* const all = rank->Put<double>({1, 2, 3, 4});
    double* const slice = rank->Put<double>({0, 0});
    ASSERT_TRUE(rank->communicator->ReduceScatter(all, slice, 2, v1::FLOAT64, Reduction::kSum).ok());
    EXPECT_THAT(rank->Get(slice, 2), ElementsAre(r == 0 ? 2 : 6, r == 0 ? 4 : 8));
    ASSERT_TRUE(rank->communicator->AllGather(slice, all, 2, v1::FLOAT64).ok());
    EXPECT_THAT(rank->Get(all, 4), ElementsAre(2, 4, 6, 8));
  });
}

TEST(NcclCommunicatorTest, ABroadcastHasTheValuesOfItsRoot) {
  OnRanks(3, [](Rank* rank, int r) {
    int32_t* const values = rank->Put<int32_t>({r, r * 10});
    ASSERT_TRUE(rank->communicator->Broadcast(values, values, 2, v1::INT32, /*root=*/1).ok());
    EXPECT_THAT(rank->Get(values, 2), ElementsAre(1, 10));
  });
}

TEST(NcclCommunicatorTest, WhatNcclLacksIsRefused) {
  OnRanks(1, [](Rank* rank, int) {
    float* const values = rank->Put<float>({1});
    NcclCommunicator& c = *rank->communicator;
    EXPECT_EQ(c.AllReduce(values, values, 1, v1::BOOL, Reduction::kSum).code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(c.AllReduce(values, values, 1, v1::FLOAT32, Reduction::kAverage).code(),
              absl::StatusCode::kUnimplemented);
    // An error of a call has the library's reason, and the group is closed: the next call works.
    EXPECT_THAT(std::string(c.Exchange({{.peer = 9, .data = values, .bytes = 4}}, {}).message()),
                HasSubstr("NCCL: exchanging messages: invalid argument (no such peer)"));
    EXPECT_TRUE(c.AllReduce(values, values, 1, v1::FLOAT32, Reduction::kSum).ok());
    EXPECT_THAT(rank->Get(values, 1), ElementsAre(1));
  });
}

TEST(NcclCommunicatorTest, ARankThatDoesNotComeEndsTheOthersAtTheDeadline) {
  FakeNcclSet("living", 0);
  Rank alone(0, 2, NewId(), absl::Milliseconds(50));
  EXPECT_EQ(alone.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(alone.status.message()), HasSubstr("forming a communicator is not done after 50ms"));
  EXPECT_EQ(FakeNcclSet("living", 0), 0) << "it is aborted";
}

TEST(NcclCommunicatorTest, FormingEndsWhenItIsInterrupted) {
  EmulatedDevice device({.memory = size_t{1} << 20});
  int asked = 0;
  const absl::Status status =
      NcclCommunicator::Connect(
          {.library = FakeNccl(),
           .id = NewId(),
           .size = 2,
           .device = &device,
           .interrupted = [&] { return ++asked < 3 ? absl::OkStatus() : absl::AbortedError("trainer 1 is gone"); }})
          .status();
  EXPECT_EQ(status.message(), "trainer 1 is gone");
}

TEST(NcclCommunicatorTest, TwoRanksOnOneDeviceAreRefusedInNcclsWords) {
  FakeNcclSet("init_result", kNcclInvalidUsage);
  const Rank rank(0, 1, NewId());
  FakeNcclSet("init_result", kNcclSuccess);
  EXPECT_EQ(rank.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(rank.status.message()), HasSubstr("invalid usage (Duplicate GPU detected)"));
}

TEST(NcclCommunicatorTest, AnAbortEndsWhatWaitsForOtherRanks) {
  FakeNcclSet("aborts", 0);
  OnRanks(2, [](Rank* rank, int r) {
    if (r == 1) return;  // begins nothing
    float* const values = rank->Put<float>({1});
    ASSERT_TRUE(rank->communicator->Exchange({}, {{.peer = 1, .data = values, .bytes = 4}}).ok());
    std::thread waits([&] { EXPECT_TRUE(rank->device()->WaitForAll().ok()); });
    rank->communicator->Abort(absl::UnavailableError("trainer 1 is gone"));
    waits.join();
    EXPECT_EQ(rank->communicator->Error(), absl::UnavailableError("trainer 1 is gone"));
    EXPECT_EQ(rank->communicator->Exchange({}, {{1, values, 4}}), absl::UnavailableError("trainer 1 is gone"));
  });
  EXPECT_EQ(FakeNcclSet("aborts", 0), 1);
}

TEST(NcclCommunicatorTest, AnErrorOfAnOperationUnderWayIsSeen) {
  OnRanks(1, [](Rank* rank, int) {
    FakeNcclSet("async_result", kNcclRemoteError);
    FakeNcclSet("async_rank", 0);
    EXPECT_THAT(std::string(rank->communicator->Error().message()), HasSubstr("remote process exited"));
    float* const values = rank->Put<float>({1});
    EXPECT_EQ(rank->communicator->AllReduce(values, values, 1, v1::FLOAT32, Reduction::kSum).code(),
              absl::StatusCode::kUnavailable);
    FakeNcclSet("async_rank", -1);
    FakeNcclSet("async_result", kNcclSuccess);
  });
}

}  // namespace
}  // namespace weir
