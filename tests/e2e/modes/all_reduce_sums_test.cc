// Jobs with dense: ALL_REDUCE whose gradients are added otherwise than in the lane tree. In any order and in 16 bits:
// all trainers have the same replicas, and the loss is nearly that of the tree. By adasum: the bits depend on no number
// of trainers.

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/click_job.h"
#include "tests/testing/train_in_process.h"
#include "transpiler/job/job.h"
#include "transpiler/job/load_job.h"

namespace weir {
namespace {

constexpr char kAllReduce[] = "distribute.dense=ALL_REDUCE";
constexpr char kAnyOrder[] = "distribute.reproducible=false";
constexpr char kAdasum[] = "distribute.all_reduce={reduction: ADASUM}";

class AllReduceSumsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/all_reduce_sums";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteClickData(dir_);
    tree_ = new InProcessResult(Run({.overrides = Settings({}), .trainers = 2}));
  }
  static void TearDownTestSuite() {
    delete tree_;
    std::filesystem::remove_all(dir_);
  }

  // Replicas are compared at each checkpoint.
  static std::vector<std::string> Settings(const std::vector<std::string>& more) {
    std::vector<std::string> all = {kAllReduce, "optimizer.clip={by_global_norm { max_norm: 0.2 }}",
                                    "train.max_steps=100"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string Checkpoints(const std::string& name, int every) {
    return absl::StrCat("checkpoint={dir: \"", dir_, "/", name, "\" every_steps: ", every, "}");
  }
  static InProcessResult Run(InProcessRun run) {
    if (run.job_text.empty()) run.job_text = kClickJob;
    run.directory = dir_;
    absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }

  // Returns the loss of the chief's own examples among so many trainers, whose sums are those of the tree.
  static double LossOfTree(int trainers) {
    static auto* const losses = new std::map<int, double>();
    const auto [loss, fresh] = losses->try_emplace(trainers, 0);
    if (fresh) loss->second = Run({.overrides = Settings({}), .servers = 0, .trainers = trainers}).summary.train_loss;
    return loss->second;
  }

  static std::string dir_;
  static InProcessResult* tree_;
};
std::string AllReduceSumsTest::dir_;
InProcessResult* AllReduceSumsTest::tree_ = nullptr;

TEST_F(AllReduceSumsTest, InAnyOrderReplicasAreEqualAndTheLossIsThatOfTheTree) {
  for (const int trainers : {1, 2, 3, 5}) {
    const std::string name = absl::StrCat("any", trainers);
    const InProcessResult any = Run({.overrides = Settings({kAnyOrder, Checkpoints(name, 10)}),
                                     .servers = trainers == 3 ? 0 : 2,
                                     .trainers = trainers,
                                     .shuffle = 7});
    EXPECT_EQ(any.summary.steps, 100);
    EXPECT_EQ(any.summary.examples, tree_->summary.examples);
    // The loss is that of the chief's own examples.
    EXPECT_NEAR(any.summary.train_loss, tree_->summary.train_loss, 0.06) << trainers;
  }
}

TEST_F(AllReduceSumsTest, In16BitsReplicasAreEqualAndTheLossIsNearlyThatOfTheTree) {
  for (const char* format : {"FLOAT16", "BFLOAT16"}) {
    for (const int trainers : {2, 3}) {
      const std::string compression = absl::StrCat("distribute.all_reduce={compression: ", format, "}");
      const InProcessResult result =
          Run({.overrides = Settings({kAnyOrder, compression, Checkpoints(absl::StrCat(format, trainers), 10)}),
               .servers = trainers == 3 ? 0 : 2,
               .trainers = trainers,
               .shuffle = 7});
      EXPECT_EQ(result.summary.steps, 100);
      EXPECT_EQ(result.summary.skipped_steps, 0);
      EXPECT_NEAR(result.summary.train_loss, LossOfTree(trainers), 5e-3) << format << ", " << trainers;
      EXPECT_NE(result.digests, tree_->digests);
    }
  }
}

TEST_F(AllReduceSumsTest, AResumedRunIn16BitsHasTheBitsOfAnUninterruptedOne) {
  const std::string compression = "distribute.all_reduce={compression: BFLOAT16}";
  // Of 3 trainers the first two have three lanes each, which are no node of the tree.
  const InProcessResult whole = Run({.overrides = Settings({kAnyOrder, compression}), .trainers = 3});
  const std::string dir = Checkpoints("resumed", 1000);
  Run({.overrides = Settings({kAnyOrder, compression, dir, "train.max_steps=33"}), .trainers = 3});
  const InProcessResult resumed =
      Run({.overrides = Settings({kAnyOrder, compression, dir}), .trainers = 3, .resume = true});
  EXPECT_EQ(resumed.digests, whole.digests);
  // Without its residuals it would not.
  bool removed = false;
  Run({.overrides = Settings({kAnyOrder, compression, Checkpoints("bare", 1000), "train.max_steps=33"}),
       .trainers = 3});
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir_ + "/bare")) {
    removed |= file.path().filename() == "residuals";
  }
  EXPECT_TRUE(removed);
  // With another number of trainers they are dropped, and the run goes on.
  const InProcessResult other =
      Run({.overrides = Settings({kAnyOrder, compression, Checkpoints("bare", 1000)}), .trainers = 2, .resume = true});
  EXPECT_EQ(other.summary.steps, 100);
}

