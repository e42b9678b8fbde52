#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "framework/base/stable_hash.h"
#include "framework/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/dispatchers/dispatcher.h"
#include "transpiler/passes/passes.h"
#include "transpiler/passes/slice_variables.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Cut {
  std::vector<int64_t> dims;
  int servers;
  int64_t min_block;
  std::vector<int64_t> rows;  // elements for rank 1
};

class SliceTest : public ::testing::TestWithParam<Cut> {};

TEST_P(SliceTest, FollowsTheRule) {
  const Cut& cut = GetParam();
  const int64_t row = cut.dims.size() < 2 ? 1 : ElementCount(absl::MakeConstSpan(cut.dims).subspan(1));
  std::vector<int64_t> rows;
  for (const int64_t elements : SliceElements(cut.dims, cut.servers, cut.min_block)) {
    EXPECT_EQ(elements % row, 0);
    rows.push_back(elements / row);
  }
  EXPECT_EQ(rows, cut.rows);
  EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{0}) * row, ElementCount(cut.dims));
}

INSTANTIATE_TEST_SUITE_P(Fluid, SliceTest,
                         ::testing::Values(Cut{{1000}, 2, 8192, {1000}}, Cut{{1000, 1000}, 2, 8192, {500, 500}},
                                           Cut{{1000, 1000}, 2, 1048576, {1000}},
                                           Cut{{1000, 1000}, 3, 8192, {334, 334, 332}},
                                           Cut{{1000, 64}, 2, 8192, {500, 500}},
                                           Cut{{1000, 64}, 10, 8192, {143, 143, 143, 143, 143, 143, 142}},
                                           Cut{{1001, 64}, 2, 8192, {501, 500}}, Cut{{192, 2}, 2, 8192, {192}},
                                           Cut{{10000, 8}, 2, 8192, {5000, 5000}}, Cut{{10000, 1}, 2, 8192, {10000}},
                                           Cut{{1500, 128}, 2, 8192, {750, 750}},
                                           Cut{{64, 32, 3, 3}, 4, 8192, {32, 32}}, Cut{{7, 3000}, 4, 8192, {4, 3}},
                                           Cut{{3, 100000}, 4, 8192, {1, 1, 1}}, Cut{{5, 8000}, 8, 8192, {2, 2, 1}},
                                           Cut{{10, 10000}, 8, 8192, {2, 2, 2, 2, 2}}, Cut{{16383}, 2, 8192, {16383}},
                                           Cut{{16384}, 2, 8192, {8192, 8192}}, Cut{{16385}, 2, 8192, {8193, 8192}}));

INSTANTIATE_TEST_SUITE_P(Requirements, SliceTest,
                         ::testing::Values(Cut{{8192}, 2, 8192, {8192}}, Cut{{8193}, 2, 8192, {8193}},
                                           Cut{{10000}, 2, 8192, {10000}}, Cut{{16384}, 4, 8192, {8192, 8192}},
                                           Cut{{100, 100}, 2, 8192, {100}}, Cut{{3, 10000}, 4, 8192, {1, 1, 1}},
                                           Cut{{5, 10000}, 3, 8192, {2, 2, 1}}, Cut{{7, 10000}, 4, 8192, {2, 2, 2, 1}},
                                           Cut{{2, 100000}, 4, 8192, {1, 1}}, Cut{{1, 40000}, 4, 8192, {1}},
                                           Cut{{1000003}, 4, 8192, {250001, 250001, 250001, 250000}},
                                           Cut{{784, 128}, 3, 8192, {262, 262, 260}},
                                           // The matrix of the equality job.
                                           Cut{{221, 256}, 5, 8192, {45, 45, 45, 45, 41}}));

std::vector<int> ServersOf(const v1::Plan& plan) {
  std::vector<int> servers;
  for (const v1::PlacedBlock& block : plan.blocks()) servers.push_back(block.server());
  return servers;
}

TEST(SliceVariablesTest, AParameterWithoutElementsIsRefused) {
  const Job job = JobOf(kDeepFm);
  for (const int axis : {0, 1}) {
    Programs programs = *BuildSingleMachine(job);
    for (v1::VarDesc& var : *programs.main.mutable_blocks(0)->mutable_vars()) {
      if (var.name() == "deep.0.w") var.set_dims(axis, 0);
    }
    const absl::Status status = SliceVariables(job, &programs).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("parameter 'deep.0.w' has no elements: its shape is ["));
  }
}

TEST(PlacementTest, TheCursorRunsOnAcrossParameters) {
  // deep.0.b, deep.0.w.block0, deep.0.w.block1, deep.1.b, deep.1.w, out.b, out.w
  EXPECT_THAT(ServersOf(TranspiledOf(JobOf(kDeepFm)).plan()), ElementsAre(0, 1, 0, 1, 0, 1, 0));
}

TEST(PlacementTest, WithoutSlicingOrderAndCursorStay) {
  const Transpiled whole = TranspiledOf(JobOf(kDeepFm, {"distribute.slice_var_up=false"}));
  std::vector<std::string> names;
  for (const v1::PlacedBlock& block : whole.plan().blocks()) names.push_back(block.name());
  EXPECT_THAT(names, ElementsAre("deep.0.b", "deep.0.w", "deep.1.b", "deep.1.w", "out.b", "out.w"));
  EXPECT_THAT(ServersOf(whole.plan()), ElementsAre(0, 1, 0, 1, 0, 1));
}

TEST(PlacementTest, BlocksThatAreAssignedDoNotMoveTheCursor) {
  const Transpiled transpiled = TranspiledOf(JobOf(Replaced(
      kDeepFm, "distribute { servers: 2", "distribute { assign { parameter: \"deep.0.b\" server: 1 } servers: 2")));
  // deep.0.b is assigned; the first that is dealt, deep.0.w.block0, goes to server 0.
  EXPECT_THAT(ServersOf(transpiled.plan()), ElementsAre(1, 0, 1, 0, 1, 0, 1));
}

