// Device memory and copies, on the emulated device: what is held to be true of every DeviceRuntime.
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "framework/tensor/cuda_device.h"
#include "framework/tensor/device_memory.h"
#include "framework/tensor/device_tensor.h"
#include "framework/tensor/device_transfers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/emulated_device.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

absl::Status In(DeviceTransfers& transfers, const std::vector<float>& values, float* device) {
  return transfers.In(device, {{.data = values.data(), .bytes = values.size() * sizeof(float)}});
}

absl::StatusOr<std::shared_ptr<Arrival>> Out(DeviceTransfers& transfers, const float* device, size_t n) {
  return transfers.Out({{.data = device, .bytes = n * sizeof(float)}});
}

std::vector<float> Arrived(Arrival& arrival, size_t n) {
  const absl::StatusOr<const void*> bytes = arrival.Wait();
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  const float* const from = static_cast<const float*>(*bytes);
  return std::vector<float>(from, from + n);
}

// out = x + 1 in the compute queue.
absl::Status AddOne(DeviceTransfers& transfers, const float* x, float* out, size_t n) {
  absl::Status status = transfers.BeforeCompute();
  if (!status.ok()) return status;
  transfers.AfterCompute();
  return transfers.runtime()->RunLoop(DeviceQueue::kCompute, [=] {
    for (size_t i = 0; i < n; ++i) out[i] = x[i] + 1;
  });
}

TEST(DeviceMemoryTest, MemoryGivenBackIsGivenOutAgain) {
  EmulatedDevice device;
  DeviceMemory memory(&device);
  void* first = nullptr;
  {
    absl::StatusOr<std::shared_ptr<DeviceBlock>> block = memory.Allocate(1000, "parameters");
    ASSERT_TRUE(block.ok());
    first = (*block)->data();
    EXPECT_EQ(memory.statistics().in_use, 1024u);
    EXPECT_EQ(memory.statistics().owners[0].owner, "parameters");
  }
  EXPECT_EQ(memory.statistics().in_use, 0u);
  EXPECT_EQ(memory.statistics().kept, 1024u);
  absl::StatusOr<std::shared_ptr<DeviceBlock>> again = memory.Allocate(900, "rows");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->data(), first);
  EXPECT_EQ(memory.statistics().most_in_use, 1024u);
}

// Work that still uses what was given back ends before its next owner's begins, in whatever queue.
TEST(DeviceMemoryTest, TheNextOwnerWaitsForTheLastOnesWork) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EmulatedDevice device({.seed = seed});
    DeviceMemory memory(&device);
    DeviceTransfers transfers(&memory);
    float* of_first = nullptr;
    float* result = nullptr;
    absl::StatusOr<std::shared_ptr<DeviceBlock>> kept = memory.Allocate(4096, "result");
    ASSERT_TRUE(kept.ok());
    result = static_cast<float*>((*kept)->data());
    {
      absl::StatusOr<std::shared_ptr<DeviceBlock>> first = memory.Allocate(4096, "first");
      ASSERT_TRUE(first.ok());
      of_first = static_cast<float*>((*first)->data());
      ASSERT_OK(In(transfers, std::vector<float>(8, 1), of_first));
      ASSERT_OK(AddOne(transfers, of_first, result, 8));
    }
    absl::StatusOr<std::shared_ptr<DeviceBlock>> second = memory.Allocate(4096, "second");
    ASSERT_TRUE(second.ok());
    ASSERT_EQ((*second)->data(), of_first);
    // By another's copies, which know nothing of the first's.
    DeviceTransfers others(&memory);
    ASSERT_OK(In(others, std::vector<float>(8, 100), of_first));
    ASSERT_OK(device.WaitForAll());
    absl::StatusOr<std::shared_ptr<Arrival>> out = Out(transfers, result, 8);
    ASSERT_TRUE(out.ok());
    EXPECT_THAT(Arrived(**out, 8), Each(2.0f)) << "seed " << seed;
  }
}

