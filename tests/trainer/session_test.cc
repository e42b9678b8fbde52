#include "trainer/session/session.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/line_job.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// Has a batch after `late` waits that were in vain; then ends with `end`.
class SlowReader : public LaneReader {
 public:
  bool awaits_files = false;

  explicit SlowReader(int late, absl::Status end = absl::OkStatus()) : late_(late), end_(std::move(end)) {}

  const std::vector<Column>& columns() const override { return columns_; }
  int lanes() const override { return 1; }
  void SkipTo(int64_t, const v1::StreamPlaces&) override {}
  void Passed(int64_t) override {}
  v1::StreamPlaces Places(int64_t) const override { return {}; }
  absl::Status Next(absl::Duration, std::vector<LaneBatch>*) override {
    return late_-- > 0 ? absl::DeadlineExceededError("waits for stream 0") : end_;
  }
  std::vector<LaneBatch> StoppedBatches() const override { return {}; }
  bool ended() const override { return false; }
  bool AwaitsFiles() const override { return awaits_files; }
  int64_t given() const override { return 0; }
  v1::AbsentInputs absent_inputs() const override { return {}; }
  void Cancel() override {}
  int64_t skipped_lines() const override { return 0; }
  std::vector<InputPosition> skipped_positions() const override { return {}; }
  std::string ShuffleDescription() const override { return ""; }

 private:
  int late_;
  const absl::Status end_;
  const std::vector<Column> columns_;
};

class SessionTest : public LineJobTest {
 protected:
  void SetUp() override {
    LineJobTest::SetUp();
    WriteLines("train.txt", {{}});
    WriteLines("eval.txt", {{}});
    Start(/*trainers=*/1);
  }
  absl::StatusOr<std::unique_ptr<Session>> Create(absl::Duration progress_deadline = absl::Minutes(1)) {
    return Session::Create({.main = programs_.main,
                            .startup = programs_.startup,
                            .columns = {{.name = "label"}, {.name = "x"}},
                            .progress_deadline = progress_deadline,
                            .channel = &cluster_->client(0).steps(),
                            .pool = cluster_->pool()});
  }
  std::unique_ptr<Session> Made(absl::Duration progress_deadline = absl::Minutes(1)) {
    auto session = Create(progress_deadline);
    CHECK(session.ok()) << session.status();
    return *std::move(session);
  }
  // Returns why the programs are refused.
  std::string Refusal() {
    const auto session = Create();
    EXPECT_EQ(session.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(session.status().message());
  }
};

TEST_F(SessionTest, AProgramWithoutALossIsRefused) {
  programs_.main.clear_losses();
  EXPECT_THAT(Refusal(), HasSubstr("has no loss"));
}

TEST_F(SessionTest, ALossNamesTensorsOfTheProgram) {
  programs_.main.mutable_losses(0)->set_prediction("nothing");
  EXPECT_THAT(Refusal(), HasSubstr("'nothing' is none"));
  programs_.main.mutable_losses(0)->clear_prediction();
  EXPECT_THAT(Refusal(), HasSubstr("one of them is not named"));
}

TEST_F(SessionTest, DataThatTheProgramReadsMustBeGiven) {
  programs_.main.mutable_blocks(0)->mutable_ops(0)->mutable_inputs(0)->set_vars(0, "unknown");
  v1::VarDesc* const unknown = programs_.main.mutable_blocks(0)->add_vars();
  unknown->set_name("unknown");
  unknown->add_dims(-1);
  unknown->add_dims(1);
  EXPECT_THAT(Refusal(), HasSubstr("'unknown'"));
}

TEST_F(SessionTest, AParameterWithoutAValueIsNamed) {
  programs_.startup.mutable_blocks(0)->clear_ops();
  const absl::Status refused = Made()->Start(0);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("has no value after the startup program"));
}

TEST_F(SessionTest, AWaitForBatchesGoesOnAsLongAsTheJobDoes) {
  SlowReader reader(/*late=*/3);
  std::vector<LaneBatch> batches;
  int asked = 0;
  EXPECT_EQ(Made()->NextBatches(&reader, &batches,
                                [&] {
                                  ++asked;
                                  return absl::OkStatus();
                                }),
            absl::OkStatus());
  EXPECT_EQ(asked, 3);
}

TEST_F(SessionTest, TheJobsEndEndsAWaitForBatches) {
  SlowReader reader(/*late=*/1000000);
  std::vector<LaneBatch> batches;
  EXPECT_EQ(Made()->NextBatches(&reader, &batches, [] { return absl::AbortedError("trainer 1 is dead"); }),
            absl::AbortedError("trainer 1 is dead"));
}

TEST_F(SessionTest, AWaitForBatchesHasADeadline) {
  SlowReader reader(/*late=*/1000000);
  std::vector<LaneBatch> batches;
  const absl::Status late = Made(/*progress_deadline=*/absl::ZeroDuration())->NextBatches(&reader, &batches, nullptr);
  EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(late.message()), HasSubstr("(deadlines.progress_deadline_s): waits for stream 0"));
}

TEST_F(SessionTest, WhileThereAreNoFilesTheDeadlineDoesNotRun) {
  SlowReader reader(/*late=*/3);
  reader.awaits_files = true;
  std::vector<LaneBatch> batches;
  EXPECT_EQ(Made(/*progress_deadline=*/absl::Nanoseconds(1))->NextBatches(&reader, &batches, nullptr),
            absl::OkStatus());
}

TEST_F(SessionTest, AnErrorOfTheReaderIsNotWaitedFor) {
  SlowReader reader(/*late=*/0, absl::DataLossError("train.txt is cut"));
  std::vector<LaneBatch> batches;
  EXPECT_EQ(Made()->NextBatches(&reader, &batches, nullptr), absl::DataLossError("train.txt is cut"));
}

}  // namespace
}  // namespace weir
