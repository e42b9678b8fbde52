#include "framework/tensor/tensor.h"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

Tensor Floats(std::vector<int64_t> dims, std::vector<float> values) { return Tensor::Of<float>(dims, values); }

TEST(DTypeTest, SizesAreThoseOfAnElement) {
  EXPECT_EQ(DTypeSize(v1::BOOL), 1);
  EXPECT_EQ(DTypeSize(v1::UINT8), 1);
  EXPECT_EQ(DTypeSize(v1::FLOAT16), 2);
  EXPECT_EQ(DTypeSize(v1::BFLOAT16), 2);
  EXPECT_EQ(DTypeSize(v1::FLOAT32), sizeof(float));
  EXPECT_EQ(DTypeSize(v1::INT32), sizeof(int32_t));
  EXPECT_EQ(DTypeSize(v1::FLOAT64), sizeof(double));
  EXPECT_EQ(DTypeSize(v1::INT64), sizeof(int64_t));
  EXPECT_EQ(DTypeSize(v1::DTYPE_UNSET), 0);
}

TEST(ShapeTest, ElementsAreTheProductOfTheDims) {
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(ElementCount({2, 3, 4}), 24);
  EXPECT_EQ(ElementCount({2, 0}), 0);
}

TEST(ShapeTest, ADescriptionNamesEveryDim) {
  EXPECT_EQ(ShapeString({-1, 26, 8}), "[-1, 26, 8]");
  EXPECT_EQ(ShapeString({}), "[]");
}

TEST(ShapeDeathTest, DimsThatCannotBeAreOurMistake) {
  EXPECT_DEATH(ElementCount({2, -1}), R"(\[2, -1\])");
  EXPECT_DEATH(ElementCount({std::numeric_limits<int64_t>::max(), 2}), R"(, 2\])");
}

TEST(BufferTest, MemoryIsAlignedToCacheLines) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{65}}) {
    const Buffer buffer(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_FALSE(buffer.pinned());
  }
}

TEST(TensorTest, ACopySharesItsMemoryAndCopyFromDoesNot) {
  Tensor a = Floats({2}, {1, 2});
  Tensor shared = a, own;
  own.CopyFrom(a);
  a.data<float>()[0] = 9;
  EXPECT_THAT(shared.span<float>(), ElementsAre(9, 2));
  EXPECT_THAT(own.span<float>(), ElementsAre(1, 2));
}

TEST(TensorTest, ATensorThatWasNeverWrittenIsAbsentAndSoIsItsCopy) {
  Tensor absent, copy = Floats({1}, {1});
  EXPECT_FALSE(absent.initialized());
  EXPECT_EQ(absent.raw(), nullptr);
  copy.CopyFrom(absent);
  EXPECT_FALSE(copy.initialized());
  EXPECT_EQ(copy.size(), 0);
}

TEST(TensorTest, MemoryThatIsLargeEnoughIsKept) {
  Tensor t(v1::FLOAT32, {4, 4});
  const void* const memory = t.raw();
  t.Resize(v1::FLOAT32, {2, 3});
  EXPECT_EQ(t.raw(), memory);
  t.Resize(v1::FLOAT64, {8});
  EXPECT_EQ(t.raw(), memory);
  EXPECT_EQ(t.bytes(), 64);
  t.Resize(v1::FLOAT32, {4, 5});
  EXPECT_NE(t.raw(), memory);
  EXPECT_THAT(t.dims(), ElementsAre(4, 5));
}

TEST(TensorTest, MemoryThatACopyOrAViewSharesIsLeftToIt) {
  Tensor t = Floats({2}, {1, 2});
  const Tensor view = t.View(0, {1});
  t.Resize(v1::FLOAT32, {2});
  t.data<float>()[0] = 9;
  EXPECT_THAT(view.span<float>(), ElementsAre(1));
}

TEST(TensorTest, ATensorMayBeResizedToItsOwnDims) {
  Tensor t = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  t.Resize(v1::FLOAT32, t.dims());
  EXPECT_THAT(t.dims(), ElementsAre(2, 3));
  EXPECT_EQ(t.size(), 6);
}

