#include "framework/graph/verifier.h"

#include <functional>
#include <string>

#include "absl/strings/str_replace.h"
#include "framework/graph/program_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// A program that passes, and uses a bit of everything. Tests break one thing in it.
constexpr char kGood[] = R"(weir program 1
loss name: "cost" var: "cost"
block 0 parent -1 {
  var x [-1, 4] stop_gradient: true
  var label [-1, 1] stop_gradient: true
  var ids ids int64 [-1, 2] stop_gradient: true
  var w [4, 1] persistable: true is_parameter: true
  var table table [-1, 8] persistable: true
  var rows [-1, 8]
  var rate [1] persistable: true
  var pace [4, 1] persistable: true
  var guess [-1, 1]
  var cost [-1, 1]
  var g [-1, 1]
  var w@GRAD [4, 1]
  var sum [1]
  var copied [-1, 1]
  Out=guess <- dot(X=x, W=w) @FORWARD
  Out=cost <- plus(X=guess, Y=label) @FORWARD
  Out=g <- fill_like_batch(X=cost) value=1.0 @BACKWARD
  W@GRAD=w@GRAD <- dot_grad(X=x, W=w, Out@GRAD=g) @BACKWARD grads(w=w@GRAD)
  post(X=w@GRAD) note="n" @RPC
  Out=sum <- total(X=cost)
  mark() blocks=blocks[1]
}
block 1 parent 0 {
  ParamOut=w, PaceOut=pace <- descend(Param=w, Grad=w@GRAD, LearningRate=rate, Pace=pace) @OPTIMIZE grads(w=w@GRAD)
}
)";

std::string Verify(const std::string& text) {
  const auto program = ParseProgramText(text, "x.program");
  if (!program.ok()) return std::string(program.status().message());
  const absl::Status status = VerifyProgram(*program);
  return status.ok() ? "" : std::string(status.message());
}

// kGood with one text replaced by another.
std::string With(const std::string& from, const std::string& to) {
  const std::string good = kGood;
  EXPECT_NE(good.find(from), std::string::npos) << from;
  return Verify(absl::StrReplaceAll(good, {{from, to}}));
}

TEST(VerifierTest, AGoodProgramPasses) { EXPECT_EQ(Verify(kGood), ""); }

TEST(VerifierTest, Blocks) {
  v1::ProgramDesc program;
  EXPECT_THAT(std::string(VerifyProgram(program).message()), HasSubstr("has no blocks"));
  program.set_format_version(9);
  EXPECT_THAT(std::string(VerifyProgram(program).message()), HasSubstr("version 9 is newer than 2"));
  EXPECT_EQ(With("block 1 parent 0", "block 2 parent 0"), "block 1 of the program says that it has index 2");
  EXPECT_EQ(With("block 1 parent 0", "block 1 parent 1"), "block 1: parent 1; a parent stands before its block");
  EXPECT_EQ(With("block 0 parent -1", "block 0 parent 0"), "block 0: parent 0; block 0 has none (-1)");
}

TEST(VerifierTest, Variables) {
  EXPECT_EQ(With("  var rate [1]", "  var w [1]\n  var rate [1]"), "block 0: variable 'w' is declared twice");
  EXPECT_EQ(With("parent 0 {\n", "parent 0 {\n  var w [1]\n"),
            "block 1: variable 'w' hides one of the same name in an enclosing block");
  EXPECT_EQ(With("var x [-1, 4]", "var \"\" [-1, 4]"), "block 0: a variable without a name");
  EXPECT_EQ(With("var x [-1, 4]", "var x [-2, 4]"),
            "block 0: variable 'x' is float32 [-2, 4]; a dimension is a count, the first may be -1");
  EXPECT_EQ(With("var x [-1, 4]", "var x [4, -1]"),
            "block 0: variable 'x' is float32 [4, -1]; a dimension is a count, the first may be -1");
  EXPECT_EQ(With("var x [-1, 4]", "var x [-1, 1099511627776, 1024]"),
            "block 0: variable 'x' is float32 [-1, 1099511627776, 1024], more than 2^48 elements");
  EXPECT_EQ(With("var x [-1, 4]", "var x dtype_unset [-1, 4]"), "block 0: variable 'x' has no dtype");
  EXPECT_EQ(With("persistable: true is_parameter", "is_parameter"),
            "block 0: variable 'w' is a parameter and not persistable");
  EXPECT_EQ(With("var ids ids int64 [-1, 2]", "var ids ids int64 [8, 2]"),
            "block 0: variable 'ids' holds ids and has dims [8, 2]; expected [-1, slots]");
  EXPECT_EQ(With("var rows [-1, 8]", "var rows selected_rows [-1]"),
            "block 0: variable 'rows' holds rows and has dims [-1]; expected [height, width]");
  EXPECT_EQ(With("var table table [-1, 8]", "var table table [-1]"),
            "block 0: variable 'table' is a table and has dims [-1]; expected [-1, width]");
  EXPECT_EQ(With("[-1, 8] persistable: true", "[-1, 8] persistable: true logical_shards: 3"),
            "block 0: variable 'table' has 3 logical shards; expected a power of two");
}

