#include "trainer/loop/job_data.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/line_job.h"

namespace weir {
namespace {

// Returns the beginning of a run that goes on with these statistics.
v1::Beginning With(const std::string& statistics) {
  v1::Beginning beginning;
  beginning.set_statistics(statistics);
  return beginning;
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobDataTest : public LineJobTest {
 protected:
  void SetUp() override {
    LineJobTest::SetUp();
    WriteLines("train.txt", {{.x = 1}, {.x = 2}, {.x = 3}, {.x = 6}});
    WriteLines("eval.txt", {{.x = 10}, {.x = 11}});
  }
  // Returns the numbers x that a reader gives, lane by lane.
  static std::vector<std::vector<float>> Numbers(LaneReader& reader) {
    std::vector<std::vector<float>> numbers(static_cast<size_t>(reader.lanes()));
    std::vector<LaneBatch> batches;
    while (true) {
      const absl::Status read = reader.Next(absl::Seconds(60), &batches);
      CHECK(read.ok()) << read;
      if (reader.ended()) return numbers;
      for (size_t lane = 0; lane < batches.size(); ++lane) {
        const auto x = std::get<Tensor>(batches[lane].vars[1]).span<float>();
        numbers[lane].insert(numbers[lane].end(), x.begin(), x.end());
      }
    }
  }
};

TEST_F(JobDataTest, InputsAreTheListingsOfBothSources) {
  Start(/*trainers=*/1);
  const std::vector<Input> inputs = OpenData(0)->Inputs();
  ASSERT_EQ(inputs.size(), 2);
  EXPECT_EQ(inputs[0].name, "data.train");
  EXPECT_THAT(inputs[0].text, HasSubstr("train.txt: 32 bytes"));
  EXPECT_EQ(inputs[1].name, "data.eval");
  EXPECT_THAT(inputs[1].text, HasSubstr("eval.txt"));
  EXPECT_TRUE(inputs[0].is_data && inputs[1].is_data);
}

TEST_F(JobDataTest, AJobMayHaveNoDataToEvaluateOn) {
  Start(1);
  job_.config.mutable_data()->clear_eval();
  const std::unique_ptr<JobData> data = OpenData(0);
  EXPECT_FALSE(data->has_eval());
  EXPECT_EQ(data->Inputs().size(), 1);
}

TEST_F(JobDataTest, AMissingFileIsNamedWithItsField) {
  Start(1);
  std::filesystem::remove(dir_ + "/eval.txt");
  const absl::Status missing = JobData::Open(DataOptions(0)).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("data.eval"));
}

TEST_F(JobDataTest, TrainingRepeatsTheDataAndAnEvaluationReadsItOnce) {
  Start(1, {"train.epochs=2"});
  const std::unique_ptr<JobData> data = OpenData(0);
  EXPECT_THAT(Numbers(**data->TrainReader()), ElementsAre(ElementsAre(2, 6, 2, 6), ElementsAre(1, 3, 1, 3)));
  EXPECT_THAT(Numbers(**data->EvalReader()), ElementsAre(ElementsAre(11), ElementsAre(10)));
}

TEST_F(JobDataTest, ATrainerReadsTheStreamsOfItsLanes) {
  Start(/*trainers=*/2);
  EXPECT_THAT(Numbers(*TrainReader(0)), ElementsAre(ElementsAre(2, 6)));
  EXPECT_THAT(Numbers(*TrainReader(1)), ElementsAre(ElementsAre(1, 3)));
}

TEST_F(JobDataTest, AResumedRunHasTheStreamsOfTheRuleThatItBeganWith) {
  Start(1);
  const std::unique_ptr<JobData> data = OpenData(0);
  EXPECT_EQ(data->CutBy(1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(data->CutBy(3).code(), absl::StatusCode::kFailedPrecondition) << "that of large example files";
  ASSERT_EQ(data->CutBy(2), absl::OkStatus());
  EXPECT_THAT(Numbers(**data->TrainReader()), ElementsAre(ElementsAre(1, 3), ElementsAre(2, 6)));
  EXPECT_THAT(Numbers(**data->EvalReader()), ElementsAre(ElementsAre(10), ElementsAre(11)));
}

TEST_F(JobDataTest, AJobThatStandardizesNothingHasNoStatistics) {
  Start(1);
  const std::unique_ptr<JobData> data = OpenData(0);
  EXPECT_EQ(data->LearnStatistics(v1::Beginning()), absl::OkStatus());
  EXPECT_EQ(data->statistics(), nullptr);
}

TEST_F(JobDataTest, EveryTrainerMeasuresItsPartAndAllKnowTheWhole) {
  Start(/*trainers=*/2, {"data.dense.transform=STANDARDIZE"});
  std::vector<std::string> serialized(2);
  ASSERT_EQ(cluster_->RunTrainers([&](int t) -> absl::Status {
    const std::unique_ptr<JobData> data = OpenData(t);
    RETURN_IF_ERROR(data->LearnStatistics(v1::Beginning()));
    // Column 1, behind the label, is x with the values 1, 2, 3, 6.
    const Moments& x = data->statistics()->moments().at(1);
    EXPECT_EQ(x.count, 4);
    EXPECT_DOUBLE_EQ(x.mean, 3);
    EXPECT_DOUBLE_EQ(x.m2, 4 + 1 + 0 + 9);
    serialized[static_cast<size_t>(t)] = data->statistics()->Serialize();
    return absl::OkStatus();
  }),
            absl::OkStatus());
  EXPECT_EQ(serialized[0], serialized[1]);
}

TEST_F(JobDataTest, StatisticsOfACheckpointAreTakenAsTheyAre) {
  Start(/*trainers=*/1, {"data.dense.transform=STANDARDIZE"});
  const std::unique_ptr<JobData> measured = OpenData(0);
  ASSERT_EQ(measured->LearnStatistics(v1::Beginning()), absl::OkStatus());
  const std::string saved = measured->statistics()->Serialize();
  // Other data gives other statistics.
  WriteLines("train.txt", {{.x = 100}});
  const std::unique_ptr<JobData> data = OpenData(0);
  ASSERT_EQ(data->LearnStatistics(With(saved)), absl::OkStatus());
  EXPECT_EQ(data->statistics()->Serialize(), saved);
}

TEST_F(JobDataTest, DamagedStatisticsOfACheckpointAreRefused) {
  Start(/*trainers=*/1, {"data.dense.transform=STANDARDIZE"});
  const std::unique_ptr<JobData> measured = OpenData(0);
  ASSERT_EQ(measured->LearnStatistics(v1::Beginning()), absl::OkStatus());
  std::string cut = measured->statistics()->Serialize();
  cut.pop_back();
  const std::unique_ptr<JobData> data = OpenData(0);
  EXPECT_EQ(data->LearnStatistics(With(cut)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(data->statistics(), nullptr);
}

// Only trainer 0 knows of the stop: the other hears of it by the exchange.
TEST_F(JobDataTest, AStopEndsTheMeasuringOnAllTrainers) {
  Start(/*trainers=*/2, {"data.dense.transform=STANDARDIZE"});
  cluster_->client(0).member().RequestStop();
  ASSERT_EQ(cluster_->RunTrainers([&](int t) {
    const std::unique_ptr<JobData> data = OpenData(t);
    EXPECT_EQ(data->LearnStatistics(v1::Beginning()).code(), absl::StatusCode::kCancelled);
    EXPECT_TRUE(data->stopped());
    EXPECT_EQ(data->statistics(), nullptr);
    return absl::OkStatus();
  }),
            absl::OkStatus());
}

TEST_F(JobDataTest, ABadLineThatIsMeasuredNamesItsPlace) {
  WriteText("train.txt", "1 0 1 5\nnonsense\n");
  Start(/*trainers=*/1, {"data.dense.transform=STANDARDIZE"});
  EXPECT_THAT(std::string(OpenData(0)->LearnStatistics(v1::Beginning()).message()), HasSubstr("train.txt:2"));
}

TEST_F(JobDataTest, ARunWithoutExamplesNamesTheFiles) {
  Start(1);
  EXPECT_EQ(
      OpenData(0)->NoExamples(0),
      absl::InvalidArgumentError("data.train: there are no examples to train on in 1 file: train.txt (32 bytes)"));
  EXPECT_THAT(std::string(OpenData(0)->NoExamples(5).message()),
              HasSubstr("; 5 lines were skipped (data.bad_line: SKIP)"));
}

TEST_F(JobDataTest, OfManyFilesThreeAreNamed) {
  for (int i = 0; i < 5; ++i) WriteText(absl::StrCat("part", i), "x\n");
  Start(1, {"data.drop_last=true"});
  job_.config.mutable_data()->mutable_train()->clear_files();
  job_.config.mutable_data()->mutable_train()->add_files("part*");
  EXPECT_EQ(OpenData(0)->NoExamples(0),
            absl::InvalidArgumentError(
                "data.train: there are no examples to train on in 5 files: part0 (2 bytes), part1 (2 bytes), part2 (2 "
                "bytes), ...; a stream gives whole batches only, of 2 examples (data.drop_last)"));
}

}  // namespace
}  // namespace weir
