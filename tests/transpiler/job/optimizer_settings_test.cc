// Settings of an optimizer beside its rule (schedule, clip, decay, single parameters) and the operators that they
// become.
#include <string>
#include <vector>

#include "framework/graph/op_registry.h"
#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/custom.pb.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/job/update_settings.h"
#include "transpiler/schedules/schedule.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Text(const std::string& rest) {
  return Replaced(kDeepFm, "sgd { learning_rate: 0.1 }", "sgd { learning_rate: 0.1 } " + rest);
}

constexpr char kAll[] =
    R"(schedule { cosine { decay_steps: 9 } warm_up { steps: 2 } } l2_decay: 0.5 clip { by_value { max: 1 } }
  parameter { name: "deep.*" learning_rate_factor: 0.25 l2_decay: 0 }
    parameter { name: "out.w" no_clip: true l1_decay: 2 })";

std::vector<std::string> OpsOf(const v1::BlockDesc& block, v1::OpRole role, const std::string& param = "") {
  std::vector<std::string> ops;
  for (const v1::OpDesc& op : block.ops()) {
    if (op.role() == role && (param.empty() || op.param_grads(0).param() == param)) ops.push_back(op.type());
  }
  return ops;
}

TEST(OptimizerSettingsTest, StandInFrontOfTheUpdatesInOrder) {
  const absl::StatusOr<Programs> single = BuildSingleMachine(JobOf(Text(kAll)));
  ASSERT_TRUE(single.ok()) << single.status();
  const v1::BlockDesc& block = single->main.blocks(0);
  // One rate with a factor, in the order of parameters, and one without.
  EXPECT_THAT(OpsOf(block, v1::LR_SCHEDULE), ElementsAre("lr_cosine", "lr_warm_up", "lr_rate", "lr_rate", "lr_count"));
  EXPECT_THAT(OpsOf(block, v1::OPTIMIZE, "deep.0.w"), ElementsAre("clip", "sgd"));
  EXPECT_THAT(OpsOf(block, v1::OPTIMIZE, "out.w"), ElementsAre("decay", "sgd"));
  EXPECT_THAT(OpsOf(block, v1::OPTIMIZE, "out.b"), ElementsAre("clip", "decay", "sgd"));
  EXPECT_THAT(OpsOf(block, v1::OPTIMIZE, "weights"), ElementsAre("clip", "decay", "sgd"));
  // Its table has an optimizer of its own.
  EXPECT_THAT(OpsOf(block, v1::OPTIMIZE, "vectors"), ElementsAre("adagrad"));
  EXPECT_EQ(FindVar(block, "learning_rate.x0.25")->initializer().constant().value(), 0.025);
  EXPECT_EQ(FindVar(block, "learning_rate.step")->dtype(), v1::INT64);
  EXPECT_TRUE(FindVar(block, "learning_rate.step")->persistable());
}

TEST(OptimizerSettingsTest, RunOnServersAndNowhereElse) {
  const Transpiled transpiled = TranspiledOf(JobOf(Text(kAll)));
  EXPECT_THAT(OpsOf(transpiled.trainer().main.blocks(0), v1::LR_SCHEDULE), IsEmpty());
  EXPECT_THAT(OpsOf(transpiled.trainer().main.blocks(0), v1::OPTIMIZE), IsEmpty());
  EXPECT_EQ(FindVar(transpiled.trainer().main.blocks(0), "learning_rate.step"), nullptr);
  for (int i = 0; i < 2; ++i) {
    const auto server = transpiled.Server(i);
    ASSERT_TRUE(server.ok()) << server.status();
    const v1::OpDesc listen = OnlyOp(server->main, "listen_and_serv");
    const v1::OpAttr* lr_block = FindAttr(listen, "lr_block");
    ASSERT_NE(lr_block, nullptr);
    EXPECT_THAT(Types(server->main, lr_block->block()),
                ElementsAre("lr_cosine", "lr_warm_up", "lr_rate", "lr_rate", "lr_count"));
    // Variables that live across steps are in block 0, temporary ones in the block of the schedule.
    EXPECT_NE(FindVar(server->main.blocks(0), "learning_rate.step"), nullptr);
    EXPECT_EQ(FindVar(server->main.blocks(0), "learning_rate.warm_up"), nullptr);
    EXPECT_THAT(Types(server->main, 1)[0], "merge");
  }
}

