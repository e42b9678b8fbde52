// Sync is reproducible: the same bits for any number of servers and trainers, any slicing and placement, any thread count,
// lost and repeated messages, and after a resume. One job, many clusters, digests of every 50th of 200 steps.

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "gtest/gtest.h"
#include "tests/testing/click_job.h"
#include "tests/testing/faulty_transport.h"
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
    reference_ = new InProcessResult(Run({}));
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
  static int BlocksOf(const v1::Plan& plan, std::string_view parameter) {
    int blocks = 0;
    for (const v1::PlacedBlock& b : plan.blocks()) blocks += b.parameter() == parameter;
    return blocks;
  }

  static std::string dir_;
  static InProcessResult* reference_;
};
std::string EqualityTest::dir_;
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
  const InProcessResult result = Run({.overrides = {absl::StrCat("distribute.slice_var_up=", c.slice ? "true" : "false"),
                                                    absl::StrCat("distribute.split_method=", c.split)},
                                      .servers = c.servers,
                                      .trainers = c.trainers,
                                      .threads = c.threads});
  EXPECT_EQ(result.digests, reference_->digests);
  EXPECT_EQ(result.summary.examples, reference_->summary.examples);
  EXPECT_EQ(BlocksOf(result.plan, "deep.0.w"), c.slice ? c.servers : 1);
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
                                               c.slice ? "Sliced" : "Whole", c.split[0] == 'R' ? "RoundRobin" : "HashName");
                         });

TEST_F(EqualityTest, SameBitsThroughDropsDuplicatesAndDelays) {
  FaultCounters counters;
  const InProcessResult result = Run({.overrides = {"train.max_steps=100", "deadlines.rpc_s=0.1", "deadlines.lease_s=20"},
                                      .servers = 5,
                                      .trainers = 3,
                                      .between = [&counters](int trainer, Transport* servers) {
                                        return std::make_unique<FaultyTransport>(
                                            servers, Clock::Real(), trainer,
                                            FaultOptions{.seed = 100,
                                                         .drop_request = 0.025,
                                                         .drop_reply = 0.025,
                                                         .duplicate = 0.05,
                                                         .delay = 0.05,
                                                         .max_delay = absl::Milliseconds(5)},
                                            &counters);
                                      }});
  ASSERT_EQ(result.digests.size(), 2u);
  EXPECT_EQ(result.digests[0], reference_->digests[0]);
  EXPECT_EQ(result.digests[1], reference_->digests[1]);
  EXPECT_GT(counters.dropped_requests, 0);
  EXPECT_GT(counters.dropped_replies, 0);
  EXPECT_GT(counters.duplicates, 0);
  EXPECT_GT(counters.delays, 0);
  EXPECT_EQ(BlocksOf(result.plan, "deep.0.w"), 5);
}

TEST_F(EqualityTest, SameBitsAfterAResumeOnAnotherCluster) {
  const std::string checkpoints = dir_ + "/checkpoints";
  std::filesystem::remove_all(checkpoints);
  const std::string dir = absl::StrCat("checkpoint.dir=\"", checkpoints, "\"");
  // Ends at step 120, of which the last checkpoint is.
  const InProcessResult first = Run({.overrides = {dir, "train.max_steps=120"}, .servers = 2, .trainers = 3});
  ASSERT_EQ(first.digests.size(), 2u);
  const InProcessResult second = Run({.overrides = {dir}, .servers = 3, .trainers = 2, .resume = true});
  ASSERT_EQ(second.digests.size(), 2u);
  EXPECT_EQ(second.digests[0], reference_->digests[2]);
  EXPECT_EQ(second.digests[1], reference_->digests[3]);
  EXPECT_EQ(second.summary.steps, 200);
}

}  // namespace
}  // namespace weir
