// A step that overlaps others while it takes effect, whose trainer dies, or that is followed by a checkpoint. One
// server under a fake clock; the test holds its update of block b.
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/checkpoint/directory.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "pserver/server/server_core.h"
#include "tests/testing/core_by_hand.h"

namespace weir {
namespace {

// Holds updates of block b while it is closed.
class Gate {
 public:
  static Gate& Get() {
    static auto* const gate = new Gate;
    return *gate;
  }
  void Close() {
    MutexLock lock(&mu_);
    open_ = false;
  }
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.SignalAll();
  }
  void Pass() {
    MutexLock lock(&mu_);
    ++inside_;
    changed_.SignalAll();
    while (!open_) changed_.Wait(&mu_);
    --inside_;
  }
  void AwaitVisitor() {
    MutexLock lock(&mu_);
    while (inside_ == 0) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = true;
  int inside_ ABSL_GUARDED_BY(mu_) = 0;
};

REGISTER_OP(held_by_test)({.type = "held_by_test", .inputs = {}, .outputs = {}, .scope = OpScope::kStep});

class HeldKernel : public OpKernel {
 public:
  absl::Status Run(KernelContext&) override {
    Gate::Get().Pass();
    return absl::OkStatus();
  }
};
REGISTER_KERNEL(held_by_test,
                [](const KernelInit&) { return std::unique_ptr<OpKernel>(std::make_unique<HeldKernel>()); });

class ServerOverlapTest : public CoreByHand {
 protected:
  ServerOverlapTest() {
    edit_ = [this](ServerOptions* options) {
      for (v1::BlockDesc& block : *options->main.mutable_blocks()) {
        for (int i = 0; i < block.ops_size(); ++i) {
          if (block.ops(i).type() != "momentum") continue;
          v1::OpDesc held = MakeOp("held_by_test", {}, {});
          held.set_role(v1::OPTIMIZE);
          const v1::OpDesc update = block.ops(i);
          *block.mutable_ops(i) = held;
          *block.add_ops() = update;
          break;
        }
      }
      for (v1::VarDesc& var : *options->main.mutable_blocks(0)->mutable_vars()) {
        if (var.name() == "t") *var.mutable_lifecycle() = lifecycle_;
      }
      options->checkpoint_dir = dir_;
    };
  }
  ~ServerOverlapTest() override {
    Gate::Get().Open();
    core_.reset();
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }

  absl::Status PushBias(int trainer, int64_t step) {
    return PushStep(trainer, step, {{.lane = trainer * 4, .lanes = 4, .values = {1, 1, 1, 1, 1}}}, 1);
  }
  // Pushes rows of t, each with a gradient of ones.
  absl::Status PushRows(int trainer, int64_t step, std::vector<int64_t> ids) {
    std::vector<float> ones(4 * ids.size(), 1);
    return PushStep(trainer, step,
                    {{.name = "t", .lane = trainer * 4, .lanes = 4, .values = ones, .ids = std::move(ids), .width = 4}},
                    1);
  }
  int64_t Count(const std::string& what) { return core_->counters().Value("table.t." + what); }

