// BALANCED_BYTES, BALANCED_LOAD and distribute.assign.
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/graph/infer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/dispatchers/dispatcher.h"
#include "transpiler/passes/block_costs.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "deep.0.b:0 deep.0.w.block0:1 ..."
std::string Placed(const std::vector<std::string>& overrides, const std::string& text = kDeepFm) {
  std::vector<std::string> placed;
  const Transpiled t = TranspiledOf(JobOf(text, overrides));
  for (const v1::PlacedBlock& block : t.plan().blocks()) {
    placed.push_back(absl::StrCat(block.name(), ":", block.server()));
  }
  return absl::StrJoin(placed, " ");
}

std::string Refused(const std::vector<std::string>& overrides, const std::string& text = kDeepFm) {
  const auto job = ParseJob(text, "job.textproto", overrides);
  return std::string(job.ok() ? Transpile(*job).status().message() : job.status().message());
}

std::vector<int> Place(const std::vector<int64_t>& weights, int servers, std::vector<int> assigned = {}) {
  assigned.resize(weights.size(), -1);
  return PlaceLargestFirst({.blocks = {}, .costs = {}, .assigned = assigned, .servers = servers}, weights);
}

TEST(BalanceTest, LargestFirstToTheEmptiest) {
  // 9 to server 0, 8 to 1, 5 to 2; 4 to 2 (5), 3 to 1 (8), 2 to 0 (9), 1 to 2 (9).
  EXPECT_THAT(Place({1, 2, 3, 4, 5, 8, 9}, 3), ElementsAre(2, 0, 1, 2, 2, 1, 0));
}

