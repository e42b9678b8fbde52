#include "trainer/verify/job_steps.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/graph/program_text.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Lt;

// Two lanes, of three and two examples.
Job JobOf(const std::string& config = "data { batch_size: 5 }") {
  Job job;
  CHECK(google::protobuf::TextFormat::ParseFromString(config + " train { lanes: 2 seed: 7 }", &job.config)) << config;
  return job;
}

v1::ProgramDesc Program(const std::string& block, const std::string& losses = "") {
  auto program = ParseProgramText("weir program\n" + losses + "block 0 parent -1 {\n" + block + "}\n", "x.program");
  CHECK(program.ok()) << program.status();
  return *std::move(program);
}

std::unique_ptr<JobSteps> MadeUp(const v1::ProgramDesc& main) {
  auto steps = JobSteps::MadeUp(JobOf(), main);
  CHECK(steps.ok()) << steps.status();
  return *std::move(steps);
}

std::vector<LaneBatch> Next(JobSteps& steps) {
  std::vector<LaneBatch> batches;
  CHECK(steps.Next(&batches).ok());
  return batches;
}

// Returns the floats, or the ids, of a column in the first steps of all lanes.
std::vector<float> Floats(const v1::ProgramDesc& main, size_t column = 0) {
  const std::unique_ptr<JobSteps> steps = MadeUp(main);
  std::vector<float> floats;
  for (int step = 0; step < 50; ++step) {
    for (const LaneBatch& batch : Next(*steps)) {
      const auto of_lane = std::get<Tensor>(batch.vars[column]).span<float>();
      floats.insert(floats.end(), of_lane.begin(), of_lane.end());
    }
  }
  return floats;
}
std::vector<int64_t> Ids(const v1::ProgramDesc& main) {
  const std::unique_ptr<JobSteps> steps = MadeUp(main);
  std::vector<int64_t> all;
  for (int step = 0; step < 50; ++step) {
    for (const LaneBatch& batch : Next(*steps)) {
      const std::vector<int64_t>& ids = std::get<IdBatch>(batch.vars[0]).values;
      all.insert(all.end(), ids.begin(), ids.end());
    }
  }
  return all;
}

TEST(MadeUpStepsTest, ColumnsAreWhatIsReadAndNeitherWrittenNorKept) {
  const v1::ProgramDesc main = Program(R"(
  var unread [-1, 1]
  var ids ids int64 [-1, 2]
  var w [3, 1] persistable: true is_parameter: true
  var x [-1, 3]
  var y [-1, 1]
  var z [-1, 1]
  Out=y <- mul(X=x, Y=w)
  Out=z <- use(X=y, Ids=ids)
)");
  EXPECT_THAT(MadeUp(main)->columns(),
              ElementsAre(Column{.name = "ids", .kind = v1::IDS, .width = 2}, Column{.name = "x", .width = 3}));
}

