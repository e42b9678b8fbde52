// Merging inside a host (distribute.merge_hosts) changes no bit: one job on many clusters, whose trainers share hosts
// in different ways, against the run of one trainer; with what reads ahead, accumulates, exchanges norms, skips steps,
// loses and repeats messages, and resumes. The shares of hosts are counted, so that a run that merges nothing fails.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/clock.h"
#include "framework/base/counters.h"
#include "gtest/gtest.h"
#include "tests/testing/count_repeats.h"
#include "tests/testing/faulty_transport.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

constexpr char kLoose[] = "distribute.reproducible=false";
constexpr char kMerge[] = "distribute.merge_hosts=true";

// Host of each trainer: "aab" puts the third one on a host of its own.
std::function<std::string(int)> Hosts(const std::string& hosts) {
  return [hosts](int trainer) { return hosts.substr(static_cast<size_t>(trainer), 1); };
}

int64_t CounterOf(const std::string& name) {
  for (const Counters::Entry& entry : Counters::Process().Snapshot()) {
    if (entry.name == name) return entry.value;
  }
  return 0;
}

class MergeHostsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/merge_hosts";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteClickData(dir_);
    reference_ = Run({}).digests;
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir_); }

  static InProcessResult Run(InProcessRun run) {
    run.job_text = kClickJob;
    run.directory = dir_;
    absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }
  // Runs a cluster whose trainers merge. Fails if they have not.
  static InProcessResult RunMerged(const std::string& hosts, InProcessRun run) {
    run.overrides.push_back(kMerge);
    run.trainers = static_cast<int>(hosts.size());
    run.host = Hosts(hosts);
    const int64_t before = CounterOf("host.pushes_merged");
    InProcessResult result = Run(std::move(run));
    EXPECT_GT(CounterOf("host.pushes_merged"), before) << "nothing was merged";
    return result;
  }
  // Returns the digests of one trainer with these settings.
  static std::vector<std::string> Alone(const std::vector<std::string>& overrides) {
    return Run({.overrides = overrides}).digests;
  }
  static std::string CheckpointDir(const std::string& name) {
    std::filesystem::remove_all(dir_ + "/" + name);
    return absl::StrCat("checkpoint.dir=\"", dir_, "/", name, "\"");
  }

  static std::string dir_;
  static std::vector<std::string> reference_;
};
std::string MergeHostsTest::dir_;
std::vector<std::string> MergeHostsTest::reference_;

struct Cluster {
  const char* hosts;
  int servers, threads;
};

class ClusterMergeTest : public MergeHostsTest, public ::testing::WithParamInterface<Cluster> {};

TEST_P(ClusterMergeTest, SameBits) {
  const Cluster& c = GetParam();
  const InProcessResult result = RunMerged(c.hosts, {.servers = c.servers, .threads = c.threads});
  ASSERT_EQ(reference_.size(), 4u);
  EXPECT_EQ(result.digests, reference_);
}

INSTANTIATE_TEST_SUITE_P(Hosts, ClusterMergeTest,
                         ::testing::Values(Cluster{"aa", 1, 1}, Cluster{"aab", 2, 2}, Cluster{"abab", 2, 1},
                                           Cluster{"aabb", 3, 2}, Cluster{"aaabb", 2, 1}, Cluster{"abbba", 1, 2}),
                         [](const ::testing::TestParamInfo<Cluster>& info) {
                           return absl::StrCat(info.param.hosts, info.param.servers, "Servers");
                         });

// Fewer rows are fetched than the trainers of a host want, since some want the same.
TEST_F(MergeHostsTest, RowsThatSeveralWantAreFetchedOnce) {
  const int64_t wanted = CounterOf("host.rows_wanted"), fetched = CounterOf("host.rows_fetched");
  RunMerged("aaaa", {.overrides = {"train.max_steps=20"}});
  const int64_t more_wanted = CounterOf("host.rows_wanted") - wanted;
  const int64_t more_fetched = CounterOf("host.rows_fetched") - fetched;
  EXPECT_GT(more_fetched, 0);
  EXPECT_LT(more_fetched, more_wanted * 19 / 20);
}

TEST_F(MergeHostsTest, SameBitsWithRowsAhead) {
  const std::vector<std::string> settings = {"train.max_steps=100", "distribute.prefetch_rows=true"};
  for (const char* const hosts : {"aab", "aaaa"}) {
    EXPECT_EQ(RunMerged(hosts, {.overrides = settings, .servers = 2, .threads = 2, .always_ahead = true}).digests,
              std::vector<std::string>(reference_.begin(), reference_.begin() + 2))
        << hosts;
  }
}

TEST_F(MergeHostsTest, SameBitsWithAccumulation) {
  const std::vector<std::string> settings = {"train.max_steps=50", "train.accumulate_steps=3"};
  EXPECT_EQ(RunMerged("aab", {.overrides = settings, .servers = 2}).digests, Alone(settings));
}

// Norms of parameters of which several servers hold parts: trainer 0 brings them when its push is acknowledged.
TEST_F(MergeHostsTest, SameBitsWithNorms) {
  const std::vector<std::string> settings = {
      "train.max_steps=50", "optimizer={adam {learning_rate: 0.001} clip {by_global_norm {max_norm: 0.05}}}"};
  EXPECT_EQ(RunMerged("aabb", {.overrides = settings, .servers = 3}).digests, Alone(settings));
}

