#include "trainer/loop/digests.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/digest.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_made_cluster.h"
#include "tests/testing/printed_lines.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A cluster whose parameters have made a step.
class DigestsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    log_ = absl::StrCat(testing::TempDir(), "/digests.", testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove(log_);
    auto cluster = InProcessCluster::Create(OptionsFor(job_));
    CHECK(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
      HandMadeParams params;
      RETURN_IF_ERROR(cluster_->client(t).Join());
      RETURN_IF_ERROR(ReceiveHandMade(job_, &cluster_->client(t).steps(), &params));
      return RunHandMadeStep(job_, t, {.step = 0}, &cluster_->client(t).steps(), &params).status();
    }),
              absl::OkStatus());
  }
  void TearDown() override { std::filesystem::remove(log_); }

  // Reports the parameters of version 1 as those of step 5.
  absl::Status Report(int trainer, const std::string& log, DeferredError* deferred = nullptr) {
    const v1::Plan plan = job_.Plan();
    Progress progress(out_.file(), /*live=*/false, absl::Seconds(5), Clock::Real());
    Digests digests({.trainer = {.id = trainer, .trainers = job_.trainers, .client = &cluster_->client(trainer)},
                     .log = log,
                     .plan = &plan,
                     .progress = &progress,
                     .deferred = deferred});
    return digests.Report(/*step=*/5, /*version=*/1);
  }
  std::string Printed() { return out_.Text(); }
  std::vector<std::string> LogLines() {
    std::vector<std::string> lines;
    std::ifstream in(log_);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

  const HandMadeJob job_{.servers = 2, .trainers = 2};
  std::unique_ptr<InProcessCluster> cluster_;
  std::string log_;
  PrintedLines out_;
};

TEST_F(DigestsTest, TheChiefPrintsTheSumOverTheServers) {
  ASSERT_EQ(Report(/*trainer=*/0, ""), absl::OkStatus());
  const auto digest = cluster_->GetDigest();
  ASSERT_TRUE(digest.ok()) << digest.status();
  EXPECT_EQ(Printed(), absl::StrCat("digest step=5 values=", DigestHex(digest->values),
                                    " state=", DigestHex(digest->state), "\n"));
}

TEST_F(DigestsTest, OtherTrainersReportNothing) {
  ASSERT_EQ(Report(/*trainer=*/1, log_), absl::OkStatus());
  EXPECT_EQ(Printed(), "");
  EXPECT_FALSE(std::filesystem::exists(log_));
}

TEST_F(DigestsTest, TheLogHasALinePerVariableWithItsExtent) {
  ASSERT_EQ(Report(0, log_), absl::OkStatus());
  EXPECT_THAT(LogLines(), ElementsAre(StartsWith("step=5 variable=b elements=5 row=1 values="),
                                      StartsWith("step=5 variable=e elements=90 row=3 values="),
                                      StartsWith("step=5 variable=t shards=64 values="),
                                      StartsWith("step=5 variable=u shards=64 values="),
                                      StartsWith("step=5 variable=w elements=640 row=16 values=")));
}

TEST_F(DigestsTest, LinesOfTheLogAddUpToTheTotal) {
  ASSERT_EQ(Report(0, log_), absl::OkStatus());
  uint64_t sum = 0;
  for (const std::string& line : LogLines()) {
    uint64_t values = 0;
    ASSERT_TRUE(absl::SimpleHexAtoi(line.substr(line.find("values=") + 7, 16), &values)) << line;
    sum += values;
  }
  EXPECT_EQ(sum, cluster_->GetDigest()->values);
}

TEST_F(DigestsTest, LinesAreAppendedToALogThatIsThere) {
  ASSERT_EQ(Report(0, log_), absl::OkStatus());
  ASSERT_EQ(Report(0, log_), absl::OkStatus());
  EXPECT_EQ(LogLines().size(), 10);
}

TEST_F(DigestsTest, ALogThatCannotBeWrittenEndsTheRunAfterTheParametersAreSaved) {
  DeferredError deferred(&cluster_->client(0), /*saves=*/true);
  EXPECT_EQ(Report(0, "/no/such/folder/log", &deferred), absl::OkStatus());
  EXPECT_EQ(deferred.error().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(deferred.error().message()), HasSubstr("--digest_log=/no/such/folder/log"));
}

}  // namespace
}  // namespace weir
