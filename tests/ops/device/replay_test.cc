// The executor on a device that makes graphs (framework/tensor/device_replay.h): the bits are those of every operator
// launched for itself, whatever changes from step to step.
#include <memory>
#include <string>
#include <vector>

#include "framework/base/philox.h"
#include "framework/device/device_executor.h"
#include "framework/graph/op_registry.h"
#include "framework/tensor/cuda_device.h"
#include "framework/tensor/device_replay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/device_twin.h"
#include "tests/testing/devices/emulated_device.h"

namespace weir {
namespace {

constexpr int64_t kIn = 6, kHidden = 8;

void Declare(v1::BlockDesc* block, const std::string& name, std::vector<int64_t> dims, bool lasts) {
  v1::VarDesc* var = block->add_vars();
  var->set_name(name);
  var->set_kind(v1::DENSE);
  var->set_dtype(v1::FLOAT32);
  for (int64_t d : dims) var->add_dims(d);
  var->set_persistable(lasts);
}

// Two layers with dropout between them, forward and backward.
v1::ProgramDesc Network() {
  v1::ProgramDesc program;
  v1::BlockDesc* const block = program.add_blocks();
  block->set_parent(-1);
  Declare(block, "x", {-1, kIn}, false);
  Declare(block, "label", {-1, 1}, false);
  Declare(block, "w1", {kIn, kHidden}, true);
  Declare(block, "b1", {kHidden}, true);
  Declare(block, "w2", {kHidden, 1}, true);
  Declare(block, "b2", {1}, true);
  for (const char* name : {"h", "mask", "d", "y", "loss", "dloss", "dy", "dd", "dw2", "db2", "dh", "dw1", "db1"})
    Declare(block, name, {-1, 1}, false);
  const auto add = [&](v1::OpDesc op) { *block->add_ops() = std::move(op); };
  add(MakeOp("fc", {{"X", {"x"}}, {"W", {"w1"}}, {"Bias", {"b1"}}}, {{"Out", {"h"}}}, {AttrS("activation", "relu")}));
  add(MakeOp("dropout", {{"X", {"h"}}}, {{"Out", {"d"}}, {"Mask", {"mask"}}},
             {AttrF("rate", 0.5), AttrS("layer", "d")}));
  add(MakeOp("fc", {{"X", {"d"}}, {"W", {"w2"}}, {"Bias", {"b2"}}}, {{"Out", {"y"}}},
             {AttrS("activation", "identity")}));
  add(MakeOp("sigmoid_cross_entropy_with_logits", {{"X", {"y"}}, {"Label", {"label"}}}, {{"Out", {"loss"}}}));
  add(MakeOp("fill_like_batch", {{"X", {"loss"}}}, {{"Out", {"dloss"}}}, {AttrF("value", 0.125)}));
  add(MakeOp("sigmoid_cross_entropy_with_logits_grad", {{"X", {"y"}}, {"Label", {"label"}}, {"Out@GRAD", {"dloss"}}},
             {{"X@GRAD", {"dy"}}}));
  add(MakeOp("fc_grad", {{"X", {"d"}}, {"W", {"w2"}}, {"Bias", {"b2"}}, {"Out", {"y"}}, {"Out@GRAD", {"dy"}}},
             {{"X@GRAD", {"dd"}}, {"W@GRAD", {"dw2"}}, {"Bias@GRAD", {"db2"}}}, {AttrS("activation", "identity")}));
  add(MakeOp("dropout_grad", {{"Mask", {"mask"}}, {"Out@GRAD", {"dd"}}}, {{"X@GRAD", {"dh"}}}));
  add(MakeOp("fc_grad", {{"X", {"x"}}, {"W", {"w1"}}, {"Bias", {"b1"}}, {"Out", {"h"}}, {"Out@GRAD", {"dh"}}},
             {{"W@GRAD", {"dw1"}}, {"Bias@GRAD", {"db1"}}}, {AttrS("activation", "relu")}));
  return program;
}

Tensor Numbers(uint64_t key, std::vector<int64_t> dims) {
  Tensor t(v1::FLOAT32, dims);
  for (int64_t i = 0; i < t.size(); ++i)
    t.data<float>()[i] = UniformFloat(Philox(key, static_cast<uint64_t>(i), 0).v[0]) - 0.5f;
  return t;
}

struct Change {
  int64_t step = 0;
  bool training = true;
  std::vector<int64_t> batch = {5, 5};
};

// Everything that each step writes.
using Steps = std::vector<std::vector<float>>;

Steps Train(DeviceRuntime* device, bool graphs, const std::vector<Change>& steps) {
  Steps result;
  DeviceMemory memory(device);
  Scope scope;
  *scope.FindOrCreate("w1") = Numbers(1, {kIn, kHidden});
  *scope.FindOrCreate("b1") = Numbers(2, {kHidden});
  *scope.FindOrCreate("w2") = Numbers(3, {kHidden, 1});
  *scope.FindOrCreate("b2") = Numbers(4, {1});
  DeviceTransfers transfers(&memory);
  DeviceScope device_scope(&scope);
  const std::vector<std::string> fetch = {"mask", "loss", "dw1", "db1", "dw2", "db2"};
  absl::StatusOr<std::unique_ptr<Executor>> executor = CreateDeviceExecutor(
      Network(), &scope,
      {.lanes = 2, .fetch = fetch, .graphs = graphs, .transfers = &transfers, .device_scope = &device_scope});
  EXPECT_TRUE(executor.ok()) << executor.status();
  uint64_t key = 10;
  for (const Change& change : steps) {
    for (int lane = 0; lane < 2; ++lane) {
      *(*executor)->Find(lane, "x") = Numbers(key++, {change.batch[static_cast<size_t>(lane)], kIn});
      *(*executor)->Find(lane, "label") = Numbers(key++, {change.batch[static_cast<size_t>(lane)], 1});
    }
    const StepContext ctx = {.step = change.step, .seed = 7, .training = change.training};
    const absl::Status status = (*executor)->Run(ctx, change.batch);
    EXPECT_TRUE(status.ok()) << status;
    std::vector<float>& values = result.emplace_back();
    for (const std::string& name : fetch) {
      for (int lane = 0; lane < 2; ++lane) {
        for (float x : std::get<Tensor>(*(*executor)->Find(lane, name)).span<float>()) values.push_back(x);
      }
    }
  }
  return result;
}

std::vector<Change> Same(int64_t count, Change change = {}) {
  return std::vector<Change>(static_cast<size_t>(count), change);
}
void Append(std::vector<Change>* to, std::vector<Change> more) { to->insert(to->end(), more.begin(), more.end()); }

// Parameter: "emulated" or "CUDA".
class ReplayTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (emulated()) return;
    const auto cuda = OpenCudaDevice(0);
    if (!cuda.ok()) GTEST_SKIP() << cuda.status().message();
  }
  bool emulated() const { return std::string(GetParam()) == "emulated"; }

