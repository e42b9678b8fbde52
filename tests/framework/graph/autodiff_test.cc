#include "framework/graph/autodiff.h"

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

constexpr char kVars[] = R"(
  var x [-1, 4] stop_gradient: true
  var label [-1, 1] stop_gradient: true
  var ids ids int64 [-1, 2] stop_gradient: true
  var w [4, 1] persistable: true is_parameter: true
  var v [4, 1] persistable: true is_parameter: true
  var e [100, 1] persistable: true is_parameter: true is_sparse: true
  var frozen [4, 1] persistable: true is_parameter: true trainable: false
  var weight [] persistable: true is_parameter: true
  var a [-1, 1]
  var b [-1, 1]
  var c [-1, 1]
  var l [-1, 1]
  var m []
  var s []
)";

struct Result {
  std::string error;
  // Backward ops, one per line.
  std::string backward;
  std::vector<std::string> without;
  v1::ProgramDesc program;
};

Result Differentiate(const std::string& losses, const std::string& ops) {
  Result result;
  auto program = ParseProgramText("weir program\n" + losses + "\nblock 0 parent -1 {" + kVars + ops + "}", "x.program");
  EXPECT_TRUE(program.ok()) << program.status();
  const std::string before = ProgramText(*program);
  const absl::Status status = AppendBackward(&*program, &result.without);
  result.error = std::string(status.message());
  if (!status.ok()) {
    EXPECT_EQ(ProgramText(*program), before);
    return result;
  }
  EXPECT_TRUE(VerifyProgram(*program).ok()) << VerifyProgram(*program) << ProgramText(*program);
  for (const v1::OpDesc& op : program->blocks(0).ops()) {
    if (op.role() == v1::BACKWARD) result.backward += OpText(op) + "\n";
  }
  result.program = *program;
  return result;
}

const v1::VarDesc* FindVar(const v1::ProgramDesc& program, const std::string& name) {
  for (const v1::VarDesc& var : program.blocks(0).vars()) {
    if (var.name() == name) return &var;
  }
  return nullptr;
}

TEST(AutodiffTest, AChainIsWalkedBackwards) {
  const Result r = Differentiate("loss var: \"l\" weight: 0.5", R"(
  Out=a <- dot(X=x, W=w)
  Out=l <- times(X=a, Y=label)
)");
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(r.backward,
            "Out=l@GRAD <- fill_like_batch(X=l) value=0.5 scalar_times_batch=false @BACKWARD\n"
            "Out=a@GRAD <- times(X=l@GRAD, Y=label) @BACKWARD\n"
            "W@GRAD=w@GRAD <- dot_grad(X=x, W=w, Out@GRAD=a@GRAD) @BACKWARD grads(w=w@GRAD)\n");
  EXPECT_EQ(FindVar(r.program, "w@GRAD")->dims(0), 4);
  EXPECT_FALSE(FindVar(r.program, "w@GRAD")->persistable());
  EXPECT_THAT(r.without, ElementsAre("e", "v", "weight"));
}

TEST(AutodiffTest, SeveralUsesAreAddedInOrderOfUseBehindTheLast) {
  const Result r = Differentiate("loss var: \"l\"", R"(
  Out=a <- dot(X=x, W=w)
  Out=b <- dot(X=x, W=w)
  Out=c <- plus(X=a, Y=b)
  Out=l <- times(X=c, Y=a)
)");
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(r.backward,
            "Out=l@GRAD <- fill_like_batch(X=l) value=1.0 scalar_times_batch=false @BACKWARD\n"
            "Out=c@GRAD <- times(X=l@GRAD, Y=a) @BACKWARD\n"
            "Out=a@GRAD@1 <- times(X=l@GRAD, Y=c) @BACKWARD\n"
            "Out=a@GRAD@0 <- copy(X=c@GRAD) @BACKWARD\n"
            "Out=b@GRAD <- copy(X=c@GRAD) @BACKWARD\n"
            "Out=a@GRAD <- sum(X=[a@GRAD@0, a@GRAD@1]) @BACKWARD\n"
            "W@GRAD=w@GRAD@1 <- dot_grad(X=x, W=w, Out@GRAD=b@GRAD) @BACKWARD\n"
            "W@GRAD=w@GRAD@0 <- dot_grad(X=x, W=w, Out@GRAD=a@GRAD) @BACKWARD\n"
            "Out=w@GRAD <- sum(X=[w@GRAD@0, w@GRAD@1]) @BACKWARD grads(w=w@GRAD)\n");
}