TEST(DeviceMemoryTest, OutOfMemorySaysWhoHoldsHowMuch) {
  EmulatedDevice device({.memory = size_t{64} << 20});
  DeviceMemory memory(&device);
  absl::StatusOr<std::shared_ptr<DeviceBlock>> parameters = memory.Allocate(size_t{40} << 20, "parameters");
  absl::StatusOr<std::shared_ptr<DeviceBlock>> rows = memory.Allocate(size_t{10} << 20, "rows of the step");
  ASSERT_TRUE(parameters.ok() && rows.ok());
  const absl::Status status = memory.Allocate(size_t{20} << 20, "variables of lanes").status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("emulated device is out of memory: variables of lanes needs 20.0 MiB"),
                    HasSubstr("held are 50.0 MiB of 64.0 MiB: parameters 40.0 MiB, rows of the step 10.0 MiB"),
                    HasSubstr("a smaller data.batch_size")));
}

TEST(DeviceMemoryTest, WhatIsKeptGoesBackBeforeMemoryIsOut) {
  EmulatedDevice device({.memory = size_t{64} << 20});
  DeviceMemory memory(&device);
  ASSERT_TRUE(memory.Allocate(size_t{10} << 20, "small").ok());  // given back at once
  EXPECT_EQ(memory.statistics().kept, size_t{10} << 20);
  absl::StatusOr<std::shared_ptr<DeviceBlock>> large = memory.Allocate(size_t{60} << 20, "large");
  EXPECT_TRUE(large.ok()) << large.status();
  EXPECT_EQ(memory.statistics().kept, 0u);
}

TEST(EmulatedDeviceDeathTest, TheHostCannotTouchDeviceMemory) {
  EmulatedDevice device;
  absl::StatusOr<void*> memory = device.Allocate(64);
  ASSERT_TRUE(memory.ok());
  volatile float* const values = static_cast<float*>(*memory);
  EXPECT_DEATH(values[0] = 1, "");
  device.Free(*memory);
}

// The waits that the emulation is there to find: a copy that nobody waits for has not happened.
TEST(EmulatedDeviceTest, QueuesWithoutAnEventBetweenThemRunInAnyOrder) {
  int early = 0, late = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    EmulatedDevice device({.seed = seed});
    bool copied = false, seen = false;
    ASSERT_OK(device.RunLoop(DeviceQueue::kCopyIn, [&] { copied = true; }));
    ASSERT_OK(device.RunLoop(DeviceQueue::kCompute, [&] { seen = copied; }));
    EXPECT_FALSE(copied);
    ASSERT_OK(device.WaitForAll());
    ++(seen ? late : early);
  }
  EXPECT_GT(early, 0);
  EXPECT_GT(late, 0);
}

TEST(DeviceTransfersTest, ComputeSeesWhatWasBroughtAndOutTakesWhatWasComputed) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    EmulatedDevice device({.seed = seed});
    DeviceMemory memory(&device);
    DeviceTransfers transfers(&memory);
    absl::StatusOr<std::shared_ptr<DeviceBlock>> block = memory.Allocate(1024, "test");
    ASSERT_TRUE(block.ok());
    float* const x = static_cast<float*>((*block)->data());
    float* const y = x + 64;
    std::vector<std::shared_ptr<Arrival>> arrivals;
    for (int step = 0; step < 5; ++step) {
      // Brought over what the kernel before reads; computed over what the copy before takes.
      ASSERT_OK(In(transfers, std::vector<float>(64, static_cast<float>(10 * step)), x));
      ASSERT_OK(transfers.HoldForCopiesOut());
      ASSERT_OK(AddOne(transfers, x, y, 64));
      absl::StatusOr<std::shared_ptr<Arrival>> out = Out(transfers, y, 64);
      ASSERT_TRUE(out.ok());
      arrivals.push_back(*out);
    }
    for (int step = 4; step >= 0; --step) {
      EXPECT_THAT(Arrived(*arrivals[static_cast<size_t>(step)], 64), Each(10.0f * static_cast<float>(step) + 1))
          << "seed " << seed;
    }
    EXPECT_EQ(transfers.bytes_in(), 5 * 256);
    EXPECT_EQ(transfers.bytes_out(), 5 * 256);
  }
}

