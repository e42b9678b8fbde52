// A calibration of a small job: every cost that the job has is there, and none that it has not. Whether predictions
// come true is for tests/bench/predicted_speed.py, on a quiet machine.

#include "trainer/verify/calibrate.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/click_job.h"
#include "transpiler/job/load_job.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// Calls go to the servers directly, and to an echo.
class Direct : public Transport {
 public:
  explicit Direct(InProcessServers* servers) : servers_(servers) {}
  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    if (servers_ == nullptr) {
      EXPECT_EQ(method, Method::kDeliver);
      done(Slices());
      return;
    }
    servers_->Call(server, method, std::move(request), timeout, std::move(done));
  }
  std::string Describe(int server) const override { return absl::StrCat("server ", server); }
  int servers() const override { return servers_ == nullptr ? 1 : servers_->servers(); }

 private:
  InProcessServers* const servers_;  // null: an echo
};

absl::StatusOr<v1::Calibration> Calibrated(const Job& job) {
  return Calibrate(
      job, {.seconds = 1,
            .network = {.to_servers = [](InProcessServers* servers) { return std::make_unique<Direct>(servers); },
                        .echo = [](bool) { return std::make_unique<Direct>(nullptr); }}});
}

Job ClickJob(const std::string& directory, const std::vector<std::string>& overrides = {}) {
  std::filesystem::create_directories(directory);
  WriteClickData(directory);
  absl::StatusOr<Job> job = ParseJob(kClickJob, directory + "/job.textproto", overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *std::move(job) : Job();
}

TEST(CalibrateTest, EveryPartOfAJobHasItsCost) {
  const Job job = ClickJob(::testing::TempDir() + "/every");
  const absl::StatusOr<v1::Calibration> c = Calibrated(job);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_GE(c->cores(), 1);
  EXPECT_FALSE(c->processor().empty());
  EXPECT_FALSE(c->arithmetic().empty());
  EXPECT_EQ(c->data(), "the job's data");
  EXPECT_EQ(c->program(), *CalibratedProgram(job));
  EXPECT_GT(c->trainer().example_ns() + c->trainer().lane_ns(), 0);
  EXPECT_GT(c->trainer().row_ns(), 0);
  EXPECT_GT(c->trainer().push_lane_ns() + c->trainer().push_byte_ns(), 0);
  EXPECT_GT(c->trainer().block_byte_ns(), 0);
  EXPECT_GT(c->trainer().read_ns(), 0);
  EXPECT_GT(c->server().row_ns(), 0);
  EXPECT_GT(c->server().block_byte_ns(), 0);
  EXPECT_GT(c->server().push_byte_ns(), 0);
  EXPECT_GT(c->server().merge_row_ns() + c->server().update_row_ns(), 0);
  EXPECT_GT(c->server().merge_byte_ns() + c->server().update_byte_ns(), 0);
  EXPECT_GT(c->tcp().round_trip_ns(), 0);
  EXPECT_GT(c->unix_socket().message_ns(), 0);
  EXPECT_GE(c->crowding(), 1);
  EXPECT_LT(c->crowding(), 100);
  EXPECT_LT(c->moving(), 4.5);
}

TEST(CalibrateTest, TheClusterOfAJobIsNoPartOfItsCalibration) {
  const std::string directory = ::testing::TempDir() + "/cluster";
  const Job two = ClickJob(directory, {"distribute.servers=2", "distribute.trainers=2"});
  const Job async = ClickJob(directory, {"distribute.servers=3", "distribute.trainers=4", "distribute.sync=false"});
  const Job inside = ClickJob(directory, {"distribute.servers=0", "distribute.trainers=2"});
  EXPECT_EQ(*CalibratedProgram(two), *CalibratedProgram(async));
  EXPECT_EQ(*CalibratedProgram(two), *CalibratedProgram(inside));
  for (const Job* job : {&async, &inside}) {
    const absl::StatusOr<v1::Calibration> c = Calibrated(*job);
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_GT(c->server().row_ns(), 0);
  }
}

TEST(CalibrateTest, DenseParametersThatTrainersAddHaveCostsToo) {
  const Job job = ClickJob(::testing::TempDir() + "/reduced", {"distribute.dense=ALL_REDUCE", "distribute.servers=0"});
  const absl::StatusOr<v1::Calibration> c = Calibrated(job);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_GT(c->trainer().push_lane_ns() + c->trainer().push_byte_ns(), 0);
  EXPECT_GT(c->server().merge_byte_ns() + c->server().update_byte_ns(), 0);
  EXPECT_GT(c->server().row_ns(), 0);
}

// There are no pushes: their cost is that of the lanes alone.
TEST(CalibrateTest, WhatNobodySendsCostsNothingAByte) {
  ClickJob(::testing::TempDir() + "/dense");  // for its data
  const absl::StatusOr<Job> dense = ParseJob(R"(name: "dense"
    data { train { files: "train-*.tsv" } criteo {} batch_size: 64 }
    model { layer { name: "out" fc { input: "dense" size: 1 } }
            loss { sigmoid_cross_entropy { logits: "out" label: "label" } } }
    optimizer { sgd {} } distribute { servers: 0 dense: ALL_REDUCE } train { epochs: 10 })",
                                             ::testing::TempDir() + "/dense/job.textproto", {});
  ASSERT_TRUE(dense.ok()) << dense.status();
  const absl::StatusOr<v1::Calibration> c = Calibrated(*dense);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->trainer().push_byte_ns(), 0);
  EXPECT_EQ(c->server().row_ns(), 0);
  for (const double ns : {c->trainer().push_lane_ns(), c->server().merge_byte_ns(), c->server().update_byte_ns(),
                          c->trainer().row_ns(), c->moving()}) {
    EXPECT_TRUE(std::isfinite(ns));
  }
}

TEST(CalibrateTest, AJobWithoutDataIsCalibratedWithGeneratedBatches) {
  Job job = ClickJob(::testing::TempDir() + "/made_up");
  job.config.mutable_data()->mutable_train()->clear_files();
  job.config.mutable_data()->clear_dense();  // statistics need data
  job.config.mutable_data()->mutable_ids()->clear_min_count();
  const absl::StatusOr<v1::Calibration> c = Calibrated(job);
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->data(), "generated batches");
  EXPECT_EQ(c->trainer().read_ns(), 0);
}

TEST(CalibrateTest, DataWithoutAWholeStepAreRefused) {
  const Job job = ClickJob(::testing::TempDir() + "/few", {"data.batch_size=80000", "train.epochs=1"});
  const absl::Status status = Calibrated(job).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("data.train has fewer examples than a step of 80000 needs: there is nothing to calibrate with"));
}

}  // namespace
}  // namespace weir
