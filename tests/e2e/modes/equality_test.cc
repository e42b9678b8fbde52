// Sync is reproducible: the same bits for any number of servers and trainers, any slicing and placement, any thread
// count, lost and repeated messages, and after a resume. One job, many clusters, digests of every 50th of 200 steps;
// and planted faults, which the same comparison must see.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/stable_hash.h"
#include "framework/checkpoint/directory.h"
#include "gtest/gtest.h"
#include "tests/testing/count_repeats.h"
#include "tests/testing/faulty_transport.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/sum_in_arrival_order.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

class EqualityTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/equality";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteClickData(dir_);
    reference_ = new InProcessResult(Run({.overrides = {CheckpointDir("reference")}}));
    reference_rows_ = Sum(RowsByServer("reference"));
  }
  static void TearDownTestSuite() {
    delete reference_;
    std::filesystem::remove_all(dir_);
  }

  static InProcessResult Run(InProcessRun run) {
    run.job_text = kClickJob;
    run.directory = dir_;
    absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }
  static std::string CheckpointDir(const std::string& name) {
    std::filesystem::remove_all(dir_ + "/" + name);
    return absl::StrCat("checkpoint.dir=\"", dir_, "/", name, "\"");
  }
  static NewestCheckpoint Newest(const std::string& name) {
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(dir_ + "/" + name);
    EXPECT_TRUE(newest.ok()) << newest.status();
    return newest.ok() ? *newest : NewestCheckpoint();
  }
  // Rows of all tables in the newest checkpoint.
  static std::vector<int64_t> RowsByServer(const std::string& name) {
    std::vector<int64_t> rows;
    const NewestCheckpoint newest = Newest(name);
    for (const v1::CheckpointShard& shard : newest.manifest.shards()) {
      rows.push_back(0);
      for (const v1::TableEntry& table : shard.tables()) rows.back() += table.row_count();
    }
    return rows;
  }
  static int64_t Sum(const std::vector<int64_t>& values) {
    int64_t sum = 0;
    for (const int64_t value : values) sum += value;
    return sum;
  }
  static int BlocksOf(const v1::Plan& plan, std::string_view parameter) {
    int blocks = 0;
    for (const v1::PlacedBlock& b : plan.blocks()) blocks += b.parameter() == parameter;
    return blocks;
  }

  static std::string dir_;
  static InProcessResult* reference_;
  static int64_t reference_rows_;
};
std::string EqualityTest::dir_;
int64_t EqualityTest::reference_rows_ = 0;
InProcessResult* EqualityTest::reference_ = nullptr;

struct Cluster {
  int servers, trainers, threads;
  bool slice;
  const char* split;
};

class ClusterEqualityTest : public EqualityTest, public ::testing::WithParamInterface<Cluster> {};

TEST_F(EqualityTest, TheReferenceTrainsAndItsDigestsMove) {
  ASSERT_EQ(reference_->digests.size(), 4u);
  EXPECT_EQ(std::set<std::string>(reference_->digests.begin(), reference_->digests.end()).size(), 4u);
  EXPECT_EQ(reference_->summary.steps, 200);
  EXPECT_GT(reference_->summary.examples, 190 * 64);
}

TEST_F(EqualityTest, AnotherSeedGivesOtherDigests) {
  const InProcessResult other = Run({.overrides = {"train.seed=6", "train.max_steps=50"}});
  ASSERT_EQ(other.digests.size(), 1u);
  EXPECT_NE(other.digests[0], reference_->digests[0]);
}