// Each step lands what it computes with; nobody waits between the steps, and each sees its own.
TEST(DeviceTransfersTest, WhatLandsForTheNextStepWaitsForTheLastButOne) {
  constexpr size_t kSize = 1000;
  int early = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    EmulatedDevice device({.seed = seed});
    DeviceMemory memory(&device);
    DeviceTransfers transfers(&memory);
    ASSERT_TRUE(transfers.spans().Record(0).ok());
    DeviceLanding landing;
    const std::shared_ptr<DeviceBlock> result = memory.Allocate(8 * kSize * sizeof(float), "test").value();
    float* const out = static_cast<float*>(result->data());
    std::vector<const void*> places;
    for (int step = 0; step < 8; ++step) {
      const size_t n = step < 5 ? kSize / 2 : kSize;
      const std::vector<float> values(n, static_cast<float>(step));
      const absl::StatusOr<std::shared_ptr<DeviceBlock>> block =
          transfers.Land(&landing, {{.data = values.data(), .bytes = n * sizeof(float)}}, "test", "values");
      ASSERT_TRUE(block.ok()) << block.status();
      places.push_back((*block)->data());
      ASSERT_TRUE(transfers.spans().Begin(DeviceQueue::kCompute, "add", "").ok());
      ASSERT_TRUE(AddOne(transfers, static_cast<const float*>((*block)->data()), out + step * kSize, n).ok());
      ASSERT_TRUE(transfers.spans().End(DeviceQueue::kCompute).ok());
    }
    const absl::StatusOr<std::shared_ptr<Arrival>> arrival = Out(transfers, out, 8 * kSize);
    ASSERT_TRUE(arrival.ok());
    const std::vector<float> got = Arrived(**arrival, 8 * kSize);
    for (size_t step = 0; step < 8; ++step) {
      const size_t n = step < 5 ? kSize / 2 : kSize;
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(got[step * kSize + i], static_cast<float>(step + 1)) << "seed " << seed << " step " << step;
      }
    }
    EXPECT_NE(places[0], places[1]);
    EXPECT_EQ(places[2], places[0]);
    EXPECT_EQ(places[3], places[1]);
    const absl::StatusOr<std::vector<DeviceSpans::Span>> spans = transfers.spans().Take(/*wait=*/true);
    ASSERT_TRUE(spans.ok()) << spans.status();
    std::vector<DeviceSpans::Span> in, compute;
    for (const DeviceSpans::Span& span : *spans) {
      if (span.queue == DeviceQueue::kCopyIn) in.push_back(span);
      if (span.queue == DeviceQueue::kCompute) compute.push_back(span);
    }
    ASSERT_EQ(in.size(), 8u);
    ASSERT_EQ(compute.size(), 8u);
    for (size_t step = 1; step < 8; ++step) {
      early += in[step].end_ns < compute[step - 1].end_ns ? 1 : 0;
      // Memory that is larger than the last is new, and nobody reads it.
      if (step >= 2 && step != 5 && step != 6) {
        EXPECT_LE(compute[step - 2].end_ns, in[step].end_ns) << "seed " << seed << " step " << step;
      }
    }
  }
  // Whether a copy comes before the last step's end is the queues' choice: both happen.
  EXPECT_GT(early, 10);
  EXPECT_LT(early, 50 * 7);
}

TEST(DeviceTransfersTest, PiecesLieOneAfterTheOther) {
  EmulatedDevice device;
  DeviceMemory memory(&device);
  DeviceTransfers transfers(&memory);
  absl::StatusOr<std::shared_ptr<DeviceBlock>> block = memory.Allocate(64, "test");
  ASSERT_TRUE(block.ok());
  float* const x = static_cast<float*>((*block)->data());
  const std::vector<float> a = {1, 2}, b = {3};
  ASSERT_OK(transfers.In(x, {{.data = a.data(), .bytes = 8}, {}, {.data = b.data(), .bytes = 4}}));
  absl::StatusOr<std::shared_ptr<Arrival>> out = transfers.Out({{.data = x + 2, .bytes = 4}, {.data = x, .bytes = 8}});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(Arrived(**out, 3), (std::vector<float>{3, 1, 2}));
}

