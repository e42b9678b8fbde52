// Inputs of users: models of layers, and programs in every stage, with parameters that nothing updates, that are read
// several times, or that never change.
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/program_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/passes/passes.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr char kModel[] = R"(name: "input"
data { criteo { integers: 3 categoricals: 2 } batch_size: 64 }
model {
  layer { name: "fields" embedding { ids: "cat" table: "t" pooling: SUM } }
  layer { name: "input" concat { input: "fields" input: "dense" } }
  layer { name: "deep" fc { input: "input" size: 4 activation: RELU } }
  layer { name: "out" fc { input: "deep" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "t" width: 4 is_sparse: true is_distributed: true }
optimizer { adam {} }
distribute { servers: 2 trainers: 2 }
)";

// Returns all programs of all processes as text.
std::string All(const Transpiled& t) {
  std::string text = absl::StrCat(ProgramText(t.trainer().main), ProgramText(t.trainer().startup));
  for (int s = 0; s < t.plan().servers(); ++s) {
    const auto server = t.Server(s);
    EXPECT_TRUE(server.ok()) << server.status();
    if (server.ok()) absl::StrAppend(&text, ProgramText(server->main), ProgramText(server->startup));
  }
  return text;
}

std::vector<std::string> Parameters(const v1::Plan& plan) {
  std::vector<std::string> names;
  for (const v1::PlacedBlock& block : plan.blocks()) names.push_back(block.parameter());
  return names;
}

// Transpiles the single-machine program of kModel with its updates after the edits.
Transpiled Brought(const std::vector<std::pair<std::string, std::string>>& edits, const std::string& job = kModel) {
  static int files = 0;
  std::string text = ProgramText(BuildSingleMachine(JobOf(job))->main);
  for (const auto& [from, to] : edits) text = Replaced(text, from, to);
  const std::string path = absl::StrCat(::testing::TempDir(), "/brought", files++, ".program");
  std::ofstream(path) << text;
  const auto parsed = ParseJob(job, "job.textproto", {}, {.program = path});
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? TranspiledOf(*parsed) : Transpiled();
}

class StageTest : public ::testing::TestWithParam<const char*> {};

// A program with forward only, with backward, or with updates, in each format, gives the same result as the layers.
TEST_P(StageTest, AProgramOfAnyStageGivesTheProgramsOfTheModel) {
  const Job job = JobOf(kModel);
  PassTrace trace{.stop_after = GetParam()};
  const auto stage = TranspileUntil(job, &trace);
  ASSERT_TRUE(stage.ok()) << stage.status();
  for (const char* ending : {"program", "textproto", "json", "pb"}) {
    const std::string path = absl::StrCat(::testing::TempDir(), "/", GetParam(), ".", ending);
    ASSERT_TRUE(WriteProgramFile(path, stage->main).ok());
    const auto brought = ParseJob(kModel, "job.textproto", {}, {.program = path});
    ASSERT_TRUE(brought.ok()) << brought.status();
    EXPECT_EQ(All(TranspiledOf(*brought)), All(TranspiledOf(job))) << ending;
  }
}
INSTANTIATE_TEST_SUITE_P(Stages, StageTest, ::testing::Values("build_forward", "append_backward", "append_optimizer"));

TEST(InputTest, AParameterThatNoOptimizerMeetsStaysWithTheTrainer) {
  const std::string update =
      "  ParamOut=deep.b, Moment1Out=deep.b.moment1, Moment2Out=deep.b.moment2, StepOut=deep.b.step <- adam(";
  std::string text = ProgramText(BuildSingleMachine(JobOf(kModel))->main);
  const size_t at = text.find(update);
  ASSERT_NE(at, std::string::npos) << text;
  const std::string line = text.substr(at, text.find('\n', at) + 1 - at);
  const Transpiled t = Brought({{line, ""}});
  EXPECT_THAT(Parameters(t.plan()), ElementsAre("deep.w", "out.b", "out.w"));
  // deep.b keeps its initial value, which the trainer makes itself; its gradient is computed and not sent.
  EXPECT_EQ(OutputOf(OnlyOp(t.trainer().startup, "fill_constant"), "Out"), "deep.b");
  for (const v1::OpDesc& op : t.trainer().main.blocks(0).ops()) {
    if (op.type() != "send" && op.type() != "recv") continue;
    EXPECT_FALSE(Reads(op, "deep.b@GRAD") || Writes(op, "deep.b")) << OpText(op);
  }
  for (int s = 0; s < 2; ++s) EXPECT_EQ(FindVar(t.Server(s)->main.blocks(0), "deep.b"), nullptr);
}

TEST(InputTest, AParameterThatIsNotTrainableStaysWithTheTrainer) {
  const std::string job = Replaced(kModel, "is_sparse: true is_distributed: true", "dict_size: 100 trainable: false");
  const Transpiled t = TranspiledOf(JobOf(Replaced(job, "batch_size: 64", "batch_size: 64 ids { shared: \"cat\" }")));
  EXPECT_THAT(Parameters(t.plan()), ElementsAre("deep.b", "deep.w", "out.b", "out.w"));
  EXPECT_EQ(OutputOf(OnlyOp(t.trainer().startup, "uniform_random"), "Out"), "t");
  EXPECT_EQ(FindVar(t.trainer().main.blocks(0), "t@GRAD"), nullptr);
}

TEST(InputTest, ATableThatIsNotTrainableIsServedAndNeverUpdated) {
  const Transpiled t =
      TranspiledOf(JobOf(Replaced(kModel, "is_distributed: true", "is_distributed: true trainable: false")));
  EXPECT_EQ(InputOf(OnlyOp(t.trainer().main, "prefetch"), "Ids"), "cat");
  for (const v1::OpDesc& op : t.trainer().main.blocks(0).ops()) EXPECT_FALSE(Reads(op, "t@GRAD")) << OpText(op);
  const Programs server = *t.Server(1);
  EXPECT_NE(FindVar(server.main.blocks(0), "t"), nullptr);
  for (const v1::BlockDesc& block : server.main.blocks()) {
    for (const v1::OpDesc& op : block.ops()) EXPECT_FALSE(Writes(op, "t")) << OpText(op);
  }
}

// One table that is read four times: by two variables, twice each, with different poolings.
struct Kind {
  const char* name;
  const char* table;
};
class SharedTableTest : public ::testing::TestWithParam<Kind> {};

TEST_P(SharedTableTest, ATableReadFourTimesIsOneParameter) {
  const std::string text = absl::StrCat(R"(name: "shared"
data {
  multi_slot { slot { name: "label" type: FLOAT } slot { name: "a" } slot { name: "b" } }
  ids { shared: ["a", "b"] }
  batch_size: 64
}
model {
  layer { name: "a1" embedding { ids: "a" table: "t" pooling: SUM } }
  layer { name: "a2" embedding { ids: "a" table: "t" pooling: MEAN } }
  layer { name: "b1" embedding { ids: "b" table: "t" pooling: SUM } }
  layer { name: "b2" embedding { ids: "b" table: "t" pooling: SQRT_N } }
  layer { name: "input" concat { input: "a1" input: "a2" input: "b1" input: "b2" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "t" width: 4 )",
                                        GetParam().table, R"( }
optimizer { adagrad {} }
distribute { servers: 2 }
)");
  const Transpiled t = TranspiledOf(JobOf(text));
  const v1::ProgramDesc& main = t.trainer().main;
  // Four gradients are summed and sent once.
  int sends = 0, sums = 0;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    for (const v1::ParamGrad& pair : op.param_grads()) sends += op.type() == "send" && pair.param() == "t";
    if (op.type() != "sum" || OutputOf(op, "Out") != "t@GRAD") continue;
    ++sums;
    EXPECT_EQ(op.inputs(0).vars_size(), 4);
  }
  EXPECT_EQ(sends, 1);
  EXPECT_EQ(sums, 1);
  if (std::string(GetParam().name) == "Dense") return;
  // Rows are fetched once for each ids variable.
  const v1::OpDesc prefetch = OnlyOp(main, "prefetch");
  EXPECT_EQ(FindAttr(prefetch, "row_tables")->strings().v_size(), 1);
  EXPECT_THAT(prefetch.inputs(0).vars(), ElementsAre("a", "b"));
}
INSTANTIATE_TEST_SUITE_P(Kinds, SharedTableTest,
                         ::testing::Values(Kind{"Dense", "dict_size: 50000"},
                                           Kind{"Sparse", "is_sparse: true dict_size: 50000"},
                                           Kind{"Distributed", "is_sparse: true is_distributed: true"}),
                         [](const ::testing::TestParamInfo<Kind>& info) { return info.param.name; });

TEST(InputTest, SeveralLossesAreSeededWithTheirWeights) {
  const std::string text =
      Replaced(kModel, "  loss {",
               "  layer { name: \"other\" fc { input: \"deep\" size: 1 } }\n"
               "  loss { name: \"ease\" weight: 0.25 square_error { input: \"other\" label: \"label\" } }\n  loss {");
  const Transpiled t = TranspiledOf(JobOf(text));
  std::map<std::string, double> seeds;
  for (const v1::OpDesc& op : t.trainer().main.blocks(0).ops()) {
    if (op.type() == "fill_like_batch") seeds[InputOf(op, "X")] = FindAttr(op, "value")->f();
  }
  EXPECT_THAT(seeds, UnorderedElementsAre(std::pair("ease.loss", 0.25), std::pair("sigmoid_cross_entropy.loss", 1.0)));
  EXPECT_THAT(OnlyOp(t.trainer().main, "send_barrier").inputs(0).vars(),
              ElementsAre("ease.loss", "sigmoid_cross_entropy.loss"));
  // Both losses reach the tower: its gradient is their sum and is sent once.
  EXPECT_THAT(Parameters(t.plan()), ElementsAre("deep.b", "deep.w", "other.b", "other.w", "out.b", "out.w"));
}

TEST(InputTest, AParameterThatNoLossReachesIsRefusedByName) {
  const std::string text =
      Replaced(kModel, "  loss {", "  layer { name: \"aside\" fc { input: \"deep\" size: 1 } }\n  loss {");
  const auto t = Transpile(JobOf(text));
  EXPECT_EQ(std::string(t.status().message()),
            "job.textproto:8:3: no loss depends on parameter 'aside.b': it would never change");
}

// In a program with its own backward the same layer is left as it is.
TEST(InputTest, InAProgramWithUpdatesItIsTheUsersBusiness) {
  const Transpiled t = Brought({{"  Out=out <- fc(X=deep, W=out.w, Bias=out.b)",
                                 "  Out=aside <- fc(X=deep, W=aside.w) activation=\"identity\"\n"
                                 "  Out=out <- fc(X=deep, W=out.w, Bias=out.b)"},
                                {"  var out dense",
                                 "  var aside.w dense float32 [4, 1] persistable: true is_parameter: true initializer "
                                 "{ constant { value: 2 } }\n"
                                 "  var aside dense float32 [-1, 1]\n  var out dense"}});
  EXPECT_THAT(Parameters(t.plan()), ElementsAre("deep.b", "deep.w", "out.b", "out.w"));
  EXPECT_EQ(OutputOf(OnlyOp(t.trainer().startup, "fill_constant"), "Out"), "aside.w");
}

}  // namespace
}  // namespace weir
