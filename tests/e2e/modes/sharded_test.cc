// update: SHARDED gives the bits of every other corner: for any number of trainers, servers, lanes and sizes of
// buckets, with a schedule and a clip by a whole norm; resumed from and in other corners; with programs from files. And
// a copy that goes stale, which the same comparisons must see. Jobs of other shapes are in
// trainer/verify_split_test.cc.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/checkpoint/directory.h"
#include "framework/graph/op_view.h"
#include "framework/graph/program_text.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/train_in_process.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"

namespace weir {
namespace {

const std::vector<std::string> kServers = {}, kReplicated = {"distribute.dense=ALL_REDUCE"},
                               kSharded = {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED"};

class ShardedTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/sharded";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteClickData(dir_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir_); }

  // A clip by the norm of all dense gradients and a schedule, on top of the click job, in a corner.
  static std::vector<std::string> Settings(const std::vector<std::string>& corner,
                                           const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"optimizer.clip={by_global_norm { max_norm: 0.2 }}",
                                    "optimizer.schedule={exponential { decay_steps: 40 decay_rate: 0.7 }}",
                                    "train.max_steps=100"};
    all.insert(all.end(), corner.begin(), corner.end());
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static InProcessResult Run(InProcessRun run) {
    run.job_text = kClickJob;
    run.directory = dir_;
    absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }
  // Digests of the job with servers for everything.
  static const std::vector<std::string>& Reference(int lanes) {
    static auto* const references = new std::map<int, std::vector<std::string>>();
    std::vector<std::string>& reference = (*references)[lanes];
    if (reference.empty()) {
      reference = Run({.overrides = Settings(kServers, {absl::StrCat("train.lanes=", lanes)})}).digests;
    }
    return reference;
  }
  static std::string CheckpointDir(const std::string& name) {
    std::filesystem::remove_all(dir_ + "/" + name);
    return absl::StrCat("checkpoint.dir=\"", dir_, "/", name, "\"");
  }

  static std::string dir_;
};
std::string ShardedTest::dir_;

struct Cluster {
  int servers, trainers, lanes, threads;
};
class ShardedClusterTest : public ShardedTest, public ::testing::WithParamInterface<Cluster> {};

TEST_P(ShardedClusterTest, SameBitsAsWithServers) {
  const Cluster& c = GetParam();
  ASSERT_EQ(Reference(c.lanes).size(), 2u);
  const InProcessResult result = Run({.overrides = Settings(kSharded, {absl::StrCat("train.lanes=", c.lanes)}),
                                      .servers = c.servers,
                                      .trainers = c.trainers,
                                      .threads = c.threads,
                                      .shuffle = 7});
  EXPECT_EQ(result.digests, Reference(c.lanes));
  std::set<int> owners;
  for (const v1::PlacedBlock& block : result.plan.blocks()) {
    EXPECT_EQ(block.server(), -1) << block.name();
    owners.insert(block.trainer());
  }
  EXPECT_EQ(owners.size(), static_cast<size_t>(c.trainers));
}

INSTANTIATE_TEST_SUITE_P(Clusters, ShardedClusterTest,
                         ::testing::Values(Cluster{1, 1, 8, 1}, Cluster{2, 2, 8, 2}, Cluster{1, 3, 8, 1},
                                           Cluster{0, 4, 8, 1}, Cluster{0, 5, 8, 1}, Cluster{1, 8, 8, 1},
                                           Cluster{0, 3, 32, 1}, Cluster{2, 5, 32, 1}),
                         [](const ::testing::TestParamInfo<Cluster>& info) {
                           const Cluster& c = info.param;
                           return absl::StrCat(c.servers, "Servers", c.trainers, "Trainers", c.lanes, "Lanes",
                                               c.threads, "Threads");
                         });

TEST_F(ShardedTest, SameBitsWithBucketsOfAnySize) {
  for (const int trainers : {2, 3}) {
    for (const char* sizes : {"bucket_bytes: 4096 first_bucket_bytes: 4096", "bucket_bytes: 66000"}) {
      const InProcessResult result =
          Run({.overrides = Settings(kSharded, {absl::StrCat("distribute.all_reduce={", sizes, "}")}),
               .trainers = trainers,
               .shuffle = 3});
      EXPECT_EQ(result.digests, Reference(8)) << trainers << " trainers, " << sizes;
    }
  }
}

TEST_F(ShardedTest, SameBitsAfterResumesInEveryOtherCorner) {
  const std::string dir = CheckpointDir("corners");
  const auto until = [&](const std::vector<std::string>& corner, int steps) {
    return Settings(corner, {dir, absl::StrCat("train.max_steps=", steps)});
  };
  Run({.overrides = until(kSharded, 15), .servers = 2, .trainers = 3});
  Run({.overrides = until(kServers, 30), .servers = 3, .trainers = 2, .resume = true});
  Run({.overrides = until(kSharded, 45), .servers = 0, .trainers = 4, .resume = true});
  Run({.overrides = until(kReplicated, 60), .servers = 1, .trainers = 3, .resume = true});
  Run({.overrides = until(kSharded, 75), .servers = 1, .trainers = 8, .resume = true});
  const InProcessResult last = Run({.overrides = until(kSharded, 100), .servers = 0, .trainers = 2, .resume = true});
  ASSERT_EQ(last.digests.size(), 1u);
  EXPECT_EQ(last.digests[0], Reference(8)[1]);
  EXPECT_EQ(last.summary.steps, 100);
}

// All write at the same time: a shard for each server, and one for each trainer.
TEST_F(ShardedTest, EveryTrainerWritesAShardOfTheCheckpoint) {
  for (const auto* corner : {&kSharded, &kReplicated}) {
    const std::string dir = CheckpointDir("shards");
    Run({.overrides = Settings(*corner, {dir, "train.max_steps=10"}), .servers = 2, .trainers = 3});
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(dir_ + "/shards");
    ASSERT_TRUE(newest.ok()) << newest.status();
    ASSERT_EQ(newest->manifest.shards_size(), 5);
    for (int t = 2; t < 5; ++t) EXPECT_GT(newest->manifest.shards(t).dense_size(), 2) << t;
  }
}

TEST_F(ShardedTest, PredictionsAreTheSameInAllCorners) {
  const std::string dir = CheckpointDir("predict");
  Run({.overrides = Settings(kSharded, {dir, "train.max_steps=20"}), .servers = 2, .trainers = 2});
  std::vector<std::string> outputs;
  for (const auto& [corner, servers] :
       {std::pair(&kServers, 1), std::pair(&kReplicated, 1), std::pair(&kSharded, 1), std::pair(&kSharded, 0)}) {
    const std::string output = absl::StrCat(dir_, "/scores.", outputs.size());
    const absl::StatusOr<int64_t> scored = PredictInProcess(
        {.job_text = kClickJob, .directory = dir_, .overrides = Settings(*corner), .servers = servers, .trainers = 3},
        {.checkpoints = dir_ + "/predict", .input = dir_ + "/train-0.tsv", .output = output});
    ASSERT_TRUE(scored.ok()) << scored.status();
    EXPECT_EQ(*scored, 1000);
    std::ifstream in(output);
    outputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    EXPECT_FALSE(outputs.back().empty());
    EXPECT_EQ(outputs.back(), outputs.front()) << servers << " servers";
  }
}

TEST_F(ShardedTest, ProgramsFromFilesRun) {
  const absl::StatusOr<Job> job =
      ParseJob(kClickJob, dir_ + "/job.textproto",
               Settings(kSharded, {"distribute.servers=1", "distribute.trainers=3", "train.max_steps=50"}));
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<Programs> programs = TrainerPrograms(*job, "", "");
  ASSERT_TRUE(programs.ok()) << programs.status();
  const ProgramFiles files = {.main = dir_ + "/main.program", .startup = dir_ + "/startup.program"};
  ASSERT_TRUE(WriteProgramFile(files.main, programs->main).ok());
  ASSERT_TRUE(WriteProgramFile(files.startup, programs->startup).ok());
  const InProcessResult result =
      Run({.overrides = Settings(kSharded, {"train.max_steps=50"}), .trainers = 3, .trainer_programs = files});
  ASSERT_EQ(result.digests.size(), 1u);
  EXPECT_EQ(result.digests[0], Reference(8)[0]);
}

// A piece that is not received any more keeps its first values in the trainers' programs.
TEST_F(ShardedTest, AStalePieceIsSeen) {
  int dropped = 0;
  const InProcessResult result = Run({.overrides = Settings(kSharded, {"train.max_steps=50"}),
                                      .trainers = 2,
                                      .edit = [&](int server, Programs* programs) {
                                        if (server >= 0) return;
                                        FilterOps(programs->main.mutable_blocks(0), [&](const v1::OpDesc& op) {
                                          const bool stale = op.type() == "recv" && OutputOf(op, "Out") == "out.w";
                                          dropped += stale ? 1 : 0;
                                          return !stale;
                                        });
                                      }});
  EXPECT_EQ(dropped, 1);
  ASSERT_EQ(result.digests.size(), 1u);
  EXPECT_NE(result.digests[0], Reference(8)[0]);
}

}  // namespace
}  // namespace weir
