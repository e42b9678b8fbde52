// Evaluations of two trainers, each on the stream of its lane. All predictions are 0, so the loss is the mean of the
// squared labels.
#include "trainer/loop/evaluations.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/printed_lines.h"
#include "tests/trainer/line_job.h"
#include "trainer/loop/step_order.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EvaluationsTest : public LineJobTest {
 protected:
  // Parts with which one trainer evaluates.
  struct Seat {
    std::unique_ptr<JobData> data;
    std::unique_ptr<Workers> workers;
    PrintedLines lines;
    std::unique_ptr<Progress> progress;
    std::unique_ptr<JobCheckpoints> checkpoints;
    std::unique_ptr<DeferredError> deferred;
    std::unique_ptr<StepOrder> order;
    std::unique_ptr<Evaluations> evaluations;
  };

  // Lane 0 and so trainer 0 has the first and the third line.
  void StartWith(const std::string& eval_text, std::vector<std::string> overrides = {}) {
    WriteLines("train.txt", {{}});
    WriteText("eval.txt", eval_text);
    Start(/*trainers=*/2, std::move(overrides));
    ASSERT_EQ(cluster_->RunTrainers([&](int t) {
      Seat& seat = seats_[static_cast<size_t>(t)];
      seat.data = OpenData(t);
      seat.workers = MakeWorkers(t);
      ASSIGN_OR_RETURN(const auto metrics, MetricPlan::Create(job_.config, programs_.main, TrainReader(t)->columns()));
      seat.progress = std::make_unique<Progress>(seat.lines.file(), /*live=*/false, absl::Seconds(5), Clock::Real());
      seat.checkpoints = JobCheckpoints::Create({.trainer = Trainer(t)});
      seat.order = StepOrder::Of(Trainer(t), mode());
      seat.deferred = std::make_unique<DeferredError>(&cluster_->client(t), /*saves=*/true);
      seat.evaluations = std::make_unique<Evaluations>(
          Evaluations::Options{.trainer = Trainer(t),
                               .data = seat.data.get(),
                               .session = &seat.workers->session(0),
                               .checkpoints = seat.checkpoints.get(),
                               .progress = seat.progress.get(),
                               .deferred = seat.deferred.get(),
                               .metrics = metrics,
                               .exchange = [&seat](std::string_view key, std::string mine) {
                                 return seat.order->ExchangeParts(key, std::move(mine));
                               }});
      return absl::OkStatus();
    }),
              absl::OkStatus());
  }
  void TearDown() override {
    for (Seat& seat : seats_) {
      seat.evaluations.reset();
      seat.workers.reset();
    }
    LineJobTest::TearDown();
  }
  void ExpectNoResultAfterAStop() {
    cluster_->client(0).member().RequestStop();
    ASSERT_EQ(cluster_->RunTrainers([&](int t) { return Of(t).Run("eval.end", 7, 0); }), absl::OkStatus());
    for (int t = 0; t < 2; ++t) {
      EXPECT_TRUE(Of(t).stopped());
      EXPECT_FALSE(Of(t).Has(7));
      EXPECT_FALSE(Of(t).result().has_value());
      EXPECT_EQ(Deferred(t), absl::OkStatus());
    }
    EXPECT_EQ(Lines(0), "");
  }
  Evaluations& Of(int t) { return *seats_[static_cast<size_t>(t)].evaluations; }
  std::string Lines(int t) { return seats_[static_cast<size_t>(t)].lines.Text(); }
  const absl::Status& Deferred(int t) { return seats_[static_cast<size_t>(t)].deferred->error(); }

  std::array<Seat, 2> seats_;
};

constexpr char kFourLines[] = "1 1 1 0\n1 2 1 0\n1 3 1 0\n1 4 1 0\n";

TEST_F(EvaluationsTest, ResultsOfAllTrainersAreMergedAndTheChiefReportsThem) {
  StartWith(kFourLines);
  ASSERT_EQ(cluster_->RunTrainers([&](int t) { return Of(t).Run("eval.7", /*step=*/7, /*version=*/0); }),
            absl::OkStatus());
  for (int t = 0; t < 2; ++t) {
    EXPECT_TRUE(Of(t).Has(7));
    EXPECT_FALSE(Of(t).Has(6));
    ASSERT_TRUE(Of(t).result().has_value());
    EXPECT_EQ(Of(t).result()->samples, 4);
    EXPECT_EQ(Of(t).result()->Measure("loss"), (1 + 4 + 9 + 16) / 4.0);
  }
  EXPECT_EQ(Lines(0), "eval step=7 examples=4 loss=7.500000 rmse=2.738613 mae=2.500000\n");
  EXPECT_EQ(Lines(1), "");
}

TEST_F(EvaluationsTest, DataWithoutExamplesHasNoResult) {
  StartWith("nonsense\n", {"data.bad_line=SKIP"});
  ASSERT_EQ(cluster_->RunTrainers([&](int t) { return Of(t).Run("eval.7", 7, 0); }), absl::OkStatus());
  EXPECT_TRUE(Of(0).Has(7));
  EXPECT_FALSE(Of(0).result().has_value());
  EXPECT_EQ(Lines(0), "eval step=7 examples=0 (loss is undefined: there are no examples)\n");
}

