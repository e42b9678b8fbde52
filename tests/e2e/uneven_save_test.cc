// Async: a checkpoint whose servers hold different numbers of a trainer's steps says where that trainer goes on.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/checkpoint/directory.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/slot_job.h"
#include "tests/testing/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kStep = 3;  // of trainer 1: the first that server 1 has not got when it saves

// Keeps calls until it is opened.
class Gate {
 public:
  void Pass(std::function<void()> call) {
    {
      MutexLock lock(&mu_);
      if (!open_) return kept_.push_back(std::move(call));
    }
    call();
  }
  void Open() {
    std::vector<std::function<void()>> calls;
    {
      MutexLock lock(&mu_);
      open_ = true;
      calls.swap(kept_);
    }
    for (const std::function<void()>& call : calls) call();
  }

 private:
  Mutex mu_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::function<void()>> kept_ ABSL_GUARDED_BY(mu_);
};

struct Gates {
  Gate saves;                 // opens when server 0 has kStep of trainer 1
  Gate pushes;                // of that step to server 1; opens when both servers have saved
  std::atomic<int> saved{0};  // servers, counted by any thread
};

class GatedTransport : public Transport {
 public:
  GatedTransport(int trainer, Transport* inner, Gates* gates) : trainer_(trainer), inner_(*inner), gates_(*gates) {}

  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    // The bytes may be borrowed for the call only.
    const std::string bytes = Flatten(request);
    const auto call = [this, server, method, bytes, timeout](ReplyCallback reply) {
      inner_.Call(server, method, Slices{Slice::Own(bytes)}, timeout, std::move(reply));
    };
    v1::ControlRequest control;
    if (method == Method::kControl && control.ParseFromString(bytes) && control.has_save()) {
      return gates_.saves.Pass([this, call, done] {
        call([this, done](absl::StatusOr<Slices> answer) {
          if (++gates_.saved == servers()) gates_.pushes.Open();
          done(std::move(answer));
        });
      });
    }
    const absl::StatusOr<Frame> frame = DecodeFrame(request);
    v1::PushRequest push;
    if (trainer_ == 1 && method == Method::kPush && frame.ok() && push.ParseFromString(frame->header) &&
        push.step() == kStep) {
      if (server == 1) return gates_.pushes.Pass([call, done] { call(done); });
      if (push.has_part_count()) {
        return call([this, done](absl::StatusOr<Slices> answer) {
          gates_.saves.Open();
          done(std::move(answer));
        });
      }
    }
    call(done);
  }
  std::string Describe(int server) const override { return inner_.Describe(server); }
  int servers() const override { return inner_.servers(); }

 private:
  const int trainer_;
  Transport& inner_;
  Gates& gates_;
};

using UnevenSaveTest = SlotJobTest;

TEST_F(UnevenSaveTest, ATrainerGoesOnAtTheStepThatTheLastServerLacks) {
  const std::string dir = Path("uneven");
  Gates gates;
  const InProcessResult result =
      Run({.overrides = {"distribute.sync=false", "train.epochs=1", "checkpoint.every_steps=5",
                         "checkpoint.keep_last=100", absl::StrCat("checkpoint.dir=\"", dir, "\"")},
           .servers = 2,
           .trainers = 2,
           .between = [&gates](int trainer, Transport* servers) {
             return std::make_unique<GatedTransport>(trainer, servers, &gates);
           }});
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
