// Async: a checkpoint whose servers hold different numbers of a trainer's steps says where that trainer goes on.

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/checkpoint/directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/tapped_transport.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kStep = 3;  // of trainer 1: the first that server 1 has not got when it saves

// Keeps calls until it is opened.
class Gate {
 public:
  void Pass(TappedCall call) {
    call.Own();
    {
      MutexLock lock(&mu_);
      if (!open_) return kept_.push_back(std::move(call));
    }
    call.GoOn();
  }
  void Open() {
    std::vector<TappedCall> calls;
    {
      MutexLock lock(&mu_);
      open_ = true;
      calls.swap(kept_);
    }
    for (TappedCall& call : calls) call.GoOn();
  }

 private:
  Mutex mu_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<TappedCall> kept_ ABSL_GUARDED_BY(mu_);
};

struct Gates {
  Gate saves;                 // opens when server 0 has kStep of trainer 1
  Gate pushes;                // of that step to server 1; opens when both servers have saved
  std::atomic<int> saved{0};  // servers, counted by any thread
};

std::unique_ptr<Transport> Gated(int trainer, Transport* servers, Gates* gates) {
  return Tapped(servers, [trainer, gates](TappedCall call) {
    if (const auto control = call.As<v1::ControlRequest>(); control && control->has_save()) {
      call.OnAnswer([gates, all = call.inner->servers()](absl::StatusOr<Slices>&) {
        if (++gates->saved == all) gates->pushes.Open();
      });
      return gates->saves.Pass(std::move(call));
    }
    const auto push = call.As<v1::PushRequest>();
    if (trainer == 1 && push && push->step() == kStep) {
      if (call.server == 1) return gates->pushes.Pass(std::move(call));
      if (push->has_part_count()) call.OnAnswer([gates](absl::StatusOr<Slices>&) { gates->saves.Open(); });
    }
    call.GoOn();
  });
}

using UnevenSaveTest = SlotJobTest;

TEST_F(UnevenSaveTest, ATrainerGoesOnAtTheStepThatTheLastServerLacks) {
  const std::string dir = Path("uneven");
  Gates gates;
  const InProcessResult result =
      Run({.overrides = {"distribute.sync=false", "train.epochs=1", "checkpoint.every_steps=5",
                         "checkpoint.keep_last=100", absl::StrCat("checkpoint.dir=\"", dir, "\"")},
           .servers = 2,
           .trainers = 2,
           .between = [&gates](int trainer, Transport* servers) { return Gated(trainer, servers, &gates); }});
  ASSERT_EQ(result.summaries.size(), 2u);
  const absl::StatusOr<std::vector<CheckpointPath>> all = ListCheckpoints(dir);
  ASSERT_TRUE(all.ok() && !all->empty()) << all.status();
  const absl::StatusOr<v1::CheckpointManifest> first = ReadManifest(all->front().path);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->shards_size(), 2);
  EXPECT_THAT(first->shards(0).trainer_steps(), ElementsAre(5, kStep + 1));
  EXPECT_THAT(first->shards(1).trainer_steps(), ElementsAre(5, kStep));
  // Server 0 drops the step that comes again; on server 1 it must not be missing.
  EXPECT_THAT(first->data().trainer_steps(), ElementsAre(5, kStep));
}

}  // namespace
}  // namespace weir
