// Replicas of several trainers: they begin equal, a drift of one bit is named, a broadcast mends it.

#include "pserver/replica/dense_replica.h"

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/thread_pool.h"
#include "framework/collective/local_mesh.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/params/server_params.h"
#include "pserver/replica/make_replica.h"
#include "tests/testing/jobs/slot_job.h"
#include "transpiler/job/job.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr int kTrainers = 3;

class DenseReplicaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<Job> job =
        ParseJob(kSlotJob, "job.textproto", {"distribute.dense=ALL_REDUCE", "distribute.trainers=3"});
    ASSERT_TRUE(job.ok()) << job.status();
    absl::StatusOr<Programs> programs = TrainerPrograms(*job, "", "");
    ASSERT_TRUE(programs.ok()) << programs.status();
    programs_ = *std::move(programs);
    for (int t = 0; t < kTrainers; ++t) {
      collectives_.push_back(std::make_unique<Collective>(meshes_.mesh(t), Collective::Options()));
      replicas_.push_back(Make(t));
    }
  }

  std::unique_ptr<DenseReplica> Make(int trainer) {
    absl::StatusOr<std::unique_ptr<DenseReplica>> replica =
        MakeReplica({.main = &programs_.main,
                     .startup = &programs_.startup,
                     .pool = &pool_,
                     .collective = collectives_[static_cast<size_t>(trainer)].get()});
    EXPECT_TRUE(replica.ok()) << replica.status();
    return replica.ok() ? *std::move(replica) : nullptr;
  }

  // Runs `work` on all trainers at the same time; the results are by trainer.
  std::vector<absl::Status> OnAll(const std::function<absl::Status(DenseReplica&)>& work) {
    std::vector<absl::Status> ends(kTrainers);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kTrainers; ++t) {
      threads.emplace_back([&, t] { ends[t] = work(*replicas_[t]); });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }

  // Flips the lowest bit of the first element of a parameter on one trainer.
  void FlipABit(int trainer, const std::string& parameter) {
    ServerParams& params = replicas_[static_cast<size_t>(trainer)]->params();
    const int block = params.FindBlock(parameter);
    ASSERT_GE(block, 0);
    std::vector<float> values(static_cast<size_t>(params.block(block).count));
    params.CopyBlock(block, 0, params.block(block).count, values.data(), /*reader=*/0);
    uint32_t bits = 0;
    std::memcpy(&bits, values.data(), sizeof(bits));
    bits ^= 1;
    std::memcpy(values.data(), &bits, sizeof(bits));
    params.SetBlock(block, values);
  }

  Programs programs_;
  ThreadPool pool_{"test", 0};
  LocalMeshes meshes_{kTrainers};
  std::vector<std::unique_ptr<Collective>> collectives_;
  std::vector<std::unique_ptr<DenseReplica>> replicas_;
};

TEST_F(DenseReplicaTest, ReplicasBeginEqual) {
  ASSERT_GT(replicas_[0]->params().blocks(), 0);
  EXPECT_EQ(replicas_[0]->params().tables(), 0);
  for (const absl::Status& end : OnAll([](DenseReplica& replica) { return replica.CheckEqual("now"); })) {
    EXPECT_TRUE(end.ok()) << end;
  }
}

TEST_F(DenseReplicaTest, ATrainerThatDriftedByOneBitIsNamedWithTheVariable) {
  const std::string parameter = programs_.main.plan().blocks(0).parameter();
  FlipABit(1, parameter);
  for (const absl::Status& end : OnAll([](DenseReplica& replica) { return replica.CheckEqual("before step 7"); })) {
    EXPECT_EQ(end.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(end.message()),
                HasSubstr("not equal before step 7: trainer 1 differs in '" + parameter + "' from trainer 0, 2"));
  }
}

TEST_F(DenseReplicaTest, ABroadcastGivesAllTheStateOfTheRoot) {
  const std::string parameter = programs_.main.plan().blocks(0).parameter();
  FlipABit(2, parameter);
  const absl::StatusOr<v1::ControlReply> root = replicas_[2]->Digest();
  ASSERT_TRUE(root.ok());
  for (const absl::Status& end : OnAll([](DenseReplica& replica) { return replica.Broadcast(/*root=*/2); })) {
    EXPECT_TRUE(end.ok()) << end;
  }
  for (const auto& replica : replicas_) {
    const absl::StatusOr<v1::ControlReply> digest = replica->Digest();
    ASSERT_TRUE(digest.ok());
    EXPECT_EQ(digest->SerializeAsString(), root->SerializeAsString());
  }
}

}  // namespace
}  // namespace weir
