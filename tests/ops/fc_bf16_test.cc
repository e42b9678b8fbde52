// fc in bfloat16, whose lanes share packed weights: the bits are those of the products by themselves.
#include <bit>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/autodiff.h"
#include "framework/graph/program_text.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/gemm.h"
#include "ops/gemm_bf16.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

constexpr char kModel[] = R"(weir program
loss var: "l"
block 0 parent -1 {
  var x [-1, 37] stop_gradient: true
  var label [-1, 1] stop_gradient: true
  var w0 [37, 20] persistable: true is_parameter: true
  var b0 [20] persistable: true is_parameter: true
  var w1 [20, 1] persistable: true is_parameter: true
  var h [-1, 20]
  var y [-1, 1]
  var l [-1, 1]
  Out=h <- fc(X=x, W=w0, Bias=b0) activation="relu"
  Out=y <- fc(X=h, W=w1) activation="identity"
  Out=l <- square_error(X=y, Label=label)
}
)";

Tensor Numbers(uint64_t key, const Shape& dims) {
  Tensor t(v1::FLOAT32, dims);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = UniformFloat(Philox(key, static_cast<uint64_t>(i), 0).v[0]) - 0.5f;
  }
  return t;
}

std::vector<uint32_t> Bits(const Tensor& t) {
  std::vector<uint32_t> bits;
  for (const float value : t.span<float>()) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// Computes op(a) * op(b) [m, n].
Tensor Product(int64_t m, int64_t n, int64_t k, const Tensor& a, const Tensor& b, GemmOptions options) {
  Tensor c(v1::FLOAT32, {m, n});
  options.precision = ProductPrecision::kBf16;
  Gemm(m, n, k, a.data<float>(), b.data<float>(), c.data<float>(), options);
  return c;
}

class FcBf16Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasBf16Unit(Bf16Unit::kAvx512)) GTEST_SKIP() << "this processor has no products in bfloat16";
  }
};

// Lanes of a job that runs kModel.
struct Lanes {
  static constexpr int64_t kBatch[] = {33, 0, 1, 40, 16, 32};
  static constexpr int kCount = 6;
  v1::ProgramDesc program;
  Scope scope;
  std::unique_ptr<Executor> executor;

  Lanes() {
    program = *ParseProgramText(kModel, "x.program");
    CHECK(AppendBackward(&program).ok());
    executor = *Executor::Create(
        program, &scope, {.lanes = kCount, .fetch = {"h", "h@GRAD", "y@GRAD", "w0@GRAD", "b0@GRAD", "w1@GRAD"}});
  }

  const Tensor& Value(int lane, std::string_view name) { return std::get<Tensor>(*executor->Find(lane, name)); }

  absl::Status Run(uint64_t key, ThreadPool* pool) {
    *scope.FindOrCreate("w0") = Numbers(key, {37, 20});
    *scope.FindOrCreate("b0") = Numbers(key + 1, {20});
    *scope.FindOrCreate("w1") = Numbers(key + 2, {20, 1});
    for (int lane = 0; lane < kCount; ++lane) {
      *executor->Find(lane, "x") = Numbers(key + 3 + static_cast<uint64_t>(lane), {kBatch[lane], 37});
      *executor->Find(lane, "label") = Numbers(key + 4, {kBatch[lane], 1});
    }
    StepContext context;
    context.pool = pool;
    context.precision = ProductPrecision::kBf16;
    return executor->Run(context, kBatch);
  }

  void ExpectBitsOfProducts(int lane) {
    const int64_t rows = kBatch[lane];
    const Tensor &x = Value(lane, "x"), &w0 = Value(lane, "w0"), &b0 = Value(lane, "b0"), &w1 = Value(lane, "w1");
    Tensor h = Product(rows, 20, 37, x, w0, {});
    for (int64_t i = 0; i < h.size(); ++i) {
      const float sum = h.data<float>()[i] + b0.data<float>()[i % 20];
      h.data<float>()[i] = sum < 0 ? 0 : sum;
    }
    EXPECT_EQ(Bits(Value(lane, "h")), Bits(h));
    const Tensor& dy = Value(lane, "y@GRAD");
    EXPECT_EQ(Bits(Value(lane, "w1@GRAD")), Bits(Product(20, 1, rows, h, dy, {.transpose_a = true})));
    const Tensor dh = Product(rows, 20, 1, dy, w1, {.transpose_b = true});
    EXPECT_EQ(Bits(Value(lane, "h@GRAD")), Bits(dh));
    Tensor dpre(v1::FLOAT32, dh.dims()), db(v1::FLOAT32, {20});
    for (float& sum : db.span<float>()) sum = 0;
    for (int64_t i = 0; i < dh.size(); ++i) {
      dpre.data<float>()[i] = h.data<float>()[i] > 0 ? dh.data<float>()[i] : 0;
      db.data<float>()[i % 20] += dpre.data<float>()[i];
    }
    EXPECT_EQ(Bits(Value(lane, "b0@GRAD")), Bits(db));
    EXPECT_EQ(Bits(Value(lane, "w0@GRAD")), Bits(Product(37, 20, rows, x, dpre, {.transpose_a = true})));
  }
};

TEST_F(FcBf16Test, EveryRunHasTheBitsOfProductsWithItsWeights) {
  Lanes lanes;
  for (const int threads : {0, 1, 7}) {
    ThreadPool pool("test", threads);
    for (const uint64_t key : {100, 200, 300}) {
      ASSERT_OK(lanes.Run(key, threads == 0 ? nullptr : &pool));
      for (int lane = 0; lane < Lanes::kCount; ++lane) {
        SCOPED_TRACE(absl::StrCat("lane ", lane, ", weights ", key, ", ", threads, " more threads"));
        lanes.ExpectBitsOfProducts(lane);
      }
    }
  }
}

TEST_F(FcBf16Test, ALaneWithWeightsOfItsOwnUsesThose) {
  constexpr char kOwn[] = R"(weir program
block 0 parent -1 {
  var x [-1, 5]
  var w [5, 3]
  var y [-1, 3]
  Out=y <- fc(X=x, W=w) activation="identity"
}
)";
  Scope scope;
  absl::StatusOr<std::unique_ptr<Executor>> made =
      Executor::Create(*ParseProgramText(kOwn, "x.program"), &scope, {.lanes = 2, .fetch = {"y"}});
  ASSERT_OK(made.status());
  Executor& executor = **made;
  for (int lane = 0; lane < 2; ++lane) {
    *executor.Find(lane, "x") = Numbers(1, {4, 5});
    *executor.Find(lane, "w") = Numbers(2 + static_cast<uint64_t>(lane), {5, 3});
  }
  StepContext context;
  context.precision = ProductPrecision::kBf16;
  ASSERT_OK(executor.Run(context, {4, 4}));
  for (int lane = 0; lane < 2; ++lane) {
    const Tensor& w = std::get<Tensor>(*executor.Find(lane, "w"));
    EXPECT_EQ(Bits(std::get<Tensor>(*executor.Find(lane, "y"))), Bits(Product(4, 3, 5, Numbers(1, {4, 5}), w, {})));
  }
}

}  // namespace
}  // namespace weir