TEST_F(EvaluationsTest, InSyncAnErrorOfOneTrainerIsDeferredAndThereIsNoResult) {
  // Stream 0 gets the second line of each of the first rounds.
  StartWith("nonsense\n1 1 1 0\n");
  ASSERT_EQ(cluster_->RunTrainers([&](int t) { return Of(t).Run("eval.7", 7, 0); }), absl::OkStatus());
  EXPECT_EQ(Deferred(0), absl::OkStatus());
  EXPECT_THAT(std::string(Deferred(1).message()), HasSubstr("eval.txt:1"));
  for (int t = 0; t < 2; ++t) {
    EXPECT_FALSE(Of(t).Has(7));
    EXPECT_FALSE(Of(t).result().has_value());
  }
  EXPECT_EQ(Lines(0), "");
}

TEST_F(EvaluationsTest, InAsyncTheResultIsThatOfTheOthersAndNamesWhoIsMissing) {
  StartWith("nonsense\n1 1 1 0\n1 4 1 0\n1 3 1 0\n", {"distribute.sync=false"});
  ASSERT_EQ(cluster_->RunTrainers([&](int t) { return Of(t).Run("eval.end", 7, 0); }), absl::OkStatus());
  EXPECT_EQ(Of(1).result()->samples, 2);
  EXPECT_EQ(Lines(0), "eval step=7 examples=2 loss=5.000000 rmse=2.236068 mae=2.000000 (without trainer 1)\n");
}

TEST_F(EvaluationsTest, AnAsyncEvaluationIsReportedWhenTheLastTrainerHasContributed) {
  StartWith(kFourLines, {"distribute.sync=false"});
  ASSERT_EQ(Of(0).Start(/*step=*/4, /*version=*/0), absl::OkStatus());
  ASSERT_EQ(Of(0).ReportComplete(), absl::OkStatus());
  EXPECT_THAT(Of(0).open(), ElementsAre(4));
  EXPECT_EQ(Lines(0), "");
  ASSERT_EQ(Of(1).Start(4, 0), absl::OkStatus());
  ASSERT_EQ(Of(1).ReportComplete(), absl::OkStatus());  // not the chief
  ASSERT_EQ(Of(0).ReportComplete(), absl::OkStatus());
  EXPECT_THAT(Of(0).open(), IsEmpty());
  EXPECT_EQ(Lines(0),
            "eval step=4 examples=4 loss=7.500000 rmse=2.738613 mae=2.500000 live=1 (parameters moved while it ran: "
            "async)\n");
  EXPECT_EQ(Lines(1), "");
  // Such a result is none of a checkpoint.
  EXPECT_FALSE(Of(0).Has(4));
  EXPECT_FALSE(Of(0).result().has_value());
}

TEST_F(EvaluationsTest, AtTheEndOpenEvaluationsAreReportedWithoutThoseWhoTookNoPart) {
  StartWith(kFourLines, {"distribute.sync=false"});
  ASSERT_EQ(Of(0).Start(4, 0), absl::OkStatus());
  ASSERT_EQ(Of(1).Start(4, 0), absl::OkStatus());
  ASSERT_EQ(Of(0).Start(6, 0), absl::OkStatus());
  const std::vector<int64_t> open = Of(0).open();
  EXPECT_THAT(open, ElementsAre(4, 6));
  ASSERT_EQ(cluster_->RunTrainers([&](int t) { return Of(t).Complete(open); }), absl::OkStatus());
  EXPECT_THAT(Of(0).open(), IsEmpty());
  EXPECT_EQ(
      Lines(0),
      "eval step=4 examples=4 loss=7.500000 rmse=2.738613 mae=2.500000 live=1 (parameters moved while it ran: async)\n"
      "eval step=6 examples=2 loss=10.000000 rmse=3.162278 mae=3.000000 live=1 (parameters moved while it ran: async; "
      "without "
      "trainer 1)\n");
}

// Only trainer 0 knows of the stop: the others hear of it by the exchange.
TEST_F(EvaluationsTest, AnEvaluationThatAStopCutsShortHasNoResultOnAnyTrainer) {
  StartWith(kFourLines);
  ExpectNoResultAfterAStop();
}

TEST_F(EvaluationsTest, AnAsyncEvaluationThatAStopCutsShortHasNoResultOnAnyTrainer) {
  StartWith(kFourLines, {"distribute.sync=false"});
  ExpectNoResultAfterAStop();
}

TEST_F(EvaluationsTest, AnEvaluationBesideTheTrainingThatAStopCutsShortIsNotReported) {
  StartWith(kFourLines, {"distribute.sync=false"});
  ASSERT_EQ(Of(1).Start(4, 0), absl::OkStatus());
  cluster_->client(0).member().RequestStop();
  ASSERT_EQ(Of(0).Start(4, 0), absl::OkStatus());
  ASSERT_EQ(Of(0).ReportComplete(), absl::OkStatus());
  EXPECT_THAT(Of(0).open(), IsEmpty());
  EXPECT_EQ(Lines(0), "");
}

}  // namespace
}  // namespace weir