// Dense gradients among trainers, rows at servers: both are merged.
TEST_F(MergeHostsTest, SameBitsWithAllReduce) {
  for (const char* const update : {"REPLICATED", "SHARDED"}) {
    const std::vector<std::string> settings = {"train.max_steps=50", "distribute.dense=ALL_REDUCE",
                                               absl::StrCat("distribute.update=", update),
                                               "distribute.all_reduce={bucket_bytes: 66000 first_bucket_bytes: 4096}"};
    for (const char* const hosts : {"aab", "abab"}) {
      EXPECT_EQ(RunMerged(hosts, {.overrides = settings, .servers = 2, .threads = 2}).digests,
                std::vector<std::string>(reference_.begin(), reference_.begin() + 1))
          << update << " " << hosts;
    }
  }
}

// Rows in 16 bits are decoded once for the host.
TEST_F(MergeHostsTest, SameBitsWithLossyPulls) {
  const std::vector<std::string> settings = {"train.max_steps=50", kLoose, "distribute.wire={pull: WIRE_BFLOAT16}"};
  EXPECT_EQ(RunMerged("aab", {.overrides = settings, .servers = 2}).digests, Alone(settings));
}

// Sums are rounded once for the host; what that loses is in the checkpoint, and a resume goes on with it.
TEST_F(MergeHostsTest, ResidualsOfTheSenderAreResumed) {
  const std::vector<std::string> settings = {kLoose, "distribute.wire={push: WIRE_BFLOAT16}", "train.max_steps=100"};
  std::vector<std::string> whole = settings;
  whole.push_back(CheckpointDir("whole"));
  const std::vector<std::string> expected = RunMerged("aabb", {.overrides = whole, .servers = 2}).digests;
  ASSERT_EQ(expected.size(), 2u);
  std::vector<std::string> halves = settings;
  halves.push_back(CheckpointDir("halves"));
  halves.push_back("train.max_steps=50");
  const std::vector<std::string> first = RunMerged("aabb", {.overrides = halves, .servers = 2}).digests;
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0], expected[0]);
  halves.back() = "train.max_steps=100";
  const std::vector<std::string> second =
      RunMerged("aabb", {.overrides = halves, .servers = 2, .resume = true}).digests;
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0], expected[1]);
}

TEST_F(MergeHostsTest, SameBitsThroughDropsDuplicatesAndDelays) {
  FaultCounters counters;
  const InProcessResult result =
      RunMerged("aabb", {.overrides = {"deadlines.rpc_s=0.1", "deadlines.lease_s=20", "train.max_steps=50"},
                         .servers = 2,
                         .between = NetworksWith(BadNetwork(/*seed=*/100), &counters)});
  EXPECT_EQ(result.digests, std::vector<std::string>(reference_.begin(), reference_.begin() + 1));
  EXPECT_GT(counters.dropped_requests, 0);
  EXPECT_GT(counters.dropped_replies, 0);
  EXPECT_GT(counters.duplicates, 0);
}

// A merged push that comes again is counted once; the digests would show it.
TEST_F(MergeHostsTest, AMergedPushThatIsCountedTwiceIsSeenInTheDigests) {
  FaultCounters counters;
  InProcessRun run{
      .overrides = {"train.max_steps=50"}, .servers = 2, .between = NetworksWith(RepeatingNetwork(), &counters)};
  const std::vector<std::string> honest = RunMerged("aab", run).digests;
  ASSERT_EQ(honest.size(), 1u);
  EXPECT_EQ(honest[0], reference_[0]);
  run.on_repeat = CountRepeats;
  const std::vector<std::string> twice = RunMerged("aab", run).digests;
  ASSERT_EQ(twice.size(), 1u);
  EXPECT_NE(twice[0], reference_[0]);
}

// A trainer of the host "a" dies at step 30: its death ends the job, which is resumed with other hosts. Trainer 2,
// alone on its host, pushes no step from 30 on, so that the job cannot be over before.
void ExpectADeathEndsTheJob(int dead, const std::string& directory, const std::string& checkpoints) {
  FaultCounters counters;
  const auto held = std::make_shared<std::atomic<bool>>(false);
  const auto fate = [dead, held](const CallInfo& call) {
    if (call.trainer == 2 && call.method == Method::kPush && call.step >= 30) {
      *held = true;
      return Fate::kDropRequest;
    }
    return call.trainer == dead && *held ? Fate::kKillTrainer : Fate::kPass;
  };
  const absl::StatusOr<InProcessResult> killed =
      TrainInProcess({.job_text = kClickJob,
                      .directory = directory,
                      .overrides = {checkpoints, "checkpoint.every_steps=20", "deadlines.rpc_s=0.5",
                                    "deadlines.heartbeat_s=0.2", "deadlines.lease_s=2", "train.max_steps=50", kMerge},
                      .servers = 2,
                      .trainers = 3,
                      .between =
                          [&counters, &fate](int trainer, Transport* servers) {
                            auto transport = std::make_unique<FaultyTransport>(servers, Clock::Real(), trainer,
                                                                               FaultOptions(), &counters);
                            transport->OnCall(fate);
                            return transport;
                          },
                      .host = Hosts("aab")});
  ASSERT_FALSE(killed.ok());
  EXPECT_NE(killed.status().message().find(absl::StrCat("trainer ", dead, " ")), absl::string_view::npos)
      << killed.status();
}

TEST_F(MergeHostsTest, ADeathOfAnyTrainerOfAHostEndsTheJobAndIsResumed) {
  for (const int dead : {0, 1}) {
    const std::string checkpoints = CheckpointDir("killed");
    ExpectADeathEndsTheJob(dead, dir_, checkpoints);
    const InProcessResult resumed =
        RunMerged("abb", {.overrides = {checkpoints, "train.max_steps=50"}, .servers = 3, .resume = true});
    EXPECT_EQ(resumed.summary.steps, 50);
    ASSERT_EQ(resumed.digests.size(), 1u);
    EXPECT_EQ(resumed.digests[0], reference_[0]);
  }
}

}  // namespace
}  // namespace weir
