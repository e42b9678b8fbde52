// Graphs of what repeats, on the emulated device: what is launched as a graph, and above all what is not.
#include "framework/tensor/device_replay.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "framework/tensor/device_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/emulated_device.h"

namespace weir {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// data[at] = data[at] * 2 + add.
struct Step {
  float* data;
  int64_t at;
  float add;
  int32_t zero = 0;  // no padding
};
absl::Status PutStep(DeviceRuntime& device, const void* arguments) {
  return device.RunLoop(DeviceQueue::kCompute,
                        [s = *static_cast<const Step*>(arguments)] { s.data[s.at] = s.data[s.at] * 2 + s.add; });
}

class DeviceReplayTest : public ::testing::Test {
 protected:
  static constexpr int64_t kSize = 64;

  DeviceReplayTest() {
    data_ = New();
    EXPECT_TRUE(device_.Zero(DeviceQueue::kCompute, data_->data(), kSize * sizeof(float)).ok());
  }

  std::shared_ptr<DeviceBlock> New() { return memory_.Allocate(kSize * sizeof(float), "test").value(); }

  // Runs `run` with its calls put off; Call also applies each call to want_, the expected values.
  void Run(const std::function<void()>& run) {
    ASSERT_TRUE(device_.PutOffCalls(true).ok());
    run();
    ASSERT_TRUE(device_.PutOffCalls(false).ok());
  }
  void Call(int64_t at, float add) { CallOn(*data_, at, add, &want_); }
  void CallOn(const DeviceBlock& block, int64_t at, float add, std::vector<float>* want) {
    const Step step = {.data = static_cast<float*>(block.data()), .at = at, .add = add};
    ASSERT_TRUE(device_.Call(PutStep, &step, sizeof(step)).ok());
    (*want)[static_cast<size_t>(at)] = (*want)[static_cast<size_t>(at)] * 2 + add;
  }
  std::vector<float> Read(const DeviceBlock& block) {
    std::shared_ptr<PinnedBlock> pinned = memory_.AllocatePinned(kSize * sizeof(float)).value();
    EXPECT_TRUE(device_.CopyOut(DeviceQueue::kCompute, pinned->data(), block.data(), kSize * sizeof(float)).ok());
    EXPECT_TRUE(device_.WaitForAll().ok());
    const float* const from = static_cast<const float*>(pinned->data());
    return std::vector<float>(from, from + kSize);
  }