TEST(PlacementTest, HashNameIsTheHashOfTheBlockNameForEver) {
  const Transpiled transpiled =
      TranspiledOf(JobOf(kDeepFm, {"distribute.split_method=HASH_NAME", "distribute.servers=3"}));
  for (const v1::PlacedBlock& block : transpiled.plan().blocks()) {
    EXPECT_EQ(block.server(), static_cast<int>(StableHash(block.name()) % 3)) << block.name();
  }
  // Scheme version 1: another value here moves the parameters of every checkpoint's cluster.
  EXPECT_EQ(StableHash("deep.0.w.block1"), 10086209140876093594ull);
}

TEST(PlacementTest, AGradientGoesWhereItsParameterIs) {
  for (const char* method : {"ROUND_ROBIN", "HASH_NAME"}) {
    const Transpiled transpiled = TranspiledOf(JobOf(kDeepFm, {std::string("distribute.split_method=") + method}));
    std::map<std::string, int64_t> servers;
    for (const v1::PlacedBlock& block : transpiled.plan().blocks()) servers[block.name()] = block.server();
    for (const v1::OpDesc& op : transpiled.trainer().main.blocks(0).ops()) {
      if (op.type() != "send" && op.type() != "recv") continue;
      for (int i = 0; i < FindAttr(op, "blocks")->strings().v_size(); ++i) {
        const std::string& block = FindAttr(op, "blocks")->strings().v(i);
        const int64_t want = servers.contains(block) ? servers[block] : -1;
        EXPECT_EQ(FindAttr(op, "servers")->ints().v(i), want) << method << " " << OpText(op);
      }
    }
  }
}

// Every block of the plan and every table: sent once, received once (tables: prefetched), updated on one server
// (tables: on all).
TEST(PlacementTest, EveryBlockIsOwnedSentAndReceivedOnce) {
  for (const int servers : {1, 2, 3, 5}) {
    for (const char* method : {"ROUND_ROBIN", "HASH_NAME"}) {
      const Transpiled transpiled = TranspiledOf(JobOf(
          kDeepFm, {absl::StrCat("distribute.servers=", servers), absl::StrCat("distribute.split_method=", method)}));
      std::multiset<std::string> sent, received, updated, owned;
      for (const v1::OpDesc& op : transpiled.trainer().main.blocks(0).ops()) {
        if (op.type() != "send" && op.type() != "recv") continue;
        const auto& blocks = FindAttr(op, "blocks")->strings().v();
        (op.type() == "send" ? sent : received).insert(blocks.begin(), blocks.end());
      }
      for (int s = 0; s < servers; ++s) {
        const auto server = transpiled.Server(s);
        ASSERT_TRUE(server.ok()) << server.status();
        for (int b = 1; b < server->main.blocks_size(); ++b) {
          const v1::BlockDesc& block = server->main.blocks(b);
          const std::string param = InputOf(block.ops(block.ops_size() - 1), "Param");
          if (FindVar(server->main.blocks(0), param)->kind() != v1::TABLE) updated.insert(param);
        }
      }
      for (const v1::PlacedBlock& block : transpiled.plan().blocks()) owned.insert(block.name());
      EXPECT_EQ(updated, owned);
      EXPECT_EQ(received, owned);
      owned.insert({"vectors", "weights"});
      EXPECT_EQ(sent, owned);
    }
  }
}

TEST(PlacementTest, AServerThatOwnsNoBlockServesNonetheless) {
  const std::string text = R"(name: "tiny" data { criteo {} batch_size: 8 }
      model { layer { name: "out" fc { input: "dense" size: 1 } }
              loss { square_error { input: "out" label: "label" } } }
      optimizer { sgd {} } distribute { servers: 3 })";
  const auto server = TranspiledOf(JobOf(text)).Server(2);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_THAT(Types(server->main), ElementsAre("listen_and_serv"));
  EXPECT_EQ(server->main.blocks_size(), 1);
  EXPECT_EQ(server->startup.blocks(0).ops_size(), 0);
}

TEST(PlacementTest, AServerOutOfRangeIsRefused) {
  const auto server = TranspiledOf(JobOf(kDeepFm)).Server(2);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("there is no server 2; distribute.servers is 2"));
}

TEST(PlacementTest, PassesRunTwiceChangeNothing) {
  const Job job = JobOf(kDeepFm);
  Programs programs;
  for (const auto* passes : {&SingleMachinePasses(), &PlacementPasses(), &TrainerPasses()}) {
    ASSERT_TRUE(RunPasses(*passes, job, &programs).ok());
    const std::string before = ProgramText(programs.main) + ProgramText(programs.startup);
    for (const Pass& pass : *passes) {
      const auto changed = pass.run(job, &programs);
      ASSERT_TRUE(changed.ok()) << pass.name << ": " << changed.status();
      EXPECT_FALSE(*changed) << pass.name;
    }
    EXPECT_EQ(ProgramText(programs.main) + ProgramText(programs.startup), before);
  }
}

TEST(PlacementTest, TheSameJobGivesTheSameBytes) {
  std::set<std::string> seen;
  for (int i = 0; i < 2; ++i) {
    const Transpiled t = TranspiledOf(JobOf(kDeepFm));
    seen.insert(t.plan().SerializeAsString() + t.trainer().main.SerializeAsString() +
                t.trainer().startup.SerializeAsString() + t.Server(0)->main.SerializeAsString() +
                t.Server(1)->startup.SerializeAsString());
  }
  EXPECT_EQ(seen.size(), 1u);
}

}  // namespace
}  // namespace weir