TEST(BalanceTest, TiesGoToTheEarlierBlockAndTheLowerServer) {
  EXPECT_THAT(Place({5, 5, 5, 5}, 2), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(Place({0, 0, 0}, 4), ElementsAre(0, 0, 0));
}

TEST(BalanceTest, AssignedBlocksCountFromTheBeginning) {
  // Server 0 has 10 by assignment, so the rest goes to server 1.
  EXPECT_THAT(Place({3, 10, 4, 2}, 2, {-1, 0, -1, -1}), ElementsAre(1, 0, 1, 1));
}

// Blocks of 192, 12096, 12096, 8, 1536, 1, 8 floats (sgd: no state).
TEST(BalanceTest, BytesAreBalancedInOrderOfSize) {
  EXPECT_EQ(Placed({"distribute.split_method=BALANCED_BYTES"}),
            "deep.0.b:1 deep.0.w.block0:0 deep.0.w.block1:1 deep.1.b:1 deep.1.w:0 out.b:1 out.w:1");
  EXPECT_EQ(Placed({"distribute.split_method=BALANCED_BYTES", "distribute.servers=1"}),
            "deep.0.b:0 deep.0.w:0 deep.1.b:0 deep.1.w:0 out.b:0 out.w:0");
}

TEST(BalanceTest, OptimizerStateCounts) {
  const std::string text = Replaced(kDeepFm, "optimizer { sgd { learning_rate: 0.1 } }", "optimizer { adam {} }");
  const Job job = JobOf(text);
  Programs single = *BuildSingleMachine(job);
  ASSERT_TRUE(RunPasses(PlacementPasses(), job, &single).ok());
  const std::vector<BlockCost> costs = BlockCosts(single.main);
  ASSERT_EQ(costs.size(), 7u);
  // deep.0.b: 192 values, two moments each, one count.
  EXPECT_EQ(costs[0].bytes, 4 * (3 * 192 + 1));
  EXPECT_EQ(costs[1].bytes, 4 * (3 * 12096 + 1));
}

TEST(BalanceTest, LoadIsWireAndUpdate) {
  const Job job = JobOf(kDeepFm);
  Programs single = *BuildSingleMachine(job);
  ASSERT_TRUE(RunPasses(PlacementPasses(), job, &single).ok());
  const std::vector<BlockCost> costs = BlockCosts(single.main);
  const OpDef* sgd = OpRegistry::Global().Find("sgd");
  const v1::OpDesc* update = nullptr;
  for (const v1::OpDesc& op : single.main.blocks(0).ops()) {
    if (InputOf(op, "Param") == "deep.0.b") update = &op;
  }
  ASSERT_NE(update, nullptr);
  const VarIndex vars(single.main.blocks(0));
  const Cost cost = CostOf(
      *update, *sgd, [&](std::string_view name) { return vars.Find(name); }, 64);
  // Two trainers send and take 192 floats each, at 8 eighths of a nanosecond a byte.
  EXPECT_EQ(costs[0].load, 8 * 2 * (2 * 4 * 192) + static_cast<int64_t>(cost.bytes + cost.flops));
  EXPECT_GT(cost.bytes, 0);
}

// 5000 rows of 20 floats in two blocks; 64 examples of 30 slots name at most 1920 of them.
TEST(BalanceTest, LoadOfABlockOfRowsIsItsPartOfTheRowsOfAStep) {
  std::string text = Replaced(
      kDeepFm, "layer { name: \"fm\"",
      "layer { name: \"more\" embedding { ids: \"cat\" table: \"held\" pooling: SUM } }\n  layer { name: \"fm\"");
  text = Replaced(text, "input: \"fields\" input: \"dense\"", "input: \"fields\" input: \"dense\" input: \"more\"");
  text = Replaced(text, "batch_size: 64", "batch_size: 64 ids { shared: \"cat\" }");
  text = Replaced(text, "optimizer { sgd",
                  "table { name: \"held\" width: 20 is_sparse: true dict_size: 5000 }\noptimizer { sgd");
  const Job job = JobOf(text);
  Programs single = *BuildSingleMachine(job);
  ASSERT_TRUE(RunPasses(PlacementPasses(), job, &single).ok());
  const VarIndex vars(single.main.blocks(0));
  double update = 0;
  for (const v1::OpDesc& op : single.main.blocks(0).ops()) {
    if (InputOf(op, "Param") != "held") continue;
    const Cost cost = CostOf(
        op, *OpRegistry::Global().Find("sgd"), [&](std::string_view name) { return vars.Find(name); }, 64);
    update = cost.bytes + cost.flops;
  }
  EXPECT_GT(update, 0);
  const std::vector<BlockCost> costs = BlockCosts(single.main);
  int blocks = 0;
  for (size_t i = 0; i < costs.size(); ++i) {
    if (single.main.plan().blocks(static_cast<int>(i)).parameter() != "held") continue;
    ++blocks;
    // Two trainers send and take 960 rows each, an id and 20 floats, at 8 eighths of a nanosecond a byte.
    EXPECT_NEAR(costs[i].load, 8 * 2 * (2 * 960 * (8 + 4 * 20)) + update / 2 * 1920 / 5000, 2);
  }
  EXPECT_EQ(blocks, 2);
}

// A table with a gradient by rows is large at rest and light in a step.
TEST(BalanceTest, LoadPlacesATableByItsRowsAndBytesByItsSize) {
  std::string text = Replaced(
      kDeepFm, "layer { name: \"fm\"",
      "layer { name: \"more\" embedding { ids: \"cat\" table: \"held\" pooling: SUM } }\n  layer { name: \"fm\"");
  text = Replaced(text, "input: \"fields\" input: \"dense\"", "input: \"fields\" input: \"dense\" input: \"more\"");
  text = Replaced(text, "batch_size: 64", "batch_size: 8 ids { shared: \"cat\" }");
  text = Replaced(text, "optimizer { sgd",
                  "table { name: \"held\" width: 2 is_sparse: true dict_size: 50000 }\noptimizer { sgd");
  text = Replaced(text, "servers: 2", "servers: 2 slice_var_up: false");
  // 100000 floats against 24576: by bytes the table has a server to itself, by load (240 rows a step) the tower's
  // matrix has.
  EXPECT_THAT(Placed({"distribute.split_method=BALANCED_BYTES"}, text),
              HasSubstr("deep.0.w:1 deep.1.b:1 deep.1.w:1 held:0"));
  EXPECT_THAT(Placed({"distribute.split_method=BALANCED_LOAD"}, text),
              HasSubstr("deep.0.w:0 deep.1.b:1 deep.1.w:1 held:1"));
}

TEST(BalanceTest, TheFullestServerIsNearTheMean) {
  const std::string text = Replaced(kDeepFm, "sizes: [192, 8]", "sizes: [500, 300, 200, 100, 50]");
  for (const char* method : {"BALANCED_BYTES", "BALANCED_LOAD"}) {
    const Transpiled t =
        TranspiledOf(JobOf(text, {absl::StrCat("distribute.split_method=", method), "distribute.servers=4"}));
    std::map<int, int64_t> bytes;
    int64_t total = 0;
    for (const v1::PlacedBlock& block : t.plan().blocks()) {
      bytes[block.server()] += block.element_count();
      total += block.element_count();
    }
    for (const auto& [server, held] : bytes) EXPECT_LT(held * 4, total * 1.05) << method << " server " << server;
  }
}

TEST(AssignTest, AWholeParameterOrOneBlock) {
  // The rest is dealt as if the assigned blocks were not there.
  EXPECT_EQ(
      Placed({},
             Replaced(
                 kDeepFm, "distribute { servers: 2",
                 "distribute { assign { parameter: \"deep.0.w\" server: 1 } assign { parameter: \"out.b\" server: 0 } "
                 "servers: 2")),
      "deep.0.b:0 deep.0.w.block0:1 deep.0.w.block1:1 deep.1.b:1 deep.1.w:0 out.b:0 out.w:1");
  EXPECT_THAT(Placed({}, Replaced(kDeepFm, "distribute { servers: 2",
                                  "distribute { assign { parameter: \"deep.0.w\" block: 1 server: 1 } servers: 2")),
              HasSubstr("deep.0.b:0 deep.0.w.block0:1 deep.0.w.block1:1 deep.1.b:0 "));
}

TEST(AssignTest, OverEveryMethod) {
  for (const char* method : {"ROUND_ROBIN", "HASH_NAME", "BALANCED_BYTES", "BALANCED_LOAD"}) {
    for (const char* server : {"0", "1"}) {
      const std::string text =
          Replaced(kDeepFm, "distribute { servers: 2",
                   absl::StrCat("distribute { assign { parameter: \"out.w\" server: ", server, " } servers: 2"));
      EXPECT_THAT(Placed({absl::StrCat("distribute.split_method=", method)}, text),
                  HasSubstr(absl::StrCat("out.w:", server)));
    }
  }
}

struct WrongRow {
  const char* name;
  const char* rows;
  const char* message;
};
class WrongAssignTest : public ::testing::TestWithParam<WrongRow> {};

TEST_P(WrongAssignTest, IsRefusedAtItsPlace) {
  const std::string text =
      Replaced(kDeepFm, "distribute { servers: 2", absl::StrCat("distribute {\n", GetParam().rows, "\n servers: 2"));
  EXPECT_EQ(Refused({}, text), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, WrongAssignTest,
    ::testing::Values(
        WrongRow{"UnknownParameter", "  assign { parameter: \"deep.0.v\" server: 0 }",
                 "job.textproto:21:12: distribute.assign[0].parameter 'deep.0.v' is no parameter that servers hold "
                 "(did you mean "
                 "'deep.0.b'?)"},
        WrongRow{"DistributedTable", "  assign { parameter: \"vectors\" server: 0 }",
                 "job.textproto:21:12: distribute.assign[0].parameter 'vectors' is a distributed table: its rows are "
                 "spread over "
                 "all servers by shard"},
        WrongRow{"BlockThatIsNone", "  assign { parameter: \"deep.0.w\" block: 2 server: 0 }",
                 "job.textproto:21:34: distribute.assign[0].block must be in [0, 2), the blocks of 'deep.0.w', got 2"},
        WrongRow{"ServerThatIsNone", "  assign { parameter: \"deep.0.w\" server: 2 }",
                 "job.textproto:21:34: distribute.assign[0].server must be in [0, 2), got 2"},
        WrongRow{"NegativeServer", "  assign { parameter: \"deep.0.w\" server: -1 }",
                 "job.textproto:21:34: distribute.assign[0].server must be in [0, 2), got -1"},
        WrongRow{"NoServer", "  assign { parameter: \"deep.0.w\" }",
                 "job.textproto:21:3: distribute.assign[0] names no server"},
        WrongRow{"NoParameter", "  assign { server: 0 }",
                 "job.textproto:21:3: distribute.assign[0] names no parameter"},
        WrongRow{"Twice", "  assign { parameter: \"out.w\" server: 0 }\n  assign { parameter: \"out.w\" server: 0 }",
                 "job.textproto:22:3: distribute.assign[1] places block 'out.w', which assign[0] has placed"},
        WrongRow{
            "BlockOfAnAssignedParameter",
            "  assign { parameter: \"deep.0.w\" server: 0 }\n  assign { parameter: \"deep.0.w\" block: 1 server: 1 }",
            "job.textproto:22:3: distribute.assign[1] places block 'deep.0.w.block1', which assign[0] has placed"}),
    [](const ::testing::TestParamInfo<WrongRow>& info) { return info.param.name; });

}  // namespace
}  // namespace weir
