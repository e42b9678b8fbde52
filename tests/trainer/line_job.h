// A small job in one process, whose trainers' parts tests put together: out = w x + b for one number x, with w and b
// from zero and the loss (out - label)^2.
#ifndef WEIR_TESTS_TRAINER_LINE_JOB_H_
#define WEIR_TESTS_TRAINER_LINE_JOB_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/training_mode.h"
#include "glog/logging.h"
#include "gtest/gtest.h"
#include "tests/testing/in_process_cluster.h"
#include "trainer/loop/job_data.h"
#include "trainer/session/workers.h"
#include "trainer/this_trainer.h"
#include "transpiler/job/job.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/transpile.h"

namespace weir {

// Lane l of n reads the lines with number mod n = l, in their order.
inline constexpr char kLineJob[] = R"(
name: "line"
data {
  train { files: "train.txt" }
  eval { files: "eval.txt" }
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT } }
  shuffle: NO_SHUFFLE
  batch_size: 4
}
model {
  layer { name: "out" fc { input: "x" size: 1 weight_initializer { constant { value: 0 } } } }
  loss { square_error { input: "out" label: "label" } }
}
optimizer { sgd { learning_rate: 0.5 } }
train { lanes: 2 }
deadlines { lease_s: 60 }
)";

struct LabelledNumber {
  float label = 0, x = 0;
};

class LineJobTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    dir_ = absl::StrCat(testing::TempDir(), "/", test.test_suite_name(), ".", test.name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override {
    cluster_.reset();
    std::filesystem::remove_all(dir_);
  }

  void WriteText(const std::string& file, const std::string& text) { std::ofstream(dir_ + "/" + file) << text; }
  void WriteLines(const std::string& file, const std::vector<LabelledNumber>& lines) {
    std::string text;
    for (const LabelledNumber& line : lines) absl::StrAppend(&text, "1 ", line.label, " 1 ", line.x, "\n");
    WriteText(file, text);
  }

  // Transpiles the job, starts its servers and joins them with a client for each trainer.
  void Start(int trainers, std::vector<std::string> overrides = {}) {
    overrides.push_back(absl::StrCat("distribute.trainers=", trainers));
    auto job = ParseJob(kLineJob, dir_ + "/job.textproto", overrides);
    CHECK(job.ok()) << job.status();
    job_ = *std::move(job);
    const auto transpiled = Transpile(job_);
    CHECK(transpiled.ok()) << transpiled.status();
    programs_ = transpiled->trainer();
    const auto server = transpiled->Server(0);
    CHECK(server.ok()) << server.status();
    ClusterOptions options;
    options.plan = transpiled->plan();
    options.main = [server = *server](int) { return server.main; };
    options.startup = [server = *server](int) { return server.startup; };
    options.plan_text = PlanText(job_, options.plan);
    options.job_name = job_.config.name();
    options.deadlines = job_.config.deadlines();
    auto cluster = InProcessCluster::Create(std::move(options));
    CHECK(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    ASSERT_EQ(cluster_->RunTrainers([&](int t) { return cluster_->client(t).Join(); }), absl::OkStatus());
  }
  ThisTrainer Trainer(int t) {
    return {.id = t,
            .trainers = cluster_->trainers(),
            .sync = job_.config.distribute().sync(),
            .client = &cluster_->client(t)};
  }
  v1::TrainingMode mode() const { return ModeOf(programs_.main); }
  JobDataOptions DataOptions(int t) {
    return {.trainer = Trainer(t),
            .job = &job_,
            .program = &programs_.main,
            .pool = cluster_->pool(),
            .batches_per_step = int64_t{mode().accumulate()} * mode().workers(),
            .reader_threads = 1};
  }
  std::unique_ptr<JobData> OpenData(int t) {
    auto data = JobData::Open(DataOptions(t));
    CHECK(data.ok()) << data.status();
    return *std::move(data);
  }
  std::unique_ptr<LaneReader> TrainReader(int t) {
    auto reader = OpenData(t)->TrainReader();
    CHECK(reader.ok()) << reader.status();
    return *std::move(reader);
  }
  std::unique_ptr<Workers> MakeWorkers(int t) {
    auto workers = Workers::Create({.trainer = Trainer(t),
                                    .pool = cluster_->pool(),
                                    .job = &job_,
                                    .programs = &programs_,
                                    .columns = TrainReader(t)->columns()});
    CHECK(workers.ok()) << workers.status();
    return *std::move(workers);
  }

  std::string dir_;
  Job job_;
  Programs programs_;
  std::unique_ptr<InProcessCluster> cluster_;
};

}  // namespace weir

#endif  // WEIR_TESTS_TRAINER_LINE_JOB_H_
