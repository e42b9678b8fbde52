// Which trainer updates what where all share the updates out.
#include "transpiler/passes/shard_updates.h"

#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/training_mode.h"
#include "framework/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/explain/explain_plan.h"
#include "transpiler/passes/share_out.h"
#include "transpiler/split/process_programs.h"
#include "transpiler/verify/verify_plan.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Cut {
  std::vector<int64_t> dims;
  int trainers;
  std::vector<int64_t> rows;  // elements for rank 1
};
class PieceTest : public ::testing::TestWithParam<Cut> {};

TEST_P(PieceTest, PiecesAreWholeRowsAndAsEvenAsRowsAllow) {
  const Cut& cut = GetParam();
  const int64_t row = cut.dims.size() < 2 ? 1 : ElementCount(absl::MakeConstSpan(cut.dims).subspan(1));
  std::vector<int64_t> rows;
  for (const int64_t elements : PieceElements(cut.dims, cut.trainers)) {
    EXPECT_EQ(elements % row, 0);
    rows.push_back(elements / row);
  }
  EXPECT_EQ(rows, cut.rows);
}

INSTANTIATE_TEST_SUITE_P(Rule, PieceTest,
                         ::testing::Values(Cut{{400, 400}, 2, {200, 200}}, Cut{{429, 400}, 4, {108, 107, 107, 107}},
                                           Cut{{400, 400}, 3, {134, 133, 133}}, Cut{{400, 400}, 1, {400}},
                                           Cut{{400}, 8, {400}}, Cut{{2047}, 8, {2047}}, Cut{{2048}, 8, {1024, 1024}},
                                           Cut{{3, 100000}, 8, {1, 1, 1}}, Cut{{1, 100000}, 8, {1}},
                                           Cut{{64, 32, 3, 3}, 8, {8, 8, 8, 8, 8, 8, 8, 8}},
                                           Cut{{32, 1, 3, 3}, 8, {32}}, Cut{{192, 8}, 2, {192}},
                                           Cut{{13, 512}, 4, {4, 3, 3, 3}}, Cut{{}, 4, {1}}));

