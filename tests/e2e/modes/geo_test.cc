// Geo on the real train loop: what one trainer comes to, what several learn, programs from files, going on after a
// checkpoint.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/mutex.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "framework/graph/program_text.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/saved_run.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/tapped_transport.h"
#include "tests/testing/train_in_process.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/process_programs.h"

namespace weir {
namespace {

const std::vector<std::string> kGeo = {"distribute.sync=false", "distribute.geo.every_steps=4"};

std::vector<std::string> With(std::vector<std::string> overrides, const std::vector<std::string>& more) {
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

class GeoTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/geo";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteSlotData(dir_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir_); }

  // The slot job with one table held dense, its gradient as rows, and a learning rate that falls.
  static std::string Text() {
    return absl::StrReplaceAll(
        kSlotJob, {{"width: 4 is_sparse: true is_distributed: true", "width: 4 dict_size: 150 is_sparse: true"},
                   {"adam { learning_rate: 0.005 }",
                    "adam { learning_rate: 0.005 } schedule { exponential { decay_steps: 40 decay_rate: 0.8 } }"}});
  }

  static SavedRun Train(InProcessRun run, std::string checkpoints = "") {
    static int runs = 0;
    if (checkpoints.empty()) checkpoints = absl::StrCat(dir_, "/checkpoints", runs++);
    if (run.job_text.empty()) run.job_text = Text();
    run.directory = dir_;
    run.overrides.push_back(absl::StrCat("checkpoint.dir=\"", checkpoints, "\""));
    absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return OpenSaved(result.ok() ? *std::move(result) : InProcessResult(), checkpoints);
  }

  static std::string dir_;
};
std::string GeoTest::dir_;

// Its copy is all there is; the servers follow it.
TEST_F(GeoTest, OneTrainerComesToTheValuesOfAsync) {
  const std::string steps = "train.max_steps=30";
  const SavedRun async = Train({.overrides = {steps, "distribute.sync=false"}, .servers = 2});
  const SavedRun geo = Train({.overrides = With(kGeo, {steps}), .servers = 2});
  const SavedRun local = Train({.overrides = With(kGeo, {steps})});
  for (const char* variable : {"deep.w", "out.w", "out.b", "vectors"}) {
    const std::vector<float> expected = async.Whole(variable), got = geo.Whole(variable), alone = local.Whole(variable);
    ASSERT_EQ(got.size(), expected.size()) << variable;
    ASSERT_EQ(alone.size(), expected.size()) << variable;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], expected[i], 2e-4) << variable << " " << i;
      EXPECT_NEAR(alone[i], expected[i], 2e-4) << variable << " " << i;
    }
  }
  // 30 steps: seven exchanges and the rest.
  for (const auto& counters : geo.result.server_counters) EXPECT_EQ(counters.at("push.applied"), 8);
}

TEST_F(GeoTest, SeveralTrainersLearnTheJobAndExchangeEverySoManySteps) {
  const SavedRun geo = Train({.overrides = kGeo, .servers = 2, .trainers = 3});
  ASSERT_TRUE(geo.result.summary.eval.has_value());
  EXPECT_EQ(geo.result.summary.eval->samples, 1000);
  EXPECT_GE(geo.result.summary.eval->Measure("auc"), kSlotJobAuc);
  int64_t exchanges = 0;
  for (const TrainSummary& summary : geo.result.summaries) exchanges += (summary.steps + 3) / 4;
  for (const auto& counters : geo.result.server_counters) EXPECT_EQ(counters.at("push.applied"), exchanges);
}

// Keeps pushes back until every trainer has one: until then nobody sees another's change.
class FirstPushesTogether {
 public:
  explicit FirstPushesTogether(int trainers) : trainers_(static_cast<size_t>(trainers)) {}

  std::unique_ptr<Transport> Between(int trainer, Transport* servers) {
    return Tapped(servers, [this, trainer](TappedCall call) {
      if (call.method != Method::kPush) return call.GoOn();
      call.Own();
      std::vector<TappedCall> calls;
      {
        MutexLock lock(&mu_);
        have_pushed_.insert(trainer);
        held_.push_back(std::move(call));
        if (have_pushed_.size() == trainers_) calls.swap(held_);
      }
      for (TappedCall& each : calls) each.GoOn();
    });
  }