  void Compare(const std::vector<Change>& steps) {
    if (!emulated()) return CompareOnCuda(steps);
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      EmulatedDevice plain({.seed = seed}), other({.seed = seed + 10});
      ReplayingDevice replaying(&other);
      const Steps want = Train(&plain, true, steps), got = Train(&replaying, true, steps);
      ExpectSame(got, want);
      statistics_ = replaying.statistics();
    }
  }

  ReplayingDevice::Statistics statistics_;

 private:
  void CompareOnCuda(const std::vector<Change>& steps) {
    absl::StatusOr<std::unique_ptr<ReplayingDevice>> cuda = OpenCudaDevice(0);
    ASSERT_TRUE(cuda.ok()) << cuda.status();
    const Steps want = Train(cuda->get(), /*graphs=*/false, steps);
    EXPECT_EQ((*cuda)->statistics().captures, 0);
    const Steps got = Train(cuda->get(), /*graphs=*/true, steps);
    ExpectSame(got, want);
    statistics_ = (*cuda)->statistics();
    EXPECT_EQ(statistics_.failures, 0);
  }

  static void ExpectSame(const Steps& got, const Steps& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t s = 0; s < got.size(); ++s) EXPECT_EQ(got[s], want[s]) << "step " << s;
  }
};
INSTANTIATE_DEVICE_TESTS(ReplayTest);

// In evaluation dropout has no number of its own.
TEST_P(ReplayTest, TheWholeOfAStepThatRepeats) {
  Compare(Same(20, {.training = false}));
  EXPECT_GT(statistics_.replays, 0);
  if (!emulated()) return;  // how many launches a product takes is the library's
  // Fed data alternates between two places, and the label arrives in the middle of a step: two stretches of calls, each
  // captured for both places.
  EXPECT_EQ(statistics_.captures, 4);
  EXPECT_GE(statistics_.replays, 2 * 13);
  EXPECT_GE(statistics_.replayed, statistics_.calls / 20 * 13);
}

// Dropout's draws are those of the step, though what stands around it is replayed.
TEST_P(ReplayTest, AStepNumberIsNeverAnOldOne) {
  std::vector<Change> steps;
  for (int64_t step = 0; step < 12; ++step) steps.push_back({.step = step});
  Compare(steps);
  EXPECT_GT(statistics_.replays, 0);
  if (emulated()) {
    EXPECT_LT(statistics_.replayed, statistics_.calls / 12 * 9);
  }
  // A number that stands still for long, and then does not.
  steps = Same(8, {.step = 3});
  Append(&steps, Same(1, {.step = 4}));
  Append(&steps, Same(2, {.step = 3}));
  Append(&steps, Same(3, {.step = 5}));
  Compare(steps);
  EXPECT_GT(statistics_.replays, 0);
}

TEST_P(ReplayTest, BatchesOfOtherSizesAndOtherLanes) {
  std::vector<Change> steps;
  for (int64_t step = 0; step < 30; ++step) {
    const std::vector<std::vector<int64_t>> batches = {{5, 5}, {5, 5}, {5, 5}, {5, 5},
                                                       {4, 4}, {5, 3}, {5, 0}, {40, 40}};
    steps.push_back({.step = step, .batch = batches[static_cast<size_t>(step * step) % batches.size()]});
  }
  Compare(steps);
  EXPECT_GT(statistics_.replays, 0);
}

TEST_P(ReplayTest, TrainingAndEvaluationByTurns) {
  std::vector<Change> steps;
  for (int64_t step = 0; step < 16; ++step) steps.push_back({.step = step, .training = step % 3 != 0});
  Compare(steps);
  EXPECT_GT(statistics_.replays, 0);
}

TEST(ReplayOffTest, AnExecutorWithoutGraphsMakesNone) {
  EmulatedDevice plain, other;
  ReplayingDevice replaying(&other);
  const std::vector<Change> steps = Same(6, {.training = false});
  EXPECT_EQ(Train(&replaying, /*graphs=*/false, steps), Train(&plain, /*graphs=*/true, steps));
  EXPECT_EQ(replaying.statistics().calls, 0);
  EXPECT_EQ(replaying.statistics().captures, 0);
}

}  // namespace
}  // namespace weir
