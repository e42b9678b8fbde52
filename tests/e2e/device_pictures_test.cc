// The network of the fashion_mnist example with convolutions, pooling, batch normalisation and dropout, on made-up
// pictures, with lanes that compute on a device: on the emulated device, and on CUDA where there is one.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/device_twin.h"
#include "tests/testing/devices/emulated_device.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

constexpr int kTrain = 300, kEval = 70;

// IDX: bytes 0, 0, the type, the number of dims; the dims, big-endian; the values.
void WriteIdx(const std::string& file, const std::vector<uint32_t>& dims, const std::string& values) {
  std::ofstream out(file, std::ios::binary);
  out << std::string({0, 0, 8, static_cast<char>(dims.size())});
  for (const uint32_t d : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) out << static_cast<char>(d >> shift & 255);
  }
  out << values;
}

// Grey noise with a bright line, whose place is the class.
void WritePictures(const std::string& images, const std::string& labels, uint64_t first, uint32_t count) {
  std::string pixels, classes;
  for (uint64_t n = first; n < first + count; ++n) {
    const uint32_t label = Philox(1, n, 0).v[0] % 10;
    classes += static_cast<char>(label);
    for (uint32_t i = 0; i < 784; ++i) {
      const uint32_t noise = Philox(2, n, i).v[0] % 100;
      pixels += static_cast<char>(i / 28 / 2 == 2 + label ? 155 + noise : noise);
    }
  }
  WriteIdx(images, {count, 28, 28}, pixels);
  WriteIdx(labels, {count}, classes);
}

std::string Directory() {
  static const std::string* const directory = [] {
    const std::string dir = ::testing::TempDir() + "/device_pictures";
    std::filesystem::remove_all(dir);
    std::filesystem::create_directories(dir + "/data");
    WritePictures(dir + "/data/train-images-idx3-ubyte", dir + "/data/train-labels-idx1-ubyte", 0, kTrain);
    WritePictures(dir + "/data/t10k-images-idx3-ubyte", dir + "/data/t10k-labels-idx1-ubyte", kTrain, kEval);
    return new std::string(dir);
  }();
  return *directory;
}

InProcessResult Train(std::vector<std::string> overrides, std::function<DeviceMemory*(int)> device, int trainers = 1,
                      bool resume = false) {
  std::ifstream job("examples/fashion_mnist/cnn.textproto");
  overrides.insert(overrides.begin(), {"checkpoint.dir=\"\"", "checkpoint.every_steps=0", "data.batch_size=64"});
  absl::StatusOr<InProcessResult> result =
      TrainInProcess({.job_text = std::string(std::istreambuf_iterator<char>(job), {}),
                      .directory = Directory(),
                      .overrides = std::move(overrides),
                      .trainers = trainers,
                      .threads = 2,
                      .resume = resume,
                      .device = std::move(device)});
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : InProcessResult();
}

class DevicePicturesTest : public DeviceTest {};
INSTANTIATE_DEVICE_TESTS(DevicePicturesTest);

TEST_P(DevicePicturesTest, TheFirstStepsLoseWhatTheyLoseOnTheCpu) {
  for (const int steps : {1, 2, 4}) {
    const std::vector<std::string> overrides = {absl::StrCat("train.max_steps=", steps)};
    const InProcessResult cpu = Train(overrides, {}), device = Train(overrides, [&](int) { return memory(); });
    EXPECT_EQ(device.summary.steps, steps);
    EXPECT_EQ(device.summary.examples, 64 * steps);
    // Means over the steps so far.
    EXPECT_NEAR(device.summary.train_loss, cpu.summary.train_loss, 1e-4) << steps;
    ASSERT_TRUE(device.summary.eval.has_value());
    EXPECT_EQ(device.summary.eval->samples, kEval);
  }
}

TEST_P(DevicePicturesTest, EvaluationTakesTheRunningValues) {
  const std::string checkpoints = absl::StrCat("checkpoint.dir=\"", Directory(), "/", GetParam(), "\"");
  const InProcessResult device = Train({checkpoints, "train.max_steps=4"}, [&](int) { return memory(); });
  ASSERT_TRUE(device.summary.eval.has_value());
  // From the device's checkpoint, on the CPU, where nothing is left to train: it takes the running values, which after
  // four steps are far from those of a batch.
  const InProcessResult cpu = Train({checkpoints, "train.max_steps=4"}, {}, /*trainers=*/1, /*resume=*/true);
  ASSERT_TRUE(cpu.summary.eval.has_value());
  EXPECT_EQ(cpu.summary.steps, 4);
  EXPECT_NEAR(device.summary.eval->Measure("loss"), cpu.summary.eval->Measure("loss"), 1e-5);
}

TEST_P(DevicePicturesTest, LearnsWhatThePicturesShow) {
  const InProcessResult device =
      Train({"train.epochs=6", "optimizer.schedule.cosine.decay_steps=30"}, [&](int) { return memory(); });
  ASSERT_TRUE(device.summary.eval.has_value());
  EXPECT_EQ(device.summary.examples + device.summary.left_out, 6 * kTrain);
  EXPECT_GT(device.summary.eval->Measure("accuracy"), 0.9);
}

// Whatever order the device's queues run in.
TEST(EmulatedDevicePicturesTest, TheSameBitsInEveryRun) {
  std::vector<std::string> digests;
  for (const uint64_t seed : {1, 2}) {
    std::vector<std::unique_ptr<EmulatedDevice>> devices;
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    for (uint64_t trainer = 0; trainer < 2; ++trainer) {
      devices.push_back(std::make_unique<EmulatedDevice>(EmulatedDeviceOptions{.seed = seed + 100 * trainer}));
      memory.push_back(std::make_unique<DeviceMemory>(devices.back().get()));
    }
    const InProcessResult run = Train(
        {"train.max_steps=5", "train.digest_every_steps=1"},
        [&](int trainer) { return memory[static_cast<size_t>(trainer)].get(); }, /*trainers=*/2);
    ASSERT_GE(run.digests.size(), 5u);
    if (digests.empty()) digests = run.digests;
    EXPECT_EQ(run.digests, digests) << "seed " << seed;
  }
}

}  // namespace
}  // namespace weir
