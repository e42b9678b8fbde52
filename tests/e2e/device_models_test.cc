// Recommender models whose lanes compute on a device: they train as on the CPU, and to the same bits in every run. On
// the emulated device, and on CUDA where there is one.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/device_twin.h"
#include "tests/testing/devices/emulated_device.h"
#include "tests/testing/jobs/history_job.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

constexpr char kSlotData[] = R"(
data {
  train { files: "slots/train.txt" }
  eval { files: "slots/eval.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 4 }
    slot { name: "a" output: "cat" }
    slot { name: "b" output: "cat" }
  }
  ids { shared: "cat" }
  batch_size: 32
}
)";
constexpr char kHistoryData[] = R"(
data {
  train { files: "history/train.txt" }
  eval { files: "history/eval.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 2 }
    slot { name: "item" }
    slot { name: "history" }
  }
  ids { shared: "item" shared: "history" empty: ZERO }
  batch_size: 32
}
)";
constexpr char kDlrm[] = R"(
name: "dlrm"
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "bottom" mlp { input: "x" sizes: [16, 8] activation: RELU } }
  layer { name: "pairs" dot_interaction { input: "bottom" input: "fields" } }
  layer { name: "input" concat { input: "bottom" input: "pairs" input: "fields" } }
  layer { name: "top" mlp { input: "input" sizes: [16, 8] activation: RELU } }
  layer { name: "logit" fc { input: "top" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "vectors" width: 8 is_sparse: true is_distributed: true optimizer { adagrad { learning_rate: 0.1 } } }
optimizer { adam { learning_rate: 0.005 } }
train { seed: 3 epochs: 4 digest_every_steps: 50 }
)";
constexpr char kDcnV2[] = R"(
name: "dcn_v2"
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "input" concat { input: "fields" input: "x" } }
  layer { name: "crossed" cross { input: "input" layers: 2 } }
  layer { name: "low" cross { input: "input" layers: 2 rank: 3 } }
  layer { name: "deep" mlp { input: "input" sizes: [16, 8] activation: RELU } }
  layer { name: "all" concat { input: "crossed" input: "low" input: "deep" } }
  layer { name: "logit" fc { input: "all" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "vectors" width: 8 is_sparse: true is_distributed: true optimizer { adagrad { learning_rate: 0.1 } } }
optimizer { adam { learning_rate: 0.005 } }
train { seed: 3 epochs: 4 digest_every_steps: 50 }
)";
constexpr char kDin[] = R"(
name: "din"
model {
  layer { name: "target" embedding { ids: "item" table: "items" pooling: SUM } }
  layer { name: "read" embedding { ids: "history" table: "items" sequence: 6 padding_id: -1 } }
  layer { name: "interest" attention_pool { query: "target" sequence: "read" sizes: [8] } }
  layer { name: "mean" sequence_pool { input: "read" } }
  layer { name: "input" concat { input: "target" input: "interest" input: "mean" input: "x" } }
  layer { name: "deep" mlp { input: "input" sizes: [16] activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "of_item" embedding { ids: "item" table: "item_biases" pooling: SUM } }
  layer { name: "logit" add { input: "out" input: "of_item" } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table {
  name: "items" width: 8 is_sparse: true is_distributed: true optimizer { adagrad { learning_rate: 0.1 } }
  initializer { uniform { min: -0.5 max: 0.5 } }
}
table { name: "item_biases" width: 1 is_sparse: true is_distributed: true }
optimizer { adam { learning_rate: 0.005 } }
train { seed: 3 epochs: 1 digest_every_steps: 50 }
)";

struct Model {
  std::string name, job;
  // That it must reach with every example seen.
  double auc = 0;
};

// The job of every layer that recommender models are made of, its paths under history/.
std::string HistoryJob() {
  return absl::StrReplaceAll(kHistoryJob, {{"\"train.txt\"", "\"history/train.txt\""},
                                           {"\"eval.txt\"", "\"history/eval.txt\""},
                                           {"epochs: 3", "epochs: 1"}});
}

std::vector<Model> Models() {
  return {{"Dlrm", absl::StrCat(kSlotData, kDlrm), 0.7},
          {"DcnV2", absl::StrCat(kSlotData, kDcnV2), 0.7},
          {"Din", absl::StrCat(kHistoryData, kDin), 0.7},
          {"EveryLayer", HistoryJob(), 0.7},
          // Its matrix "codes" is received whole, and looked up here.
          {"MatrixReceivedWhole", absl::StrReplaceAll(HistoryJob(), {{"fetch: ROWS", "fetch: WHOLE"}}), 0.7}};
}

std::string Directory() {
  static const std::string* const directory = [] {
    const std::string dir = ::testing::TempDir() + "/device_models";
    std::filesystem::remove_all(dir);
    for (const char* data : {"/slots", "/history"}) std::filesystem::create_directories(dir + data);
    WriteSlotData(dir + "/slots");
    WriteHistoryData(dir + "/history");
    return new std::string(dir);
  }();
  return *directory;
}

InProcessResult Train(InProcessRun run) {
  run.directory = Directory();
  run.threads = 2;
  absl::StatusOr<InProcessResult> result = TrainInProcess(run);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *std::move(result) : InProcessResult();
}

// A device for each trainer, whose queues run in an order of their own.
class Devices {
 public:
  explicit Devices(uint64_t seed) {
    for (uint64_t trainer = 0; trainer < 2; ++trainer) {
      devices_.push_back(std::make_unique<EmulatedDevice>(
          EmulatedDeviceOptions{.seed = seed + 100 * trainer, .memory = size_t{256} << 20}));
      memory_.push_back(std::make_unique<DeviceMemory>(devices_.back().get()));
    }
  }
  std::function<DeviceMemory*(int)> Of() {
    return [this](int trainer) { return memory_[static_cast<size_t>(trainer)].get(); };
  }

 private:
  std::vector<std::unique_ptr<EmulatedDevice>> devices_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
};

class DeviceModelsTest : public ::testing::TestWithParam<Model> {};
INSTANTIATE_TEST_SUITE_P(, DeviceModelsTest, ::testing::ValuesIn(Models()),
                         [](const auto& info) { return info.param.name; });

TEST_P(DeviceModelsTest, TrainsAsOnTheCpu) {
  const InProcessResult cpu = Train({.job_text = GetParam().job});
  Devices devices(1);
  const InProcessResult device = Train({.job_text = GetParam().job, .device = devices.Of()});
  ASSERT_TRUE(cpu.summary.eval.has_value() && device.summary.eval.has_value());
  EXPECT_EQ(device.summary.steps, cpu.summary.steps);
  EXPECT_NEAR(device.summary.train_loss, cpu.summary.train_loss, 1e-4);
  EXPECT_NEAR(device.summary.eval->Measure("auc"), cpu.summary.eval->Measure("auc"), 1e-3);
  EXPECT_GT(device.summary.eval->Measure("auc"), GetParam().auc);
}

// Whatever order the device's queues run in, and on another device.
TEST_P(DeviceModelsTest, TheSameBitsInEveryRun) {
  std::vector<std::string> digests;
  for (const uint64_t seed : {1, 2}) {
    Devices devices(seed);
    const InProcessResult run = Train({.job_text = GetParam().job,
                                       .overrides = {"train.max_steps=50", "train.digest_every_steps=10"},
                                       .servers = 2,
                                       .trainers = 2,
                                       .device = devices.Of()});
    ASSERT_EQ(run.digests.size(), 5u);
    if (digests.empty()) digests = run.digests;
    EXPECT_EQ(run.digests, digests) << "seed " << seed;
  }
}

TEST_P(DeviceModelsTest, WithMemoryOptimized) {
  Devices devices(3);
  std::vector<std::string> few = {"train.max_steps=50", "train.digest_every_steps=10"};
  const InProcessResult apart = Train({.job_text = GetParam().job, .overrides = few, .device = devices.Of()});
  few.push_back("distribute.memory_optimize=true");
  const InProcessResult shared = Train({.job_text = GetParam().job, .overrides = few, .device = devices.Of()});
  ASSERT_EQ(apart.digests.size(), 5u);
  EXPECT_EQ(shared.digests, apart.digests);
}

class ModelsOnCudaTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(, ModelsOnCudaTest, ::testing::Values("CUDA"));

TEST_P(ModelsOnCudaTest, ReachTheirAuc) {
  for (const Model& model : Models()) {
    SCOPED_TRACE(model.name);
    const InProcessResult run = Train({.job_text = model.job, .device = [&](int) { return memory(); }});
    ASSERT_TRUE(run.summary.eval.has_value());
    EXPECT_GT(run.summary.eval->Measure("auc"), model.auc);
  }
}

}  // namespace
}  // namespace weir
