#include "framework/runtime/memory_use.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

Variable Floats(int64_t n) { return Tensor(v1::FLOAT32, {n}); }

KernelContext Reading(std::vector<Variable*> vars) {
  KernelContext context;
  context.inputs = {{{.vars = std::move(vars)}}};
  return context;
}

TEST(MemoryUseTest, BytesAreThoseOfTheLargestValueByOwner) {
  MemoryUse memory;
  Variable a = Floats(4), b = Floats(2), c = Floats(1);
  const std::vector<MemoryUse::Held*> written = {memory.AddWritten(&a, VariableOwner::kLane),
                                                 memory.AddWritten(&b, VariableOwner::kStep),
                                                 memory.AddWritten(&c, VariableOwner::kPersistable)};
  MemoryUse::Measure(written, KernelContext());
  a = Floats(1);
  MemoryUse::Measure(written, KernelContext());
  const VariableBytes bytes = memory.bytes();
  EXPECT_EQ(bytes.lanes, 16);
  EXPECT_EQ(bytes.step, 8);
  EXPECT_EQ(bytes.persistable, 4);
  EXPECT_EQ(bytes.total(), 28);
}

TEST(MemoryUseTest, AVariableThatIsReadAndWrittenCountsOnce) {
  MemoryUse memory;
  Variable a = Floats(4);
  memory.AddRead(&a, VariableOwner::kLane);
  MemoryUse::Held* const held = memory.AddWritten(&a, VariableOwner::kLane);
  EXPECT_EQ(memory.AddWritten(&a, VariableOwner::kLane), held);
  MemoryUse::Measure({held}, Reading({&a}));
  EXPECT_EQ(memory.bytes().total(), 16);
}

TEST(MemoryUseTest, OnlyVariablesThatNoOpWritesAreMeasuredAsFed) {
  MemoryUse memory;
  Variable fed = Floats(4), written = Floats(8);
  memory.AddRead(&fed, VariableOwner::kLane);
  memory.AddRead(&written, VariableOwner::kLane);
  (void)memory.AddWritten(&written, VariableOwner::kLane);
  memory.MeasureFed();
  EXPECT_EQ(memory.bytes().total(), 16);
}

TEST(MemoryUseTest, AViewOfAnInputCountsNothing) {
  MemoryUse memory;
  Variable whole = Floats(8);
  Variable view = whole;
  MemoryUse::Held* const held = memory.AddWritten(&view, VariableOwner::kLane);
  MemoryUse::Measure({held}, Reading({&whole}));
  EXPECT_EQ(memory.bytes().total(), 0);
  Variable other = Floats(8);
  MemoryUse::Measure({held}, Reading({&other}));
  EXPECT_EQ(memory.bytes().total(), 32);
}

TEST(MemoryUseTest, IdsAndRowsCountTheirArrays) {
  MemoryUse memory;
  Variable ids = IdBatch{.values = {1, 2, 3}, .offsets = {0, 3}, .weights = {1, 1, 1}};
  Variable rows = SelectedRows{.ids = {1, 2}, .values = Tensor(v1::FLOAT32, {2, 3})};
  memory.AddRead(&ids, VariableOwner::kLane);
  memory.AddRead(&rows, VariableOwner::kStep);
  memory.MeasureFed();
  EXPECT_EQ(memory.bytes().lanes, 8 * 5 + 4 * 3);
  EXPECT_EQ(memory.bytes().step, 8 * 2 + 4 * 6);
}

}  // namespace
}  // namespace weir