TEST(OptimizerSettingsTest, SegmentsOfATableAreUpdatesOfItsColumns) {
  const std::string text = Replaced(kDeepFm, "width: 4 is_sparse", R"(width: 4 bad_gradient: SKIP_ROW max_value: 2
      segment { width: 1 optimizer { ftrl { learning_rate: 0.5 } l2_decay: 0.25 schedule { constant {} } } }
      segment { width: 3 after: 6 initializer { gaussian { stddev: 0.125 } } } is_sparse)");
  const Transpiled transpiled = TranspiledOf(JobOf(text));
  const auto server = transpiled.Server(0);
  ASSERT_TRUE(server.ok()) << server.status();
  const v1::BlockDesc* block = nullptr;
  for (const v1::BlockDesc& each : server->main.blocks()) {
    if (each.index() > 0 && each.ops(0).param_grads_size() > 0 && each.ops(0).param_grads(0).param() == "vectors")
      block = &each;
  }
  ASSERT_NE(block, nullptr);
  EXPECT_THAT(OpsOf(*block, v1::OPTIMIZE), ElementsAre("merge", "drop_bad_rows", "decay", "ftrl", "adagrad", "bound"));
  const std::string program = ProgramText(server->main);
  EXPECT_THAT(
      program,
      HasSubstr("vectors@GRAD <- decay(Param=vectors, Grad=vectors@GRAD) l1=0.0 l2=0.25 columns=[0, 1] @OPTIMIZE"));
  EXPECT_THAT(program,
              HasSubstr("vectors <- ftrl(Param=vectors, Grad=vectors@GRAD, LearningRate=vectors.0.learning_rate)"));
  EXPECT_THAT(program, HasSubstr("columns=[1, 4] after=6 initializer=initializer { gaussian { stddev: 0.125 } }"));
  EXPECT_THAT(program, HasSubstr("bound(Param=vectors) max=2.0"));
  // Two floats of ftrl, three of adagrad, and the count of steps.
  EXPECT_EQ(transpiled.plan().tables(0).state_width(), 6);
  // The text form keeps everything.
  const auto read = ParseProgramText(program, "server.program");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ProgramText(*read), program);
  EXPECT_TRUE(VerifyProgram(*read).ok());
  const v1::OpDesc* send = nullptr;
  for (const v1::OpDesc& op : transpiled.trainer().main.blocks(0).ops()) {
    if (op.type() == "send" && op.param_grads(0).param() == "vectors") send = &op;
  }
  ASSERT_NE(send, nullptr);
  EXPECT_TRUE(FindAttr(*send, "bad_rows")->b());
}

TEST(OptimizerSettingsTest, ValuesOf16BitsAreTheTablesTypeAndBoundsAreAmongThem) {
  const std::string text =
      Replaced(kDeepFm, "width: 4 is_sparse", "width: 4 storage: FLOAT16 min_value: -0.1 max_value: 0.1 is_sparse");
  const Transpiled transpiled = TranspiledOf(JobOf(text));
  const auto server = transpiled.Server(0);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string program = ProgramText(server->main);
  EXPECT_THAT(program, HasSubstr("var vectors table float16 [-1, 4]"));
  EXPECT_THAT(program, HasSubstr("bound(Param=vectors) min=-0.0999755859375 max=0.0999755859375"));
  // No variable of the trainers' computation has that type.
  for (const v1::VarDesc& var : transpiled.trainer().main.blocks(0).vars()) {
    EXPECT_TRUE(var.kind() == v1::TABLE || var.dtype() != v1::FLOAT16) << var.name();
  }
  const auto read = ParseProgramText(program, "server.program");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ProgramText(*read), program);
}

TEST(OptimizerSettingsTest, ABoundInAProgramMustBeOfTheTablesType) {
  v1::ProgramDesc single = BuildSingleMachine(JobOf(Replaced(kDeepFm, "width: 4 is_sparse",
                                                             "width: 4 storage: FLOAT16 max_value: 0.5 is_sparse")))
                               ->main;
  EXPECT_TRUE(VerifyProgram(single).ok());
  for (v1::OpDesc& op : *single.mutable_blocks(0)->mutable_ops()) {
    if (op.type() == "bound") op.mutable_attrs(0)->set_f(0.3);
  }
  EXPECT_THAT(std::string(VerifyProgram(single).message()),
              HasSubstr("max must be a value of FLOAT16, which Param has; 0.3 lies between 0.299805 and 0.300049"));
  for (v1::VarDesc& var : *single.mutable_blocks(0)->mutable_vars()) {
    if (var.name() == "vectors") var.set_dtype(v1::FLOAT64);
  }
  EXPECT_THAT(std::string(VerifyProgram(single).message()),
              HasSubstr("values of tables are float32, float16 or bfloat16"));
}