TEST(VerifierTest, PiecesLieInsideTheirWhole) {
  const std::string piece = "var rate [1] block_of { variable: \"r\" element_begin: ";
  EXPECT_EQ(With("var rate [1]", piece + "3 element_count: 1 whole_dims: [2, 2] }"), "");
  EXPECT_EQ(With("var rate [1]", piece + "4 element_count: 1 whole_dims: [2, 2] }"),
            "block 0: variable 'rate' is elements 4 + 1 of 'r', which has 4");
  EXPECT_EQ(With("var rate [1]", piece + "0 element_count: 2 whole_dims: [2, 2] }"),
            "block 0: variable 'rate' has dims [1] and is 2 elements of 'r'");
  EXPECT_EQ(With("var rate [1]", piece + "0 element_count: 1 whole_dims: [9223372036854775807, 9] }"),
            "block 0: variable 'rate' is elements 0 + 1 of 'r', which has -1");
}

TEST(VerifierTest, OperatorsSlotsAndKinds) {
  EXPECT_EQ(With("<- plus(", "<- pluss("), "block 0, op 1 (pluss): unknown operator 'pluss' (did you mean 'plus'?)");
  EXPECT_EQ(With("plus(X=guess, Y=", "plus(X=guess, Z="), "block 0, op 1 (plus): no input slot 'Z'; it has X, Y");
  EXPECT_EQ(With("plus(X=guess, Y=label)", "plus(X=guess)"), "block 0, op 1 (plus): input slot 'Y' is missing");
  EXPECT_EQ(With("plus(X=guess, Y=label)", "plus(X=guess, Y=[])"), "block 0, op 1 (plus): input slot 'Y' is missing");
  EXPECT_EQ(With("plus(X=guess, Y=label)", "plus(X=guess, X=label)"),
            "block 0, op 1 (plus): input slot 'X' is given twice");
  EXPECT_EQ(With("plus(X=guess, Y=label)", "plus(X=guess, Y=[label, x])"),
            "block 0, op 1 (plus): input slot 'Y' takes one variable, got 2");
  EXPECT_EQ(With("plus(X=guess, Y=label)", "plus(X=guess, Y=ids)"),
            "block 0, op 1 (plus): input Y: variable 'ids' is ids; expected dense");
  EXPECT_EQ(With("Out=cost <-", "Cost=cost <-"), "block 0, op 1 (plus): no output slot 'Cost'; it has Out");
}

TEST(VerifierTest, Attributes) {
  EXPECT_EQ(With("value=1.0", "valeu=1.0"),
            "block 0, op 2 (fill_like_batch): no attribute 'valeu' (did you mean 'value'?); it has value, "
            "scalar_times_batch");
  EXPECT_EQ(With("value=1.0", "value=1"),
            "block 0, op 2 (fill_like_batch): attribute 'value' takes float, got integer");
  EXPECT_EQ(With("value=1.0", "value=1.0 value=2.0"),
            "block 0, op 2 (fill_like_batch): attribute 'value' is given twice");
  EXPECT_EQ(With(" note=\"n\"", ""), "block 0, op 4 (post): attribute 'note' is missing");
  EXPECT_EQ(With("blocks[1]", "blocks[2]"),
            "block 0, op 6 (mark): attribute 'blocks' names block 2; blocks inside block 0 are 1 to 1");
  EXPECT_EQ(With("blocks[1]", "blocks[0]"),
            "block 0, op 6 (mark): attribute 'blocks' names block 0; blocks inside block 0 are 1 to 1");
}

