// Jobs whose lanes compute on a device, end to end on the real train loop: on the emulated device, and on CUDA where
// there is one.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/profile/profiler.h"
#include "framework/tensor/device_replay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/device_twin.h"
#include "tests/testing/devices/emulated_device.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::string Directory() {
  static const std::string* const directory = [] {
    const std::string dir = ::testing::TempDir() + "/device";
    std::filesystem::remove_all(dir);
    std::filesystem::create_directories(dir);
    WriteSlotData(dir);
    WriteClickData(dir);
    return new std::string(dir);
  }();
  return *directory;
}

absl::StatusOr<InProcessResult> Train(InProcessRun run) {
  if (run.job_text.empty()) run.job_text = kSlotJob;
  run.directory = Directory();
  run.threads = 2;
  return TrainInProcess(run);
}

// A device for each trainer, whose queues run in an order of their own, and which makes graphs of what repeats.
class Devices {
 public:
  explicit Devices(uint64_t seed, int64_t lost_after = -1, size_t memory = size_t{256} << 20) {
    for (uint64_t trainer = 0; trainer < 4; ++trainer) {
      devices_.push_back(std::make_unique<EmulatedDevice>(EmulatedDeviceOptions{
          .seed = seed + 100 * trainer, .memory = memory, .lost_after = trainer == 0 ? lost_after : -1}));
      graphs_.push_back(std::make_unique<ReplayingDevice>(devices_.back().get()));
      memory_.push_back(std::make_unique<DeviceMemory>(graphs_.back().get()));
    }
  }
  std::function<DeviceMemory*(int)> Of() {
    return [this](int trainer) { return memory_[static_cast<size_t>(trainer)].get(); };
  }
  EmulatedDevice& device(int trainer) { return *devices_[static_cast<size_t>(trainer)]; }
  DeviceMemory::Statistics memory(int trainer) { return memory_[static_cast<size_t>(trainer)]->statistics(); }
  ReplayingDevice::Statistics graphs(int trainer) { return graphs_[static_cast<size_t>(trainer)]->statistics(); }

 private:
  std::vector<std::unique_ptr<EmulatedDevice>> devices_;
  std::vector<std::unique_ptr<ReplayingDevice>> graphs_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
};

TEST(DeviceTrainingTest, TrainsAsWellAsTheCpu) {
  const absl::StatusOr<InProcessResult> cpu = Train({});
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  Devices devices(1);
  const absl::StatusOr<InProcessResult> device = Train({.device = devices.Of()});
  ASSERT_TRUE(device.ok()) << device.status();
  ASSERT_TRUE(cpu->summary.eval.has_value() && device->summary.eval.has_value());
  EXPECT_EQ(device->summary.steps, cpu->summary.steps);
  EXPECT_EQ(device->summary.examples, cpu->summary.examples);
  EXPECT_NEAR(device->summary.train_loss, cpu->summary.train_loss, 1e-4);
  EXPECT_NEAR(device->summary.eval->Measure("auc"), cpu->summary.eval->Measure("auc"), 1e-3);
  EXPECT_GT(device->summary.eval->Measure("auc"), kSlotJobAuc);
  EXPECT_GT(devices.device(0).ran(), 1000);
  EXPECT_GT(devices.graphs(0).replays, 100);
  EXPECT_EQ(devices.graphs(0).failures, 0);
  // The rows of every step are pulled into pinned memory, which is used again and again.
  EXPECT_GE(devices.memory(0).buffers, device->summary.steps);
  EXPECT_LT(devices.memory(0).pinned, size_t{4} << 20);
}

// Whatever order the device's queues run in, and on another device.
TEST(DeviceTrainingTest, TheSameBitsInEveryRun) {
  std::vector<std::string> digests;
  for (const uint64_t seed : {1, 2, 3}) {
    Devices devices(seed);
    const absl::StatusOr<InProcessResult> run =
        Train({.job_text = kClickJob,
               .overrides = {"train.max_steps=50", "train.digest_every_steps=10"},
               .servers = 2,
               .trainers = 2,
               .device = devices.Of()});
    ASSERT_TRUE(run.ok()) << run.status();
    ASSERT_EQ(run->digests.size(), 5u);
    if (digests.empty()) digests = run->digests;
    EXPECT_EQ(run->digests, digests) << "seed " << seed;
  }
}

TEST(DeviceTrainingTest, WithoutLanes) {
  Devices devices(1);
  const absl::StatusOr<InProcessResult> run =
      Train({.overrides = {"train.lanes=0", "distribute.reproducible=false"}, .device = devices.Of()});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_GT(run->summary.eval->Measure("auc"), kSlotJobAuc);
}

TEST(DeviceTrainingTest, InEveryMode) {
  for (const std::vector<std::string>& mode :
       std::vector<std::vector<std::string>>{{"distribute.sync=false"},
                                             {"distribute.sync=false", "distribute.prefetch_rows=true"},
                                             {"train.accumulate_steps=2"},
                                             {"distribute.sync=false", "distribute.geo={}"},
                                             {"distribute.sync=false", "distribute.half_async={}", "train.workers=2"},
                                             {"distribute.memory_optimize=true"}}) {
    std::vector<std::string> overrides = mode;
    SCOPED_TRACE(overrides.back());
    Devices devices(7);
    overrides.push_back("train.epochs=4");
    const absl::StatusOr<InProcessResult> run = Train({.overrides = overrides, .device = devices.Of()});
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_GT(run->summary.eval->Measure("auc"), 0.7);
    EXPECT_GE(devices.memory(0).buffers, run->summary.steps);
  }
}

