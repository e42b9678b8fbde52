// A trace shows each operator and each copy of a device in its queue, at the time the device executed it.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/device/device_executor.h"
#include "framework/graph/op_registry.h"
#include "framework/profile/profiler.h"
#include "framework/tensor/device_replay.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/emulated_device.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TimelineTest : public ::testing::Test {
 protected:
  TimelineTest() {
    v1::BlockDesc* const block = program_.add_blocks();
    block->set_parent(-1);
    for (const char* name : {"x", "a", "b", "c"}) {
      v1::VarDesc* var = block->add_vars();
      var->set_name(name);
      var->set_kind(v1::DENSE);
      var->set_dtype(v1::FLOAT32);
      var->add_dims(-1);
      var->add_dims(3);
    }
    *block->add_ops() = MakeOp("relu", {{"X", {"x"}}}, {{"Out", {"a"}}});
    *block->add_ops() = MakeOp("sigmoid", {{"X", {"a"}}}, {{"Out", {"b"}}});
    *block->add_ops() = MakeOp("tanh", {{"X", {"b"}}}, {{"Out", {"c"}}});
  }
  ~TimelineTest() override { Profiler::Process().Stop(); }

  void Run(Executor& executor, int64_t step) {
    *executor.Find(0, "x") = Tensor(v1::FLOAT32, {4, 3});
    for (float& v : std::get<Tensor>(*executor.Find(0, "x")).span<float>()) v = 1;
    const ProfiledStep profiled(step);
    const absl::Status status = executor.Run({.step = step}, {4});
    ASSERT_TRUE(status.ok()) << status;
  }

  struct Shown {
    std::string name;
    int64_t begin_ns = 0, end_ns = 0, step = -1, bytes_in = -1, bytes_out = -1;
  };
  // By track, in the order of their beginnings.
  static std::map<std::string, std::vector<Shown>> Tracks() {
    std::map<std::string, std::vector<Shown>> tracks;
    const Profiler::Recorded recorded = Profiler::Process().Collect();
    for (const Profiler::Recorded::Thread& thread : recorded.threads) {
      for (const ProfileEvent& event : thread.events) {
        if (event.track == 0) continue;
        tracks[recorded.tracks[event.track]].push_back(
            {.name = recorded.names[event.name.id()] + " " + recorded.names[event.detail.id()],
             .begin_ns = event.begin_ns,
             .end_ns = event.end_ns,
             .step = event.step,
             .bytes_in = event.bytes_in,
             .bytes_out = event.bytes_out});
      }
    }
    for (auto& [name, shown] : tracks) {
      std::sort(shown.begin(), shown.end(), [](const Shown& a, const Shown& b) { return a.begin_ns < b.begin_ns; });
    }
    return tracks;
  }
  static std::vector<std::string> Names(const std::vector<Shown>& shown) {
    std::vector<std::string> names;
    for (const Shown& s : shown) names.push_back(s.name);
    return names;
  }

  v1::ProgramDesc program_;
  EmulatedDevice emulated_;
  ReplayingDevice device_{&emulated_};
  DeviceMemory memory_{&device_};
  Scope scope_;
  DeviceTransfers transfers_{&memory_};
  DeviceScope device_scope_{&scope_};
};

TEST_F(TimelineTest, OperatorsAndCopiesStandInTheirQueues) {
  absl::StatusOr<std::unique_ptr<Executor>> executor = CreateDeviceExecutor(
      program_, &scope_, {.fetch = {"c"}, .transfers = &transfers_, .device_scope = &device_scope_});
  ASSERT_TRUE(executor.ok()) << executor.status();
  Profiler::Process().Start(1, 2);
  const int64_t begin = Profiler::NowNs();
  for (int64_t step = 0; step < 3; ++step) Run(**executor, step);
  executor->reset();
  const int64_t end = Profiler::NowNs();
  const std::map<std::string, std::vector<Shown>> tracks = Tracks();
  ASSERT_EQ(tracks.size(), 3u);
  const std::vector<Shown>& in = tracks.at("emulated device: copies in");
  const std::vector<Shown>& compute = tracks.at("emulated device: compute");
  const std::vector<Shown>& out = tracks.at("emulated device: copies out");
  EXPECT_THAT(Names(in), ElementsAre("copy in x"));
  EXPECT_THAT(Names(compute), ElementsAre("relu a", "sigmoid b", "tanh c"));
  EXPECT_THAT(Names(out), ElementsAre("copy out c"));
  EXPECT_EQ(in[0].bytes_in, 4 * 3 * 4);
  EXPECT_EQ(out[0].bytes_out, 4 * 3 * 4);
  // Times are those of execution, not of submission.
  int64_t at = begin;
  for (const Shown& s : {in[0], compute[0], compute[1], compute[2], out[0]}) {
    EXPECT_EQ(s.step, 1) << s.name;
    EXPECT_LE(s.begin_ns, s.end_ns) << s.name;
    if (s.name == "relu a") {
      EXPECT_LE(at, s.end_ns) << "relu ends after what it reads has come";
    } else {
      EXPECT_LE(at, s.begin_ns) << s.name;
    }
    at = s.end_ns;
  }
  EXPECT_LE(at, end);
}

TEST_F(TimelineTest, NothingIsPutIntoAQueueForStepsThatAreNotRecorded) {
  absl::StatusOr<std::unique_ptr<Executor>> executor = CreateDeviceExecutor(
      program_, &scope_, {.fetch = {"c"}, .transfers = &transfers_, .device_scope = &device_scope_});
  ASSERT_TRUE(executor.ok()) << executor.status();
  for (int64_t step = 0; step < 6; ++step) Run(**executor, step);
  EXPECT_FALSE(transfers_.spans().recording());
  EXPECT_THAT(transfers_.spans().Take(/*wait=*/true).value(), IsEmpty());
}

// Where nobody waits between steps, the next step's data comes while this one is computed.
TEST_F(TimelineTest, CopiesInGoOnWhileTheStepBeforeIsComputed) {
  int early = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EmulatedDevice device({.seed = seed});
    DeviceMemory memory(&device);
    Scope scope;
    DeviceTransfers transfers(&memory);
    DeviceScope device_scope(&scope);
    absl::StatusOr<std::unique_ptr<Executor>> executor =
        CreateDeviceExecutor(program_, &scope, {.transfers = &transfers, .device_scope = &device_scope});
    ASSERT_TRUE(executor.ok()) << executor.status();
    Profiler::Process().Start(0, 100);
    for (int64_t step = 0; step < 6; ++step) Run(**executor, step);
    executor->reset();
    const std::map<std::string, std::vector<Shown>> tracks = Tracks();
    const std::vector<Shown>& in = tracks.at("emulated device: copies in");
    const std::vector<Shown>& compute = tracks.at("emulated device: compute");
    ASSERT_EQ(in.size(), 6u);
    ASSERT_EQ(compute.size(), 18u);
    for (size_t step = 1; step < 6; ++step) {
      EXPECT_EQ(in[step].step, static_cast<int64_t>(step));
      EXPECT_LE(in[step].end_ns, compute[3 * step].end_ns) << "what relu reads has come";
      early += in[step].end_ns < compute[3 * step - 1].begin_ns ? 1 : 0;
    }
  }
  EXPECT_GT(early, 10);
}

}  // namespace
}  // namespace weir
