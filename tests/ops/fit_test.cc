// Inputs that do not belong together are refused: by the verifier where descriptions tell, else by the kernel when it
// runs.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "x [-1, 4]" is fed; "> y [-1, 4]" is made by the op.
v1::ProgramDesc Program(const std::vector<std::string>& vars, const std::string& op) {
  std::string text = "weir program\nblock 0 parent -1 {\n";
  for (const std::string& var : vars) {
    const bool made = var[0] == '>';
    absl::StrAppend(&text, "  var ", made ? var.substr(2) : absl::StrCat(var, " stop_gradient: true"), "\n");
  }
  const auto program = ParseProgramText(text + "  " + op + "\n}", "x.program");
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

std::string Refusal(const std::vector<std::string>& vars, const std::string& op) {
  return std::string(VerifyProgram(Program(vars, op)).message());
}

// A program of one op on one lane.
struct Rig {
  Scope scope;
  std::unique_ptr<Executor> executor;

  Rig(const std::vector<std::string>& vars, const std::string& op) {
    const v1::ProgramDesc program = Program(vars, op);
    EXPECT_TRUE(VerifyProgram(program).ok()) << VerifyProgram(program);
    auto made = Executor::Create(program, &scope, {});
    EXPECT_TRUE(made.ok()) << made.status();
    executor = *std::move(made);
  }
  // Elements count up from 1.
  Rig& Feed(const std::string& name, std::vector<int64_t> dims, DType dtype = v1::FLOAT32) {
    Tensor tensor(dtype, dims);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (dtype == v1::FLOAT32) tensor.data<float>()[i] = static_cast<float>(i + 1);
      if (dtype == v1::INT64) tensor.data<int64_t>()[i] = 0;
    }
    *executor->Find(0, name) = std::move(tensor);
    return *this;
  }
  absl::Status Run() {
    const int64_t batch = 2;
    return executor->Run(StepContext(), absl::MakeConstSpan(&batch, 1));
  }
  std::vector<float> Value(const std::string& name) {
    const Tensor& t = std::get<Tensor>(*executor->Find(0, name));
    return {t.span<float>().begin(), t.span<float>().end()};
  }
};

TEST(FitTest, PiecesAreCutAlongAnAxisThatCountsFromTheEnd) {
  Rig cut({"g [-1, 4]", "> a [-1, 1]", "> b [-1, 3]"},
          "X@GRAD=[a, b] <- concat_grad(Out@GRAD=g) axis=-1 sections=[1, 3] wanted=[0, 1]");
  ASSERT_TRUE(cut.Feed("g", {2, 4}).Run().ok());
  EXPECT_THAT(cut.Value("a"), ElementsAre(1, 5));
  EXPECT_THAT(cut.Value("b"), ElementsAre(2, 3, 4, 6, 7, 8));
  Rig join({"a [-1, 1]", "b [-1, 2]", "> x [-1, 3]"},
           "X@GRAD=x <- split_grad(Out@GRAD=[a, b]) axis=-1 sections=[1, 2] present=[0, 1]");
  ASSERT_TRUE(join.Feed("a", {2, 1}).Feed("b", {2, 2}).Run().ok());
  EXPECT_THAT(join.Value("x"), ElementsAre(1, 1, 2, 2, 3, 4));
}

TEST(FitTest, SectionsOfASplitAreSizesThatAddUp) {
  const auto refusal = [](const std::string& attrs, const std::string& b = "b [-1, 2]") {
    return Refusal({"a [-1, 1]", b, "> x [-1, 3]"}, "X@GRAD=x <- split_grad(Out@GRAD=[a, b]) " + attrs);
  };
  EXPECT_EQ(refusal("axis=1 sections=[1, 2] present=[0, 1]"), "");
  EXPECT_THAT(refusal("axis=1 sections=[1, 2, -1] present=[0, 1]"), HasSubstr("negative or too large"));
  EXPECT_THAT(refusal("axis=1 sections=[1, 2, 9223372036854775807] present=[0, 1]"),
              HasSubstr("negative or too large"));
  EXPECT_THAT(refusal("axis=1 sections=[1, 2] present=[0, 0]"), HasSubstr("do not fit to the gradients"));
  EXPECT_THAT(refusal("axis=1 sections=[1, 2] present=[0, 1]", "b [8, 2]"), HasSubstr("do not fit to the gradients"));
  EXPECT_THAT(refusal("axis=1 sections=[1, 2] present=[0, 1]", "b [-1, 2, 1]"),
              HasSubstr("do not fit to the gradients"));
}

// A gradient op that fits, one of whose inputs is then declared otherwise.
struct Wrong {
  const char* what;
  std::vector<std::string> vars;
  const char* op;
  const char* from;
  const char* to;
  const char* message;
};

class WrongInputTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongInputTest, IsRefusedByTheVerifier) {
  const Wrong& wrong = GetParam();
  EXPECT_EQ(Refusal(wrong.vars, wrong.op), "");
  std::vector<std::string> vars = wrong.vars;
  int changed = 0;
  for (std::string& var : vars) changed += absl::StrReplaceAll({{wrong.from, wrong.to}}, &var);
  EXPECT_EQ(changed, 1);
  EXPECT_THAT(Refusal(vars, wrong.op), HasSubstr(wrong.message));
}

const std::vector<std::string> kUnary = {"y [-1, 4]", "g [-1, 4]", "> d [-1, 4]"};
const std::vector<std::string> kColumns = {"x [-1, 1]", "l [-1, 1]", "w [-1, 1]", "g [-1, 1]", "> d [-1, 1]"};
const std::vector<std::string> kProduct = {"x [-1, 4]", "w [4, 2]", "b [2]", "o [-1, 2]", "g [-1, 2]", "> d [-1, 4]"};
constexpr char kFcGrad[] = "X@GRAD=d <- fc_grad(X=x, W=w, Bias=b, Out=o, Out@GRAD=g)";
const std::vector<std::string> kUpdate = {"p [4] persistable: true", "g [4]", "r [1] persistable: true"};
constexpr char kSgd[] = "ParamOut=p <- sgd(Param=p, Grad=g, LearningRate=r)";

