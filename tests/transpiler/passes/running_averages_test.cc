// Parameters that no optimizer moves: what an optimizer's settings and the modes leave of them in the programs.
#include <string>
#include <vector>

#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kJob[] = R"(name: "norms"
data { train { files: "train.tsv" } criteo { integers: 6 categoricals: 4 } batch_size: 64 }
model {
  layer { name: "a" batch_norm { input: "dense" } }
  layer { name: "b" batch_norm { input: "a" momentum: 0.75 } }
  layer { name: "out" fc { input: "b" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
optimizer { adam { learning_rate: 0.1 } }
distribute { servers: 2 trainers: 2 }
)";

std::string With(const std::string& optimizer, const std::string& distribute = "") {
  return Replaced(Replaced(kJob, "adam { learning_rate: 0.1 }", "adam { learning_rate: 0.1 } " + optimizer),
                  "trainers: 2", "trainers: 2 " + distribute);
}

std::string Error(const std::string& text) {
  const auto job = ParseJob(text, "job.textproto", {});
  return std::string((job.ok() ? Transpile(*job).status() : job.status()).message());
}

// Types of the update ops of a parameter in a program of one machine, or in whichever block of a server has them.
std::vector<std::string> UpdateOf(const v1::ProgramDesc& program, const std::string& parameter) {
  std::vector<std::string> types;
  for (const v1::BlockDesc& block : program.blocks()) {
    for (const v1::OpDesc& op : block.ops()) {
      if (op.role() == v1::OPTIMIZE && op.param_grads_size() == 1 && op.param_grads(0).param() == parameter)
        types.push_back(op.type());
    }
  }
  return types;
}

v1::ProgramDesc OwnerOf(const Transpiled& transpiled, const std::string& parameter) {
  for (int i = 0; i < 2; ++i) {
    const auto server = transpiled.Server(i);
    EXPECT_TRUE(server.ok()) << server.status();
    if (server.ok() && FindVar(server->main.blocks(0), parameter) != nullptr) return server->main;
  }
  ADD_FAILURE() << "nobody owns " << parameter;
  return v1::ProgramDesc();
}

TEST(RunningAveragesTest, HaveAnUpdateOfTheirOwn) {
  const absl::StatusOr<Programs> single = BuildSingleMachine(JobOf(kJob));
  ASSERT_TRUE(single.ok()) << single.status();
  const std::string program = ProgramText(single->main);
  EXPECT_THAT(
      program,
      HasSubstr(
          "a.mean <- running_average(Param=a.mean, Grad=a.mean@GRAD, LearningRate=running_average.x0.1) @OPTIMIZE"));
  EXPECT_THAT(
      program,
      HasSubstr(
          "b.variance <- running_average(Param=b.variance, Grad=b.variance@GRAD, LearningRate=running_average.x0.25)"));
  EXPECT_THAT(UpdateOf(single->main, "a.scale"), ElementsAre("adam"));
  EXPECT_FLOAT_EQ(FindVar(single->main.blocks(0), "running_average.x0.1")->initializer().constant().value(), 0.1);
  // Without state.
  EXPECT_EQ(FindVar(single->main.blocks(0), "a.mean.moment1"), nullptr);
  const auto read = ParseProgramText(program, "single.program");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(VerifyProgram(*read).ok());
}

TEST(RunningAveragesTest, NoSettingOfAnOptimizerConcernsThem) {
  const Transpiled transpiled = TranspiledOf(JobOf(
      With("l1_decay: 0.5 l2_decay: 0.5 clip { by_global_norm { max_norm: 1 } } schedule { cosine { decay_steps: 9 } } "
           "parameter { name: \"a.*\" learning_rate_factor: 0.5 }")));
  for (const std::string name : {"a.mean", "a.variance", "b.mean", "b.variance"}) {
    EXPECT_THAT(UpdateOf(OwnerOf(transpiled, name), name), ElementsAre("merge", "running_average")) << name;
  }
  EXPECT_THAT(UpdateOf(OwnerOf(transpiled, "a.scale"), "a.scale"),
              ElementsAre("merge", "sum_of_squares", "whole_norm", "clip_by_norm", "decay", "adam"));
  EXPECT_THAT(ProgramText(OwnerOf(transpiled, "b.mean")), Not(HasSubstr("Out=running_average.x0.25 <- lr_rate")));
}

TEST(RunningAveragesTest, SettingsForThemAreRefusedByName) {
  for (const std::string pattern : {"a.mean", "*.variance"}) {
    EXPECT_THAT(Error(With("parameter { name: \"" + pattern + "\" learning_rate_factor: 2 }")),
                HasSubstr("'" + pattern + "' matches 'a." + (pattern[0] == 'a' ? "mean" : "variance") +
                          "', a running average: no optimizer moves it, and no setting here concerns it"));
  }
}

TEST(RunningAveragesTest, NormRulesLeaveThemAlone) {
  for (const std::string rule : {"lamb {}", "lars_momentum {}"}) {
    const Transpiled transpiled = TranspiledOf(JobOf(Replaced(kJob, "adam { learning_rate: 0.1 }", rule)));
    EXPECT_THAT(UpdateOf(OwnerOf(transpiled, "a.mean"), "a.mean"), ElementsAre("merge", "running_average")) << rule;
  }
}

TEST(RunningAveragesTest, AMeasurementIsNotCompensatedForDelay) {
  const Transpiled transpiled = TranspiledOf(JobOf(With("", "sync: false delay_compensation { lambda: 0.5 }")));
  EXPECT_THAT(UpdateOf(OwnerOf(transpiled, "a.mean"), "a.mean"), ElementsAre("merge", "running_average"));
  EXPECT_THAT(UpdateOf(OwnerOf(transpiled, "a.scale"), "a.scale"), ElementsAre("merge", "delay_compensate", "adam"));
}

TEST(RunningAveragesTest, InGeoTrainersAverageAndServersAddDifferences) {
  const Transpiled transpiled = TranspiledOf(JobOf(With("", "sync: false geo { every_steps: 3 }")));
  EXPECT_THAT(UpdateOf(transpiled.trainer().main, "a.mean"), ElementsAre("merge", "running_average"));
  EXPECT_THAT(UpdateOf(OwnerOf(transpiled, "a.mean"), "a.mean"), ElementsAre("merge", "sgd"));
}

TEST(RunningAveragesTest, AWireWithoutRoomForThemIsRefusedByName) {
  for (const std::string format : {"WIRE_FLOAT16", "WIRE_INT8"}) {
    for (const std::string way : {"push", "pull"}) {
      EXPECT_THAT(Error(With("", "reproducible: false wire { " + way + ": " + format + " }")),
                  HasSubstr("distribute.wire." + way + " " + format +
                            " has no room for 'a.mean', a running average of batch_norm"));
    }
  }
  EXPECT_THAT(Error(With("", "reproducible: false wire { push: WIRE_BFLOAT16 pull: WIRE_BFLOAT16 }")), IsEmpty());
}

}  // namespace
}  // namespace weir