TEST(VerifierTest, VariablesAreDeclared) {
  EXPECT_EQ(With("Y=label)", "Y=labels)"),
            "block 0, op 1 (plus): input Y: variable 'labels' is not declared (did you mean 'label'?)");
  EXPECT_EQ(With("Out=cost <-", "Out=costs <-"),
            "block 0, op 1 (plus): output Out: variable 'costs' is not declared (did you mean 'cost'?)");
}

TEST(VerifierTest, VariablesAreDefinedBeforeTheyAreRead) {
  EXPECT_EQ(With("plus(X=guess, Y=label)", "plus(X=guess, Y=g)"),
            "block 0, op 1 (plus): input Y: variable 'g' is read before it is written");
  EXPECT_EQ(
      With("plus(X=guess, Y=label)", "plus(X=guess, Y=copied)"),
      "block 0, op 1 (plus): input Y: variable 'copied' is read and nothing writes it; what is fed has stop_gradient");
  // A fed variable may be rewritten by an op that reads it, as servers do with gradients.
  EXPECT_EQ(
      With("Out=cost <- plus(X=guess, Y=label)", "Out=label <- copy(X=label)\n  Out=cost <- plus(X=guess, Y=label)"),
      "");
}

TEST(VerifierTest, ShapesAgree) {
  EXPECT_EQ(With("var x [-1, 4]", "var x [-1, 5]"), "block 0, op 0 (dot): dot: X is [-1, 5] and W is [4, 1]");
  EXPECT_EQ(With("var guess [-1, 1]", "var guess [-1, 2]"),
            "block 0, op 0 (dot): output 'guess' is declared as float32 [-1, 2]; the op gives float32 [-1, 1]");
  EXPECT_EQ(With("var guess [-1, 1]", "var guess int64 [-1, 1]"),
            "block 0, op 0 (dot): output 'guess' is declared as int64 [-1, 1]; the op gives float32 [-1, 1]");
  // A batch is not four.
  EXPECT_EQ(With("var guess [-1, 1]", "var guess [4, 1]"),
            "block 0, op 0 (dot): output 'guess' is declared as float32 [4, 1]; the op gives float32 [-1, 1]");
}

TEST(VerifierTest, NoLaneReadsWhatAGateWrites) {
  EXPECT_EQ(With("  Out=sum <- total(X=cost)", "  Out=copied <- gate_copy(X=cost)\n  Out=g <- copy(X=copied)"),
            "block 0, op 6 (copy): input X: variable 'copied' is written by op 5, for which no lane waits");
}

TEST(VerifierTest, NoLaneWritesWhatAGateMayStillRead) {
  const std::string post = "  post(X=w@GRAD) note=\"n\" @RPC\n",
                    again = "  W@GRAD=w@GRAD <- dot_grad(X=x, W=w, Out@GRAD=g) @BACKWARD\n";
  EXPECT_EQ(With(post, post + again),
            "block 0, op 5 (dot_grad): output W@GRAD: variable 'w@GRAD' is read by op 4, for which no lane waits: it "
            "may still "
            "be reading; write another variable");
  // A step op waits for the gate.
  EXPECT_EQ(With(post, post + "  mark() blocks=blocks[1]\n" + again), "");
  // A piece that a gate reads may be a view of the whole.
  const std::string cut = "  Out=piece <- copy(X=w@GRAD) @DIST\n", piece = "  var sum [1]\n  var piece [4, 1]\n";
  const std::string posts_piece = "  post(X=piece) note=\"n\" @RPC\n";
  const auto with_piece = [&](const std::string& ops) {
    return Verify(absl::StrReplaceAll(kGood, {{"  var sum [1]\n", piece}, {post, ops}}));
  };
  EXPECT_EQ(with_piece(cut + posts_piece), "");
  EXPECT_THAT(with_piece(cut + posts_piece + again),
              HasSubstr("op 6 (dot_grad): output W@GRAD: variable 'w@GRAD' is read by op 5"));
  EXPECT_EQ(with_piece(cut + again + posts_piece), "");
}