  EmulatedDevice emulated_;
  ReplayingDevice device_{&emulated_};
  DeviceMemory memory_{&device_};
  std::shared_ptr<DeviceBlock> data_;
  std::vector<float> want_ = std::vector<float>(kSize, 0.0f);
};

TEST_F(DeviceReplayTest, WhatRepeatsIsCapturedTheThirdTimeAndReplayed) {
  for (int step = 0; step < 10; ++step) {
    Run([&] {
      for (int i = 0; i < 6; ++i) Call(i, static_cast<float>(i));
    });
    EXPECT_EQ(device_.statistics().captures, step < 2 ? 0 : 1) << step;
    EXPECT_EQ(device_.statistics().replays, std::max(0, step - 1)) << step;
  }
  EXPECT_EQ(device_.statistics().replayed, 8 * 6);
  EXPECT_EQ(device_.statistics().calls, 60);
  EXPECT_EQ(Read(*data_), want_);
}

// A number that changes from step to step, as dropout's step and an optimizer's rate do, is never an old one.
TEST_F(DeviceReplayTest, ANumberThatChangesIsNeverReplayed) {
  for (int step = 0; step < 20; ++step) {
    Run([&] {
      for (int i = 0; i < 5; ++i) Call(i, 1);
      Call(5, static_cast<float>(step) / 16);
      for (int i = 6; i < 12; ++i) Call(i, 1);
      Call(12, static_cast<float>(-step) / 16);
    });
  }
  // The calls before and between the changing ones are replayed.
  EXPECT_EQ(device_.statistics().captures, 2);
  EXPECT_EQ(device_.statistics().replayed, 18 * 11);
  EXPECT_EQ(Read(*data_), want_);
}

// It was the same for a while, and then is not.
TEST_F(DeviceReplayTest, ANumberThatChangesAfterManySteps) {
  for (int step = 0; step < 20; ++step) {
    Run([&] {
      for (int i = 0; i < 8; ++i) Call(i, i == 3 && step >= 10 ? 0.25f : 1.0f);
    });
    EXPECT_EQ(device_.statistics().replays, step < 12 ? std::min<int64_t>(8, std::max(0, step - 1)) : step - 3) << step;
  }
  EXPECT_EQ(device_.statistics().captures, 2);
  EXPECT_EQ(Read(*data_), want_);
}

// Two sets of addresses by turns, as buffers for what is fed: a graph for each.
TEST_F(DeviceReplayTest, AddressesByTurns) {
  const std::shared_ptr<DeviceBlock> other = New();
  ASSERT_TRUE(device_.Zero(DeviceQueue::kCompute, other->data(), kSize * sizeof(float)).ok());
  std::vector<float> want(kSize, 0.0f);
  for (int step = 0; step < 12; ++step) {
    Run([&] {
      for (int i = 0; i < 6; ++i) CallOn(step % 2 == 0 ? *data_ : *other, i, 1, step % 2 == 0 ? &want_ : &want);
    });
  }
  EXPECT_EQ(device_.statistics().captures, 2);
  EXPECT_EQ(device_.statistics().replays, 8);
  EXPECT_EQ(Read(*data_), want_);
  EXPECT_EQ(Read(*other), want);
}

TEST_F(DeviceReplayTest, OtherSizesAndBack) {
  for (const int calls : {6, 6, 6, 6, 7, 6, 7, 5, 6, 7, 7, 3, 3, 3, 3}) {
    Run([&] {
      for (int i = 0; i < calls; ++i) Call(i, 1);
    });
  }
  // 6 and 7; 5 came once, and 3 are too few to be worth it.
  EXPECT_EQ(device_.statistics().captures, 2);
  EXPECT_EQ(Read(*data_), want_);
}

// Whatever order the queues run in: events, copies and memory that changes hands see what was put off before them.
TEST_F(DeviceReplayTest, EverythingElseComesBehindWhatWasPutOff) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EmulatedDevice emulated({.seed = seed});
    ReplayingDevice device(&emulated);
    DeviceMemory memory(&device);
    const std::shared_ptr<DeviceBlock> data = memory.Allocate(kSize * sizeof(float), "test").value();
    const std::shared_ptr<PinnedBlock> pinned = memory.AllocatePinned(kSize * sizeof(float)).value();
    const std::unique_ptr<DeviceEvent> event = device.NewEvent().value();
    float want = 0;
    for (int step = 0; step < 8; ++step) {
      ASSERT_TRUE(device.PutOffCalls(true).ok());
      ASSERT_TRUE(device.Zero(DeviceQueue::kCompute, data->data(), kSize * sizeof(float)).ok());
      want = 0;
      const auto calls = [&](int n) {
        for (int i = 0; i < n; ++i) {
          const Step add = {.data = static_cast<float*>(data->data()), .at = 0, .add = 1};
          ASSERT_TRUE(device.Call(PutStep, &add, sizeof(add)).ok());
          want = want * 2 + 1;
        }
      };
      calls(5);
      ASSERT_TRUE(device.Record(DeviceQueue::kCompute, event.get()).ok());
      ASSERT_TRUE(device.QueueWait(DeviceQueue::kCopyOut, event.get()).ok());
      ASSERT_TRUE(device.CopyOut(DeviceQueue::kCopyOut, pinned->data(), data->data(), sizeof(float)).ok());
      ASSERT_TRUE(device.Record(DeviceQueue::kCopyOut, event.get()).ok());
      // Compute may not go on before the copy has been made.
      ASSERT_TRUE(device.QueueWait(DeviceQueue::kCompute, event.get()).ok());
      const float copied = want;
      calls(6);
      {
        // Memory that is given back while its user has been put off is not handed on under its feet.
        const std::shared_ptr<DeviceBlock> brief = memory.Allocate(4096, "test").value();
        ASSERT_TRUE(device.Zero(DeviceQueue::kCompute, brief->data(), 4096).ok());
      }
      const std::shared_ptr<DeviceBlock> next = memory.Allocate(4096, "test").value();
      const std::shared_ptr<PinnedBlock> ones = memory.AllocatePinned(4096).value();
      std::memset(ones->data(), 1, 4096);
      ASSERT_TRUE(device.CopyIn(DeviceQueue::kCopyIn, next->data(), ones->data(), 4096).ok());
      ASSERT_TRUE(device.PutOffCalls(false).ok());
      ASSERT_TRUE(device.CopyOut(DeviceQueue::kCopyIn, ones->data(), next->data(), 4096).ok());
      ASSERT_TRUE(device.WaitForAll().ok());
      EXPECT_EQ(static_cast<const float*>(pinned->data())[0], copied) << "seed " << seed << " step " << step;
      const char* const bytes = static_cast<const char*>(ones->data());
      EXPECT_THAT(std::vector<char>(bytes, bytes + 4096), Each(1)) << "seed " << seed << " step " << step;
    }
    EXPECT_EQ(device.statistics().captures, 2) << "seed " << seed;
  }
}