TEST(MadeUpStepsTest, ALaneHasItsPartOfTheBatch) {
  const std::unique_ptr<JobSteps> steps =
      MadeUp(Program("  var x [-1, 3]\n  var ids ids int64 [-1, 2]\n"
                     "  use(X=x, Ids=ids)\n"));
  const std::vector<LaneBatch> batches = Next(*steps);
  ASSERT_EQ(batches.size(), 2);
  EXPECT_EQ(batches[0].examples, 3);
  EXPECT_EQ(batches[1].examples, 2);
  EXPECT_THAT(std::get<Tensor>(batches[0].vars[0]).dims(), ElementsAre(3, 3));
  EXPECT_EQ(std::get<IdBatch>(batches[1].vars[1]).batch(), 2);
  EXPECT_THAT(std::get<IdBatch>(batches[1].vars[1]).offsets, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_FALSE(batches[0].ended);
}

TEST(MadeUpStepsTest, EveryRunHasTheSameStepsAndNoTwoStepsAreAlike) {
  const v1::ProgramDesc main = Program("  var x [-1, 3]\n  use(X=x)\n");
  const std::unique_ptr<JobSteps> a = MadeUp(main), b = MadeUp(main);
  const auto values = [](const std::vector<LaneBatch>& batches, size_t lane) {
    const auto x = std::get<Tensor>(batches[lane].vars[0]).span<float>();
    return std::vector<float>(x.begin(), x.end());
  };
  const std::vector<LaneBatch> first = Next(*a), second = Next(*a), again = Next(*b);
  EXPECT_EQ(values(first, 0), values(again, 0));
  EXPECT_NE(values(first, 0), values(second, 0));
  EXPECT_NE(values(first, 0)[0], values(first, 1)[0]);
}

TEST(MadeUpStepsTest, FloatsAreFromMinusOneToOne) {
  const std::vector<float> x = Floats(Program("  var x [-1, 3]\n  use(X=x)\n"));
  EXPECT_THAT(x, Each(AllOf(Ge(-1), Lt(1))));
  EXPECT_THAT(x, Contains(Lt(-0.5f)));
  EXPECT_THAT(x, Contains(Ge(0.5f)));
}

TEST(MadeUpStepsTest, LabelsFitTheirLoss) {
  const std::string block = "  var label [-1, 1]\n  var p [-1, 3]\n  Out=p <- use(X=label)\n";
  const auto labels = [&](const std::string& kind) {
    return Floats(
        Program(block, "loss name: \"l\" var: \"p\" prediction: \"p\" label: \"label\" kind: " + kind + "\n"));
  };
  EXPECT_THAT(labels("BINARY"), AllOf(Each(testing::AnyOf(0, 1)), Contains(0), Contains(1)));
  EXPECT_THAT(labels("MULTI_CLASS"), AllOf(Each(testing::AnyOf(0, 1, 2)), Contains(0), Contains(2)));
  EXPECT_THAT(labels("REGRESSION"), Contains(AllOf(Ge(-1), Lt(0))));
}

TEST(MadeUpStepsTest, WeightsOfExamplesArePositive) {
  const std::vector<float> weights =
      Floats(Program("  var weight [-1, 1]\n  var l [-1, 1]\n  Out=l <- use(X=weight)\n",
                     "loss name: \"l\" var: \"l\" prediction: \"l\" label: \"y\" sample_weight: \"weight\"\n"));
  EXPECT_THAT(weights, Each(AllOf(Ge(1), Lt(2))));
}

TEST(MadeUpStepsTest, IdsAreBelowTheLowestMatrixTheyIndex) {
  const std::vector<int64_t> ids = Ids(Program(R"(
  var ids ids int64 [-1, 2]
  var high [10, 4] persistable: true is_parameter: true
  var low [7, 4] persistable: true is_parameter: true
  lookup(Ids=ids, W=high)
  lookup(Ids=ids, W=low)
)"));
  EXPECT_THAT(ids, Each(AllOf(Ge(0), Lt(7))));
  EXPECT_THAT(ids, Contains(6));
}

TEST(MadeUpStepsTest, IdsOfTablesAreFew) {
  const std::vector<int64_t> ids = Ids(Program(R"(
  var ids ids int64 [-1, 2]
  var t table [-1, 4] persistable: true
  lookup(Ids=ids, W=t)
)"));
  EXPECT_THAT(ids, Each(AllOf(Ge(0), Lt(70))));
  EXPECT_THAT(ids, Contains(Ge(50)));  // only of the second slot
}

TEST(MadeUpStepsTest, OtherVariablesAreRefusedByName) {
  for (const char* var : {"x [-1]", "x [8, 3]", "x int64 [-1, 3]", "x [-1, -1]", "x [-1, 3] kind: SELECTED_ROWS"}) {
    const auto steps = JobSteps::MadeUp(JobOf(), Program(std::string("  var ") + var + "\n  use(X=x)\n"));
    EXPECT_EQ(steps.status().code(), absl::StatusCode::kInvalidArgument) << var;
    EXPECT_THAT(std::string(steps.status().message()), HasSubstr("no batches can be generated for 'x'")) << var;
  }
}

class DataStepsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    job_.directory = testing::TempDir() + "/data_steps";
    std::filesystem::remove_all(job_.directory);
    std::filesystem::create_directories(job_.directory);
    std::ofstream(job_.directory + "/train.txt") << "1 1\n1 2\n1 3\n1 4\n1 5\n";
  }
  void TearDown() override { std::filesystem::remove_all(job_.directory); }

  Job job_ = JobOf(R"(data {
    train { files: "train.txt" } multi_slot { slot { name: "x" type: FLOAT } } shuffle: NO_SHUFFLE batch_size: 2
  })");
};