INSTANTIATE_TEST_SUITE_P(
    Operators, WrongInputTest,
    ::testing::Values(
        Wrong{"Relu", kUnary, "X@GRAD=d <- relu_grad(Out=y, Out@GRAD=g)", "y [-1, 4]", "y [-1, 2]",
              "relu_grad: Out@GRAD must be [-1, 2], got [-1, 4] (variable g)"},
        Wrong{"ReluOfIntegers", kUnary, "X@GRAD=d <- relu_grad(Out=y, Out@GRAD=g)", "y [-1, 4]", "y int64 [-1, 4]",
              "relu_grad: Out must be FLOAT32, got INT64"},
        Wrong{"Square", kUnary, "X@GRAD=d <- square_grad(X=y, Out@GRAD=g)", "y [-1, 4]", "y [4, 4]", "must be [4, 4]"},
        Wrong{"Dropout", kUnary, "X@GRAD=d <- dropout_grad(Mask=y, Out@GRAD=g)", "y [-1, 4]", "y [-1, 1]",
              "must be [-1, 1]"},
        Wrong{"Softmax", kUnary, "X@GRAD=d <- softmax_grad(Out=y, Out@GRAD=g)", "y [-1, 4]", "y [-1, 5]",
              "must be [-1, 5]"},
        Wrong{"Reshape",
              {"x [-1, 2, 2]", "g [-1, 4]", "> d [-1, 2, 2]"},
              "X@GRAD=d <- reshape_grad(X=x, Out@GRAD=g)",
              "g [-1, 4]",
              "g [-1, 3]",
              "they must hold the same elements"},
        Wrong{"ReduceSum",
              {"x [-1, 4]", "g [-1]", "> d [-1, 4]"},
              "X@GRAD=d <- reduce_sum_grad(X=x, Out@GRAD=g)",
              "g [-1]",
              "g [-1, 1]",
              "reduce_sum_grad: Out@GRAD must be [-1], got [-1, 1]"},
        Wrong{"Mean",
              {"x [-1, 4]", "g []", "> d [-1, 4]"},
              "X@GRAD=d <- mean_grad(X=x, Out@GRAD=g)",
              "g []",
              "g [0]",
              "mean_grad: Out@GRAD must be [], got [0]"},
        Wrong{"ElementwiseGradient",
              {"x [-1, 4]", "y [4]", "g [-1, 4]", "> d [-1, 4]"},
              "X@GRAD=d <- elementwise_mul_grad(X=x, Y=y, Out@GRAD=g)",
              "g [-1, 4]",
              "g [-1, 1]",
              "Out@GRAD must be [-1, 4]"},
        Wrong{"ElementwiseY",
              {"x [-1, 4]", "y [4]", "g [-1, 4]", "> d [-1, 4]"},
              "X@GRAD=d <- elementwise_mul_grad(X=x, Y=y, Out@GRAD=g)",
              "y [4]",
              "y [3]",
              "Y [3] from axis 1 on"},
        Wrong{"ElementwiseIntegers",
              {"x [-1, 4]", "y [4]", "g [-1, 4]", "> d [-1, 4]"},
              "X@GRAD=d <- elementwise_add_grad(X=x, Y=y, Out@GRAD=g)",
              "y [4]",
              "y int32 [4]",
              "Y must be FLOAT32, got INT32"},
        Wrong{"LogLossLabel", kColumns,
              "Predicted@GRAD=d <- log_loss_grad(Predicted=x, Label=l, Weight=w, Loss@GRAD=g)", "l [-1, 1]", "l [4, 1]",
              "Label must be [-1, 1], got [4, 1]"},
        Wrong{"SigmoidWeight", kColumns,
              "X@GRAD=d <- sigmoid_cross_entropy_with_logits_grad(X=x, Label=l, Weight=w, Out@GRAD=g)", "w [-1, 1]",
              "w [1, 1]", "Weight must be [-1, 1], got [1, 1]"},
        Wrong{"SquareErrorGradient", kColumns, "X@GRAD=d <- square_error_grad(X=x, Label=l, Weight=w, Out@GRAD=g)",
              "g [-1, 1]", "g []", "Out@GRAD must be [-1, 1], got []"},
        Wrong{"ForwardWeight",
              {"x [-1, 1]", "l [-1, 1]", "w [-1, 1]", "> d [-1, 1]"},
              "Out=d <- square_error(X=x, Label=l, Weight=w)",
              "w [-1, 1]",
              "w [4, 1]",
              "Weight must be [-1, 1], got [4, 1]"},
        Wrong{"SoftmaxLoss",
              {"l int64 [-1, 1]", "s [-1, 3]", "g [-1, 1]", "> d [-1, 3]"},
              "Logits@GRAD=d <- softmax_with_cross_entropy_grad(Label=l, Softmax=s, Loss@GRAD=g)",
              "l int64 [-1, 1]",
              "l int64 [4, 1]",
              "Label must be [-1, 1], one class per example, got [4, 1]"},
        Wrong{"SoftmaxLossGradient",
              {"l int64 [-1, 1]", "s [-1, 3]", "g [-1, 1]", "> d [-1, 3]"},
              "Logits@GRAD=d <- softmax_with_cross_entropy_grad(Label=l, Softmax=s, Loss@GRAD=g)",
              "g [-1, 1]",
              "g [-1, 3]",
              "Loss@GRAD must be [-1, 1], got [-1, 3]"},
        Wrong{"FcOut", kProduct, kFcGrad, "o [-1, 2]", "o [4, 2]", "fc_grad: Out must be [-1, 2], got [4, 2]"},
        Wrong{"FcType", kProduct, kFcGrad, "x [-1, 4]", "x float64 [-1, 4]", "fc_grad: X must be FLOAT32, got FLOAT64"},
        Wrong{"FcBias", kProduct, kFcGrad, "b [2]", "b [3]", "fc_grad: Bias must be [2], got [3]"},
        Wrong{"MulType",
              {"x [-1, 4]", "w [4, 2]", "g [-1, 2]", "> d [-1, 4]"},
              "X@GRAD=d <- mul_grad(X=x, Y=w, Out@GRAD=g)",
              "g [-1, 2]",
              "g bool [-1, 2]",
              "Out@GRAD must be FLOAT32, got BOOL"},
        Wrong{"FmSum",
              {"x [-1, 2, 3]", "s [-1, 3]", "g [-1, 1]", "> d [-1, 2, 3]"},
              "X@GRAD=d <- fm_interaction_grad(X=x, Sum=s, Out@GRAD=g)",
              "s [-1, 3]",
              "s [-1, 2]",
              "Sum must be [-1, 3]"},
        Wrong{"ConcatOfABatchAndANumber",
              {"x [-1, 2]", "y [-1, 3]", "> d [-1, 5]"},
              "Out=d <- concat(X=[x, y])",
              "y [-1, 3]",
              "y [4, 3]",
              "they may differ only along axis 1"},
        Wrong{"SumOfABatchAndANumber",
              {"x [-1, 2]", "y [-1, 2]", "> d [-1, 2]"},
              "Out=d <- sum(X=[x, y])",
              "y [-1, 2]",
              "y [4, 2]",
              "they must be the same"},
        Wrong{"Auc",
              {"p [-1, 1]", "l [-1, 1]", "a int64 [4]", "b int64 [4]", "> c int64 [4]", "> d int64 [4]"},
              "StatPosOut=c, StatNegOut=d <- auc(Predict=p, Label=l, StatPos=a, StatNeg=b) buckets=4",
              "a int64 [4]",
              "a int64 [-1]",
              "StatPos must be [4], one count per bucket, got [-1]"},
        Wrong{"Accuracy",
              {"o [-1, 3]", "l [-1, 1]", "> c int64 [1]", "> t int64 [1]"},
              "Correct=c, Total=t <- accuracy(Out=o, Label=l)",
              "l [-1, 1]",
              "l [4, 1]",
              "Label must be [-1, 1], one class per example, got [4, 1]"},
        Wrong{"UpdateByIntegers", kUpdate, kSgd, "g [4]", "g int64 [4]", "Grad must be FLOAT32, got INT64"},
        Wrong{"RateOfIntegers", kUpdate, kSgd, "r [1]", "r int64 [1]", "LearningRate must be FLOAT32, got INT64"}),
    [](const ::testing::TestParamInfo<Wrong>& info) { return info.param.what; });

