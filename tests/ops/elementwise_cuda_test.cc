// CUDA against CPU, bit for bit: the same arithmetic, one rounding per operation on both sides.
#include "ops/elementwise_cuda.h"

#include <cstring>
#include <functional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/activation_math.h"
#include "ops/elementwise_math.h"

namespace weir {
namespace {

#if WEIR_HAVE_CUDA

class ElementwiseCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
    for (float** memory : {&a_, &b_, &out_}) ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(memory), kSize * sizeof(float)), cudaSuccess);
    for (int i = 0; i < kSize; ++i) {
      x_.push_back(0.37f * static_cast<float>(i % 1001 - 500));
      y_.push_back(1.0f / static_cast<float>(i + 1));
    }
    ASSERT_EQ(cudaMemcpy(a_, x_.data(), kSize * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(b_, y_.data(), kSize * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  }
  void TearDown() override {
    for (float* memory : {a_, b_, out_}) cudaFree(memory);
  }

  void Expect(cudaError_t launched, const std::function<float(float, float)>& cpu) {
    ASSERT_EQ(launched, cudaSuccess) << cudaGetErrorString(launched);
    std::vector<float> got(kSize);
    ASSERT_EQ(cudaMemcpy(got.data(), out_, kSize * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
    for (int i = 0; i < kSize; ++i) ASSERT_EQ(FloatBits(got[i]), FloatBits(cpu(x_[i], y_[i]))) << i;
  }

  // More than one grid's worth of threads, and not a multiple of a block.
  static constexpr int kSize = 4096 * 256 + 77;
  std::vector<float> x_, y_;
  float* a_ = nullptr;
  float* b_ = nullptr;
  float* out_ = nullptr;
};

TEST_F(ElementwiseCudaTest, Relu) {
  Expect(CudaRelu(kSize, a_, out_, nullptr), [](float x, float) { return Relu(x); });
}

TEST_F(ElementwiseCudaTest, ReluGrad) {
  Expect(CudaReluGrad(kSize, a_, b_, out_, nullptr), [](float y, float dy) { return ReluGrad(y, dy); });
}

TEST_F(ElementwiseCudaTest, Scale) {
  Expect(CudaScale(kSize, a_, 1.7f, -0.3f, out_, nullptr), [](float x, float) { return Scale(x, 1.7f, -0.3f); });
}

TEST_F(ElementwiseCudaTest, Add) {
  Expect(CudaAdd(kSize, a_, b_, out_, nullptr), [](float x, float y) { return AddMath::Out(x, y); });
}

TEST_F(ElementwiseCudaTest, Mul) {
  Expect(CudaMul(kSize, a_, b_, out_, nullptr), [](float x, float y) { return MulMath::Out(x, y); });
}

TEST_F(ElementwiseCudaTest, NothingToDo) { EXPECT_EQ(CudaRelu(0, nullptr, nullptr, nullptr), cudaSuccess); }

#else

TEST(ElementwiseCudaTest, Twins) { GTEST_SKIP() << "no CUDA device: built without the CUDA toolkit"; }

#endif

}  // namespace
}  // namespace weir
