// dense: ALL_REDUCE gives the bits of dense: SERVERS: for any number of trainers and servers, with distributed tables,
// a schedule and a clip by a whole norm; resumed in another corner; after a step that one trainer skips. And faults
// that the same comparisons must see. Jobs of other shapes are in trainer/verify_split_test.cc.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/graph/op_view.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/train_in_process.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"

namespace weir {
namespace {

constexpr char kAllReduce[] = "distribute.dense=ALL_REDUCE";

class AllReduceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/all_reduce";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteClickData(dir_);
    reference_ = new InProcessResult(Run({.overrides = Settings()}));
  }
  static void TearDownTestSuite() {
    delete reference_;
    std::filesystem::remove_all(dir_);
  }

  // A clip by the norm of all dense gradients and a schedule, on top of the click job.
  static std::vector<std::string> Settings(std::vector<std::string> more = {}) {
    std::vector<std::string> all = {"optimizer.clip={by_global_norm { max_norm: 0.2 }}",
                                    "optimizer.schedule={exponential { decay_steps: 40 decay_rate: 0.7 }}",
                                    "train.max_steps=100"};
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
  static std::string CheckpointDir(const std::string& name) {
    std::filesystem::remove_all(dir_ + "/" + name);
    return absl::StrCat("checkpoint.dir=\"", dir_, "/", name, "\"");
  }

  static std::string dir_;
  static InProcessResult* reference_;
};
std::string AllReduceTest::dir_;
InProcessResult* AllReduceTest::reference_ = nullptr;

TEST_F(AllReduceTest, TheReferenceTrains) {
  ASSERT_EQ(reference_->digests.size(), 2u);
  EXPECT_NE(reference_->digests[0], reference_->digests[1]);
}

struct Cluster {
  int servers, trainers, threads;
};
class AllReduceClusterTest : public AllReduceTest, public ::testing::WithParamInterface<Cluster> {};

TEST_P(AllReduceClusterTest, SameBitsAsWithServers) {
  const Cluster& c = GetParam();
  const InProcessResult result = Run({.overrides = Settings({kAllReduce}),
                                      .servers = c.servers,
                                      .trainers = c.trainers,
                                      .threads = c.threads,
                                      .shuffle = 7});
  EXPECT_EQ(result.digests, reference_->digests);
  EXPECT_EQ(result.summary.examples, reference_->summary.examples);
  for (const v1::PlacedBlock& block : result.plan.blocks()) EXPECT_EQ(block.server(), -1) << block.name();
}

INSTANTIATE_TEST_SUITE_P(Corners, AllReduceClusterTest,
                         ::testing::Values(Cluster{1, 1, 1}, Cluster{1, 2, 2}, Cluster{2, 3, 1}, Cluster{3, 5, 1},
                                           Cluster{1, 8, 1}),
                         [](const ::testing::TestParamInfo<Cluster>& info) {
                           const Cluster& c = info.param;
                           return absl::StrCat(c.servers, "Servers", c.trainers, "Trainers", c.threads, "Threads");
                         });

TEST_F(AllReduceTest, AccumulationAndLossScalingHaveTheSameBits) {
  for (const std::string& setting : {std::string("train.accumulate_steps=3"), std::string("train.loss_scaling={}")}) {
    const std::vector<std::string> job = Settings({setting, "train.max_steps=50"});
    const std::vector<std::string> expected = Run({.overrides = job, .servers = 2, .trainers = 2}).digests;
    ASSERT_EQ(expected.size(), 1u);
    for (const char* update : {"distribute.update=REPLICATED", "distribute.update=SHARDED"}) {
      std::vector<std::string> reduced = job;
      reduced.insert(reduced.end(), {kAllReduce, update});
      for (const int servers : {0, 2}) {
        EXPECT_EQ(Run({.overrides = reduced, .servers = servers, .trainers = 3, .shuffle = 5}).digests, expected)
            << setting << ", " << servers << " servers, " << update;
      }
    }
  }
}

// A run of as many trainers has the same bits; all trainers have them too, which is checked at each digest.
TEST_F(AllReduceTest, WithoutLanesTheBitsDependOnTheNumberOfTrainersAlone) {
  for (const char* update : {"distribute.update=REPLICATED", "distribute.update=SHARDED"}) {
    const std::vector<std::string> job =
        Settings({kAllReduce, update, "train.lanes=0", "distribute.reproducible=false"});
    const InProcessResult first = Run({.overrides = job, .trainers = 3, .threads = 1, .shuffle = 1});
    ASSERT_EQ(first.digests.size(), 2u);
    EXPECT_EQ(Run({.overrides = job, .servers = 2, .trainers = 3, .threads = 1, .shuffle = 2}).digests, first.digests);
    EXPECT_NE(Run({.overrides = job, .trainers = 2}).digests, first.digests);
  }
}

TEST_F(AllReduceTest, TablesMayBeAsync) {
  for (const char* update : {"distribute.update=REPLICATED", "distribute.update=SHARDED"}) {
    const InProcessResult result = Run({.overrides = {"train.max_steps=100", kAllReduce, update,
                                                      "distribute.async_tables=true", "distribute.reproducible=false"},
                                        .servers = 2,
                                        .trainers = 3,
                                        .shuffle = 6});
    EXPECT_EQ(result.summary.steps, 100) << update;
    EXPECT_EQ(result.summary.examples, reference_->summary.examples) << update;
    EXPECT_NEAR(result.summary.train_loss, reference_->summary.train_loss, 0.1) << update;
  }
}

// ------------------------------------------------------------------------------------------------------------ buckets

// Sets the bucket of each all_reduce op of a trainer's program to bucket_of(its place among them).
std::function<void(int, Programs*)> Buckets(std::function<int64_t(int64_t place)> bucket_of) {
  return [bucket_of = std::move(bucket_of)](int server, Programs* programs) {
    int64_t place = 0;
    for (v1::OpDesc& op : *programs->main.mutable_blocks(0)->mutable_ops()) {
      if (server >= 0 || op.type() != "all_reduce") continue;
      for (v1::OpAttr& attr : *op.mutable_attrs()) {
        if (attr.name() == "bucket") attr.set_i(bucket_of(place));
      }
      ++place;
    }
  };
}

TEST_F(AllReduceTest, SameBitsWithBucketsOfAnySize) {
  const std::string smallest = "distribute.all_reduce={bucket_bytes: 4096 first_bucket_bytes: 4096}";
  const std::string middle = "distribute.all_reduce={bucket_bytes: 66000 first_bucket_bytes: 4096}";
  for (const int trainers : {2, 3}) {
    for (const std::string& sizes : {smallest, middle}) {
      const InProcessResult result =
          Run({.overrides = Settings({kAllReduce, sizes}), .trainers = trainers, .shuffle = 3});
      EXPECT_EQ(result.digests, reference_->digests) << trainers << " trainers, " << sizes;
    }
    // All in one, and a border at each place.
    for (int64_t border = 0; border < 6; ++border) {
      const InProcessResult result = Run({.overrides = Settings({kAllReduce}),
                                          .trainers = trainers,
                                          .shuffle = 5,
                                          .edit = Buckets([border](int64_t place) { return place < border ? 0 : 1; })});
      EXPECT_EQ(result.digests, reference_->digests) << trainers << " trainers, border at " << border;
    }
  }
}

TEST_F(AllReduceTest, ABucketThatIsLeftOutIsSeen) {
  int64_t left_out = 0;
  const auto leaves_out = [&](Programs* programs, int64_t bucket) {
    FilterOps(programs->main.mutable_blocks(0), [&](const v1::OpDesc& op) {
      const bool keeps = op.type() != "all_reduce" || IntOr(op, "bucket", -1) != bucket;
      left_out += keeps ? 0 : 1;
      return keeps;
    });
  };
  for (const int64_t bucket : {0, 1, 2}) {
    left_out = 0;
    const InProcessResult result = Run({.overrides = Settings({kAllReduce, "train.max_steps=50"}),
                                        .trainers = 2,
                                        .edit = [&](int server, Programs* programs) {
                                          if (server < 0) leaves_out(programs, bucket);
                                        }});
    EXPECT_GE(left_out, 1) << bucket;
    ASSERT_EQ(result.digests.size(), 1u);
    EXPECT_NE(result.digests[0], reference_->digests[0]) << bucket;
  }
  // By one of the trainers alone: it does not start.
  InProcessRun one{.job_text = kClickJob,
                   .directory = dir_,
                   .overrides = Settings({kAllReduce, "train.max_steps=50"}),
                   .trainers = 2,
                   .edit_trainer = [&](int trainer, Job*, Programs* programs) {
                     if (trainer == 1) leaves_out(programs, 1);
                   }};
  const absl::Status status = TrainInProcess(one).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "trainer 1 runs another program than trainer 0")) << status;
}