TEST(DeviceTrainingTest, OperatorsThatTheJobSendsToTheCpuRunThere) {
  Devices devices(1);
  const absl::StatusOr<InProcessResult> wrong =
      Train({.overrides = {"train.cpu_ops=\"rellu\""}, .device = devices.Of()});
  EXPECT_TRUE(absl::IsInvalidArgument(wrong.status())) << wrong.status();
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("train.cpu_ops: "));
  const absl::StatusOr<InProcessResult> on_cpu =
      Train({.overrides = {"train.cpu_ops=\"concat\"", "train.cpu_ops=\"fc_grad\"", "train.epochs=4"},
             .device = devices.Of()});
  ASSERT_TRUE(on_cpu.ok()) << on_cpu.status();
  EXPECT_GT(on_cpu->summary.eval->Measure("auc"), 0.7);
}

// A trace shows the queues of the device, and that gradients leave while it computes on.
TEST(DeviceTrainingTest, ATraceShowsWhatTheDevicesQueuesDid) {
  Devices devices(3);
  Profiler::Process().Start(5, 25);
  const absl::StatusOr<InProcessResult> run = Train({.overrides = {"train.epochs=1"}, .device = devices.Of()});
  Profiler::Process().Stop();
  ASSERT_TRUE(run.ok()) << run.status();
  const Profiler::Recorded recorded = Profiler::Process().Collect();
  std::map<std::string, std::map<int64_t, std::vector<ProfileEvent>>> queues;  // by track and step
  for (const Profiler::Recorded::Thread& thread : recorded.threads) {
    for (const ProfileEvent& event : thread.events) {
      if (event.track != 0) queues[recorded.tracks[event.track]][event.step].push_back(event);
    }
  }
  auto &in = queues["emulated device: copies in"], &compute = queues["emulated device: compute"],
       &out = queues["emulated device: copies out"];
  int early = 0;
  for (int64_t step = 5; step < 25; ++step) {
    ASSERT_FALSE(in[step].empty()) << step;
    ASSERT_FALSE(out[step].empty()) << step;
    ASSERT_GT(compute[step].size(), 10u) << step;
    int64_t computed = 0;
    for (const ProfileEvent& event : compute[step]) computed = std::max(computed, event.end_ns);
    for (const ProfileEvent& event : out[step]) {
      EXPECT_GT(event.bytes_out, 0);
      if (recorded.names[event.detail.id()] == "gradients" && event.end_ns < computed) ++early;
    }
  }
  EXPECT_GT(early, 0) << "the queues' order is random: in some step of 20 a gradient is first";
}

TEST(DeviceTrainingTest, OutOfMemoryNamesTheOperatorAndWhoHoldsHowMuch) {
  Devices devices(1, -1, size_t{64} << 10);
  const absl::StatusOr<InProcessResult> run = Train({.device = devices.Of()});
  EXPECT_TRUE(absl::IsResourceExhausted(run.status())) << run.status();
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("emulated device is out of memory: "));
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("op "));
}

TEST(DeviceTrainingTest, ALostDeviceEndsTheJobAndTheLastCheckpointGoesOn) {
  const std::string checkpoints = Directory() + "/lost";
  const std::vector<std::string> overrides = {absl::StrCat("checkpoint.dir=\"", checkpoints, "\""),
                                              "checkpoint.every_steps=20", "train.epochs=2"};
  {
    Devices devices(1, /*lost_after=*/3000);
    const absl::StatusOr<InProcessResult> run = Train({.overrides = overrides, .device = devices.Of()});
    EXPECT_TRUE(absl::IsUnavailable(run.status())) << run.status();
    EXPECT_THAT(std::string(run.status().message()), HasSubstr("run again with --resume"));
  }
  const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(checkpoints);
  ASSERT_TRUE(newest.ok()) << newest.status();
  Devices devices(2);
  const absl::StatusOr<InProcessResult> resumed =
      Train({.overrides = overrides, .resume = true, .device = devices.Of()});
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  // Compare with a run without a failure.
  Devices undisturbed(3);
  std::vector<std::string> elsewhere = overrides;
  elsewhere[0] = absl::StrCat("checkpoint.dir=\"", Directory(), "/undisturbed\"");
  const absl::StatusOr<InProcessResult> whole = Train({.overrides = elsewhere, .device = undisturbed.Of()});
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_FALSE(resumed->digests.empty());
  EXPECT_EQ(resumed->digests.back(), whole->digests.back());
}

class OnEveryDeviceTest : public DeviceTest {};
INSTANTIATE_DEVICE_TESTS(OnEveryDeviceTest);

TEST_P(OnEveryDeviceTest, TrainsToTheAucThatEveryWayOfTrainingMustReach) {
  const absl::StatusOr<InProcessResult> run = Train({.device = [&](int) { return memory(); }});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_GT(run->summary.eval->Measure("auc"), kSlotJobAuc);
}

}  // namespace
}  // namespace weir