// A gradient that never fits into FLOAT16: no step takes effect, on trainers and servers alike.
TEST_F(AllReduceSumsTest, WhatDoesNotFitIsSkippedByTrainersAndServers) {
  std::string text = kClickJob;
  const std::string from = "input: \"fields\" input: \"dense\" } }";
  ASSERT_TRUE(absl::StrContains(text, from));
  text.replace(text.find(from), from.size(), "input: \"fields\" input: \"large\" } }");
  text.insert(text.find("  layer { name: \"input\""),
              "  layer { name: \"large\" scale { input: \"dense\" scale: 1e8 } }\n");
  const auto values_of = [](const InProcessResult& result) {
    std::vector<std::string> values;
    for (const std::string& line : result.digests) values.push_back(line.substr(line.find("values=")));
    return values;
  };
  for (const char* format : {"FLOAT16", "BFLOAT16"}) {
    const InProcessResult result =
        Run({.job_text = text,
             .overrides = Settings({kAnyOrder, absl::StrCat("distribute.all_reduce={compression: ", format, "}")}),
             .servers = 2,
             .trainers = 3});
    const std::vector<std::string> values = values_of(result);
    ASSERT_EQ(values.size(), 2u);
    if (std::string(format) == "FLOAT16") {
      EXPECT_EQ(result.summary.skipped_steps, 100);
      EXPECT_EQ(values[0], values[1]);
    } else {
      EXPECT_EQ(result.summary.skipped_steps, 0);
      EXPECT_NE(values[0], values[1]);
    }
  }
}

struct AdasumCase {
  const char* name;
  std::vector<std::string> settings;
};
class AdasumJobTest : public AllReduceSumsTest, public ::testing::WithParamInterface<AdasumCase> {};

TEST_P(AdasumJobTest, HasTheSameBitsOnAnyNumberOfTrainers) {
  std::vector<std::string> settings = GetParam().settings;
  settings.emplace_back(kAdasum);
  const InProcessResult one = Run({.overrides = Settings(settings)});
  ASSERT_FALSE(one.digests.empty());
  EXPECT_NE(one.digests[0], tree_->digests[0]);
  EXPECT_LT(one.summary.train_loss, tree_->summary.train_loss + 0.15);
  for (const auto& [servers, trainers] :
       {std::tuple{2, 2}, std::tuple{1, 3}, std::tuple{0, 4}, std::tuple{0, 5}, std::tuple{1, 8}}) {
    const InProcessResult result =
        Run({.overrides = Settings(settings), .servers = servers, .trainers = trainers, .shuffle = 3});
    EXPECT_EQ(result.digests, one.digests) << servers << " servers, " << trainers << " trainers";
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, AdasumJobTest,
                         ::testing::Values(AdasumCase{"Plain", {}}, AdasumCase{"InAnyOrder", {kAnyOrder}},
                                           AdasumCase{"Accumulating",
                                                      {"train.accumulate_steps=2", "train.max_steps=50"}},
                                           AdasumCase{"Scaled", {"train.loss_scaling={}", "train.max_steps=50"}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(AllReduceSumsTest, SettingsThatContradictAreRefusedByName) {
  struct Case {
    std::vector<std::string> overrides;
    const char* message;
  };
  for (const Case& c : std::vector<Case>{
           {{"distribute.all_reduce={compression: FLOAT16}"}, "set distribute.reproducible: false to permit that"},
           {{kAnyOrder, "distribute.all_reduce={compression: BFLOAT16 reduction: ADASUM}"},
            "BFLOAT16 contradicts all_reduce.reduction: ADASUM"},
           {{kAdasum, "train.device=CUDA"}, "ADASUM contradicts train.device: CUDA"}}) {
    std::vector<std::string> overrides = {kAllReduce};
    overrides.insert(overrides.end(), c.overrides.begin(), c.overrides.end());
    const absl::StatusOr<Job> job = ParseJob(kClickJob, "job.textproto", overrides);
    ASSERT_FALSE(job.ok()) << c.message;
    EXPECT_TRUE(absl::StrContains(job.status().message(), c.message)) << job.status();
  }
}

}  // namespace
}  // namespace weir
