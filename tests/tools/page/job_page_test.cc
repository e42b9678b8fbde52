// The page of a running job: what it makes of the output of the processes, and how it is served.

#include "tools/page/job_page.h"

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/watch/http_get.h"
#include "framework/watch/message_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/page/findings.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class JobPageStateTest : public ::testing::Test {
 protected:
  JobPageStateTest() : state_(Job(), &clock_) {
    server_ = state_.AddProcess("pserver", 0, "localhost");
    trainer_ = state_.AddProcess("trainer", 0, "localhost");
    other_ = state_.AddProcess("trainer", 1, "far");
  }
  static v1::JobState::Job Job() {
    v1::JobState::Job job;
    job.set_name("ctr");
    return job;
  }

  FakeClock clock_;
  JobPageState state_;
  size_t server_, trainer_, other_;
};

TEST_F(JobPageStateTest, LinesOfProgressAreTheCurves) {
  state_.TakeLine(trainer_, true, "step=100 examples=51200 examples_per_s=90000 loss=0.510000 auc=0.700000 left_s=30");
  state_.TakeLine(trainer_, true,
                  "eval step=100 examples=400 loss=0.52 auc=0.69 calibration=1.01 (auc_x is undefined: a=1)");
  const v1::JobState state = state_.State(-1);
  ASSERT_EQ(state.points_size(), 1);
  EXPECT_EQ(state.points(0).step(), 100);
  EXPECT_EQ(state.points(0).auc(), 0.7);
  EXPECT_THAT(state.points(0).more(), IsEmpty());
  ASSERT_EQ(state.evaluations_size(), 1);
  EXPECT_EQ(state.evaluations(0).loss(), 0.52);
  EXPECT_THAT(state.evaluations(0).more(), UnorderedElementsAre(Pair("calibration", 1.01)));
  EXPECT_EQ(state.job().loss(), 0.51);
  EXPECT_EQ(state.log_size(), 2);
}

TEST_F(JobPageStateTest, OnlyTheLowestTrainersLinesAreTheJobs) {
  state_.TakeLine(trainer_, true, "step=1 examples=1 examples_per_s=1 loss=0.5");
  state_.TakeLine(other_, true, "step=1 examples=1 examples_per_s=1 loss=0.9");
  EXPECT_EQ(state_.State(-1).points_size(), 1);
  EXPECT_EQ(state_.State(-1).job().loss(), 0.5);
}

TEST_F(JobPageStateTest, WhatRestartsHaveCostIsSaidByTheChief) {
  v1::ProcessStatus status;
  (*status.mutable_figure())["restarts"] = 2;
  (*status.mutable_figure())["lost_seconds"] = 7.5;
  (*status.mutable_figure())["repeated_steps"] = 34;
  state_.TakeStatus(trainer_, status);
  // The next start says it again, with its first step.
  state_.TakeStatus(trainer_, v1::ProcessStatus());
  const v1::JobState::Job job = state_.State(-1).job();
  EXPECT_EQ(job.restarts(), 2);
  EXPECT_EQ(job.lost_seconds(), 7.5);
  EXPECT_EQ(job.repeated_steps(), 34);
}

TEST_F(JobPageStateTest, SinceGivesWhatIsNewer) {
  state_.TakeLine(trainer_, true, "step=1 examples=1 examples_per_s=1 loss=0.5");
  state_.SetPlan("the plan");
  const double seen = state_.State(-1).seq();
  EXPECT_EQ(state_.State(-1).plan(), "the plan");
  state_.TakeLine(trainer_, true, "step=2 examples=2 examples_per_s=1 loss=0.4");
  const v1::JobState news = state_.State(seen);
  ASSERT_EQ(news.points_size(), 1);
  EXPECT_EQ(news.points(0).step(), 2);
  EXPECT_EQ(news.log_size(), 1);
  EXPECT_FALSE(news.has_plan());
  EXPECT_EQ(news.processes_size(), 3);
}

// Of a job with a server in every trainer.
TEST_F(JobPageStateTest, TrainersWithServersTellWhoWaitsForWhom) {
  JobPageState state({}, Clock::Real());
  std::vector<size_t> trainers;
  for (int t = 0; t < 3; ++t) trainers.push_back(state.AddProcess("trainer", t, "h"));
  v1::ProcessStatus status;
  for (const char* other : {"trainer 0", "trainer 1"}) {
    v1::WatchedWait& wait = *status.add_waits();
    wait.set_for_(other);
    wait.set_what("step 7, for trainer 0, 2");
    wait.set_seconds(3);
  }
  status.add_trainer()->set_waits("server 0 at h:1, server 1 (h:2): version 8");
  status.add_trainer();
  status.add_trainer()->set_waits("server 1 (h:2): version 8");
  v1::ProcessStatus::Table& table = *status.add_table();
  table.set_name("t");
  table.set_rows(5);
  state.TakeStatus(trainers[0], status);
  status.clear_trainer();
  status.clear_waits();
  state.TakeStatus(trainers[2], status);
  const auto waits = [&](int process) {
    std::vector<std::string> list;
    const v1::JobState now = state.State(-1);
    for (const v1::WatchedWait& wait : now.processes(process).waits()) list.push_back(wait.for_() + ": " + wait.what());
    return list;
  };
  EXPECT_THAT(waits(0), ElementsAre("trainer 1: version 8", "trainer 1: step 7, for trainer 0, 2"));
  EXPECT_THAT(waits(1), IsEmpty());
  EXPECT_THAT(waits(2), ElementsAre("trainer 1: version 8"));
  EXPECT_EQ(state.State(-1).tables(0).rows(), 10);
  state.SetEnd(trainers[0], "exited", 0);
  EXPECT_THAT(waits(0), IsEmpty());
}