TEST(AutodiffTest, OneVariableInTwoSlotsIsTwoUses) {
  const Result r = Differentiate("loss var: \"l\"", R"(
  Out=a <- dot(X=x, W=w)
  Out=l <- times(X=a, Y=a)
)");
  EXPECT_EQ(r.backward,
            "Out=l@GRAD <- fill_like_batch(X=l) value=1.0 scalar_times_batch=false @BACKWARD\n"
            "Out=a@GRAD@0 <- times(X=l@GRAD, Y=a) @BACKWARD\n"
            "Out=a@GRAD@1 <- times(X=l@GRAD, Y=a) @BACKWARD\n"
            "Out=a@GRAD <- sum(X=[a@GRAD@0, a@GRAD@1]) @BACKWARD\n"
            "W@GRAD=w@GRAD <- dot_grad(X=x, W=w, Out@GRAD=a@GRAD) @BACKWARD grads(w=w@GRAD)\n");
}

TEST(AutodiffTest, RowsStayRowsAndAreAddedAsRows) {
  const Result r = Differentiate("loss var: \"l\"", R"(
  Out=a <- gather(Ids=ids, W=e)
  Out=b <- gather(Ids=ids, W=e)
  Out=l <- plus(X=a, Y=b)
)");
  EXPECT_EQ(r.error, "");
  for (const char* name : {"e@GRAD", "e@GRAD@0", "e@GRAD@1"}) {
    EXPECT_EQ(FindVar(r.program, name)->kind(), v1::SELECTED_ROWS) << name;
    EXPECT_EQ(FindVar(r.program, name)->dims(1), 1) << name;
  }
}

TEST(AutodiffTest, GradientsStopWhereTheyAreTold) {
  const Result r = Differentiate("loss var: \"l\"", R"(
  Out=a <- dot(X=x, W=frozen)
  Out=b <- dot(X=x, W=v)
  Out=l <- plus(X=a, Y=b)
)");
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(r.backward,
            "Out=l@GRAD <- fill_like_batch(X=l) value=1.0 scalar_times_batch=false @BACKWARD\n"
            "Out=b@GRAD <- copy(X=l@GRAD) @BACKWARD\n"
            "W@GRAD=v@GRAD <- dot_grad(X=x, W=v, Out@GRAD=b@GRAD) @BACKWARD grads(v=v@GRAD)\n");
}

TEST(AutodiffTest, OpsThatNoLossNeedsGetNone) {
  const Result r = Differentiate("loss var: \"l\"", R"(
  Out=l <- dot(X=x, W=w)
  Out=a <- dot(X=x, W=v)
  Out=b <- half(X=a)
)");
  EXPECT_EQ(r.error, "");
  EXPECT_THAT(r.without, ElementsAre("e", "v", "weight"));
}

TEST(AutodiffTest, SeveralLossesAreAddedEachWithItsWeight) {
  const Result r = Differentiate("loss var: \"a\" weight: 2\nloss var: \"l\" weight: 3", R"(
  Out=a <- dot(X=x, W=w)
  Out=l <- times(X=a, Y=label)
)");
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(r.backward,
            "Out=a@GRAD@1 <- fill_like_batch(X=a) value=2.0 scalar_times_batch=false @BACKWARD\n"
            "Out=l@GRAD <- fill_like_batch(X=l) value=3.0 scalar_times_batch=false @BACKWARD\n"
            "Out=a@GRAD@0 <- times(X=l@GRAD, Y=label) @BACKWARD\n"
            "Out=a@GRAD <- sum(X=[a@GRAD@0, a@GRAD@1]) @BACKWARD\n"
            "W@GRAD=w@GRAD <- dot_grad(X=x, W=w, Out@GRAD=a@GRAD) @BACKWARD grads(w=w@GRAD)\n");
}

