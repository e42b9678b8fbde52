#include "tools/simulate_tables.h"

#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/job/load_job.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 40, kBatch = 16;

// Ids of each step, a lane of the job being a line of the file: few of them often, many once.
class SimulateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = ::testing::TempDir() + "/ids.txt";
    std::mt19937_64 random(7);
    std::ofstream out(file_);
    for (int i = 0; i < kSteps * kBatch; ++i) {
      const uint64_t id = random() % 3 == 0 ? 1000 + random() % 100000 : random() % 40;
      out << "1 0 1 " << id << "\n";
      steps_.resize(static_cast<size_t>(i / kBatch) + 1);
      steps_.back().insert(id);
    }
  }

  Job JobOf(const std::vector<std::string>& overrides = {}, const std::string& segments = "") const {
    // One lane, so that a step is the next lines of the file.
    const std::string text = absl::StrCat(R"(name: "ids" data { train { files: ")", file_, R"(" } multi_slot {
        slot { name: "label" type: FLOAT } slot { name: "id" } } ids { shared: "id" }
          shuffle: NO_SHUFFLE batch_size: )",
                                          kBatch, R"( }
      model {
        layer { name: "vector" embedding { ids: "id" table: "vectors" pooling: SUM } }
        layer { name: "out" fc { input: "vector" size: 1 } }
        loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
      }
      table { name: "vectors" width: 4 is_sparse: true is_distributed: true logical_shards: 16 )",
                                          segments, R"( }
      optimizer { adagrad {} }
      distribute { servers: 3 }
      train { lanes: 1 })");
    absl::StatusOr<Job> job = ParseJob(text, "job.textproto", overrides);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *std::move(job) : Job();
  }
  SimulatedTable Simulate(const std::vector<std::string>& overrides, int64_t steps = kSteps) const {
    const absl::StatusOr<Simulation> simulation = SimulateTables(JobOf(overrides), steps, nullptr);
    EXPECT_TRUE(simulation.ok()) << simulation.status();
    EXPECT_EQ(simulation->steps, std::min<int64_t>(steps, kSteps));
    EXPECT_EQ(simulation->tables.size(), 1u);
    return simulation->tables[0];
  }

  std::string file_;
  std::vector<std::set<uint64_t>> steps_;
};

TEST_F(SimulateTest, ATableThatCountsClicksIsRefused) {
  const auto simulation = SimulateTables(JobOf({"table[0].lifecycle.click=label"}), kSteps, nullptr);
  EXPECT_EQ(simulation.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(simulation.status().message()),
              HasSubstr("table vectors counts shows and clicks (lifecycle.click)"));
}

TEST_F(SimulateTest, RowsInSegmentsComeAndGoAsOthers) {
  const SimulatedTable plain = Simulate({"table[0].lifecycle.admit_after=2"});
  const absl::StatusOr<Simulation> simulation =
      SimulateTables(JobOf({"table[0].lifecycle.admit_after=2"},
                           "segment { width: 1 optimizer { ftrl {} } } segment { width: 3 after: 2 }"),
                     kSteps, nullptr);
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  EXPECT_EQ(simulation->tables[0].rows, plain.rows);
}

TEST_F(SimulateTest, ValuesOf16BitsTakeLessMemoryAndChangeNoRow) {
  const SimulatedTable wide = Simulate({"table[0].width=64"}),
                       narrow = Simulate({"table[0].width=64", "table[0].storage=BFLOAT16"});
  EXPECT_EQ(narrow.rows, wide.rows);
  EXPECT_EQ(narrow.made, wide.made);
  EXPECT_LT(narrow.bytes, wide.bytes);
}

TEST_F(SimulateTest, WithoutALifecycleEveryIdHasARow) {
  std::set<uint64_t> all;
  int64_t gradients = 0;
  for (const std::set<uint64_t>& ids : steps_) {
    all.insert(ids.begin(), ids.end());
    gradients += static_cast<int64_t>(ids.size());
  }
  const SimulatedTable table = Simulate({}, /*steps=*/1000);
  EXPECT_EQ(table.table, "vectors");
  EXPECT_EQ(table.rows, static_cast<int64_t>(all.size()));
  EXPECT_EQ(table.most_rows, table.rows);
  EXPECT_EQ(table.made, table.rows);
  EXPECT_EQ(table.gradients, gradients);
  EXPECT_EQ(table.absent, table.rows);
  EXPECT_EQ(table.dropped + table.expired + table.evicted + table.candidates, 0);
  // An id, four values and their state.
  EXPECT_GE(table.bytes, table.rows * 40);
}

TEST_F(SimulateTest, AdmissionByCountIsThatOfAPlainCount) {
  std::map<uint64_t, int> counts;
  int64_t dropped = 0;
  for (const std::set<uint64_t>& ids : steps_) {
    for (const uint64_t id : ids) dropped += ++counts[id] < 3;
  }
  int64_t rows = 0;
  for (const auto& [id, count] : counts) rows += count >= 3;
  const SimulatedTable table = Simulate({"table[0].lifecycle.admit_after=3"});
  EXPECT_EQ(table.rows, rows);
  EXPECT_EQ(table.dropped, dropped);
  EXPECT_EQ(table.absent, dropped + rows);
  EXPECT_EQ(table.candidates, static_cast<int64_t>(counts.size()) - rows);
}

TEST_F(SimulateTest, RowsThatNobodyNamesGoAndAFullTableKeepsItsLimit) {
  const SimulatedTable all = Simulate({});
  const SimulatedTable expiring = Simulate({"table[0].lifecycle.ttl_steps=8"});
  EXPECT_EQ(expiring.rows, expiring.made - expiring.expired);
  EXPECT_LT(expiring.rows, all.rows / 2);
  EXPECT_GE(expiring.rows, 30);  // of the forty that come often
  const SimulatedTable limited =
      Simulate({"table[0].dict_size=160", "table[0].lifecycle.when_full=EVICT_LEAST_RECENT"});
  EXPECT_LE(limited.most_rows, 160);
  EXPECT_EQ(limited.rows, limited.made - limited.evicted);
  EXPECT_GT(limited.evicted, 0);
}

TEST_F(SimulateTest, ATableThatWouldEndTheJobSaysSo) {
  const SimulatedTable table = Simulate({"table[0].dict_size=50"});
  EXPECT_THAT(std::string(table.end.message()), HasSubstr("vectors"));
  EXPECT_LE(table.rows, 50);
  const std::string text = SimulationText({"as the job says"}, {{.steps = 3, .tables = {table}}});
  EXPECT_THAT(text, HasSubstr("would end: "));
}

}  // namespace
}  // namespace weir
