// How programs say that gradients are added otherwise than by samples in the lane tree.
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "framework/graph/training_mode.h"
#include "framework/graph/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/split/process_programs.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A layer with running averages, a parameter whose gradient is rows, dense ones, and a distributed table.
constexpr char kJob[] = R"(name: "sums"
data {
  criteo { integers: 4 categoricals: 2 }
  ids { shared: "cat" }
  batch_size: 64
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "held" pooling: SUM } }
  layer { name: "wide" embedding { ids: "cat" table: "served" pooling: SUM } }
  layer { name: "norm" batch_norm { input: "dense" } }
  layer { name: "input" concat { input: "fields" input: "norm" input: "wide" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "held" width: 4 is_sparse: true dict_size: 200 }
table { name: "served" width: 2 is_sparse: true is_distributed: true }
optimizer { sgd { learning_rate: 0.1 } }
distribute { servers: 1 trainers: 2 dense: ALL_REDUCE }
)";

v1::ProgramDesc TrainerOf(const std::vector<std::string>& overrides) {
  return TranspiledOf(JobOf(kJob, overrides)).trainer().main;
}

// Returns the attribute of the all_reduce of a parameter.
bool Says(const v1::ProgramDesc& main, const std::string& parameter, const std::string& attr) {
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() != "all_reduce" || FindAttr(op, "block")->s() != parameter) continue;
    const v1::OpAttr* const found = FindAttr(op, attr);
    return found != nullptr && found->b();
  }
  ADD_FAILURE() << "no all_reduce of " << parameter;
  return false;
}

// Returns the type of the first op of the block that updates a parameter.
std::string FirstOpOf(const v1::ProgramDesc& main, const std::string& parameter) {
  const v1::TrainingMode mode = ModeOf(main);
  for (const int32_t index : mode.all_reduce().blocks()) {
    for (const v1::OpDesc& op : main.blocks(index).ops()) {
      if (InputOf(op, "Param") == parameter) return main.blocks(index).ops(0).type();
    }
  }
  return "";
}

TEST(AllReduceSumsTest, OrdinaryJobsSayNothing) {
  const v1::ProgramDesc main = TrainerOf({});
  const v1::AllReduceMode mode = ModeOf(main).all_reduce();
  EXPECT_FALSE(mode.has_any_order() || mode.has_compression() || mode.has_adasum());
  EXPECT_THAT(ProgramText(main), Not(HasSubstr(" mean=true")));
  EXPECT_EQ(FirstOpOf(main, "out.w"), "merge");
}

TEST(AllReduceSumsTest, CompressionIsOfGradientsAlone) {
  const v1::ProgramDesc main =
      TrainerOf({"distribute.reproducible=false", "distribute.all_reduce={compression: BFLOAT16}"});
  EXPECT_TRUE(ModeOf(main).all_reduce().any_order());
  EXPECT_EQ(ModeOf(main).all_reduce().compression(), v1::BFLOAT16);
  EXPECT_TRUE(Says(main, "norm.mean", "measured"));
  EXPECT_FALSE(Says(main, "out.w", "measured"));
  EXPECT_EQ(FirstOpOf(main, "out.w"), "merge");
}

TEST(AllReduceSumsTest, AdasumIsOfMeansOfDenseGradients) {
  const v1::ProgramDesc main = TrainerOf({"distribute.all_reduce={reduction: ADASUM}"});
  EXPECT_TRUE(ModeOf(main).all_reduce().adasum());
  EXPECT_FALSE(ModeOf(main).all_reduce().any_order());
  EXPECT_TRUE(Says(main, "out.w", "mean"));
  for (const char* other : {"norm.mean", "held"}) EXPECT_FALSE(Says(main, other, "mean")) << other;
  // Nothing divides the adasum by samples; measurements and rows are averaged as ever.
  EXPECT_NE(FirstOpOf(main, "out.w"), "merge");
  EXPECT_EQ(FirstOpOf(main, "norm.mean"), "merge");
  EXPECT_EQ(FirstOpOf(main, "held"), "merge");
}

TEST(AllReduceSumsTest, ModesThatContradictAreRefused) {
  struct Case {
    void (*edit)(v1::AllReduceMode*);
    const char* message;
  };
  for (const Case& c : {Case{[](v1::AllReduceMode* m) { m->set_compression(v1::INT32); },
                             "all_reduce.compression must be FLOAT16 or BFLOAT16, got INT32"},
                        Case{[](v1::AllReduceMode* m) { m->set_compression(v1::FLOAT16); },
                             "all_reduce.compression needs any_order: true"},
                        Case{[](v1::AllReduceMode* m) {
                               m->set_compression(v1::FLOAT16);
                               m->set_any_order(true);
                               m->set_adasum(true);
                             },
                             "both compression and adasum"}}) {
    v1::ProgramDesc main = TrainerOf({});
    c.edit(MutableMode(&main)->mutable_all_reduce());
    EXPECT_THAT(std::string(VerifyProgram(main).message()), HasSubstr(c.message));
  }
}

TEST(AllReduceSumsTest, AProgramOfAnotherModeIsRefused) {
  const std::string file = ::testing::TempDir() + "/tree.program";
  std::ofstream(file) << ProgramText(TrainerOf({}));
  for (const auto& [setting, what] :
       {std::pair("distribute.reproducible=false", "distribute.reproducible"),
        std::pair("distribute.all_reduce={reduction: ADASUM}", "distribute.all_reduce.reduction")}) {
    const auto programs = TrainerPrograms(JobOf(kJob, {setting}), file, "");
    EXPECT_THAT(std::string(programs.status().message()), HasSubstr(what));
  }
}

}  // namespace
}  // namespace weir
