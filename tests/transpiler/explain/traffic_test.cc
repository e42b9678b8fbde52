// Rows and messages of a step, for jobs whose figures can be counted by hand.

#include "transpiler/explain/traffic.h"

#include <map>
#include <string>
#include <vector>

#include "framework/base/stable_hash.h"
#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"
#include "proto/parameter_server.pb.h"
#include "tests/transpiler/jobs.h"

namespace weir {
namespace {

using ::testing::SizeIs;

// Trainer 0 of kDeepFm, whose tables "vectors" and "weights" are asked for the same ids.
class TrafficTest : public ::testing::Test {
 protected:
  explicit TrafficTest(const std::string& text = kDeepFm)
      : job_(JobOf(text)), transpiled_(TranspiledOf(job_)), traffic_(job_.config, transpiled_.trainer().main) {}

  const SparseTarget& Target(const std::string& name) const {
    for (const SparseTarget& target : traffic_.targets()) {
      if (target.parameter == name) return target;
    }
    ADD_FAILURE() << "no target " << name;
    return traffic_.targets().at(0);
  }
  // Rows of both tables, the same for each server and node, in every batch.
  StepRows Rows(double pulled, double pushed) const {
    StepRows rows = traffic_.RowsAtMost({0});
    for (auto& [name, of] : rows) {
      for (std::vector<double>& batch : of.pulled) batch.assign(batch.size(), pulled);
      for (std::vector<double>& place : of.pushed) place.assign(place.size(), pushed);
    }
    return rows;
  }