// Rows of step after step, in memory that is taken anew for each: nobody waits, and no copy sees the next step's.
TEST(DeviceTransfersTest, PinnedPiecesAreCopiedFromWhereTheyLie) {
  constexpr int64_t kRows = 300;
  constexpr size_t kBytes = kRows * sizeof(float);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EmulatedDevice device({.seed = seed});
    DeviceMemory memory(&device);
    DeviceTransfers transfers(&memory);
    const std::shared_ptr<DeviceBlock> block = memory.Allocate(10 * 3 * kBytes, "test").value();
    float* const x = static_cast<float*>(block->data());
    Tensor rows;
    for (int step = 0; step < 10; ++step) {
      const std::vector<float> unpinned(kRows, static_cast<float>(100 + step));
      rows.Renew(v1::FLOAT32, {kRows}, &memory);
      ASSERT_NE(rows.pinned(), nullptr);
      std::fill_n(rows.data<float>(), kRows, static_cast<float>(step));
      const DeviceTransfers::Piece pinned = {.data = rows.raw(), .bytes = kBytes, .pinned = rows.pinned()};
      const DeviceTransfers::Piece staged = {.data = unpinned.data(), .bytes = kBytes};
      const std::vector<std::vector<DeviceTransfers::Piece>> orders = {
          {staged, staged, pinned}, {staged, pinned, staged}, {pinned, staged, staged}};
      ASSERT_OK(transfers.In(x + 3 * kRows * step, orders[static_cast<size_t>(step) % 3]));
      if (step == 6) ASSERT_OK(device.WaitForAll());
    }
    rows.Clear();
    const absl::StatusOr<std::shared_ptr<Arrival>> out = Out(transfers, x, 10 * 3 * kRows);
    ASSERT_TRUE(out.ok());
    const std::vector<float> got = Arrived(**out, 10 * 3 * kRows);
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t step = i / (3 * kRows), piece = i / kRows % 3;
      ASSERT_EQ(got[i], static_cast<float>(piece == 2 - step % 3 ? step : 100 + step))
          << "seed " << seed << " at " << i;
    }
    EXPECT_EQ(transfers.bytes_in(), static_cast<int64_t>(30 * kBytes));
    EXPECT_EQ(transfers.bytes_staged(), static_cast<int64_t>(20 * kBytes));
  }
}

TEST(DeviceTransfersTest, PinnedMemoryIsUsedAgainWhenItsCopyIsOver) {
  EmulatedDevice device;
  DeviceMemory memory(&device);
  DeviceTransfers transfers(&memory);
  const std::shared_ptr<DeviceBlock> block = memory.Allocate(4096, "test").value();
  Tensor rows;
  for (int step = 0; step < 50; ++step) {
    rows.Renew(v1::FLOAT32, {1000}, &memory);
    ASSERT_OK(transfers.In(block->data(), {{.data = rows.raw(), .bytes = 4000, .pinned = rows.pinned()}}));
    ASSERT_OK(device.WaitForAll());
  }
  // Those of one copy, of the next, and what is being filled.
  EXPECT_LE(memory.statistics().pinned, 3u * 4096);
  // No rows at all are rows.
  rows.Renew(v1::FLOAT32, {0, 8}, &memory);
  EXPECT_TRUE(rows.initialized());
  EXPECT_EQ(rows.size(), 0);
  rows.Clear();
}

TEST(DeviceMemoryTest, RowsLeavePinnedMemoryToCopiesWhenThereIsNoMore) {
  EmulatedDevice device({.pinned = 10000});
  DeviceMemory memory(&device);
  Tensor small, large;
  small.Renew(v1::FLOAT32, {1000}, &memory);
  EXPECT_NE(small.pinned(), nullptr);
  ASSERT_TRUE(memory.AllocatePinned(4000).ok());  // given back at once
  large.Renew(v1::FLOAT32, {2000}, &memory);
  EXPECT_EQ(large.pinned(), nullptr);
  ASSERT_EQ(large.size(), 2000);
  large.data<float>()[1999] = 1;
  // A copy needs as much: what is kept makes room for it.
  small.Clear();
  ASSERT_TRUE(memory.AllocatePinned(9000).ok());
  EXPECT_EQ(memory.statistics().pinned, 9216u);
  // Rows reuse the returned memory; no more is allocated for them.
  large.Renew(v1::FLOAT32, {2000}, &memory);
  EXPECT_NE(large.pinned(), nullptr);
  small.Renew(v1::FLOAT32, {100}, &memory);
  EXPECT_EQ(small.pinned(), nullptr);
  EXPECT_EQ(memory.statistics().pinned, 9216u);
  // Ordinary memory, which no device reads, is kept from step to step.
  const void* const kept = small.raw();
  small.Renew(v1::FLOAT32, {90}, &memory);
  EXPECT_EQ(small.raw(), kept);
  large.Clear();
}