// A call that cannot be captured: the reason is logged, and steps continue without graphs.
TEST_F(DeviceReplayTest, ACaptureThatFailsEndsGraphsAndNothingElse) {
  struct Allocating {
    ReplayingDevice* device;
    float* data;
  };
  const auto put = [](DeviceRuntime& device, const void* arguments) -> absl::Status {
    const absl::StatusOr<void*> block = device.Allocate(16);
    if (!block.ok()) return block.status();
    device.Free(*block);
    return device.RunLoop(DeviceQueue::kCompute,
                          [data = static_cast<const Allocating*>(arguments)->data] { data[0] += 1; });
  };
  for (int step = 0; step < 6; ++step) {
    Run([&] {
      for (int i = 1; i < 6; ++i) Call(i, 1);
      const Allocating arguments = {.device = &device_, .data = static_cast<float*>(data_->data())};
      ASSERT_TRUE(device_.Call(put, &arguments, sizeof(arguments)).ok());
      want_[0] += 1;
    });
  }
  EXPECT_EQ(device_.statistics().failures, 1);
  EXPECT_EQ(device_.statistics().replays, 0);
  EXPECT_EQ(Read(*data_), want_);
  // The emulated device refuses these calls as CUDA does.
  ASSERT_TRUE(emulated_.BeginCapture().ok());
  EXPECT_THAT(std::string(emulated_.Allocate(16).status().message()), HasSubstr("allocated while a graph is captured"));
  EXPECT_THAT(std::string(emulated_.Record(DeviceQueue::kCompute, device_.NewEvent().value().get()).message()),
              HasSubstr("an event while a graph is captured"));
  EXPECT_TRUE(emulated_.EndCapture().ok());
}

TEST_F(DeviceReplayTest, GraphsThatAreNotLaunchedAnyMoreGo) {
  for (int batch = 0; batch < 400; ++batch) {
    for (int step = 0; step < 3; ++step) {
      Run([&] {
        for (int i = 0; i < 4; ++i) Call(i, static_cast<float>(batch) / 1024);
      });
    }
  }
  EXPECT_EQ(device_.statistics().captures, 400);
  EXPECT_EQ(Read(*data_), want_);
}

// Other threads wait for copies and return memory while one thread fills the compute queue, like the gates of a
// program.
TEST_F(DeviceReplayTest, OtherThreadsWaitAndGiveMemoryBackMeanwhile) {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const std::unique_ptr<DeviceEvent> event = device_.NewEvent().value();
      while (!done.load()) {
        const std::shared_ptr<DeviceBlock> brief = memory_.Allocate(4096, "test").value();
        const std::shared_ptr<PinnedBlock> pinned = memory_.AllocatePinned(4096).value();
        ASSERT_TRUE(device_.CopyOut(DeviceQueue::kCopyOut, pinned->data(), brief->data(), 4096).ok());
        ASSERT_TRUE(device_.Record(DeviceQueue::kCopyOut, event.get()).ok());
        ASSERT_TRUE(device_.Wait(event.get()).ok());
        EXPECT_TRUE(device_.Reached(event.get()).value());
      }
    });
  }
  for (int step = 0; step < 200; ++step) {
    Run([&] {
      for (int i = 0; i < 24; ++i) Call(i, i == 12 ? static_cast<float>(step % 50) / 64 : 1.0f);
    });
  }
  done.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(device_.statistics().calls, 0);
  EXPECT_EQ(device_.statistics().failures, 0);
  EXPECT_EQ(Read(*data_), want_);
}

TEST(DeviceReplayLostTest, ALostDeviceIsAnErrorOfTheNextCall) {
  EmulatedDevice emulated({.lost_after = 3});
  ReplayingDevice device(&emulated);
  DeviceMemory memory(&device);
  const std::shared_ptr<DeviceBlock> data = memory.Allocate(256, "test").value();
  ASSERT_TRUE(device.PutOffCalls(true).ok());
  for (int i = 0; i < 8; ++i) {
    const Step step = {.data = static_cast<float*>(data->data()), .at = 0, .add = 1};
    ASSERT_TRUE(device.Call(PutStep, &step, sizeof(step)).ok());
  }
  EXPECT_TRUE(absl::IsUnavailable(device.WaitForAll()));
  const Step step = {.data = static_cast<float*>(data->data()), .at = 0, .add = 1};
  ASSERT_TRUE(device.Call(PutStep, &step, sizeof(step)).ok());
  EXPECT_TRUE(absl::IsUnavailable(device.PutOffCalls(false)));
}

}  // namespace
}  // namespace weir
