// NCCL itself on CUDA devices, where the machine has both. What needs two devices is skipped where there is one.

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "framework/tensor/cuda_device.h"
#include "framework/tensor/cuda_machine.h"
#include "framework/tensor/device_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/collective/nccl_communicator.h"
#include "pserver/collective/nccl_mesh.h"

namespace weir {
namespace {

using ::testing::Each;

class NcclCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<const NcclLibrary*> loaded = NcclLibrary::Load();
    if (!loaded.ok()) GTEST_SKIP() << loaded.status().message();
    library_ = *loaded;
    const absl::StatusOr<std::unique_ptr<ReplayingDevice>> device = OpenCudaDevice(0);
    if (!device.ok()) GTEST_SKIP() << device.status().message();
  }
  NcclUniqueId NewId() {
    NcclUniqueId id;
    EXPECT_EQ(library_->functions().get_unique_id(&id), kNcclSuccess);
    return id;
  }
  const NcclLibrary* library_ = nullptr;
};

TEST_F(NcclCudaTest, AGroupOfOneRankReducesSendsToItselfAndEnds) {
  const auto device = *OpenCudaDevice(0);
  DeviceMemory memory(device.get());
  auto formed = NcclCommunicator::Connect({.library = library_, .id = NewId(), .device = device.get()});
  ASSERT_TRUE(formed.ok()) << formed.status();
  constexpr size_t kCount = 100000;
  const auto pinned = *memory.AllocatePinned(kCount * sizeof(float));
  float* const host = static_cast<float*>(pinned->data());
  std::fill(host, host + kCount, 3.0f);
  const auto from = *memory.Allocate(kCount * sizeof(float), "test"),
             to = *memory.Allocate(kCount * sizeof(float), "t");
  ASSERT_TRUE(device->CopyIn(DeviceQueue::kCompute, from->data(), host, kCount * sizeof(float)).ok());
  const absl::Status reduced = (*formed)->AllReduce(from->data(), from->data(), kCount, v1::FLOAT32, Reduction::kSum);
  ASSERT_TRUE(reduced.ok()) << reduced;
  const absl::Status exchanged = (*formed)->Exchange({{0, from->data(), kCount * 4}}, {{0, to->data(), kCount * 4}});
  ASSERT_TRUE(exchanged.ok()) << exchanged;
  std::memset(host, 0, kCount * sizeof(float));
  ASSERT_TRUE(device->CopyOut(DeviceQueue::kCompute, host, to->data(), kCount * sizeof(float)).ok());
  ASSERT_TRUE(device->WaitForAll().ok());
  EXPECT_THAT(absl::MakeConstSpan(host, kCount), Each(3.0f));
  EXPECT_TRUE((*formed)->Error().ok());
}

TEST_F(NcclCudaTest, AGroupThatDoesNotFormIsAbortedAtItsDeadline) {
  const auto device = *OpenCudaDevice(0);
  const absl::Time begin = Clock::Real()->Now();
  const absl::Status status = NcclCommunicator::Connect({.library = library_,
                                                         .id = NewId(),
                                                         .rank = 0,
                                                         .size = 2,
                                                         .device = device.get(),
                                                         .connect_deadline = absl::Seconds(3)})
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(30));
}

TEST_F(NcclCudaTest, TwoRanksOnOneDeviceAreRefused) {
  const NcclUniqueId id = NewId();
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const auto device = *OpenCudaDevice(0);
      const absl::Status status = NcclCommunicator::Connect({.library = library_,
                                                             .id = id,
                                                             .rank = r,
                                                             .size = 2,
                                                             .device = device.get(),
                                                             .connect_deadline = absl::Seconds(60)})
                                      .status();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(NcclCudaTest, RanksOnDevicesOfTheirOwnAddInTheLaneTree) {
  const int ranks = static_cast<int>(DescribeCudaMachine().devices.size());
  if (ranks < 2) GTEST_SKIP() << "one device";
  LocalMeshes local(ranks);
  Mutex mu;
  CondVar changed;
  std::vector<std::string> contributions(static_cast<size_t>(ranks));
  int come = 0;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto device = *OpenCudaDevice(r);
      const auto exchange = [&, r](const std::string&, const std::string& mine) {
        MutexLock lock(&mu);
        contributions[static_cast<size_t>(r)] = mine;
        ++come;
        changed.SignalAll();
        while (come < ranks) changed.Wait(&mu);
        return absl::StatusOr<std::vector<std::string>>(contributions);
      };
      const auto mesh = ConnectNcclMesh({.control = local.mesh(r),
                                         .library = library_,
                                         .device = device.get(),
                                         .device_identity = *CudaDeviceIdentity(r),
                                         .exchange = exchange,
                                         .connect_deadline = absl::Seconds(60)});
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      Collective collective(mesh->get(), {});
      std::vector<float> values(3000000, static_cast<float>(r + 1));
      const absl::Status status =
          collective
              .AllReduce({.name = "g", .shape = {3000000}, .addends = collective.Own(values.data())}, values.data())
              ->Wait();
      ASSERT_TRUE(status.ok()) << status;
      const int sum = ranks * (ranks + 1) / 2;
      EXPECT_THAT(values, Each(static_cast<float>(sum)));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace weir