  v1::Lifecycle lifecycle_;
  std::string dir_;
};

std::vector<int64_t> Ids(int64_t n) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(i * 7919 + 3);
  return ids;
}

// Each shard is visited after every second step: all rows are expired after steps 8 and 9.
TEST_F(ServerOverlapTest, BordersBehindStepsThatOverlapAreRunOnceEach) {
  for (const bool overlap : {false, true}) {
    lifecycle_.set_ttl_steps(8);
    lifecycle_.set_tombstones(true);
    Start({.trainers = 2, .sync = false});
    JoinAll();
    ASSERT_TRUE(PushRows(0, 0, Ids(100)).ok());
    for (int64_t step = 1; step < 8; ++step) ASSERT_TRUE(PushBias(0, step).ok());
    ASSERT_EQ(Count("expired"), 0);
    ASSERT_EQ(Count("rows"), 100);
    if (overlap) Gate::Get().Close();
    std::thread first([&] { EXPECT_TRUE(PushBias(0, 8).ok()); });
    if (overlap) {
      Gate::Get().AwaitVisitor();
    } else {
      first.join();
    }
    ASSERT_TRUE(PushStep(1, 0, {}, 1).ok());
    // A border waits for steps that are taking effect, since their rows belong before it.
    if (overlap) {
      EXPECT_EQ(Count("expired"), 0);
    }
    Gate::Get().Open();
    if (overlap) first.join();
    EXPECT_EQ(Count("expired"), 100) << overlap;
    EXPECT_EQ(Count("tombstones"), 100) << overlap;
  }
}

// A step that a verdict skips does not count: no border follows it, and none is left out for it.
TEST_F(ServerOverlapTest, SkippedStepsLeaveOutNoBorder) {
  lifecycle_.set_ttl_steps(8);
  Start({.trainers = 2, .sync = false});
  JoinAll();
  ASSERT_TRUE(PushRows(0, 0, Ids(100)).ok());
  int64_t step = 1;
  for (int taken = 1; taken < 10; ++taken) {
    ASSERT_TRUE(PushStep(0, step++, {}, 1).ok());
    ASSERT_TRUE(PushStep(0, step++, {}, 1, v1::SKIP).ok());
  }
  EXPECT_EQ(Count("expired"), 100);
}

TEST_F(ServerOverlapTest, NobodyTakesThePlaceOfADeadTrainerWhoseStepIsTakingEffect) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  ASSERT_TRUE(PushBias(0, 0).ok());
  Gate::Get().Close();
  std::thread dying([&] { (void)PushBias(0, 1); });
  Gate::Get().AwaitVisitor();
  Pass(11, {1});
  EXPECT_STATUS(Join(0, "second:8"), kUnavailable,
                "the last step of trainer 0 (trainer:0), who is dead, is taking effect");
  Gate::Get().Open();
  dying.join();
  const auto reply = CallNow<v1::JoinReply>(Method::kJoin, JoinMessage(0, "second:8").SerializeAsString());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->next_step(), 2);
  sessions_[0] = reply->session();
  // The step has taken effect once.
  const int64_t applied = core_->counters().Value("push.applied");
  ASSERT_TRUE(PushBias(0, 1).ok());
  EXPECT_EQ(core_->counters().Value("push.applied"), applied);
}

// Rows are stamped with steps of tables, one for each trainer's step, which continue after a load.
TEST_F(ServerOverlapTest, TheStepsOfTablesGoOnBehindALoad) {
  dir_ = ::testing::TempDir() + "/table_steps";
  std::filesystem::remove_all(dir_);
  lifecycle_.set_ttl_steps(8);
  Start({.trainers = 2, .sync = false});
  JoinAll();
  for (int64_t step = 0; step < 20; ++step) {
    for (int t = 0; t < 2; ++t) ASSERT_TRUE(PushRows(t, step, Ids(100)).ok());
  }
  const std::string name = "tmp-step-000000000020-0123456789abcdef";
  v1::ControlRequest save;
  *save.mutable_caller() = CallerOf(0);
  save.mutable_save()->set_name(name);
  const auto saved = CallNow<v1::ControlReply>(Method::kControl, save.SerializeAsString());
  ASSERT_TRUE(saved.ok()) << saved.status();
  for (const bool with_field : {true, false}) {
    const int64_t step = with_field ? 20 : 21;
    v1::CheckpointManifest manifest;
    manifest.set_job("job");
    // The manifest has the chief's step, which is smaller than the tables' step.
    manifest.set_step(step);
    ASSERT_TRUE(manifest.add_shards()->ParseFromString(saved->shard()));
    EXPECT_EQ(manifest.shards(0).table_steps(), 40);
    if (!with_field) manifest.mutable_shards(0)->clear_table_steps();
    for (int t = 0; t < 2; ++t) manifest.mutable_data()->add_trainer_steps(20);
    const auto temporary = BeginCheckpoint(dir_ + "/published", step);
    ASSERT_TRUE(temporary.ok()) << temporary.status();
    std::filesystem::copy(dir_ + "/" + name, dir_ + "/published/" + *temporary,
                          std::filesystem::copy_options::recursive);
    const auto published = PublishCheckpoint(dir_ + "/published", *temporary, manifest);
    ASSERT_TRUE(published.ok()) << published.status();
    const auto edit = edit_;
    edit_ = [&](ServerOptions* options) {
      edit(options);
      options->checkpoint_dir = dir_ + "/published";
    };
    Start({.trainers = 2, .sync = false});
    edit_ = edit;
    JoinAll();
    v1::ControlRequest load;
    *load.mutable_caller() = CallerOf(0);
    load.mutable_load()->set_name(StepDirectoryName(step));
    const auto loaded = CallNow<v1::ControlReply>(Method::kControl, load.SerializeAsString());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    for (int64_t more = 0; more < 5; ++more) {
      for (int t = 0; t < 2; ++t) ASSERT_TRUE(PushStep(t, 20 + more, {}, 1).ok());
    }
    // Ten steps passed in which no row was used. A checkpoint without the field continues at its own step, and visits
    // the rows only when it is past their stamps.
    EXPECT_EQ(Count("expired"), with_field ? 100 : 0);
  }
}

}  // namespace
}  // namespace weir