 private:
  const size_t trainers_;
  Mutex mu_;
  std::set<int> have_pushed_ ABSL_GUARDED_BY(mu_);
  std::vector<TappedCall> held_ ABSL_GUARDED_BY(mu_);
};

// On examples that are all the same every trainer makes the change that one would make alone, and so does their mean.
TEST_F(GeoTest, ATableThatIsNotTrainedIsReadAndNotPushed) {
  const std::string text =
      absl::StrReplaceAll(kSlotJob, {{"optimizer { adagrad { learning_rate: 0.05 } }", "trainable: false"}});
  const std::vector<std::string> overrides = With(kGeo, {"train.max_steps=30"});
  const SavedRun local = Train({.job_text = text, .overrides = overrides});
  const SavedRun geo = Train({.job_text = text, .overrides = overrides, .servers = 2});
  EXPECT_EQ(geo.values, local.values);
  const SavedRun three = Train({.job_text = text, .overrides = overrides, .servers = 2, .trainers = 3});
  for (const TrainSummary& summary : three.result.summaries) EXPECT_EQ(summary.steps, 30);
}

TEST_F(GeoTest, ServersMoveByTheMeanOfTheTrainersChanges) {
  {
    std::ofstream same(dir_ + "/same.txt");
    for (int i = 0; i < 768; ++i) same << SlotLine(0) << "\n";
  }
  // One exchange of each trainer.
  const std::vector<std::string> overrides = With(kGeo, {"train.max_steps=4", "data.train.files=[\"same.txt\"]"});
  const SavedRun one = Train({.overrides = overrides, .servers = 2});
  FirstPushesTogether together(3);
  const SavedRun three =
      Train({.overrides = overrides, .servers = 2, .trainers = 3, .between = [&](int trainer, Transport* servers) {
               return together.Between(trainer, servers);
             }});
  for (const char* variable : {"deep.w", "out.w", "out.b", "vectors"}) {
    const std::vector<float> expected = one.Whole(variable), got = three.Whole(variable);
    ASSERT_EQ(got.size(), expected.size()) << variable;
    // Adam moves a number by .02 in four steps, Adagrad by .1; their sums would be three times as far.
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-4) << variable << " " << i;
  }
}

TEST_F(GeoTest, WithoutLanesAndWithAccumulationItLearnsToo) {
  const SavedRun geo =
      Train({.overrides = With(kGeo, {"train.lanes=0", "train.accumulate_steps=2", "data.batch_size=16"}),
             .servers = 2,
             .trainers = 3});
  ASSERT_TRUE(geo.result.summary.eval.has_value());
  EXPECT_GE(geo.result.summary.eval->Measure("auc"), kSlotJobAuc);
}

TEST_F(GeoTest, ProgramsFromFilesRunAsThoseOfTheJob) {
  const std::vector<std::string> overrides = With(kGeo, {"train.max_steps=10"});
  const SavedRun made = Train({.overrides = overrides});
  std::vector<std::string> all = overrides;
  all.push_back("distribute.servers=1");
  const absl::StatusOr<Job> job = ParseJob(Text(), dir_ + "/job.textproto", all);
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<Programs> programs = TrainerPrograms(*job, "", "");
  ASSERT_TRUE(programs.ok()) << programs.status();
  const std::string main = dir_ + "/main.program", startup = dir_ + "/startup.program";
  ASSERT_TRUE(WriteProgramFile(main, programs->main).ok());
  ASSERT_TRUE(WriteProgramFile(startup, programs->startup).ok());
  const SavedRun read = Train({.overrides = overrides, .trainer_programs = {.main = main, .startup = startup}});
  EXPECT_EQ(read.values, made.values);
}

TEST_F(GeoTest, AResumedRunReadsOnBehindTheLastExchange) {
  const std::string checkpoints = dir_ + "/resumed";
  Train({.overrides = With(kGeo, {"train.max_steps=20"}), .servers = 2, .trainers = 2}, checkpoints);
  const SavedRun resumed = Train(
      {.overrides = With(kGeo, {"train.max_steps=50"}), .servers = 1, .trainers = 2, .resume = true}, checkpoints);
  for (const TrainSummary& summary : resumed.result.summaries) {
    EXPECT_EQ(summary.steps, 50);
    EXPECT_EQ(summary.examples, 30 * 16);
  }
}

}  // namespace
}  // namespace weir
