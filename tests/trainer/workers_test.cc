#include "trainer/session/workers.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/line_job.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

LaneBatch Batch(const std::vector<LabelledNumber>& lines) {
  LaneBatch batch{.examples = static_cast<int64_t>(lines.size())};
  Tensor label(v1::FLOAT32, {batch.examples, 1}), x(v1::FLOAT32, {batch.examples, 1});
  for (size_t i = 0; i < lines.size(); ++i) {
    label.data<float>()[i] = lines[i].label;
    x.data<float>()[i] = lines[i].x;
  }
  batch.vars = {std::move(label), std::move(x)};
  return batch;
}

class WorkersTest : public LineJobTest {
 protected:
  void SetUp() override {
    LineJobTest::SetUp();
    WriteLines("train.txt", {{}});
    WriteLines("eval.txt", {{}});
  }
};

TEST_F(WorkersTest, AStepMovesTheParametersByTheMeanGradient) {
  Start(/*trainers=*/1);
  const std::unique_ptr<Workers> workers = MakeWorkers(0);
  ASSERT_EQ(workers->count(), 1);
  const auto train = [&](int64_t step) {
    std::vector<std::vector<LaneBatch>> batches(1);
    batches[0].push_back(Batch({{.label = 1, .x = 1}}));
    batches[0].push_back(Batch({{.label = 1, .x = 2}}));
    return workers->Train(step, 0, &batches);
  };
  const auto first = train(0);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->size(), 1);
  EXPECT_EQ((*first)[0].examples, 2);
  EXPECT_EQ((*first)[0].loss_sum, 2);  // (0 - 1)^2 twice
  EXPECT_EQ((*first)[0].outcome.samples, 2);
  // The gradients of w are -2 and -4, those of b -2 and -2; at rate 0.5 w is 1.5 and b is 1.
  const auto second = train(1);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_FLOAT_EQ(static_cast<float>((*second)[0].loss_sum), 2.25f + 9);  // (2.5 - 1)^2 + (4 - 1)^2
}

TEST_F(WorkersTest, ResultsAreByWorker) {
  Start(/*trainers=*/1, {"distribute.sync=false", "distribute.half_async={}", "train.workers=2"});
  const std::unique_ptr<Workers> workers = MakeWorkers(0);
  ASSERT_EQ(workers->count(), 2);
  std::vector<std::vector<LaneBatch>> batches(2);
  batches[0].push_back(Batch({{.label = 3, .x = 0}}));
  batches[0].push_back(Batch({}));
  batches[1].push_back(Batch({{.label = 1, .x = 0}}));
  batches[1].push_back(Batch({{.label = 2, .x = 0}}));
  const auto results = workers->Train(0, 0, &batches);
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ((*results)[0].examples, 1);
  EXPECT_EQ((*results)[0].loss_sum, 9);
  EXPECT_EQ((*results)[1].examples, 2);
  EXPECT_EQ((*results)[1].loss_sum, 5);
  EXPECT_EQ(workers->Finish(), absl::OkStatus());
}

TEST_F(WorkersTest, ColumnsThatTheProgramDoesNotTakeAreRefused) {
  Start(/*trainers=*/1);
  const auto refused = Workers::Create({.trainer = Trainer(0),
                                        .pool = cluster_->pool(),
                                        .job = &job_,
                                        .programs = &programs_,
                                        .columns = {{.name = "label"}, {.name = "x", .width = 2}}});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("'x'"));
}

}  // namespace
}  // namespace weir
