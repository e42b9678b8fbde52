// Gradients whose products run at the same time (OpDef.apart): the bits are those of one operator after the other.
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/thread_pool.h"
#include "framework/graph/autodiff.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/program_text.h"
#include "framework/graph/verifier.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

// A convolution with more filters than taps and one with fewer, layers with and without bias and activation, a product.
constexpr char kModel[] = R"(weir program
loss var: "l"
block 0 parent -1 {
  var x [-1, 1, 8, 8] stop_gradient: true
  var label [-1, 1] stop_gradient: true
  var k0 [12, 1, 3, 3] persistable: true is_parameter: true
  var c0 [12] persistable: true is_parameter: true
  var k1 [5, 12, 3, 3] persistable: true is_parameter: true
  var w0 [80, 24] persistable: true is_parameter: true
  var b0 [24] persistable: true is_parameter: true
  var w1 [24, 16] persistable: true is_parameter: true
  var w2 [16, 1] persistable: true is_parameter: true
  var f0 [-1, 12, 6, 6]
  var f1 [-1, 5, 4, 4]
  var h0 [-1, 24]
  var h1 [-1, 16]
  var y [-1, 1]
  var l [-1, 1]
  Out=f0 <- conv2d(X=x, W=k0, Bias=c0) stride=[1, 1] padding=[0, 0] activation="relu"
  Out=f1 <- conv2d(X=f0, W=k1) stride=[1, 1] padding=[0, 0] activation="tanh"
  Out=h0 <- fc(X=f1, W=w0, Bias=b0) activation="relu"
  Out=h1 <- fc(X=h0, W=w1) activation="identity"
  Out=y <- mul(X=h1, Y=w2)
  Out=l <- square_error(X=y, Label=label)
}
)";

const std::vector<std::string> kParameters = {"k0", "c0", "k1", "w0", "b0", "w1", "w2"};

Tensor Values(absl::Span<const int64_t> dims, int salt) {
  Tensor t(v1::FLOAT32, dims);
  for (int64_t i = 0; i < t.size(); ++i)
    t.data<float>()[i] = static_cast<float>(std::sin(1.7 * static_cast<double>(i) + salt));
  return t;
}

TEST(ApartTest, TheBitsAreThoseOfOneOperatorAfterTheOther) {
  absl::StatusOr<v1::ProgramDesc> program = ParseProgramText(kModel, "x.program");
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_TRUE(AppendBackward(&*program).ok());
  ASSERT_TRUE(VerifyProgram(*program).ok()) << VerifyProgram(*program);
  int apart = 0;
  for (const v1::OpDesc& op : program->blocks(0).ops()) {
    if (!OpRegistry::Global().Find(op.type())->apart.empty()) ++apart;
  }
  EXPECT_EQ(apart, 5);
  Scope scope;
  const absl::StatusOr<std::unique_ptr<Executor>> made = Executor::Create(*program, &scope, {});
  ASSERT_TRUE(made.ok()) << made.status();
  Executor& executor = **made;
  std::vector<std::vector<uint32_t>> want;
  for (const int threads : {0, 1, 3}) {
    ThreadPool pool("test", threads);
    std::vector<std::vector<uint32_t>> got;
    for (const int64_t batch : {7, 33, 1, 0}) {
      for (size_t p = 0; p < kParameters.size(); ++p) {
        for (const v1::VarDesc& var : program->blocks(0).vars()) {
          if (var.name() != kParameters[p]) continue;
          *scope.FindOrCreate(var.name()) =
              Values(std::vector<int64_t>(var.dims().begin(), var.dims().end()), static_cast<int>(p));
        }
      }
      *executor.Find(0, "x") = Values({batch, 1, 8, 8}, 11);
      *executor.Find(0, "label") = Values({batch, 1}, 12);
      StepContext context;
      if (threads > 0) context.pool = &pool;
      const absl::Status status = executor.Run(context, {batch});
      ASSERT_TRUE(status.ok()) << status;
      for (const std::string& name : kParameters) {
        std::vector<uint32_t>& bits = got.emplace_back();
        for (const float g : std::get<Tensor>(*executor.Find(0, name + "@GRAD")).span<float>()) {
          bits.push_back(std::bit_cast<uint32_t>(g));
        }
        EXPECT_FALSE(bits.empty()) << name;
      }
    }
    if (want.empty()) want = got;
    EXPECT_EQ(got, want) << threads << " threads";
  }
}

}  // namespace
}  // namespace weir
