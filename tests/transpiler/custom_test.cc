// A layer, a loss, an optimizer with its operator, a reader and a dispatcher that are linked in from outside the rooms
// of the tree.
#include <string>

#include "framework/base/status_macros.h"
#include "framework/formats/schema.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/custom.pb.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/dispatchers/dispatcher.h"
#include "transpiler/job/data_schema.h"
#include "transpiler/layers/layer.h"
#include "transpiler/losses/loss.h"
#include "transpiler/optimizers/optimizer.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status BuildGate(const custom::Gate& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput("input", m.input()));
  ASSIGN_OR_RETURN(const int64_t width, ctx.FlatWidth("input", x));
  v1::Initializer one;
  one.mutable_constant()->set_value(1);
  ASSIGN_OR_RETURN(const std::string w, ctx.Parameter("w", {width}, one));
  return ctx.Append(MakeOp("elementwise_mul", {{"X", {m.input()}}, {"Y", {w}}}, {{"Out", {ctx.name()}}}));
}
REGISTER_CUSTOM_LAYER(gate, custom::Gate, BuildGate);

absl::Status BuildScaled(const custom::Scaled& m, ModelContext& ctx, v1::LossDesc* loss) {
  loss->set_prediction(m.input());
  loss->set_weight(loss->weight() * m.factor());
  return AppendLoss(
      ctx, {.type = "square_error", .x_slot = "X", .x = m.input(), .x_field = "input", .label = m.label()}, loss);
}
REGISTER_CUSTOM_LOSS(scaled, custom::Scaled, BuildScaled, {.kind = v1::LossDesc::REGRESSION});

REGISTER_OP(sign_sgd)
({.type = "sign_sgd",
  .summary = "w -= lr * sign(g)",
  .inputs = {{.name = "Param"}, {.name = "Grad"}, {.name = "LearningRate"}, {.name = "Seen"}},
  .outputs = {{.name = "ParamOut"}, {.name = "SeenOut"}},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    ctx.SetOutput("ParamOut", ctx.InputShape("Param"));
    ctx.SetOutput("SeenOut", ctx.InputShape("Seen"));
    return absl::OkStatus();
  },
  .is_optimizer = true,
  .state = {{.slot = "Seen", .initial = 3}}});

absl::StatusOr<UpdateRule> SignSgdRule(const custom::SignSgd& m, const Setting& at) {
  RETURN_IF_ERROR(CheckPositive(at, "learning_rate", m.learning_rate()));
  return UpdateRule{.op_type = "sign_sgd", .attrs = {}, .learning_rate = m.learning_rate()};
}
REGISTER_CUSTOM_OPTIMIZER(sign_sgd, custom::SignSgd, SignSgdRule);

absl::StatusOr<std::vector<int>> AllOnOne(const custom::OneServer& m, absl::Span<const v1::PlacedBlock> blocks, int) {
  return std::vector<int>(blocks.size(), m.server());
}
REGISTER_CUSTOM_DISPATCHER(one_server, custom::OneServer, AllOnOne);

absl::StatusOr<std::vector<v1::VarDesc>> ColumnsSchema(const custom::Columns& m, const SettingErrors& at) {
  if (m.columns() < 1) return at.Error("columns", "must be at least 1");
  return std::vector<v1::VarDesc>{DataVariable("features", v1::DENSE, m.columns()),
                                  DataVariable("label", v1::DENSE, 1)};
}
WEIR_REGISTER_DATA_SCHEMA(custom::Columns, ColumnsSchema);

constexpr char kJob[] = R"(name: "custom"
data { custom { [type.googleapis.com/custom.Columns] { columns: 7 } } batch_size: 8 }
model {
  layer { name: "gated" custom { [type.googleapis.com/custom.Gate] { input: "features" } } }
  layer { name: "out" fc { input: "gated" size: 1 } }
  loss { custom { [type.googleapis.com/custom.Scaled] { input: "out" label: "label" factor: 2 } } }
}
optimizer { custom { [type.googleapis.com/custom.SignSgd] { learning_rate: 0.5 } } }
distribute { servers: 3 custom_dispatcher { [type.googleapis.com/custom.OneServer] { server: 2 } } }
)";

