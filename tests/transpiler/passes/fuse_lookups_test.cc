// Look-ups that write directly into the matrix that joins them: which chains of ops become one op, and which stay.
#include "transpiler/passes/passes.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "framework/graph/op_registry.h"
#include "framework/graph/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"

namespace weir {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Wide & Deep: only the tower reads the looked up rows.
std::string WideAndDeep() {
  std::string text = Replaced(kDeepFm, "  layer { name: \"fm\" fm_interaction { input: \"fields\" } }\n", "");
  return Replaced(text, "input: \"wide\" input: \"fm\"", "input: \"wide\"");
}

absl::StatusOr<bool> Fuse(const Job& job, Programs* programs) {
  const std::vector<Pass>& passes = TrainerPasses();
  const auto pass = std::find_if(passes.begin(), passes.end(),
                                 [](const Pass& each) { return std::string_view(each.name) == "fuse_lookups"; });
  return pass == passes.end() ? absl::NotFoundError("no pass fuse_lookups") : pass->run(job, programs);
}

// The trainer's program before and after the pass.
struct Both {
  v1::ProgramDesc before, after;
  bool changed = false;
};
Both Fused(const Job& job) {
  Programs programs;
  for (const auto* passes : {&SingleMachinePasses(), &PlacementPasses(), &TrainerPasses()}) {
    for (const Pass& pass : *passes) {
      if (std::string_view(pass.name) == "fuse_lookups") {
        Both both{.before = programs.main};
        const absl::StatusOr<bool> changed = Fuse(job, &programs);
        EXPECT_TRUE(changed.ok()) << changed.status();
        EXPECT_TRUE(VerifyProgram(programs.main).ok()) << VerifyProgram(programs.main);
        both.changed = changed.ok() && *changed;
        both.after = programs.main;
        return both;
      }
      const absl::Status ran = pass.run(job, &programs).status();
      EXPECT_TRUE(ran.ok()) << pass.name << ": " << ran;
    }
  }
  ADD_FAILURE() << "no pass fuse_lookups";
  return {};
}

// Returns the text of the only op of a type.
std::string Line(const v1::ProgramDesc& program, std::string_view type) { return OpText(OnlyOp(program, type)); }

bool Declares(const v1::ProgramDesc& program, std::string_view name) {
  return FindVar(program.blocks(0), name) != nullptr;
}

TEST(FuseLookupsTest, TheChainIsOneOpAndItsGradientOne) {
  const Both both = Fused(JobOf(WideAndDeep()));
  ASSERT_TRUE(both.changed);
  EXPECT_EQ(Line(both.after, "lookup_concat"),
            "Out=input <- lookup_concat(Ids=cat, Index=cat@INDEX.vectors, Rows=vectors@ROWS, X=dense) "
            "poolings=[\"none\"] @FORWARD");
  EXPECT_EQ(Line(both.after, "lookup_concat_grad"),
            "Rows@GRAD=vectors@GRAD <- lookup_concat_grad(Ids=cat, Index=cat@INDEX.vectors, Rows=vectors@ROWS, "
            "Out@GRAD=input@GRAD) poolings=[\"none\"] lookup_begins=[0] @BACKWARD grads(vectors=vectors@GRAD)");
  const std::vector<std::string> types = Types(both.after);
  for (const char* gone : {"concat", "concat_grad", "reshape", "reshape_grad"}) EXPECT_THAT(types, Not(Contains(gone)));
  for (const char* gone : {"fields", "input.flat0", "fields@GRAD", "input.flat0@GRAD"}) {
    EXPECT_TRUE(Declares(both.before, gone)) << gone;
    EXPECT_FALSE(Declares(both.after, gone)) << gone;
  }
  // The look-up of weights is joined with nothing, so it stays.
  EXPECT_EQ(InputOf(OnlyOp(both.after, "lookup_rows"), "Rows"), "weights@ROWS");
  // The gradient is sent right after the op that makes it.
  const v1::ProgramDesc trainer = TranspiledOf(JobOf(WideAndDeep())).trainer().main;
  const auto& ops = trainer.blocks(0).ops();
  for (int i = 0; i < ops.size(); ++i) {
    if (ops.Get(i).type() != "lookup_concat_grad") continue;
    EXPECT_EQ(InputOf(ops.Get(i + 1), "X"), "vectors@GRAD");
  }
}

TEST(FuseLookupsTest, AFactorisationMachineReadsTheJoinedMatrix) {
  const Both both = Fused(JobOf(kDeepFm));
  ASSERT_TRUE(both.changed);
  EXPECT_EQ(Line(both.after, "lookup_concat"),
            "Out=input <- lookup_concat(Ids=cat, Index=cat@INDEX.vectors, Rows=vectors@ROWS, X=dense) "
            "poolings=[\"none\"] @FORWARD");
  EXPECT_EQ(Line(both.after, "fm_interaction"),
            "Out=fm, Sum=fm.sum <- fm_interaction(X=input) columns=[0, 30, 4] @FORWARD");
  EXPECT_EQ(Line(both.after, "fm_interaction_grad"),
            "X@GRAD=input@GRAD@fields <- fm_interaction_grad(X=input, Sum=fm.sum, Out@GRAD=fm@GRAD, Onto=input@GRAD) "
            "columns=[0, 30, 4] @BACKWARD");
  EXPECT_EQ(Line(both.after, "lookup_concat_grad"),
            "Rows@GRAD=vectors@GRAD <- lookup_concat_grad(Ids=cat, Index=cat@INDEX.vectors, Rows=vectors@ROWS, "
            "Out@GRAD=input@GRAD@fields) poolings=[\"none\"] lookup_begins=[0] @BACKWARD grads(vectors=vectors@GRAD)");
  const std::vector<std::string> types = Types(both.after);
  for (const char* gone : {"concat", "concat_grad", "reshape", "reshape_grad", "sum"})
    EXPECT_THAT(types, Not(Contains(gone)));
  for (const char* gone :
       {"fields", "input.flat0", "fields@GRAD", "fields@GRAD@0", "fields@GRAD@1", "input.flat0@GRAD"}) {
    EXPECT_TRUE(Declares(both.before, gone)) << gone;
    EXPECT_FALSE(Declares(both.after, gone)) << gone;
  }
}

TEST(FuseLookupsTest, FactorisationMachinesOfSeveralTables) {
  // The fields of the second machine come after the dense values, and it reads them after the concat.
  std::string text =
      Replaced(kDeepFm, "  layer { name: \"input\" concat { input: \"fields\" input: \"dense\" } }\n",
               "  layer { name: \"more\" embedding { ids: \"cat\" table: \"others\" } }\n"
               "  layer { name: \"input\" concat { input: \"fields\" input: \"dense\" input: \"more\" } }\n"
               "  layer { name: \"fm2\" fm_interaction { input: \"more\" } }\n");
  text = Replaced(text, "input: \"wide\" input: \"fm\"", "input: \"wide\" input: \"fm2\" input: \"fm\"");
  text =
      Replaced(text, "table { name: \"weights\"",
               "table { name: \"others\" width: 3 is_sparse: true is_distributed: true }\ntable { name: \"weights\"");
  // Its look-up comes after the first machine, which would then read the matrix before it is joined.
  EXPECT_THAT(Types(Fused(JobOf(text)).after), Contains("sum"));

  text = Replaced(text, "  layer { name: \"more\" embedding { ids: \"cat\" table: \"others\" } }\n", "");
  text = Replaced(text, "  layer { name: \"wide\"",
                  "  layer { name: \"more\" embedding { ids: \"cat\" table: \"others\" } }\n  layer { name: \"wide\"");
  const Both both = Fused(JobOf(text));
  ASSERT_TRUE(both.changed);
  EXPECT_THAT(Types(both.after), Not(Contains("sum")));
  EXPECT_THAT(Types(both.after), Not(Contains("concat")));
  std::vector<std::string> machines;
  for (const v1::OpDesc& op : both.after.blocks(0).ops()) {
    if (op.type() == "fm_interaction" || op.type() == "fm_interaction_grad") machines.push_back(OpText(op));
  }
  EXPECT_THAT(machines,
              ElementsAre("Out=fm, Sum=fm.sum <- fm_interaction(X=input) columns=[0, 30, 4] @FORWARD",
                          "Out=fm2, Sum=fm2.sum <- fm_interaction(X=input) columns=[126, 30, 3] @FORWARD",
                          "X@GRAD=input@GRAD@more <- fm_interaction_grad(X=input, Sum=fm2.sum, Out@GRAD=fm2@GRAD, "
                          "Onto=input@GRAD) columns=[126, 30, 3] @BACKWARD",
                          "X@GRAD=input@GRAD@more@fields <- fm_interaction_grad(X=input, Sum=fm.sum, "
                          "Out@GRAD=fm@GRAD, Onto=input@GRAD@more) columns=[0, 30, 4] @BACKWARD"));
}

TEST(FuseLookupsTest, AMachineWhoseResultIsJoinedStaysBeforeTheMatrix) {
  // `fm` is an input of the concat, so the matrix cannot be joined before `fm` has run.
  std::string text = Replaced(kDeepFm, "input: \"fields\" input: \"dense\"", "input: \"fields\" input: \"fm\"");
  text = Replaced(text, "input: \"wide\" input: \"fm\"", "input: \"wide\"");
  const Both both = Fused(JobOf(text));
  EXPECT_FALSE(both.changed);
  EXPECT_EQ(ProgramText(both.after), ProgramText(both.before));
}

TEST(FuseLookupsTest, AMachineDoesNotReadAMatrixThatIsWrittenAgain) {
  const v1::ProgramDesc before = Fused(JobOf(kDeepFm)).before;
  for (const char* var : {"input", "input@GRAD", "fm@GRAD", "fm.sum"}) {
    Programs programs;
    programs.main = before;
    *programs.main.mutable_blocks(0)->add_ops() =
        WithRole(MakeOp("scale", {{"X", {var}}}, {{"Out", {var}}}), v1::BACKWARD);
    const absl::StatusOr<bool> changed = Fuse(JobOf(kDeepFm), &programs);
    ASSERT_TRUE(changed.ok()) << changed.status();
    EXPECT_FALSE(*changed) << var;
  }
}

TEST(FuseLookupsTest, WhatSomethingElseReadsStays) {
  // Dot interactions of the fields, beside the factorisation machine.
  const std::string more = Replaced(kDeepFm, "layer { name: \"input\" concat { input: \"fields\"",
                                    "layer { name: \"dots\" dot_interaction { input: \"fields\" } }\n"
                                    "  layer { name: \"input\" concat { input: \"dots\" input: \"fields\"");
  const Both stays = Fused(JobOf(more));
  EXPECT_FALSE(stays.changed);
  EXPECT_EQ(ProgramText(stays.after), ProgramText(stays.before));
  // This concat joins two variables, of which `wide` goes into the logit too.
  std::string text = Replaced(WideAndDeep(), "layer { name: \"out\"",
                              "layer { name: \"both\" concat { input: \"wide\" input: \"deep\" } }\n"
                              "  layer { name: \"out\"");
  text = Replaced(text, "name: \"out\" fc { input: \"deep\"", "name: \"out\" fc { input: \"both\"");
  EXPECT_THAT(Line(Fused(JobOf(text)).after, "concat"), HasSubstr("Out=both <- concat(X=[wide, deep])"));
}

TEST(FuseLookupsTest, PooledLookUpsStandWhereTheyWereAmongTheOthers) {
  std::string text =
      Replaced(WideAndDeep(), "  layer { name: \"input\"",
               "  layer { name: \"means\" embedding { ids: \"cat\" table: \"vectors\" pooling: MEAN padding_id: 3 } }\n"
               "  layer { name: \"scaled\" fc { input: \"dense\" size: 5 } }\n  layer { name: \"input\"");
  text = Replaced(text, "input: \"fields\" input: \"dense\"",
                  "input: \"scaled\" input: \"means\" input: \"dense\" input: \"fields\"");
  const Both both = Fused(JobOf(text));
  ASSERT_TRUE(both.changed);
  const v1::OpDesc op = OnlyOp(both.after, "lookup_concat"), grad = OnlyOp(both.after, "lookup_concat_grad");
  EXPECT_THAT(OpText(op), HasSubstr("Ids=[cat, cat]"));
  EXPECT_THAT(OpText(op), HasSubstr("X=[scaled, dense]) poolings=[\"mean\", \"none\"] padded=[1, 0]"));
  EXPECT_THAT(FindAttr(op, "dense_at")->ints().v(), ElementsAre(0, 2));
  // Both gradients of one table are still added in their order; the gradient of `dense` is not wanted.
  EXPECT_THAT(FindAttr(grad, "lookup_begins")->ints().v(), ElementsAre(5, 15));
  EXPECT_THAT(FindAttr(grad, "dense_begins")->ints().v(), ElementsAre(0));
  EXPECT_THAT(FindAttr(grad, "dense_sizes")->ints().v(), ElementsAre(5));
  EXPECT_THAT(OpText(grad), HasSubstr("X@GRAD=scaled@GRAD"));
  EXPECT_EQ(OpText(OnlyOp(both.after, "sum")), OpText(OnlyOp(both.before, "sum")));
}

// Several ids variables in one layer are joined slot by slot first.
constexpr char kSlots[] = R"(name: "slots"
data {
  train { files: "t.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "a" type: IDS }
    slot { name: "b" type: IDS }
  }
  batch_size: 8
}
model {
  layer { name: "fields" embedding { ids: "a" ids: "b" table: "t" %s } }
  layer { name: "one" embedding { ids: "a" table: "u" pooling: SUM } }
  layer { name: "input" concat { input: "one" input: "fields" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "t" width: 3 is_sparse: true is_distributed: true }
table { name: "u" width: 2 is_sparse: true is_distributed: true }
optimizer { sgd { learning_rate: 0.1 } }
)";

TEST(FuseLookupsTest, SeveralVariablesOfIdsAreJoinedAtOnce) {
  const Both both = Fused(JobOf(Replaced(kSlots, "%s", "pooling: SUM per_slot: true")));
  ASSERT_TRUE(both.changed);
  EXPECT_EQ(Line(both.after, "lookup_concat"),
            "Out=input <- lookup_concat(Ids=[a, a, b], Index=[a@INDEX.u, a@INDEX.t, b@INDEX.t], Rows=[u@ROWS, t@ROWS, "
            "t@ROWS]) "
            "poolings=[\"sum\", \"sum\", \"sum\"] per_slot=[0, 1, 1] @FORWARD");
  EXPECT_THAT(FindAttr(OnlyOp(both.after, "lookup_concat_grad"), "lookup_begins")->ints().v(), ElementsAre(0, 2, 5));
  EXPECT_THAT(Types(both.after), Not(Contains("concat")));
  EXPECT_THAT(Types(both.after), Not(Contains("concat_grad")));
}

TEST(FuseLookupsTest, WhatClipsAGradientStandsBehindTheOpThatMakesIt) {
  const std::string text = Replaced(kSlots, "%s", "pooling: SUM per_slot: true");
  const Both both =
      Fused(JobOf(Replaced(text, "learning_rate: 0.1 }", "learning_rate: 0.1 } clip { by_value { max: 1 } }")));
  EXPECT_THAT(Types(both.before), Contains("clip"));
  EXPECT_THAT(Types(both.after), Contains("lookup_concat_grad"));
  EXPECT_THAT(Types(both.after), Not(Contains("lookup_rows_grad")));
}

TEST(FuseLookupsTest, ASequenceStays) {
  std::string text = Replaced(kSlots, "ids: \"a\" ids: \"b\" table: \"t\" %s", "ids: \"b\" table: \"t\" sequence: 4");
  const Both both = Fused(JobOf(text));
  ASSERT_TRUE(both.changed);
  EXPECT_THAT(Line(both.after, "lookup_concat"), HasSubstr("Ids=a, Index=a@INDEX.u, Rows=u@ROWS, X=input.flat1)"));
  EXPECT_THAT(Line(both.after, "lookup_rows"), HasSubstr("sequence=4"));
  EXPECT_THAT(Line(both.after, "lookup_concat_grad"), HasSubstr("X@GRAD=input.flat1@GRAD"));
}

// A fused op has another name than the op that the job puts on the CPU, so the job's choice would be lost.
TEST(FuseLookupsTest, WhatIsToRunOnTheCpuStays) {
  for (const char* op : {"concat", "lookup_rows_grad"}) {
    Job job = JobOf(WideAndDeep());
    job.config.mutable_train()->add_cpu_ops(op);
    EXPECT_FALSE(Fused(job).changed) << op;
  }
  Job job = JobOf(WideAndDeep());
  job.config.mutable_train()->add_cpu_ops("sum");
  EXPECT_TRUE(Fused(job).changed);
}

TEST(FuseLookupsTest, WithoutBackwardOnlyTheForwardIsFused) {
  // Rows that are only read, as in a program for predictions.
  Programs programs;
  programs.main = Fused(JobOf(WideAndDeep())).before;
  FilterOps(programs.main.mutable_blocks(0),
            [](const v1::OpDesc& op) { return op.role() != v1::BACKWARD && op.role() != v1::OPTIMIZE; });
  const absl::StatusOr<bool> changed = Fuse(JobOf(WideAndDeep()), &programs);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_TRUE(*changed);
  EXPECT_THAT(Types(programs.main), Contains("lookup_concat"));
  EXPECT_THAT(Types(programs.main), Not(Contains("lookup_concat_grad")));
}

// Returns the program before the pass, without backward and updates.
Programs ForwardOf(const std::string& text) {
  Programs programs;
  programs.main = Fused(JobOf(text)).before;
  FilterOps(programs.main.mutable_blocks(0),
            [](const v1::OpDesc& op) { return op.role() != v1::BACKWARD && op.role() != v1::OPTIMIZE; });
  return programs;
}

TEST(FuseLookupsTest, AMachineThatReadsBeforeTheLastLookUpStays) {
  // `more` is looked up after `fm` and goes into the same matrix as the rows that `fm` reads.
  const std::string text = Replaced(kDeepFm, "  layer { name: \"input\" concat { input: \"fields\"",
                                    "  layer { name: \"more\" embedding { ids: \"cat\" table: \"others\" } }\n"
                                    "  layer { name: \"fm2\" fm_interaction { input: \"more\" } }\n"
                                    "  layer { name: \"input\" concat { input: \"more\" input: \"fields\"");
  Programs programs = ForwardOf(
      Replaced(Replaced(text, "input: \"wide\" input: \"fm\"", "input: \"wide\" input: \"fm2\" input: \"fm\""),
               "table { name: \"weights\"",
               "table { name: \"others\" width: 3 is_sparse: true is_distributed: true }\ntable { name: \"weights\""));
  const std::string before = ProgramText(programs.main);
  const absl::StatusOr<bool> changed = Fuse(JobOf(kDeepFm), &programs);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_FALSE(*changed);
  EXPECT_EQ(ProgramText(programs.main), before);
}

TEST(FuseLookupsTest, AMachineWhoseResultIsJoinedStaysWithoutBackwardToo) {
  const std::string text = Replaced(kDeepFm, "input: \"fields\" input: \"dense\"", "input: \"fields\" input: \"fm\"");
  Programs programs = ForwardOf(Replaced(text, "input: \"wide\" input: \"fm\"", "input: \"wide\""));
  const std::string before = ProgramText(programs.main);
  const absl::StatusOr<bool> changed = Fuse(JobOf(kDeepFm), &programs);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_FALSE(*changed);
  EXPECT_EQ(ProgramText(programs.main), before);
}

TEST(FuseLookupsTest, TheOnlyLookUpOfTheMatrixMayBeTheFirstOp) {
  // The rows are fed, so no op fetches them.
  Programs programs = ForwardOf(kDeepFm);
  FilterOps(programs.main.mutable_blocks(0), [](const v1::OpDesc& op) { return op.type() != "prefetch"; });
  const absl::StatusOr<bool> changed = Fuse(JobOf(kDeepFm), &programs);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_TRUE(*changed);
  const std::vector<std::string> types = Types(programs.main);
  ASSERT_GE(types.size(), 3u);
  EXPECT_EQ(types[0], "lookup_concat");
  EXPECT_EQ(types[1], "lookup_rows");
  EXPECT_EQ(types[2], "fm_interaction");
}

// Fuses a program in which another op reads `gradient`, and expects no change.
void ExpectNothingFusedBesideAReaderOf(const std::string& gradient) {
  Programs programs;
  programs.main = Fused(JobOf(WideAndDeep())).before;
  v1::BlockDesc* const block = programs.main.mutable_blocks(0);
  *block->add_vars() = *FindVar(*block, gradient);
  block->mutable_vars(block->vars_size() - 1)->set_name("more");
  *block->add_ops() = WithRole(MakeOp("scale", {{"X", {gradient}}}, {{"Out", {"more"}}}), v1::BACKWARD);
  const std::string before = ProgramText(programs.main);
  const absl::StatusOr<bool> changed = Fuse(JobOf(WideAndDeep()), &programs);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_FALSE(*changed);
  EXPECT_EQ(ProgramText(programs.main), before);
}

TEST(FuseLookupsTest, APieceOfTheGradientThatIsReadTwiceStays) {
  ExpectNothingFusedBesideAReaderOf("input.flat0@GRAD");
}

// Its reshape_grad reads the dims of `fields`, so the forward ops stay too.
TEST(FuseLookupsTest, AGradientThatIsReadTwiceStays) { ExpectNothingFusedBesideAReaderOf("fields@GRAD"); }

}  // namespace
}  // namespace weir