std::vector<std::string> Settings(const std::vector<std::string>& more = {}) {
  std::vector<std::string> settings = {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED",
                                       "optimizer.adam={learning_rate: 0.1}"};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

// "deep.0.w.block0 by 1", in the order of the plan.
std::vector<std::string> Owners(const v1::Plan& plan) {
  std::vector<std::string> owners;
  for (const v1::PlacedBlock& block : plan.blocks()) {
    EXPECT_EQ(block.server(), -1) << block.name();
    EXPECT_TRUE(block.has_trainer()) << block.name();
    owners.push_back(absl::StrCat(block.name(), " by ", block.trainer()));
  }
  return owners;
}

TEST(ShardUpdatesTest, LargeParametersAreCutAndTheOthersGoWhereLeastIs) {
  EXPECT_THAT(Owners(TranspiledOf(JobOf(kDeepFm, Settings())).plan()),
              ElementsAre("deep.0.b by 1", "deep.0.w.block0 by 0", "deep.0.w.block1 by 1", "deep.1.b by 1",
                          "deep.1.w by 0", "out.b by 1", "out.w by 1"));
}

TEST(ShardUpdatesTest, WithoutStateValuesAreBalanced) {
  const Transpiled t = TranspiledOf(JobOf(kDeepFm, {"distribute.dense=ALL_REDUCE", "distribute.update=SHARDED"}));
  EXPECT_THAT(Owners(t.plan()), ElementsAre("deep.0.b by 1", "deep.0.w.block0 by 0", "deep.0.w.block1 by 1",
                                            "deep.1.b by 1", "deep.1.w by 0", "out.b by 1", "out.w by 1"));
}

TEST(ShardUpdatesTest, WithoutSlicingParametersStayWhole) {
  EXPECT_THAT(
      Owners(TranspiledOf(JobOf(kDeepFm, Settings({"distribute.slice_var_up=false"}))).plan()),
      ElementsAre("deep.0.b by 1", "deep.0.w by 0", "deep.1.b by 1", "deep.1.w by 1", "out.b by 1", "out.w by 1"));
}

TEST(ShardUpdatesTest, ATrainerHasOnePieceOfAParameterAtMost) {
  for (int trainers = 1; trainers <= 8; ++trainers) {
    const Transpiled t = TranspiledOf(JobOf(kDeepFm, Settings({absl::StrCat("distribute.trainers=", trainers)})));
    std::map<std::string, std::set<int>> owners;
    std::map<std::string, int> pieces;
    for (const v1::PlacedBlock& block : t.plan().blocks()) {
      owners[block.parameter()].insert(block.trainer());
      ++pieces[block.parameter()];
    }
    EXPECT_EQ(pieces["deep.0.w"], trainers);
    for (const auto& [parameter, count] : pieces) {
      EXPECT_EQ(owners[parameter].size(), static_cast<size_t>(count)) << parameter << ", " << trainers;
    }
  }
}

TEST(ShardUpdatesTest, OtherJobsAreLeftAlone) {
  for (const std::vector<std::string>& others :
       std::vector<std::vector<std::string>>{{}, {"distribute.dense=ALL_REDUCE"}}) {
    const Transpiled t = TranspiledOf(JobOf(kDeepFm, others));
    for (const v1::PlacedBlock& block : t.plan().blocks()) EXPECT_FALSE(block.has_trainer()) << block.name();
    EXPECT_FALSE(ModeOf(t.trainer().main).all_reduce().sharded());
  }
}

TEST(ShardUpdatesTest, TheProgramSaysWhatRuns) {
  const v1::ProgramDesc main = TranspiledOf(JobOf(kDeepFm, Settings())).trainer().main;
  EXPECT_TRUE(ModeOf(main).all_reduce().sharded());
  EXPECT_EQ(ModeOf(main).all_reduce().blocks_size(), main.plan().blocks_size());
  EXPECT_THAT(ProgramText(main),
              AllOf(HasSubstr("Out=[deep.0.w@GRAD.block0, deep.0.w@GRAD.block1] <- split_byref(X=deep.0.w@GRAD) "
                              "sections=[12096, 12096] @DIST"),
                    HasSubstr("all_reduce(X=deep.0.w@GRAD.block0) block=\"deep.0.w.block0\" width=0 bucket=3 @RPC"),
                    HasSubstr("all_reduce(X=deep.0.w@GRAD.block1) block=\"deep.0.w.block1\" width=0 bucket=3 @RPC"),
                    HasSubstr("recv() blocks=[\"deep.0.w.block0\", \"deep.0.w.block1\"] servers=[-1, -1] @RPC"),
                    HasSubstr("Out=deep.0.w <- concat(X=[deep.0.w.block0, deep.0.w.block1]) axis=0 @DIST")));
}

TEST(ShardUpdatesTest, PiecesOfAParameterTravelTogether) {
  const Transpiled t = TranspiledOf(JobOf(
      kDeepFm,
      Settings({"distribute.trainers=4", "distribute.all_reduce={bucket_bytes: 30000 first_bucket_bytes: 4096}"})));
  std::map<std::string, std::set<int64_t>> buckets;  // by parameter
  for (const v1::OpDesc& op : t.trainer().main.blocks(0).ops()) {
    if (op.type() != "all_reduce") continue;
    const std::string block = FindAttr(op, "block")->s();
    buckets[block.substr(0, block.find(".block"))].insert(IntOr(op, "bucket", -1));
  }
  for (const auto& [parameter, of_parameter] : buckets) EXPECT_EQ(of_parameter.size(), 1u) << parameter;
}

// 128 trainers: no exchange carries as many pieces.
TEST(ShardUpdatesTest, MorePiecesThanOneExchangeCarriesAreSeveral) {
  const std::string large = Replaced(kDeepFm, "sizes: [192, 8]", "sizes: [2048, 8]");
  const Transpiled t =
      TranspiledOf(JobOf(large, Settings({"distribute.trainers=128", "train.lanes=128", "data.batch_size=128"})));
  std::map<int64_t, int> members;
  for (const v1::OpDesc& op : t.trainer().main.blocks(0).ops()) {
    if (op.type() == "all_reduce") ++members[IntOr(op, "bucket", -1)];
  }
  for (const auto& [bucket, count] : members) EXPECT_LE(count, 64) << bucket;
  EXPECT_EQ(
      std::accumulate(members.begin(), members.end(), 0, [](int sum, const auto& each) { return sum + each.second; }),
      t.plan().blocks_size());
  EXPECT_GT(t.plan().blocks_size(), 128);
}

TEST(ShardUpdatesTest, ThePlanSaysWhatEachTrainerUpdates) {
  const Job job = JobOf(kDeepFm, Settings());
  // Adam: two moments, and for each block a count of 4 bytes.
  EXPECT_THAT(
      ExplainPlan(job, TranspiledOf(job).trainer().main),
      AllOf(HasSubstr("every trainer: 7 blocks, 103748 bytes of parameters\n"),
            HasSubstr("trainer 0 updates: 2 blocks, 54528 bytes of parameters, 109064 bytes of optimizer state\n"
                      "  deep.0.w.block0 [63, 192]\n  deep.1.w [192, 8]\n"),
            HasSubstr("trainer 1 updates: 5 blocks, 49220 bytes of parameters, 98460 bytes of optimizer state\n"),
            HasSubstr("reduce-scatter and all-gather of 103748 bytes of dense parameters: trainers 0 to 1 send "
                      "103748 bytes each (k = 1)\n")));
}

TEST(ShardUpdatesTest, SettingsThatContradictAreRefusedByName) {
  const auto refused = [](const std::vector<std::string>& overrides) {
    return std::string(ParseJob(kDeepFm, "job.textproto", overrides).status().message());
  };
  EXPECT_THAT(refused({"distribute.update=SHARDED"}),
              HasSubstr("distribute.update says nothing with dense: SERVERS: it is about dense: ALL_REDUCE"));
  EXPECT_THAT(refused(Settings({"distribute.local_sgd={}", "distribute.reproducible=false"})),
              HasSubstr("distribute.update SHARDED contradicts distribute.local_sgd"));
  EXPECT_THAT(refused(Settings({"distribute.sync=false"})), HasSubstr("contradicts distribute.sync: false"));
}

TEST(ShardUpdatesTest, APieceWithTheNameOfAnotherVariableIsRefused) {
  const std::string taken = Replaced(kDeepFm, "layer { name: \"out\" fc { input: \"deep\"",
                                     "layer { name: \"deep.0.w.block1\" scale { input: \"deep\" scale: 2 } }\n"
                                     "  layer { name: \"out\" fc { input: \"deep.0.w.block1\"");
  const absl::StatusOr<Transpiled> t = Transpile(JobOf(taken, Settings()));
  ASSERT_FALSE(t.ok());
  EXPECT_THAT(std::string(t.status().message()),
              HasSubstr("a block of a parameter would be named 'deep.0.w.block1', which is the name of another"));
}

// ------------------------------------------------------------------------------------------------- rules, other plans

Programs Trainer() { return TranspiledOf(JobOf(kDeepFm, Settings())).trainer(); }

std::string BrokenBy(void (*edit)(Programs* trainer)) {
  Programs trainer = Trainer();
  EXPECT_TRUE(VerifyTrainer(trainer).ok()) << VerifyTrainer(trainer);
  edit(&trainer);
  return std::string(VerifyTrainer(trainer).message());
}

v1::PlacedBlock* BlockOf(Programs* trainer, int i) { return trainer->main.mutable_plan()->mutable_blocks(i); }

TEST(ShardUpdatesTest, BrokenPlansAreRefusedWithRuleAndNames) {
  EXPECT_THAT(
      BrokenBy([](Programs* t) { BlockOf(t, 1)->set_trainer(2); }),
      StartsWith("owned: block 'deep.0.w.block0' of 'deep.0.w' is updated by trainer 2; there are trainers 0 to "
                 "1"));
  EXPECT_THAT(BrokenBy([](Programs* t) { BlockOf(t, 1)->set_trainer(-1); }), HasSubstr("is updated by trainer -1"));
  EXPECT_THAT(BrokenBy([](Programs* t) { BlockOf(t, 2)->clear_trainer(); }),
              StartsWith("owned: block 'deep.0.w.block1' of 'deep.0.w' names no trainer; either every block"));
  EXPECT_THAT(BrokenBy([](Programs* t) { BlockOf(t, 6)->set_server(0); }),
              StartsWith("owned: block 'out.w' of 'out.w' is on server 0 and names trainer 1; a block has one owner"));
  EXPECT_THAT(BrokenBy([](Programs* t) { BlockOf(t, 2)->set_element_begin(0); }),
              StartsWith("owned: block 'deep.0.w.block1' of 'deep.0.w' begins at element 0"));
  // Nobody says who updates pieces.
  EXPECT_THAT(BrokenBy([](Programs* t) {
                for (int i = 0; i < 7; ++i) BlockOf(t, i)->clear_trainer();
              }),
              StartsWith("owned: block 'deep.0.w.block0' of 'deep.0.w' is on server -1"));
  EXPECT_THAT(
      BrokenBy([](Programs* t) { MutableMode(&t->main)->mutable_all_reduce()->set_sharded(false); }),
      StartsWith("agreed: the mode says that every trainer updates everything, and block 'deep.0.b' of the plan "
                 "names one trainer"));
  // A piece that nobody updates, and one that is updated twice.
  EXPECT_THAT(BrokenBy([](Programs* t) {
                auto* const blocks = MutableMode(&t->main)->mutable_all_reduce()->mutable_blocks();
                blocks->erase(blocks->begin() + 1);
              }),
              StartsWith("updated_once: update, in the trainer's program, of block 'deep.0.w.block0' is missing"));
  EXPECT_THAT(BrokenBy([](Programs* t) {
                v1::AllReduceMode* const mode = MutableMode(&t->main)->mutable_all_reduce();
                mode->add_blocks(mode->blocks(1));
              }),
              HasSubstr("of block 'deep.0.w.block0' is there more than once"));
}

TEST(ShardUpdatesTest, AProgramForTheOtherModeIsRefused) {
  const std::string file = ::testing::TempDir() + "/replicated.program";
  const Job replicated = JobOf(kDeepFm, {"distribute.dense=ALL_REDUCE", "optimizer.adam={learning_rate: 0.1}"});
  ASSERT_TRUE(WriteProgramFile(file, TranspiledOf(replicated).trainer().main).ok());
  const absl::StatusOr<Programs> read = TrainerPrograms(JobOf(kDeepFm, Settings()), file, "");
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("its plan is not the job's"));
}

