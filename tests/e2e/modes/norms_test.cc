// Rules that need a norm of a whole parameter, or of all parameters, give the same bits for any number of servers and
// trainers, any slicing and placement, through lost and repeated messages, after a death in the middle of the exchange,
// and in one process.

#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/clock.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "gtest/gtest.h"
#include "tests/testing/faulty_transport.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/square_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

// "vectors" is held dense and cut in up to three, by rows; "deep.w" is cut in two; "weights" is distributed.
constexpr char kJob[] = R"(
name: "norms"
data {
  train { files: "train.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 4 }
    slot { name: "a" output: "cat" }
    slot { name: "b" output: "cat" }
  }
  ids { shared: "cat" }
  batch_size: 32
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "wide" embedding { ids: "cat" table: "weights" pooling: SUM } }
  layer { name: "input" concat { input: "fields" input: "x" } }
  layer { name: "deep" fc { input: "input" size: 64 activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  layer { name: "logit" add { input: "wide" input: "out" } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "vectors" width: 128 dict_size: 200 is_sparse: true $VECTORS }
table { name: "weights" width: 1 is_sparse: true is_distributed: true $WEIGHTS }
optimizer { $OPTIMIZER }
train { seed: 3 epochs: 2 max_steps: 70 digest_every_steps: 10 }
)";

struct Rules {
  const char* name;
  const char* optimizer;
  const char* vectors;  // of the table, or ""
  const char* weights;
};

std::string JobOf(const Rules& rules) {
  return absl::StrReplaceAll(
      kJob, {{"$OPTIMIZER", rules.optimizer}, {"$VECTORS", rules.vectors}, {"$WEIGHTS", rules.weights}});
}

constexpr Rules kGlobal = {
    "Global", "adam { learning_rate: 0.005 } l2_decay: 0.001 clip { by_global_norm { max_norm: 0.05 } }", "", ""};
constexpr Rules kAllRules[] = {
    kGlobal,
    // Two tables with norms of their own beside the tower's.
    {"ByNorm", "momentum { learning_rate: 0.05 } clip { by_norm { max_norm: 0.03 } }",
     "optimizer { adagrad { learning_rate: 0.05 } clip { by_norm { max_norm: 0.02 } } }",
     "optimizer { sgd { learning_rate: 0.1 } l1_decay: 0.0001 clip { by_norm { max_norm: 0.01 } } }"},
    // The norm of a gradient that was clipped by a norm: two rounds. The biases stay out of the group.
    {"LarsClipped",
     "lars_momentum { learning_rate: 0.5 lars_coeff: 0.02 } clip { by_global_norm { max_norm: 0.05 } } parameter { "
     "name: \"*.b\" "
     "no_clip: true }",
     "", "optimizer { ftrl {} }"},
    {"Lamb", "lamb { learning_rate: 0.01 }", "",
     "optimizer { adagrad { learning_rate: 0.05 } clip { by_norm { max_norm: 0.01 } } }"},
    {"LambClipped",
     "lamb { learning_rate: 0.01 } clip { by_norm { max_norm: 0.02 } } parameter { name: \"out.*\" clip { "
     "by_global_norm { max_norm: "
     "0.01 } } }",
     "optimizer { lamb { learning_rate: 0.02 } }", "optimizer { ftrl {} }"},
};

class NormsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/norms";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteSlotData(dir_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir_); }

  static absl::StatusOr<InProcessResult> TryRun(const std::string& job, InProcessRun run) {
    run.job_text = job;
    run.directory = dir_;
    return TrainInProcess(run);
  }
  static InProcessResult Run(const std::string& job, InProcessRun run) {
    absl::StatusOr<InProcessResult> result = TryRun(job, std::move(run));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }
  // Returns the digest at the end of an async run in the form of a digest line, which such runs do not print.
  static std::string EndOf(const std::string& job, InProcessRun run) {
    static int runs = 0;
    const std::string checkpoints = absl::StrCat(dir_, "/end", runs++);
    run.overrides.push_back(absl::StrCat("checkpoint.dir=\"", checkpoints, "\""));
    Run(job, std::move(run));
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(checkpoints);
    EXPECT_TRUE(newest.ok()) << newest.status();
    if (!newest.ok()) return "";
    const absl::StatusOr<DigestTable> digests = CheckpointDigests(newest->found.path, newest->manifest);
    EXPECT_TRUE(digests.ok()) << digests.status();
    if (!digests.ok()) return "";
    const VariableDigestSum total = Total(*digests);
    return absl::StrCat("values=", absl::Hex(total.values, absl::kZeroPad16),
                        " state=", absl::Hex(total.state, absl::kZeroPad16));
  }
  static std::string Values(const std::string& line) { return line.substr(line.find("values=")); }

  // In one process.
  static const std::vector<std::string>& Reference(const Rules& rules) {
    static auto* const references = new std::map<std::string, std::vector<std::string>>();
    std::vector<std::string>& digests = (*references)[rules.name];
    if (digests.empty()) digests = Run(JobOf(rules), {}).digests;
    EXPECT_EQ(digests.size(), 7u);
    EXPECT_EQ(std::set<std::string>(digests.begin(), digests.end()).size(), digests.size());
    return digests;
  }

  static std::string dir_;
};
std::string NormsTest::dir_;

