// append_backward over real operators: what the executor computes is the derivative of the summed loss.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "framework/graph/autodiff.h"
#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr int kBatch = 5;

// Two layers that share the input, a path that meets itself again, a pooled embedding, and what `ops` adds.
std::string Model(const std::string& losses, const std::string& ops) {
  return "weir program\n" + losses + R"(
block 0 parent -1 {
  var x [-1, 3] stop_gradient: true
  var label [-1, 1] stop_gradient: true
  var ids ids int64 [-1, 2] stop_gradient: true
  var w0 [3, 4] persistable: true is_parameter: true
  var b0 [4] persistable: true is_parameter: true
  var w1 [6, 1] persistable: true is_parameter: true
  var e [10, 2] persistable: true is_parameter: true
  var h [-1, 4]
  var p [-1, 2]
  var j [-1, 6]
  var hh [-1, 4]
  var y [-1, 1]
  var l [-1, 1]
  var m []
  var r []
  var half []
  var s []
  Out=h <- fc(X=x, W=w0, Bias=b0) activation="tanh"
  Out=hh <- elementwise_mul(X=h, Y=h)
  Out=p <- lookup_table(Ids=ids, W=e) pooling="sum"
  Out=j <- concat(X=[hh, p]) axis=1
  Out=y <- mul(X=j, Y=w1)
  Out=l <- square_error(X=y, Label=label)
)" + ops +
         "}\n";
}

class TrainedModel {
 public:
  explicit TrainedModel(const std::string& text) {
    auto program = ParseProgramText(text, "x.program");
    EXPECT_TRUE(program.ok()) << program.status();
    const absl::Status status = AppendBackward(&*program);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(VerifyProgram(*program).ok()) << VerifyProgram(*program) << ProgramText(*program);
    auto executor = Executor::Create(*program, &scope_, {});
    EXPECT_TRUE(executor.ok()) << executor.status();
    executor_ = *std::move(executor);
    Set("w0", {3, 4}, 1);
    Set("b0", {4}, 2);
    Set("w1", {6, 1}, 3);
    Set("e", {10, 2}, 4);
    *executor_->Find(0, "x") = Values({kBatch, 3}, 5);
    *executor_->Find(0, "label") = Values({kBatch, 1}, 6);
    IdBatch ids;
    ids.slots = 2;
    ids.offsets = {0};
    for (int i = 0; i < 2 * kBatch; ++i) {
      ids.values.push_back(i * 7 % 10);
      ids.offsets.push_back(i + 1);
    }
    *executor_->Find(0, "ids") = ids;
  }

  void Run() {
    const int64_t batch = kBatch;
    const absl::Status status = executor_->Run(StepContext(), absl::MakeConstSpan(&batch, 1));
    ASSERT_TRUE(status.ok()) << status;
  }
  Tensor& At(const std::string& name) { return std::get<Tensor>(*executor_->Find(0, name)); }
  std::vector<float> Value(const std::string& name) {
    return {At(name).span<float>().begin(), At(name).span<float>().end()};
  }

 private:
  static Tensor Values(std::vector<int64_t> dims, int salt) {
    Tensor t(v1::FLOAT32, dims);
    for (int64_t i = 0; i < t.size(); ++i)
      t.data<float>()[i] = static_cast<float>(std::sin(1.7 * static_cast<double>(i) + salt));
    return t;
  }
  void Set(const std::string& name, std::vector<int64_t> dims, int salt) {
    *scope_.FindOrCreate(name) = Values(dims, salt);
  }

  Scope scope_;
  std::unique_ptr<Executor> executor_;
};

TEST(BackwardTest, GradientsAreThoseOfTheSummedLoss) {
  TrainedModel model(Model("loss var: \"l\"", ""));
  for (const char* name : {"w0", "b0", "w1", "e"}) {
    model.Run();
    const std::vector<float> gradient = model.Value(std::string(name) + "@GRAD");
    for (size_t i = 0; i < gradient.size(); ++i) {
      double sums[2];
      const float before = model.At(name).data<float>()[i];
      for (int side : {0, 1}) {
        model.At(name).data<float>()[i] = before + (side == 0 ? -1e-2f : 1e-2f);
        model.Run();
        sums[side] = 0;
        for (float l : model.Value("l")) sums[side] += l;
      }
      model.At(name).data<float>()[i] = before;
      EXPECT_NEAR(gradient[i], (sums[1] - sums[0]) / 2e-2, 5e-3 + 5e-3 * std::abs(gradient[i])) << name << " " << i;
    }
  }
}

// The views that cut a gradient for the servers do not cost it its memory in the next step.
TEST(BackwardTest, AGradientThatIsCutIsWrittenInPlaceInEveryStep) {
  const auto program = ParseProgramText(R"(weir program
block 0 parent -1 {
  var x [12] stop_gradient: true
  var g [12]
  var g.block0 [8]
  var g.block1 [4]
  Out=g <- scale(X=x) scale=2.0
  Out=[g.block0, g.block1] <- split_byref(X=g) sections=[8, 4] @DIST
})",
                                        "x.program");
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_TRUE(VerifyProgram(*program).ok()) << VerifyProgram(*program);
  Scope scope;
  const auto executor = Executor::Create(*program, &scope, {});
  ASSERT_TRUE(executor.ok()) << executor.status();
  std::get<Tensor>(*(*executor)->Find(0, "x")) = Tensor(v1::FLOAT32, {12});
  const void* memory = nullptr;
  for (int step = 0; step < 3; ++step) {
    std::get<Tensor>(*(*executor)->Find(0, "x")).data<float>()[9] = static_cast<float>(step);
    const int64_t batch = 1;
    ASSERT_TRUE((*executor)->Run(StepContext(), absl::MakeConstSpan(&batch, 1)).ok());
    const Tensor& g = std::get<Tensor>(*(*executor)->Find(0, "g"));
    if (step > 0) {
      EXPECT_EQ(g.raw(), memory);
    }
    memory = g.raw();
    EXPECT_EQ(std::get<Tensor>(*(*executor)->Find(0, "g.block1")).data<float>()[1], 2.0f * static_cast<float>(step));
  }
}

// A mean is seeded with the number of samples and divides by it again: the same bits as the losses by themselves.
TEST(BackwardTest, TheMeanOfALossGivesTheGradientsOfTheLoss) {
  TrainedModel plain(Model("loss var: \"l\"", ""));
  TrainedModel mean(Model("loss var: \"m\"", "  Out=m <- mean(X=l)\n"));
  // 0.5 * mean + 0.5 * mean, through scale and sum.
  TrainedModel weighted(Model("loss var: \"s\"", R"(  Out=m <- mean(X=l)
  Out=half <- scale(X=m) scale=0.5
  Out=s <- sum(X=[half, half])
)"));
  plain.Run();
  mean.Run();
  weighted.Run();
  for (const char* name : {"w0@GRAD", "b0@GRAD", "w1@GRAD", "e@GRAD"}) {
    EXPECT_EQ(plain.Value(name), mean.Value(name)) << name;
    EXPECT_EQ(plain.Value(name), weighted.Value(name)) << name;
  }
}

}  // namespace
}  // namespace weir