  const Job job_;
  const Transpiled transpiled_;
  const Traffic traffic_;
};

TEST_F(TrafficTest, TablesAreTargetsWithTheirWidthsAndIds) {
  EXPECT_THAT(traffic_.targets(), SizeIs(2));
  EXPECT_EQ(Target("vectors").width, 4);
  EXPECT_EQ(Target("weights").width, 1);
  EXPECT_TRUE(Target("vectors").table);
  ASSERT_THAT(Target("vectors").pulled_by, SizeIs(1));
  EXPECT_EQ(Target("vectors").pulled_by, Target("weights").pulled_by);
}

TEST_F(TrafficTest, RowsAreDistinctIdsByServer) {
  IdBatch zero, one;
  zero.values = {5, 7, 5};
  one.values = {9};
  for (IdBatch* ids : {&zero, &one}) ids->offsets = {0, static_cast<int64_t>(ids->values.size())};
  const std::string name = Target("vectors").pulled_by[0].ids;
  // The last lane is another trainer's.
  BatchInput batch(static_cast<size_t>(transpiled_.trainer().main.plan().lanes()));
  batch.front() = {.examples = 1, .ids = {{name, &zero}}};
  batch.back() = {.examples = 1, .ids = {{name, &one}}};
  const TargetRows rows =
      traffic_.RowsOf({0}, StepIds({batch}, traffic_.targets(), transpiled_.trainer().main.plan())).at("vectors");
  EXPECT_EQ(rows.distinct, 2);
  std::vector<double> expected(2, 0);
  const uint32_t shards = Target("vectors").shards;
  for (const int64_t id : {5, 7}) ++expected[static_cast<size_t>(ShardServer(LogicalShard(id, shards), shards, 2))];
  EXPECT_EQ(rows.pulled, std::vector<std::vector<double>>{expected});
  EXPECT_EQ(rows.pushed[0][0] + rows.pushed[1][0], 2);
  ASSERT_FALSE(rows.lane_rows.empty());
  EXPECT_EQ(rows.lane_rows[0], 2);
  for (size_t l = 1; l < rows.lane_rows.size(); ++l) EXPECT_EQ(rows.lane_rows[l], 0);
}

TEST_F(TrafficTest, IdsThatTrainersOfAHostHaveInCommonCountOnce) {
  IdBatch zero, one;
  zero.values = {5, 7, 5};
  one.values = {9, 7};
  for (IdBatch* ids : {&zero, &one}) ids->offsets = {0, static_cast<int64_t>(ids->values.size())};
  const std::string name = Target("vectors").pulled_by[0].ids;
  const v1::Plan& plan = transpiled_.trainer().main.plan();
  // Lanes of trainer 0 and of trainer 1.
  BatchInput batch(static_cast<size_t>(plan.lanes()));
  batch.front() = {.examples = 1, .ids = {{name, &zero}}};
  batch.back() = {.examples = 1, .ids = {{name, &one}}};
  const StepIds ids({batch}, traffic_.targets(), plan, /*trainers_per_host=*/2);
  std::vector<double> expected(2, 0);
  const uint32_t shards = Target("vectors").shards;
  for (const int64_t id : {5, 7, 9}) ++expected[static_cast<size_t>(ShardServer(LogicalShard(id, shards), shards, 2))];
  const TargetRows host = traffic_.RowsOf({.first = 0, .count = 2}, ids).at("vectors");
  EXPECT_EQ(host.pulled, std::vector<std::vector<double>>{expected});
  // All lanes are one node of the tree.
  EXPECT_EQ(host.pushed, (std::vector<std::vector<double>>{{expected[0]}, {expected[1]}}));
  EXPECT_EQ(host.distinct, 3);
  EXPECT_EQ(traffic_.RowsOf({.first = 1}, ids).at("vectors").distinct, 2);
}

TEST_F(TrafficTest, AHostSendsGradientsOnceAndNamesItsTrainers) {
  // The dense gradients of both trainers are one sum, as those of one are.
  const ServerFlows one = traffic_.Step({0}, Rows(0, 0))[0];
  const ServerFlows host = traffic_.Step({.first = 0, .count = 2}, Rows(0, 0))[0];
  EXPECT_EQ(host.push.messages, one.push.messages);
  EXPECT_EQ(host.pull_blocks.messages, one.pull_blocks.messages);
  EXPECT_NEAR(host.pull_blocks.bytes_in, one.pull_blocks.bytes_in, 8);
  v1::MergedTrainer merged;
  merged.set_trainer(1);
  merged.set_session(uint64_t{1} << 63);
  merged.set_samples(32);
  merged.set_first_samples(32);
  merged.set_verdict(v1::APPLY);
  merged.set_stop_requested(false);
  // Headers are filled up to a multiple of 64 bytes.
  EXPECT_NEAR(host.push.bytes_out - one.push.bytes_out, static_cast<double>(merged.ByteSizeLong() + 2), 64);
}

TEST_F(TrafficTest, ASmallStepIsOneMessageOfEachKindPerServer) {
  for (const ServerFlows& flows : traffic_.Step({0}, Rows(10, 10))) {
    EXPECT_EQ(flows.pull_rows.messages, 1);
    EXPECT_EQ(flows.pull_rows.rows, 20);
    EXPECT_EQ(flows.push.messages, 1);
    EXPECT_EQ(flows.push.rows, 20);
    EXPECT_EQ(flows.pull_blocks.messages, 1);
  }
}

TEST_F(TrafficTest, IdsThatTwoTablesAskForTravelOnce) {
  // 160 more rows: their ids once, 8 bytes each; the values of width 4 and 1.
  const FlowSum few = traffic_.Step({0}, Rows(160, 0))[0].pull_rows;
  const FlowSum more = traffic_.Step({0}, Rows(320, 0))[0].pull_rows;
  EXPECT_NEAR(more.bytes_out - few.bytes_out, 160 * 8, 8);
  EXPECT_NEAR(more.bytes_in - few.bytes_in, 160 * 5 * 4, 8);
}

TEST_F(TrafficTest, ATableWithManyRowsTakesSeveralPulls) {
  const size_t rows_per_call = kRowBytesPerCall / (5 * sizeof(float));
  const auto most = static_cast<double>(rows_per_call);
  EXPECT_EQ(traffic_.Step({0}, Rows(most, 0))[0].pull_rows.messages, 1);
  EXPECT_EQ(traffic_.Step({0}, Rows(most + 1, 0))[0].pull_rows.messages, 2);
}

TEST_F(TrafficTest, NothingIsPulledFromAServerWithoutRows) {
  EXPECT_EQ(traffic_.Step({0}, Rows(0, 0))[1].pull_rows.messages, 0);
  EXPECT_EQ(traffic_.Step({0}, Rows(0, 0))[1].push.rows, 0);
  EXPECT_EQ(traffic_.Step({0}, Rows(0, 0))[1].push.messages, 1);  // the last part
}

class SmallFormatTest : public TrafficTest {
 protected:
  SmallFormatTest()
      : TrafficTest(Replaced(kDeepFm, "distribute {",
                             "distribute { reproducible: false wire { pull: WIRE_FLOAT16 push: WIRE_FLOAT16 } ")) {}
};

TEST_F(SmallFormatTest, AFormatHalvesTheValues) {
  const FlowSum few = traffic_.Step({0}, Rows(160, 0))[0].pull_rows;
  const FlowSum more = traffic_.Step({0}, Rows(320, 0))[0].pull_rows;
  EXPECT_NEAR(more.bytes_in - few.bytes_in, 160 * 5 * 2, 8);
}

}  // namespace
}  // namespace weir