TEST(OptimizerSettingsTest, ShowsAndClicksAreCountedBehindTheGradientAndTravelWithIt) {
  const std::string text = Replaced(kDeepFm, "width: 4 is_sparse", "width: 4 lifecycle { click: \"label\" } is_sparse");
  const Transpiled transpiled = TranspiledOf(JobOf(text));
  EXPECT_TRUE(transpiled.plan().tables(0).shows_and_clicks());
  EXPECT_FALSE(transpiled.plan().tables(1).shows_and_clicks());
  const std::string program = ProgramText(transpiled.trainer().main);
  EXPECT_THAT(
      program,
      HasSubstr("vectors@SHOWS <- shows(Grad=vectors@GRAD, Ids=cat, Index=cat@INDEX.vectors, Click=label) @DIST"));
  EXPECT_THAT(program, HasSubstr("send(X=vectors@GRAD, Counts=vectors@SHOWS) blocks=[\"vectors\"]"));
}

TEST(OptimizerSettingsTest, WithoutAScheduleThereIsNoBlock) {
  const auto server = TranspiledOf(JobOf(Text("l2_decay: 1"))).Server(0);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(FindAttr(OnlyOp(server->main, "listen_and_serv"), "lr_block"), nullptr);
}

TEST(OptimizerSettingsTest, PatternsMatchAnyCharacters) {
  for (const char* pattern : {"deep.0.w", "*", "deep*", "*.w", "d*p*w", "deep.0.w*", "**0**"}) {
    EXPECT_TRUE(MatchesPattern(pattern, "deep.0.w")) << pattern;
  }
  for (const char* pattern : {"", "deep", "deep.0.ww", "*.b", "x*", "d*b*w"}) {
    EXPECT_FALSE(MatchesPattern(pattern, "deep.0.w")) << pattern;
  }
}

// A user's own schedule: the rate halves every step.
REGISTER_OP(lr_halving)
({.type = "lr_halving",
  .summary = "lr 2^-t",
  .inputs = {{.name = "Step"}},
  .outputs = {{.name = "Out"}},
  .attrs = {FloatAttr("learning_rate", 0)},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    ctx.SetOutput("Out", {1}, v1::FLOAT64);
    return absl::OkStatus();
  }});
absl::StatusOr<ScheduleOp> Halving(const custom::Halving& m, const Setting& at, double learning_rate) {
  if (m.every() != 1) return at.Error("every", "must be 1");
  return ScheduleOp{.type = "lr_halving", .attrs = {AttrF("learning_rate", learning_rate)}};
}
REGISTER_CUSTOM_SCHEDULE(halving, custom::Halving, Halving);

TEST(OptimizerSettingsTest, AUsersScheduleTakesPart) {
  const std::string schedule =
      "schedule { custom { [type.googleapis.com/custom.Halving] { every: 1 } } warm_up { steps: 3 } }";
  const auto server = TranspiledOf(JobOf(Text(schedule))).Server(1);
  ASSERT_TRUE(server.ok()) << server.status();
  const int block = FindAttr(OnlyOp(server->main, "listen_and_serv"), "lr_block")->block();
  EXPECT_THAT(Types(server->main, block), ElementsAre("lr_halving", "lr_warm_up", "lr_rate", "lr_count"));
  EXPECT_EQ(FindAttr(OnlyOp(server->main, "lr_halving", block), "learning_rate")->f(), 0.1);
  EXPECT_EQ(FindAttr(OnlyOp(server->main, "lr_warm_up", block), "end")->f(), 0.1);
  const auto wrong = ParseJob(Replaced(Text(schedule), "every: 1", "every: 2"), "job.textproto", {});
  EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("optimizer.schedule.custom.every must be 1"));
}

TEST(OptimizerSettingsTest, AScheduleThatReadsWhatOnlyTrainersHaveIsRefused) {
  const absl::StatusOr<Programs> single = BuildSingleMachine(JobOf(Text("schedule { constant {} }")));
  ASSERT_TRUE(single.ok()) << single.status();
  v1::ProgramDesc main = single->main;
  // The rate depends on the data.
  v1::VarDesc* var = main.mutable_blocks(0)->add_vars();
  var->set_name("odd");
  var->add_dims(-1);
  var->add_dims(6);
  v1::OpDesc odd = MakeOp("relu", {{"X", {"dense"}}}, {{"Out", {"odd"}}});
  odd.set_role(v1::LR_SCHEDULE);
  *main.mutable_blocks(0)->add_ops() = odd;
  ASSERT_TRUE(VerifyProgram(main).ok()) << VerifyProgram(main);
  const std::string file = ::testing::TempDir() + "/odd.program";
  ASSERT_TRUE(WriteProgramFile(file, main).ok());
  std::string text = kDeepFm;
  text.replace(text.find("model {"), text.find("distribute {") - text.find("model {"), "program: \"" + file + "\"\n");
  EXPECT_THAT(std::string(Transpile(JobOf(text)).status().message()),
              HasSubstr("operator relu with role LR_SCHEDULE uses 'dense', which servers do not have"));
}

}  // namespace
}  // namespace weir