TEST_P(ClusterEqualityTest, SameBits) {
  const Cluster& c = GetParam();
  const InProcessResult result =
      Run({.overrides = {absl::StrCat("distribute.slice_var_up=", c.slice ? "true" : "false"),
                         absl::StrCat("distribute.split_method=", c.split), CheckpointDir("cluster")},
           .servers = c.servers,
           .trainers = c.trainers,
           .threads = c.threads});
  EXPECT_EQ(result.digests, reference_->digests);
  EXPECT_EQ(result.summary.examples, reference_->summary.examples);
  EXPECT_EQ(BlocksOf(result.plan, "deep.0.w"), c.slice ? c.servers : 1);
  const std::vector<int64_t> rows = RowsByServer("cluster");
  EXPECT_EQ(static_cast<int>(rows.size()), c.servers);
  for (const int64_t each : rows) EXPECT_GT(each, 0) << "a server without rows";
  EXPECT_EQ(Sum(rows), reference_rows_);
  for (const Client::Counters& counters : result.counters) {
    EXPECT_GT(counters.rows_pulled, 0);
    EXPECT_GT(counters.rows_pushed, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Pairwise, ClusterEqualityTest,
                         ::testing::Values(Cluster{1, 2, 2, true, "ROUND_ROBIN"}, Cluster{1, 3, 1, false, "HASH_NAME"},
                                           Cluster{1, 4, 2, true, "HASH_NAME"}, Cluster{2, 1, 2, false, "ROUND_ROBIN"},
                                           Cluster{2, 2, 1, true, "HASH_NAME"}, Cluster{2, 3, 2, true, "ROUND_ROBIN"},
                                           Cluster{3, 1, 1, true, "HASH_NAME"}, Cluster{3, 2, 2, false, "HASH_NAME"},
                                           Cluster{3, 4, 1, true, "ROUND_ROBIN"}, Cluster{5, 1, 2, true, "ROUND_ROBIN"},
                                           Cluster{5, 3, 1, true, "HASH_NAME"}, Cluster{5, 4, 2, false, "ROUND_ROBIN"}),
                         [](const ::testing::TestParamInfo<Cluster>& info) {
                           const Cluster& c = info.param;
                           return absl::StrCat(c.servers, "Servers", c.trainers, "Trainers", c.threads, "Threads",
                                               c.slice ? "Sliced" : "Whole",
                                               c.split[0] == 'R' ? "RoundRobin" : "HashName");
                         });

TEST_F(EqualityTest, SameBitsThroughDropsDuplicatesAndDelays) {
  FaultCounters counters;
  const InProcessResult result = Run({.overrides = {"deadlines.rpc_s=0.1", "deadlines.lease_s=20"},
                                      .servers = 5,
                                      .trainers = 3,
                                      .between = NetworksWith(BadNetwork(/*seed=*/100), &counters)});
  EXPECT_EQ(result.digests, reference_->digests);
  EXPECT_GT(counters.dropped_requests, 0);
  EXPECT_GT(counters.dropped_replies, 0);
  EXPECT_GT(counters.duplicates, 0);
  EXPECT_GT(counters.delays, 0);
  EXPECT_EQ(BlocksOf(result.plan, "deep.0.w"), 5);
}

TEST_F(EqualityTest, SameBitsAfterAResumeOnAnotherCluster) {
  const std::string dir = CheckpointDir("checkpoints");
  // Ends at step 120, of which the last checkpoint is.
  const InProcessResult first = Run({.overrides = {dir, "train.max_steps=120"}, .servers = 2, .trainers = 3});
  ASSERT_EQ(first.digests.size(), 2u);
  const InProcessResult second = Run({.overrides = {dir}, .servers = 3, .trainers = 2, .resume = true});
  ASSERT_EQ(second.digests.size(), 2u);
  EXPECT_EQ(second.digests[0], reference_->digests[2]);
  EXPECT_EQ(second.digests[1], reference_->digests[3]);
  EXPECT_EQ(second.summary.steps, 200);
}

// Nothing that the killed trainer sends from step 130 on arrives: the others find it dead, and the newest checkpoint is
// of step 120.
TEST_F(EqualityTest, SameBitsAfterAKillAndAResumeOnAnotherCluster) {
  const std::string dir = CheckpointDir("killed");
  FaultCounters counters;
  const absl::StatusOr<InProcessResult> killed = TrainInProcess(
      {.job_text = kClickJob,
       .directory = dir_,
       .overrides = {dir, "checkpoint.every_steps=60", "deadlines.rpc_s=0.5", "deadlines.heartbeat_s=0.2",
                     "deadlines.lease_s=2"},
       .servers = 2,
       .trainers = 3,
       .between = [&counters](int trainer, Transport* servers) {
         auto transport = std::make_unique<FaultyTransport>(servers, Clock::Real(), trainer, FaultOptions(), &counters);
         transport->OnCall([](const CallInfo& call) {
           return call.trainer == 1 && call.step >= 130 ? Fate::kKillTrainer : Fate::kPass;
         });
         return transport;
       }});
  ASSERT_FALSE(killed.ok());
  EXPECT_NE(killed.status().message().find("trainer 1"), absl::string_view::npos) << killed.status();
  EXPECT_EQ(Newest("killed").found.step, 120);
  const InProcessResult resumed = Run({.overrides = {dir}, .servers = 3, .trainers = 2, .resume = true});
  ASSERT_EQ(resumed.digests.size(), 2u);
  EXPECT_EQ(resumed.digests[0], reference_->digests[2]);
  EXPECT_EQ(resumed.digests[1], reference_->digests[3]);
}

// --------------------------------------------------------------------------------------- faults that digests must show

TEST_F(EqualityTest, ARepeatThatIsCountedTwiceIsSeenInTheDigests) {
  FaultCounters counters;
  InProcessRun run{.overrides = {"train.max_steps=50"},
                   .servers = 2,
                   .trainers = 3,
                   .between = NetworksWith(RepeatingNetwork(), &counters)};
  const InProcessResult honest = Run(run);
  ASSERT_EQ(honest.digests.size(), 1u);
  EXPECT_EQ(honest.digests[0], reference_->digests[0]);
  run.on_repeat = CountRepeats;
  const InProcessResult result = Run(run);
  ASSERT_EQ(result.digests.size(), 1u);
  EXPECT_NE(result.digests[0], reference_->digests[0]);
}

TEST_F(EqualityTest, LanesAddedInOrderOfArrivalAreSeenInTheDigests) {
  const SumInArrivalOrder in_arrival_order;
  const InProcessResult result =
      Run({.overrides = {"train.max_steps=50"}, .servers = 2, .trainers = 3, .dense_sum = &in_arrival_order});
  ASSERT_EQ(result.digests.size(), 1u);
  EXPECT_NE(result.digests[0], reference_->digests[0]);
}

// The resume reads a checkpoint in which one state of one parameter, Adam's second moment of deep.0.w, is as at the
// start.
TEST_F(EqualityTest, AStateThatAResumeDoesNotRestoreIsSeenInTheDigests) {
  const std::string dir = CheckpointDir("forgetful");
  Run({.overrides = {dir, "train.max_steps=120"}, .servers = 2, .trainers = 2});
  const NewestCheckpoint newest = Newest("forgetful");
  v1::CheckpointManifest manifest = newest.manifest;
  const std::string checkpoints = dir_ + "/forgetful";
  const absl::StatusOr<std::string> temporary = BeginCheckpoint(checkpoints, newest.found.step);
  ASSERT_TRUE(temporary.ok()) << temporary.status();
  for (const v1::CheckpointFile* file : FilesOf(manifest)) {
    std::filesystem::copy_file(absl::StrCat(newest.found.path, "/", file->name()),
                               absl::StrCat(checkpoints, "/", *temporary, "/", file->name()));
  }
  int forgotten = 0;
  for (v1::CheckpointShard& shard : *manifest.mutable_shards()) {
    const std::string path = absl::StrCat(checkpoints, "/", *temporary, "/", shard.file().name());
    std::ifstream in(path, std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(in), {});
    for (const v1::DenseEntry& entry : shard.dense()) {
      if (entry.state_of() != "deep.0.w" || entry.state_name() != "moment2") continue;
      const auto begin = bytes.begin() + entry.offset();
      std::fill(begin, begin + entry.element_count() * static_cast<int64_t>(sizeof(float)), '\0');
      ++forgotten;
    }
    std::ofstream(path, std::ios::binary) << bytes;
    shard.mutable_file()->set_checksum(StableHash(bytes));
  }
  ASSERT_EQ(forgotten, 2);
  ASSERT_TRUE(PublishCheckpoint(checkpoints, *temporary, manifest).ok());
  const InProcessResult result =
      Run({.overrides = {dir, "train.max_steps=150"}, .servers = 2, .trainers = 2, .resume = true});
  ASSERT_EQ(result.digests.size(), 1u);
  EXPECT_NE(result.digests[0], reference_->digests[2]);
}

}  // namespace
}  // namespace weir