TEST(VerifierTest, OnlyTensorsAndTablesArePersistable) {
  EXPECT_EQ(With("var ids ids int64 [-1, 2]", "var ids ids int64 [-1, 2] persistable: true"),
            "block 0: variable 'ids' is persistable and ids int64 [-1, 2]; only tensors and tables outlive a step");
}

TEST(VerifierTest, UpdatesAgreeWithTheirParameters) {
  EXPECT_EQ(With("ParamOut=w,", "ParamOut=pace,"), "block 1, op 0 (descend): ParamOut is 'pace'; it is Param, 'w'");
  EXPECT_EQ(With("PaceOut=pace <-", "PaceOut=rate <-"),
            "block 1, op 0 (descend): PaceOut is 'rate'; it is Pace, 'pace'");
  EXPECT_EQ(With("var pace [4, 1]", "var pace [4, 2]"),
            "block 1, op 0 (descend): state Pace 'pace' is float32 [4, 2]; Param 'w' is float32 [4, 1]");
  EXPECT_EQ(With("var pace [4, 1] persistable: true", "var pace [4, 1]"),
            "block 1, op 0 (descend): state 'pace' is not persistable");
  EXPECT_EQ(With("var rate [1]", "var rate [3]"),
            "block 1, op 0 (descend): LearningRate 'rate' is float32 [3]; expected [1]");
  EXPECT_THAT(With("Param=w, Grad=w@GRAD", "Param=w, Grad=x"),
              HasSubstr("gradient 'x' is float32 [-1, 4]; parameter 'w' is float32 [4, 1]"));
}

TEST(VerifierTest, AnUpdateOfATableHasNoState) {
  EXPECT_EQ(Verify(R"(weir program
block 0 parent -1 {
  var table table [-1, 8] persistable: true
  var g selected_rows [-1, 8] stop_gradient: true
  var rate [1] persistable: true
  ParamOut=table <- descend(Param=table, Grad=g, LearningRate=rate)
})"),
            "");
}

TEST(VerifierTest, ParameterGradientPairs) {
  EXPECT_EQ(With("@BACKWARD grads(w=w@GRAD)", "@BACKWARD grads(v=w@GRAD)"),
            "block 0, op 3 (dot_grad): param_grads names 'v', which is not declared");
  EXPECT_EQ(With("@BACKWARD grads(w=w@GRAD)", "@BACKWARD grads(w=g)"), "");  // [-1, 1] may be [4, 1]
  EXPECT_EQ(With("@BACKWARD grads(w=w@GRAD)", "@BACKWARD grads(w=rate)"),
            "block 0, op 3 (dot_grad): gradient 'rate' is float32 [1]; parameter 'w' is float32 [4, 1]");
  EXPECT_EQ(With("@OPTIMIZE grads(w=w@GRAD)", "@OPTIMIZE grads(pace=w@GRAD)"),
            "block 1, op 0 (descend): param_grads says 'pace', 'w@GRAD'; Param and Grad are 'w', 'w@GRAD'");
}

TEST(VerifierTest, LossesAreDeclared) {
  EXPECT_EQ(With("var: \"cost\"", "var: \"costs\""), "loss 'cost' names variable 'costs', which is not declared");
  EXPECT_EQ(With("var: \"cost\"", "var: \"cost\" label: \"l\""),
            "loss 'cost' names variable 'l', which is not declared");
}

TEST(VerifierTest, LossesNameBatchesThatOpsTouch) {
  EXPECT_EQ(With("var: \"cost\"", "var: \"cost\" prediction: \"guess\" label: \"label\""), "");
  EXPECT_EQ(
      With("var: \"cost\"", "var: \"cost\" label: \"ids\""),
      "loss 'cost' names variable 'ids' as its label; it is ids int64 [-1, 2], expected a batch of float32 or int64");
  EXPECT_EQ(With("var: \"cost\"", "var: \"cost\" prediction: \"w\""),
            "loss 'cost' names variable 'w' as its prediction; it is persistable float32 [4, 1], expected a batch of "
            "float32");
  EXPECT_EQ(With("var: \"cost\"", "var: \"cost\" prediction: \"copied\""),
            "loss 'cost' names variable 'copied' as its prediction, which no op reads or writes");
}

}  // namespace
}  // namespace weir