TEST_F(DataStepsTest, StepsAreTheBatchesOfAllLanesUntilTheDataEnds) {
  const auto steps = JobSteps::OfData(job_, v1::ProgramDesc(), /*pool=*/nullptr);
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_THAT((*steps)->columns(), ElementsAre(Column{.name = "x"}));
  const auto x = [](const LaneBatch& batch) { return std::get<Tensor>(batch.vars[0]).span<float>(); };
  std::vector<LaneBatch> batches = Next(**steps);
  ASSERT_EQ(batches.size(), 2);
  EXPECT_THAT(x(batches[0]), ElementsAre(2));
  EXPECT_THAT(x(batches[1]), ElementsAre(1));
  Next(**steps);
  batches = Next(**steps);
  EXPECT_THAT(x(batches[1]), ElementsAre(5));
  EXPECT_TRUE(batches[0].ended);
  batches = Next(**steps);
  EXPECT_TRUE(batches[0].ended && batches[1].ended);
}

TEST_F(DataStepsTest, ANameThatIsInNoExampleIsNoted) {
  std::ofstream(job_.directory + "/train.txt") << "click:1 user:7\nclick:0 user:8\n";
  job_.config.mutable_data()->mutable_slot_sign()->add_slot()->set_name("user");
  auto steps = JobSteps::OfData(job_, v1::ProgramDesc(), /*pool=*/nullptr);
  ASSERT_TRUE(steps.ok()) << steps.status();
  Next(**steps);
  EXPECT_EQ((*steps)->NoteOnData(), "");
  job_.config.mutable_data()->mutable_slot_sign()->add_slot()->set_name("users");
  steps = JobSteps::OfData(job_, v1::ProgramDesc(), nullptr);
  ASSERT_TRUE(steps.ok()) << steps.status();
  Next(**steps);
  EXPECT_EQ((*steps)->NoteOnData(),
            "slot 'users' is in none of the examples of data.train that the sample has read; the first record of "
            "train.txt has click, user");
}

TEST_F(DataStepsTest, DataThatIsMissingIsNotFound) {
  std::filesystem::remove(job_.directory + "/train.txt");
  EXPECT_EQ(JobSteps::OfData(job_, v1::ProgramDesc(), nullptr).status().code(), absl::StatusCode::kNotFound);
}

TEST(BatchInputOfTest, IdsAreFoundByTheirColumn) {
  std::vector<LaneBatch> batches(2);
  for (LaneBatch& batch : batches) {
    batch.examples = &batch == &batches[0] ? 3 : 2;
    batch.vars = {Tensor(v1::FLOAT32, {1, 1}), IdBatch{.values = {4}}};
  }
  const BatchInput input = BatchInputOf(batches, {{.name = "x"}, {.name = "ids", .kind = v1::IDS}});
  ASSERT_EQ(input.size(), 2);
  EXPECT_EQ(input[0].examples, 3);
  EXPECT_EQ(input[1].examples, 2);
  ASSERT_EQ(input[1].ids.size(), 1);
  EXPECT_EQ(input[1].ids.at("ids"), &std::get<IdBatch>(batches[1].vars[1]));
}

}  // namespace
}  // namespace weir