struct Cluster {
  int servers, trainers, threads;
  bool slice;
  const char* split;
};
constexpr Cluster kClusters[] = {{1, 2, 2, true, "ROUND_ROBIN"},  {2, 1, 2, true, "HASH_NAME"},
                                 {2, 4, 1, false, "ROUND_ROBIN"}, {3, 1, 1, false, "HASH_NAME"},
                                 {3, 2, 2, true, "ROUND_ROBIN"},  {3, 4, 1, true, "HASH_NAME"}};

class EveryRuleTest : public NormsTest, public ::testing::WithParamInterface<Rules> {};

TEST_P(EveryRuleTest, TheSameBitsOnAnyCluster) {
  const std::string job = JobOf(GetParam());
  for (const Cluster& c : kClusters) {
    const InProcessResult result =
        Run(job, {.overrides = {absl::StrCat("distribute.slice_var_up=", c.slice ? "true" : "false"),
                                absl::StrCat("distribute.split_method=", c.split)},
                  .servers = c.servers,
                  .trainers = c.trainers,
                  .threads = c.threads});
    EXPECT_EQ(result.digests, Reference(GetParam()))
        << c.servers << " servers, " << c.trainers << " trainers, " << c.split;
    int blocks = 0;
    for (const v1::PlacedBlock& block : result.plan.blocks()) blocks += block.parameter() == "vectors";
    EXPECT_EQ(blocks, c.slice ? c.servers : 1);
  }
}