TEST(AutodiffTest, AMeanIsSeededWithTheNumberOfSamples) {
  const Result r = Differentiate("loss var: \"m\"", R"(
  Out=l <- dot(X=x, W=w)
  Out=m <- average(X=l)
)");
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(r.backward,
            "Out=m@GRAD <- fill_like_batch(X=m) value=1.0 scalar_times_batch=true @BACKWARD\n"
            "Out=l@GRAD <- average_grad(X=l, Out@GRAD=m@GRAD) @BACKWARD\n"
            "W@GRAD=w@GRAD <- dot_grad(X=x, W=w, Out@GRAD=l@GRAD) @BACKWARD grads(w=w@GRAD)\n");
}

TEST(AutodiffTest, TermsWithoutDataAreAllowedInAWeightedSum) {
  const Result r = Differentiate("loss var: \"s\"", R"(
  Out=l <- dot(X=x, W=w)
  Out=m <- average(X=l)
  Out=s <- plus(X=m, Y=weight)
)");
  EXPECT_EQ(r.error, "");
  EXPECT_EQ(FindVar(r.program, "weight@GRAD")->dims_size(), 0);
}

TEST(AutodiffTest, OtherLossesAreRefusedByName) {
  const std::string rest = "; a loss is [B, 1], the mean of one, or a weighted sum of such";
  EXPECT_EQ(Differentiate("loss name: \"ctr\" var: \"x\"", "").error,
            "loss 'ctr': variable 'x' is float32 [-1, 4]" + rest);
  EXPECT_EQ(Differentiate("loss var: \"s\"", R"(
  Out=l <- dot(X=x, W=w)
  Out=m <- average(X=l)
  Out=s <- times(X=m, Y=m)
)")
                .error,
            "loss 's': scalar 's' is made by block 0, op 2 (times)" + rest);
  EXPECT_EQ(Differentiate("loss var: \"m\"", "  Out=m <- average(X=x)\n").error,
            "loss 'm': scalar 'm' is made by block 0, op 0 (average) from 'x', float32 [-1, 4]" + rest);
  EXPECT_EQ(Differentiate("loss var: \"nobody\"", "").error, "loss 'nobody': variable 'nobody' is not declared");
  EXPECT_EQ(Differentiate("loss var: \"label\"", "").error,
            "loss 'label': variable 'label' depends on no trainable parameter");
  EXPECT_EQ(Differentiate("", "").error, "the program has no loss to differentiate");
}

TEST(AutodiffTest, AnOpWithoutGradientOnTheWayIsRefusedByName) {
  EXPECT_EQ(
      Differentiate("loss var: \"l\"", R"(
  Out=a <- dot(X=x, W=w)
  Out=l <- half(X=a)
)")
          .error,
      "block 0, op 1 (half): this op has no gradient, and a loss depends on a parameter through it; set stop_gradient "
      "on its output");
}

TEST(AutodiffTest, AVariableWrittenTwiceIsRefused) {
  EXPECT_EQ(Differentiate("loss var: \"l\"", R"(
  Out=l <- dot(X=x, W=w)
  Out=l <- dot(X=x, W=v)
)")
                .error,
            "block 0, op 1 (dot): variable 'l' is written by 2 ops; a gradient needs one");
}

TEST(AutodiffTest, ASecondTimeIsRefused) {
  Result r = Differentiate("loss var: \"l\"", "  Out=l <- dot(X=x, W=w)\n");
  EXPECT_EQ(AppendBackward(&r.program).code(), absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace weir