// -1 stands for the examples of the lane. Where it does not (places of ids, say), sizes are known only when the op
// runs.
TEST(FitTest, KernelsRefuseWhatDescriptionsCannotTell) {
  const auto error = [](Rig& rig) { return std::string(rig.Run().message()); };
  Rig weight({"x [-1, 1]", "l [-1, 1]", "w [-1, 1]", "> d [-1, 1]"}, "Out=d <- square_error(X=x, Label=l, Weight=w)");
  EXPECT_EQ(error(weight.Feed("x", {2, 1}).Feed("l", {2, 1}).Feed("w", {2, 1})), "");
  EXPECT_THAT(error(weight.Feed("w", {1, 1})), HasSubstr("Weight must be [2, 1], got [1, 1]"));
  EXPECT_THAT(error(weight.Feed("w", {2, 1}).Feed("l", {1, 1})), HasSubstr("Label must be [2, 1], got [1, 1]"));
  EXPECT_THAT(error(weight.Feed("l", {2, 1}, v1::INT64)), HasSubstr("Label is INT64, expected FLOAT32"));

  Rig classes({"x [-1, 3]", "l int64 [-1, 1]", "> s [-1, 3]", "> d [-1, 1]"},
              "Softmax=s, Loss=d <- softmax_with_cross_entropy(Logits=x, Label=l)");
  EXPECT_EQ(error(classes.Feed("x", {2, 3}).Feed("l", {2, 1}, v1::INT64)), "");
  EXPECT_THAT(error(classes.Feed("l", {1, 1}, v1::INT64)), HasSubstr("Label must be [2, 1], got [1, 1]"));

  Rig joined({"x [-1, 2]", "y [-1, 1]", "> d [-1, 3]"}, "Out=d <- concat(X=[x, y])");
  EXPECT_EQ(error(joined.Feed("x", {2, 2}).Feed("y", {2, 1})), "");
  EXPECT_THAT(error(joined.Feed("y", {1, 1})), HasSubstr("X[1] must be [2, 1], got [1, 1]"));

  Rig counts({"p [-1, 1]", "l [-1, 1]", "a int64 [4]", "b int64 [4]", "> c int64 [4]", "> d int64 [4]"},
             "StatPosOut=c, StatNegOut=d <- auc(Predict=p, Label=l, StatPos=a, StatNeg=b) buckets=4");
  counts.Feed("p", {1, 1}).Feed("l", {1, 1}).Feed("a", {4}, v1::INT64).Feed("b", {4}, v1::INT64);
  EXPECT_EQ(error(counts), "");
  EXPECT_THAT(error(counts.Feed("a", {2}, v1::INT64)), HasSubstr("StatPos must be [4], got [2]"));

  Rig product({"x [-1, 4]", "w [4, 2]", "> d [-1, 2]"}, "Out=d <- fc(X=x, W=w)");
  EXPECT_EQ(error(product.Feed("x", {2, 4}).Feed("w", {4, 2})), "");
  EXPECT_THAT(error(product.Feed("x", {2, 3})), HasSubstr("X [2, 3] cannot be multiplied by W [4, 2]"));
}

TEST(FitTest, AVariableBeyondTheMachinesMemoryIsNamed) {
  Rig fill({"> w [1099511627776, 64] persistable: true"}, "Out=w <- fill_constant() shape=[1099511627776, 64]");
  EXPECT_EQ(fill.Run().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(fill.Run().message()),
              HasSubstr("variable 'w' of dims [1099511627776, 64] needs 281474976710656 bytes"));
  Rig random({"> w [1099511627776, 64] persistable: true"},
             "Out=w <- uniform_random() shape=[1099511627776, 64] min=0.0 max=1.0 variable=\"w\"");
  EXPECT_EQ(random.Run().code(), absl::StatusCode::kResourceExhausted);
}

// Counts come from state that people may set.
TEST(FitTest, ACountOfUpdatesBelowZeroReadsNoTable) {
  Rig adam({"p [1] persistable: true", "g [1]", "r [1] persistable: true", "m [1] persistable: true",
            "v [1] persistable: true", "t [1] persistable: true"},
           "ParamOut=p, Moment1Out=m, Moment2Out=v, StepOut=t <- adam(Param=p, Grad=g, LearningRate=r, Moment1=m, "
           "Moment2=v, Step=t)");
  for (const char* name : {"p", "g", "r", "m", "v", "t"}) adam.Feed(name, {1});
  std::get<Tensor>(*adam.executor->Find(0, "t")).data<float>()[0] = -1e9f;
  EXPECT_TRUE(adam.Run().ok());
}

}  // namespace
}  // namespace weir