TEST_F(JobPageStateTest, ServersTellWhoWaitsForWhom) {
  v1::ProcessStatus status;
  v1::WatchedWait& wait = *status.add_waits();
  wait.set_for_("trainer 1");
  wait.set_what("step 7, for trainer 0");
  wait.set_seconds(3);
  v1::ProcessStatus::Trainer& told = *status.add_trainer();
  told.set_waits("server 0 at 127.0.0.1:6170, server 12 (h:1): version 8");
  told.set_idle_seconds(3.5);
  v1::ProcessStatus::Trainer& reads = *status.add_trainer();
  reads.set_waits("new files of data.train");
  reads.set_idle_seconds(90);
  v1::ProcessStatus::Table& table = *status.add_table();
  table.set_name("t");
  table.set_width(8);
  table.set_rows(5);
  state_.TakeStatus(server_, status);
  state_.TakeStatus(trainer_, v1::ProcessStatus());
  const v1::JobState state = state_.State(-1);
  EXPECT_EQ(state.processes(0).waits(0).for_(), "trainer 1");
  ASSERT_EQ(state.processes(1).waits_size(), 2);
  EXPECT_EQ(state.processes(1).waits(0).for_(), "pserver 0");
  EXPECT_EQ(state.processes(1).waits(1).for_(), "pserver 12");
  EXPECT_EQ(state.processes(1).waits(0).what(), "version 8");
  EXPECT_EQ(state.processes(1).waits(0).seconds(), 3.5);
  // Not for a process.
  ASSERT_EQ(state.processes(2).waits_size(), 1);
  EXPECT_EQ(state.processes(2).waits(0).for_(), "new files of data.train");
  EXPECT_EQ(state.processes(2).waits(0).seconds(), 90);
  ASSERT_EQ(state.tables_size(), 1);
  EXPECT_EQ(state.tables(0).rows(), 5);
}

TEST_F(JobPageStateTest, AProcessThatHasEndedWaitsForNobodyAndIsNotAsked) {
  state_.TakeLine(server_, true, "metrics http://127.0.0.1:9100/metrics");
  state_.TakeLine(other_, true, "metrics http://127.0.0.1:9102/metrics");
  // The other one is on another machine, whose loopback leads nowhere from here.
  EXPECT_THAT(state_.Addresses(), UnorderedElementsAre(Pair(server_, "http://127.0.0.1:9100")));
  state_.SetEnd(server_, "exited", 134);
  EXPECT_THAT(state_.Addresses(), IsEmpty());
  EXPECT_EQ(state_.State(-1).processes(0).exit_code(), 134);
}

TEST_F(JobPageStateTest, AJobHasAnExitCodeWhenItHasEnded) {
  state_.SetJob("stopping", 0, "Terminated");
  EXPECT_FALSE(state_.State(-1).job().has_exit_code());
  state_.SetJob("stopped", 5, "");
  EXPECT_EQ(state_.State(-1).job().state(), "stopped");
  EXPECT_EQ(state_.State(-1).job().exit_code(), 5);
}

TEST_F(JobPageStateTest, AnAddressForAllInterfacesIsThatOfTheHost) {
  state_.TakeLine(other_, true, "metrics http://0.0.0.0:9102/metrics");
  EXPECT_THAT(state_.Addresses(), UnorderedElementsAre(Pair(other_, "http://far:9102")));
}

TEST_F(JobPageStateTest, LogLinesAreTextWhateverTheyHold) {
  state_.TakeLine(trainer_, false, "W20261127 16:44:46.7 1 a.cc:1] slow \xff\xc0\x80 \xf0\x9f\x98\x80 <script>");
  const v1::JobState state = state_.State(-1);
  EXPECT_EQ(state.log(0).severity(), "W");
  EXPECT_THAT(state.log(0).text(), HasSubstr("slow ??? \xf0\x9f\x98\x80 <script>"));
  const absl::StatusOr<std::string> json = MessageAsJson(state);
  ASSERT_TRUE(json.ok()) << json.status();
  v1::JobState back;
  ASSERT_TRUE(MessageFromJson(*json, &back).ok());
  EXPECT_EQ(back.log(0).text(), state.log(0).text());
}