TEST_F(AllReduceTest, SameBitsAfterResumesInOtherCorners) {
  const std::string dir = CheckpointDir("corners");
  Run({.overrides = Settings({kAllReduce, dir, "train.max_steps=30"}), .servers = 2, .trainers = 3});
  Run({.overrides = Settings({dir, "train.max_steps=60"}), .servers = 3, .trainers = 2, .resume = true});
  const InProcessResult last =
      Run({.overrides = Settings({kAllReduce, dir}), .servers = 1, .trainers = 4, .resume = true});
  ASSERT_EQ(last.digests.size(), 1u);
  EXPECT_EQ(last.digests[0], reference_->digests[1]);
  EXPECT_EQ(last.summary.steps, 100);
}

TEST_F(AllReduceTest, PredictionsAreTheSameInBothCorners) {
  const std::string dir = CheckpointDir("predict");
  const std::vector<std::string> few = {dir, "train.max_steps=20"};
  std::vector<std::string> all_reduce = few;
  all_reduce.emplace_back(kAllReduce);
  Run({.overrides = Settings(all_reduce), .servers = 2, .trainers = 2});
  std::vector<std::string> outputs;
  for (const bool reduces : {false, true}) {
    InProcessRun run{.job_text = kClickJob, .directory = dir_, .overrides = Settings(), .servers = 1, .trainers = 3};
    if (reduces) run.overrides.emplace_back(kAllReduce);
    const std::string output = absl::StrCat(dir_, "/scores.", reduces);
    const absl::StatusOr<int64_t> scored =
        PredictInProcess(run, {.checkpoints = dir_ + "/predict", .input = dir_ + "/train-0.tsv", .output = output});
    ASSERT_TRUE(scored.ok()) << scored.status();
    EXPECT_EQ(*scored, 1000);
    std::ifstream in(output);
    outputs.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  EXPECT_FALSE(outputs[0].empty());
  EXPECT_EQ(outputs[0], outputs[1]);
}

// ------------------------------------------------------------------------------------------------- what contradicts it

TEST_F(AllReduceTest, SettingsThatContradictAreRefusedByName) {
  struct Case {
    std::vector<std::string> overrides;
    const char* message;
  };
  for (const Case& c :
       std::vector<Case>{{{"distribute.sync=false"}, "contradicts distribute.sync: false"},
                         {{"distribute.average=BY_TRAINERS", "distribute.reproducible=false"}, "average: BY_TRAINERS"},
                         {{"distribute.trainers=9"}, "raise train.lanes to 16"},
                         {{"distribute.mode=PSERVER"}, "PSERVER contradicts dense: ALL_REDUCE"},
                         {{"distribute.wire={push: WIRE_BFLOAT16}", "distribute.reproducible=false"}, "wire.push"},
                         {{"distribute.all_reduce={bucket_bytes: 100}"}, "must be at least 4096, got 100"},
                         {{"distribute.assign={parameter: \"out.w\" server: 0}"}, "distribute.assign"},
                         {{"comm.backend=NCCL"}, "NCCL moves gradients between CUDA devices"},
                         {{"checkpoint={dir: \"c\" per_host: true}"},
                          "contradicts all-reduce of dense gradients, whose checkpoints"}}) {
    std::vector<std::string> overrides = {kAllReduce};
    overrides.insert(overrides.end(), c.overrides.begin(), c.overrides.end());
    const absl::StatusOr<Job> job = ParseJob(kClickJob, "job.textproto", overrides);
    ASSERT_FALSE(job.ok()) << c.message;
    EXPECT_TRUE(absl::StrContains(job.status().message(), c.message)) << job.status();
  }
}

// A norm over a distributed table and dense parameters: the table has no optimizer of its own.
std::string WithoutTheTablesOptimizer() {
  std::string text = kClickJob;
  const std::string own = "\n  optimizer { adagrad { learning_rate: 0.05 } } }";
  EXPECT_TRUE(absl::StrContains(text, own));
  return text.replace(text.find(own), own.size(), " }");
}

TEST_F(AllReduceTest, ANormOverWhatServersAndTrainersUpdateHasTheSameBits) {
  const std::string text = WithoutTheTablesOptimizer();
  for (const char* optimizer : {"{adam { learning_rate: 0.001 }", "{momentum { learning_rate: 0.05 }"}) {
    const std::string all = absl::StrCat("optimizer=", optimizer, " clip { by_global_norm { max_norm: 0.05 } }}");
    std::vector<std::string> job = {all, "train.max_steps=50"};
    const auto run = [&](InProcessRun run) {
      run.job_text = text;
      run.directory = dir_;
      run.overrides.insert(run.overrides.begin(), job.begin(), job.end());
      const absl::StatusOr<InProcessResult> result = TrainInProcess(run);
      EXPECT_TRUE(result.ok()) << result.status();
      return result.ok() ? result->digests : std::vector<std::string>();
    };
    const std::vector<std::string> expected = run({.servers = 2, .trainers = 2});
    ASSERT_EQ(expected.size(), 1u);
    for (const auto& [servers, trainers] : {std::pair(1, 1), std::pair(1, 2), std::pair(2, 3), std::pair(0, 3)}) {
      for (const char* update : {"distribute.update=REPLICATED", "distribute.update=SHARDED"}) {
        EXPECT_EQ(run({.overrides = {kAllReduce, update}, .servers = servers, .trainers = trainers, .shuffle = 4}),
                  expected)
            << optimizer << " " << servers << " servers, " << trainers << " trainers, " << update;
      }
    }
    // The clip takes part.
    job[0] = absl::StrCat("optimizer=", optimizer, "}");
    EXPECT_NE(run({.overrides = {kAllReduce}, .servers = 1, .trainers = 2}), expected);
  }
}

TEST_F(AllReduceTest, ANormOverBothIsRefusedWhereTrainersUpdateByThemselves) {
  const absl::StatusOr<Job> job = ParseJob(WithoutTheTablesOptimizer(), "job.textproto",
                                           {"optimizer.clip={by_global_norm { max_norm: 0.2 }}", kAllReduce,
                                            "distribute.reproducible=false", "distribute.local_sgd={}"});
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<Programs> programs = TrainerPrograms(*job, "", "");
  ASSERT_FALSE(programs.ok());
  EXPECT_TRUE(absl::StrContains(programs.status().message(), "contradicts a norm over both")) << programs.status();
  EXPECT_TRUE(absl::StrContains(programs.status().message(), "table 'field_vectors'")) << programs.status();
}

TEST_F(AllReduceTest, FluidsNamesAreUnderstood) {
  EXPECT_TRUE(ParseJob(kClickJob, "job.textproto", {"distribute.mode=PSERVER"}).ok());
  for (const std::vector<std::string>& names :
       std::vector<std::vector<std::string>>{{"distribute.mode=NCCL2"},
                                             {"distribute.mode=COLLECTIVE"},
                                             {"distribute.mode=NCCL2", "distribute.dense=ALL_REDUCE"}}) {
    const absl::StatusOr<Job> job = ParseJob(kClickJob, "job.textproto", names);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_TRUE(AllReduces(job->config.distribute()));
    EXPECT_EQ(job->config.distribute().servers(), 0);
  }
  const absl::StatusOr<Job> both =
      ParseJob(kClickJob, "job.textproto", {"distribute.mode=NCCL2", "distribute.servers=2"});
  ASSERT_FALSE(both.ok());
  EXPECT_TRUE(absl::StrContains(both.status().message(), "set dense: ALL_REDUCE to have rows of tables on servers"))
      << both.status();
}

}  // namespace
}  // namespace weir