TEST(TensorTest, AViewIsTheSameMemoryFromItsFirstElementOn) {
  Tensor t = Floats({2, 3}, {0, 1, 2, 3, 4, 5});
  Tensor rows = t.View(1, {2, 2});
  EXPECT_THAT(rows.span<float>(), ElementsAre(1, 2, 3, 4));
  Tensor last = rows.View(3, {1});
  last.data<float>()[0] = 9;
  EXPECT_THAT(t.span<float>(), ElementsAre(0, 1, 2, 3, 9, 5));
}

TEST(TensorTest, AReshapeKeepsTheElements) {
  Tensor t = Floats({2, 3}, {0, 1, 2, 3, 4, 5});
  t.Reshape({3, 2});
  EXPECT_THAT(t.dims(), ElementsAre(3, 2));
  EXPECT_THAT(t.span<float>(), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(TensorDeathTest, AccessBeyondTheElementsIsOurMistake) {
  Tensor t = Floats({2}, {1, 2});
  EXPECT_DEATH(t.View(1, {2}), "1 \\+ 2 of 2");
  EXPECT_DEATH(t.View(-1, {1}), "-1 \\+ 1 of 2");
  EXPECT_DEATH(t.Reshape({3}), "3 vs. 2");
  EXPECT_DEATH(t.data<int64_t>(), "tensor holds FLOAT32");
  EXPECT_DEATH(Floats({3}, {1, 2}), "3 vs. 2");
}

// Pinned memory for a number of buffers.
class FewBuffers : public PinnedMemory {
 public:
  explicit FewBuffers(int left) : left_(left) {}
  std::shared_ptr<Buffer> NewBuffer(size_t bytes) override {
    if (left_-- <= 0) return nullptr;
    const size_t lines = (bytes + 63) / 64 * 64;
    return std::make_shared<Buffer>(std::shared_ptr<void>(std::aligned_alloc(64, lines), std::free), lines);
  }

 private:
  int left_;
};

TEST(TensorTest, RenewedMemoryLeavesTheOldToWhoeverReadsIt) {
  FewBuffers memory(2);
  Tensor t;
  t.Renew(v1::FLOAT32, {1}, &memory);
  t.data<float>()[0] = 1;
  const std::shared_ptr<const Buffer> old = t.pinned();
  ASSERT_NE(old, nullptr);
  t.Renew(v1::FLOAT32, {1}, &memory);
  t.data<float>()[0] = 2;
  EXPECT_EQ(*static_cast<const float*>(old->data()), 1);
  EXPECT_NE(t.pinned(), old);
}

TEST(TensorTest, WithoutPinnedMemoryATensorIsRenewedWithOrdinary) {
  FewBuffers memory(1);
  Tensor t;
  t.Renew(v1::FLOAT32, {1}, &memory);
  t.data<float>()[0] = 1;
  const std::shared_ptr<const Buffer> old = t.pinned();
  t.Renew(v1::FLOAT32, {2}, &memory);
  EXPECT_EQ(t.pinned(), nullptr);
  t.data<float>()[0] = 2;
  EXPECT_EQ(*static_cast<const float*>(old->data()), 1);
  EXPECT_EQ(t.size(), 2);
}

TEST(SelectedRowsTest, RowsAreTakenOverWithoutTheirValues) {
  const SelectedRows from = {.height = 10,
                             .ids = {4, 7},
                             .values = Floats({2, 1}, {1, 2}),
                             .step_rows = {0, 1},
                             .merged = true,
                             .present = true};
  SelectedRows to = {.values = Floats({1, 1}, {5})};
  to.CopyRowsOf(from);
  EXPECT_EQ(to.height, 10);
  EXPECT_THAT(to.ids, ElementsAre(4, 7));
  EXPECT_THAT(to.step_rows, ElementsAre(0, 1));
  EXPECT_TRUE(to.merged);
  EXPECT_TRUE(to.present);
  EXPECT_THAT(to.values.span<float>(), ElementsAre(5));
  to.CopyRowsOf(to);
  EXPECT_THAT(to.ids, ElementsAre(4, 7));
}

TEST(IdBatchTest, ExamplesAreCountedByTheirSlots) {
  EXPECT_EQ(IdBatch().batch(), 0);
  EXPECT_EQ((IdBatch{.slots = 2, .values = {1, 2, 3}, .offsets = {0, 1, 1, 2, 3}}).batch(), 2);
  EXPECT_EQ((IdBatch{.slots = 2, .offsets = {0}}).batch(), 0);
}

}  // namespace
}  // namespace weir