TEST_F(JobPageStateTest, TheLogAndTheCurvesAreBounded) {
  for (size_t i = 0; i < JobPageState::kPoints + 5; ++i) {
    state_.TakeLine(trainer_, true, absl::StrCat("step=", i, " examples=1 examples_per_s=1 loss=0.5"));
  }
  const v1::JobState state = state_.State(-1);
  EXPECT_EQ(static_cast<size_t>(state.points_size()), JobPageState::kPoints);
  EXPECT_EQ(state.points(0).step(), 5);
  EXPECT_EQ(static_cast<size_t>(state.log_size()), JobPageState::kLogLines);
}

TEST(JobPageTest, ServesThePageAndItsStateAndNothingElse) {
  JobPageState state({});
  absl::StatusOr<std::unique_ptr<JobPage>> page = JobPage::Start(
      &state, [] { return "the plan"; }, "127.0.0.1", 0);
  ASSERT_TRUE(page.ok()) << page.status();
  const std::string url = (*page)->url();
  const absl::Duration limit = absl::Seconds(20);
  EXPECT_THAT(*HttpGet(url, "/", limit), HasSubstr("<!DOCTYPE html>"));
  v1::JobState got;
  ASSERT_TRUE(MessageFromJson(*HttpGet(url, "/state.json?since=3", limit), &got).ok());
  EXPECT_EQ(got.job().state(), "starting");
  EXPECT_THAT(HttpGet(url, "/state.json?since=x", limit).status().message(), HasSubstr("since must be a number"));
  EXPECT_THAT(HttpGet(url, "/../../etc/passwd", limit).status().message(), HasSubstr("HTTP 404"));
  EXPECT_THAT(HttpGet(url, "/%2e%2e/etc/passwd", limit).status().message(), HasSubstr("HTTP 404"));
}

TEST(FindingsTest, FilesBesideTheCheckpointsAreFieldsOfTheState) {
  const std::string directory = testing::TempDir() + "/findings";
  std::filesystem::create_directories(directory);
  Findings findings(directory);
  findings.Look();
  EXPECT_EQ(findings.Fields(), "");
  const auto write = [&](const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(directory + "/" + name, text).ok());
    findings.Look();
  };
  write("importance.json", R"({"job": "ctr", "examples": "12", "part": [{"name": "a"}], "unknown": 1})");
  EXPECT_EQ(findings.Fields(), R"("importance":{"job":"ctr","examples":"12","part":[{"name":"a"}]})");
  EXPECT_EQ(findings.version(), 1);
  write("report.json", R"({"step": "7"})");
  EXPECT_THAT(findings.Fields(), HasSubstr(R"(,"report":{"step":"7"})"));
  EXPECT_EQ(findings.version(), 2);
  // Half a file, as a command in a shell writes one: the last whole one stays.
  write("report.json", R"({"step": "8")");
  write("importance.json", "no json");
  EXPECT_THAT(findings.Fields(), HasSubstr(R"("report":{"step":"7"})"));
  EXPECT_EQ(findings.version(), 2);
}

TEST(JobPageTest, FindingsAreSentOnce) {
  const std::string directory = testing::TempDir() + "/sent";
  std::filesystem::create_directories(directory);
  ASSERT_TRUE(WriteFileAtomically(directory + "/importance.json", R"({"job": "ctr"})").ok());
  JobPageState state({});
  const auto page = JobPage::Start(
      &state, [] { return ""; }, "127.0.0.1", 0, directory);
  ASSERT_TRUE(page.ok()) << page.status();
  const absl::Duration limit = absl::Seconds(20);
  std::string all;
  for (const absl::Time begin = absl::Now(); absl::Now() < begin + absl::Seconds(60);) {
    all = *HttpGet((*page)->url(), "/state.json", limit);
    if (all.find("importance") != std::string::npos) break;
  }
  EXPECT_THAT(all, HasSubstr(R"(,"findings":1,"importance":{"job":"ctr"}})"));
  v1::JobState got;
  EXPECT_TRUE(MessageFromJson(all, &got).ok());
  EXPECT_THAT(*HttpGet((*page)->url(), "/state.json?since=0&findings=1", limit), Not(HasSubstr("importance")));
  EXPECT_THAT(*HttpGet((*page)->url(), "/state.json?since=0&findings=0", limit), HasSubstr("importance"));
}

TEST(JobPageTest, ASecondJobOnThePortIsToldSo) {
  JobPageState state({});
  const auto plan = [] { return std::string(); };
  absl::StatusOr<std::unique_ptr<JobPage>> first = JobPage::Start(&state, plan, "127.0.0.1", 0);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string url = (*first)->url();
  const int port = std::stoi(url.substr(url.rfind(':') + 1));
  const absl::Status second = JobPage::Start(&state, plan, "127.0.0.1", port).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.message(), HasSubstr(absl::StrCat("--page: cannot serve http://127.0.0.1:", port)));
}

TEST(JobPageTest, TheEndIsSeenBySomebodyWhoLooks) {
  JobPageState state({});
  absl::StatusOr<std::unique_ptr<JobPage>> page = JobPage::Start(
      &state, [] { return ""; }, "127.0.0.1", 0);
  ASSERT_TRUE(page.ok()) << page.status();
  const absl::Time begin = absl::Now();
  (*page)->AwaitLastLook(absl::Seconds(20));  // nobody has looked
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
}

}  // namespace
}  // namespace weir