// With nobody beside it, a trainer of an async job sees its own step before the next one begins: that is sync.
TEST_P(EveryRuleTest, OneAsyncTrainerComesToTheBitsOfSync) {
  for (int servers : {1, 3}) {
    const std::string end = EndOf(JobOf(GetParam()), {.overrides = {"distribute.sync=false"}, .servers = servers});
    EXPECT_EQ(end, Values(Reference(GetParam()).back())) << servers;
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryRuleTest, ::testing::ValuesIn(kAllRules),
                         [](const ::testing::TestParamInfo<Rules>& info) { return std::string(info.param.name); });

TEST_F(NormsTest, TheSameBitsThroughDropsDuplicatesAndDelays) {
  for (const Rules& rules : {kAllRules[0], kAllRules[2]}) {
    FaultCounters counters;
    const InProcessResult result =
        Run(JobOf(rules), {.overrides = {"train.max_steps=30", "deadlines.rpc_s=0.1", "deadlines.lease_s=20"},
                           .servers = 3,
                           .trainers = 2,
                           .between = NetworksWith(BadNetwork(/*seed=*/7), &counters)});
    const std::vector<std::string>& reference = Reference(rules);
    EXPECT_EQ(result.digests, std::vector<std::string>(reference.begin(), reference.begin() + 3));
    EXPECT_GT(counters.dropped_requests, 0);
    EXPECT_GT(counters.dropped_replies, 0);
    EXPECT_GT(counters.duplicates, 0);
  }
}

TEST_F(NormsTest, AsyncTrainersGoTheirOwnWayThroughDropsDuplicatesAndDelays) {
  FaultCounters counters;
  const InProcessResult result =
      Run(JobOf(kAllRules[2]),
          {.overrides = {"distribute.sync=false", "train.max_steps=30", "deadlines.rpc_s=0.1", "deadlines.lease_s=20"},
           .servers = 3,
           .trainers = 3,
           .between = NetworksWith(BadNetwork(/*seed=*/7), &counters)});
  EXPECT_GT(counters.duplicates, 0);
  for (const TrainSummary& summary : result.summaries) EXPECT_EQ(summary.steps, 30);
}

TEST_F(NormsTest, ATrainerThatDiesInTheExchangeIsNamedAndAResumeComesToTheSameBits) {
  const std::string checkpoints = dir_ + "/killed";
  std::filesystem::remove_all(checkpoints);
  const std::string dir = absl::StrCat("checkpoint.dir=\"", checkpoints, "\"");
  std::vector<absl::Status> ends;
  std::atomic<int> calls{0};
  const absl::StatusOr<InProcessResult> killed =
      TryRun(JobOf(kAllRules[2]), {.overrides = {dir, "checkpoint.every_steps=20", "deadlines.heartbeat_s=0.2",
                                                 "deadlines.lease_s=3", "deadlines.rpc_s=1"},
                                   .servers = 3,
                                   .trainers = 2,
                                   .trainer_ends = &ends,
                                   .between = [&calls](int trainer, Transport* servers) {
                                     static FaultCounters counters;
                                     auto transport = std::make_unique<FaultyTransport>(servers, Clock::Real(), trainer,
                                                                                        FaultOptions{}, &counters);
                                     // One server has the norms of the first round, the others wait for them.
                                     transport->OnCall([&calls](const CallInfo& info) {
                                       if (info.method != Method::kNorms || info.step != 47) return Fate::kPass;
                                       return ++calls == 5 ? Fate::kKillTrainer : Fate::kPass;
                                     });
                                     return transport;
                                   }});
  EXPECT_FALSE(killed.ok());
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_NE(ends[1].message().find("trainer 0"), absl::string_view::npos) << ends[1];
  EXPECT_NE(ends[1].message().find("is dead"), absl::string_view::npos) << ends[1];
  const InProcessResult resumed =
      Run(JobOf(kAllRules[2]), {.overrides = {dir}, .servers = 2, .trainers = 4, .resume = true});
  ASSERT_EQ(resumed.digests.size(), 3u);
  const std::vector<std::string>& reference = Reference(kAllRules[2]);
  EXPECT_EQ(resumed.digests, std::vector<std::string>(reference.begin() + 4, reference.end()));
}

TEST_F(NormsTest, AClipThatNeverBitesChangesNoBit) {
  const Rules loose = {
      "Loose", "adam { learning_rate: 0.005 } l2_decay: 0.001 clip { by_global_norm { max_norm: 1e6 } }", "", ""};
  const Rules none = {"None", "adam { learning_rate: 0.005 } l2_decay: 0.001", "", ""};
  EXPECT_EQ(Run(JobOf(loose), {.servers = 3, .trainers = 2}).digests, Reference(none));
  EXPECT_NE(Reference(kGlobal), Reference(none));
}

TEST_F(NormsTest, JobsWithoutNormsSendNoMessageMore) {
  const auto messages = [](const Rules& rules, int servers, Method method) {
    std::atomic<int> seen{0};
    FaultCounters counters;
    Run(JobOf(rules), {.servers = servers, .trainers = 2, .between = [&](int trainer, Transport* inner) {
                         auto transport = std::make_unique<FaultyTransport>(inner, Clock::Real(), trainer,
                                                                            FaultOptions{}, &counters);
                         transport->OnCall([&](const CallInfo& info) {
                           if (info.method == method && info.tries == 0) ++seen;
                           return Fate::kPass;
                         });
                         return transport;
                       }});
    return seen.load();
  };
  const Rules none = {"None", "adam { learning_rate: 0.005 }", "", ""};
  EXPECT_EQ(messages(none, 3, Method::kNorms), 0);
  EXPECT_EQ(messages(kGlobal, 1, Method::kNorms), 0);
  // Two calls of trainer 0 to each server, a step and round of norms.
  EXPECT_EQ(messages(kGlobal, 3, Method::kNorms), 70 * 3 * 2);
}

TEST_F(NormsTest, NormsOfEachServerByItselfAreSeen) {
  for (const Rules& rules : {kAllRules[0], kAllRules[1], kAllRules[3]}) {
    const InProcessResult result =
        Run(JobOf(rules), {.servers = 2, .trainers = 2, .edit = [](int server, Programs* programs) {
                             if (server < 0) return;
                             for (v1::BlockDesc& block : *programs->main.mutable_blocks()) {
                               for (v1::OpDesc& op : *block.mutable_ops()) {
                                 if (op.type() != "whole_norm") continue;
                                 op.mutable_attrs(0)->set_s(absl::StrCat(op.attrs(0).s(), ".of_server_", server));
                               }
                             }
                           }});
    ASSERT_EQ(result.digests.size(), 7u) << rules.name;
    EXPECT_NE(result.digests[0], Reference(rules)[0]) << rules.name;
  }
}

// One of 256 lines holds a number whose square is no float.
TEST_F(NormsTest, ASkippedStepNeedsNoNormsAndTheOthersGoOn) {
  WriteSquares(dir_ + "/square.txt", [](int line) { return line == 138; });
  // All of it under one norm.
  const std::string job = absl::StrReplaceAll(
      kSquareJob,
      {{" optimizer { adagrad {} }", ""},
       {"adam { learning_rate: 0.01 }", "adam { learning_rate: 0.01 } clip { by_global_norm { max_norm: 0.01 } }"},
       {"digest_every_steps: 1", "digest_every_steps: 1 nan_policy: SKIP_STEP"}});
  const InProcessResult alone = Run(job, {});
  const InProcessResult result = Run(job, {.servers = 3, .trainers = 2});
  ASSERT_EQ(result.digests.size(), 8u);
  EXPECT_EQ(result.digests, alone.digests);
  for (const TrainSummary& summary : result.summaries) EXPECT_EQ(summary.skipped_steps, 1);
  EXPECT_EQ(EndOf(job, {.overrides = {"distribute.sync=false"}, .servers = 3}), Values(alone.digests.back()));
  // With dense parameters on the trainers it is a norm over what these and servers hold.
  for (const int servers : {0, 1, 3}) {
    for (const char* update : {"distribute.update=REPLICATED", "distribute.update=SHARDED"}) {
      const InProcessResult reduced =
          Run(job, {.overrides = {"distribute.dense=ALL_REDUCE", update}, .servers = servers, .trainers = 2});
      EXPECT_EQ(reduced.digests, alone.digests) << servers << " servers, " << update;
      for (const TrainSummary& summary : reduced.summaries) EXPECT_EQ(summary.skipped_steps, 1);
    }
  }
}

TEST_F(NormsTest, EagerPushesAndNormsContradictEachOther) {
  for (const Rules& rules : {kAllRules[0], kAllRules[3]}) {
    const absl::Status status =
        TryRun(JobOf(rules), {.overrides = {"distribute.sync=false", "distribute.async_apply=EAGER"}, .servers = 2})
            .status();
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("distribute.async_apply"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("EAGER applies parts on arrival"), absl::string_view::npos) << status;
  }
}

TEST_F(NormsTest, LarsAndLambOfADistributedTableAreRefusedByName) {
  for (const char* rule : {"lars_momentum", "lamb"}) {
    const Rules rules = {"", "sgd {}", "", ""};
    const absl::Status status =
        TryRun(absl::StrReplaceAll(JobOf(rules), {{"is_distributed: true ",
                                                   absl::StrCat("is_distributed: true optimizer { ", rule, " {} } ")}}),
               {.servers = 2})
            .status();
    EXPECT_FALSE(status.ok());
    EXPECT_NE(
        status.message().find(absl::StrCat("table 'weights': operator '", rule, "' cannot update rows of a table")),
        absl::string_view::npos)
        << status;
  }
}

}  // namespace
}  // namespace weir