TEST(CustomTest, EveryKindOfExtensionTakesPart) {
  const Transpiled transpiled = TranspiledOf(JobOf(kJob));
  std::vector<std::string> placed;
  for (const v1::PlacedBlock& block : transpiled.plan().blocks())
    placed.push_back(absl::StrCat(block.name(), block.server()));
  EXPECT_THAT(placed, ElementsAre("gated.w2", "out.b2", "out.w2"));
  const v1::ProgramDesc& main = transpiled.trainer().main;
  EXPECT_EQ(InputOf(OnlyOp(main, "elementwise_mul"), "X"), "features");
  EXPECT_EQ(FindVar(main.blocks(0), "features")->dims(1), 7);
  EXPECT_EQ(main.losses(0).name(), "Scaled");
  EXPECT_EQ(main.losses(0).weight(), 2);
  const auto server = transpiled.Server(2);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(InputOf(OnlyOp(server->main, "sign_sgd", 1), "Seen"), "gated.w.seen");
  EXPECT_EQ(FindVar(server->main.blocks(0), "gated.w.seen")->initializer().constant().value(), 3);
}

absl::Status StatusOf(const std::string& from, const std::string& to) {
  const auto job = ParseJob(Replaced(kJob, from, to), "job.textproto", {});
  return job.ok() ? Transpile(*job).status() : job.status();
}

TEST(CustomTest, TheirErrorsStandAtTheirPlace) {
  EXPECT_THAT(std::string(StatusOf("learning_rate: 0.5", "learning_rate: -1").message()),
              HasSubstr("job.textproto:8:61: optimizer.custom.learning_rate must be positive, got -1"));
  EXPECT_THAT(
      std::string(StatusOf("input: \"features\"", "input: \"feature\"").message()),
      HasSubstr("job.textproto:4:70: layer 'gated': input 'feature' is neither a variable of the data nor a layer "
                "above (did you mean 'features'?)"));
  EXPECT_THAT(std::string(StatusOf("columns: 7", "columns: 0").message()),
              HasSubstr("data.custom.columns must be at least 1"));
}

TEST(CustomTest, ALossSaysByWhatItsPredictionsAreJudged) {
  EXPECT_EQ(TranspiledOf(JobOf(kJob)).trainer().main.losses(0).kind(), v1::LossDesc::REGRESSION);
  const std::string job =
      Replaced(Replaced(kJob, "batch_size: 8", "batch_size: 8 eval { files: \"eval.txt\" }"), "distribute { servers",
               "checkpoint { keep_best: 1 best_by: \"auc\" } distribute { servers");
  EXPECT_THAT(std::string(ParseJob(job, "job.textproto", {}).status().message()),
              HasSubstr("checkpoint.best_by 'auc' is no figure of the evaluations; there are: loss, rmse, mae. Add a "
                        "metric to the job"));
}

TEST(CustomTest, ADispatcherCannotInventServers) {
  EXPECT_THAT(std::string(StatusOf("server: 2", "server: 3").message()),
              HasSubstr("distribute.custom_dispatcher placed block 'gated.w' on server 3; there are servers 0 to 2"));
}

TEST(CustomTest, AMessageWithoutARuleIsRefused) {
  EXPECT_THAT(
      std::string(StatusOf("[type.googleapis.com/custom.Gate] { input: \"features\" }",
                           "[type.googleapis.com/custom.Unregistered] { }")
                      .message()),
      HasSubstr("model.layer[0].custom is no layer that is linked into this program; there are activation, add"));
}

TEST(CustomTest, AnOptimizerWithoutARowFormCannotUpdateADistributedTable) {
  const std::string text =
      Replaced(kDeepFm, "sgd { learning_rate: 0.1 }", "custom { [type.googleapis.com/custom.SignSgd] { } }");
  const auto job = ParseJob(text, "job.textproto", {});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(std::string(Transpile(*job).status().message()), HasSubstr("job.textproto:18:1: table 'weights': "));
}

}  // namespace
}  // namespace weir