// Ordinary memory serves where a process may pin no more.
TEST(TensorTest, WithoutPinnedMemoryRowsLieInOrdinaryMemory) {
  class None : public PinnedMemory {
   public:
    std::shared_ptr<Buffer> NewBuffer(size_t) override { return nullptr; }
  };
  None none;
  Tensor rows;
  rows.Renew(v1::FLOAT32, {5}, &none);
  EXPECT_EQ(rows.pinned(), nullptr);
  ASSERT_EQ(rows.size(), 5);
  rows.span<float>()[4] = 1;
}

TEST(DeviceTransfersTest, ALostDeviceIsAnErrorForEveryone) {
  EmulatedDevice device({.lost_after = 2});
  DeviceMemory memory(&device);
  DeviceTransfers transfers(&memory);
  absl::StatusOr<std::shared_ptr<DeviceBlock>> block = memory.Allocate(64, "test");
  ASSERT_TRUE(block.ok());
  float* const x = static_cast<float*>((*block)->data());
  ASSERT_OK(In(transfers, {1}, x));
  ASSERT_OK(AddOne(transfers, x, x, 1));
  absl::StatusOr<std::shared_ptr<Arrival>> out = Out(transfers, x, 1);
  ASSERT_TRUE(out.ok());
  const absl::Status status = (*out)->Wait().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("run again with --resume"));
  EXPECT_TRUE(absl::IsUnavailable(In(transfers, {1}, x)));
}

TEST(DeviceTensorTest, LanesArePacked) {
  EmulatedDevice device;
  DeviceMemory memory(&device);
  DeviceTensor t;
  EXPECT_FALSE(t.initialized());
  ASSERT_OK(t.Resize(&memory, "test", v1::FLOAT32, 3, {5, 0, 1}, {2, 3}));
  EXPECT_TRUE(t.packed());
  EXPECT_EQ(t.rows(), 6);
  EXPECT_EQ(t.size(), 36);
  EXPECT_EQ(t.begin(2), 30);
  EXPECT_EQ(t.dims(0), Shape({5, 2, 3}));
  EXPECT_EQ(t.dims(1), Shape({0, 2, 3}));
  // Smaller: the same memory.
  void* const memory_before = t.raw();
  ASSERT_OK(t.Resize(&memory, "test", v1::FLOAT32, 2, {1, 1}, {4}));
  EXPECT_EQ(t.raw(), memory_before);
  t.Clear();
  EXPECT_FALSE(t.initialized());
  EXPECT_EQ(memory.statistics().in_use, 0u);
}

TEST(DeviceTensorTest, AViewOfEachLanesGradient) {
  EmulatedDevice device;
  DeviceMemory memory(&device);
  DeviceTensor t;
  ASSERT_OK(t.Resize(&memory, "test", v1::FLOAT32, 2, {6, 6}, {4}));
  const DeviceTensor view = t.View(16, 2, 2, {4});
  EXPECT_FALSE(view.packed());
  EXPECT_EQ(view.data<float>(0), t.data<float>(0) + 16);
  EXPECT_EQ(view.data<float>(1), t.data<float>(1) + 16);
  EXPECT_EQ(view.dims(1), Shape({2, 4}));
  EXPECT_TRUE(view.SharesMemoryWith(t));
}

TEST(CudaDeviceTest, WhatCannotBeOpenedIsAnErrorOfTheUsersThatSaysWhy) {
  if (OpenCudaDevice(0).ok()) {
    const absl::Status status = OpenCudaDevice(1000).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(Message(status), HasSubstr("there is no CUDA device 1000; this process sees 0"));
    return;
  }
  const absl::Status status = OpenCudaDevice(0).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(Message(status), ::testing::AnyOf(HasSubstr("no CUDA device"), HasSubstr("driver is too old")));
}

}  // namespace
}  // namespace weir