TEST(ShardUpdatesTest, ProgramsFromFilesAreThoseThatAreMade) {
  const std::string main = ::testing::TempDir() + "/sharded.main.program";
  const std::string startup = ::testing::TempDir() + "/sharded.startup.program";
  const Job job = JobOf(kDeepFm, Settings());
  const Programs made = Trainer();
  ASSERT_TRUE(WriteProgramFile(main, made.main).ok());
  ASSERT_TRUE(WriteProgramFile(startup, made.startup).ok());
  const absl::StatusOr<Programs> read = TrainerPrograms(job, main, startup);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ProgramText(read->main), ProgramText(made.main));
  EXPECT_EQ(ProgramText(read->startup), ProgramText(made.startup));
}

TEST(ShardUpdatesTest, ProcessesWithOtherOwnersDisagree) {
  const Job job = JobOf(kDeepFm, Settings());
  v1::Plan other = TranspiledOf(job).plan();
  other.mutable_blocks(6)->set_trainer(0);
  const std::string difference = FirstDifference(PlanText(job, TranspiledOf(job).plan()), PlanText(job, other));
  EXPECT_THAT(difference, HasSubstr("plan.block out.w: server -1, trainer 1, elements 0 to 8"));
  EXPECT_THAT(PlanText(JobOf(kDeepFm), TranspiledOf(JobOf(kDeepFm)).plan()), Not(HasSubstr(", trainer ")));
}

}  // namespace
}  // namespace weir
