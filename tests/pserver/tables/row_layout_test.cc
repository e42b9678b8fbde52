// Where the parts of a row lie, and the word of use.
#include "pserver/tables/row_layout.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAreArray;

// A state of `width` floats, "a", and one float, "b".
class TwoStates : public RowRule {
 public:
  std::vector<State> states(int width) const override { return {{"a", width}, {"b", 1}}; }
  void InitState(int, float*) const override {}
  void Update(int, float, float, int64_t, float* const*, const float* const*) const override {}
};

LifecycleRules Expiring() {
  v1::Lifecycle lifecycle;
  lifecycle.set_ttl_steps(10);
  return LifecycleRules(lifecycle, /*seed=*/1, "t", /*capacity=*/0, /*logical_shards=*/1);
}

RowLayout Layout(v1::DType values, bool on_disk) {
  const TwoStates rule;
  return RowLayout(/*width=*/4, RowValues(values, /*seed=*/1, "t"), &rule, Expiring().row_words(), on_disk);
}

TEST(RowLayoutTest, ValuesThenStateThenWordsThenUse) {
  const RowLayout layout = Layout(v1::FLOAT32, /*on_disk=*/true);
  EXPECT_EQ(layout.value_bytes(), 16);
  EXPECT_EQ(layout.rule_state_bytes(), 20);
  EXPECT_EQ(layout.stored_bytes(), 40);
  EXPECT_EQ(layout.row_bytes(), 44);
  // The lifecycle's word is state for callers.
  EXPECT_EQ(layout.state_width(), 6);
  EXPECT_EQ(layout.states().back().name, "lifecycle.step");
}

TEST(RowLayoutTest, ValuesOf16BitsTakeHalfTheBytes) {
  const RowLayout layout = Layout(v1::FLOAT16, /*on_disk=*/false);
  EXPECT_EQ(layout.value_bytes(), 8);
  EXPECT_EQ(layout.row_bytes(), 32);
  EXPECT_FALSE(layout.has_use());
}

TEST(RowLayoutTest, FloatsComeBackAsTheyWereSet) {
  for (const v1::DType values : {v1::FLOAT32, v1::FLOAT16, v1::BFLOAT16}) {
    const RowLayout layout = Layout(values, /*on_disk=*/false);
    // Each type has these values; the state keeps all bits.
    const std::vector<float> floats = {1, -2, 0.5f, 0, 0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 7};
    std::vector<float> memory(static_cast<size_t>(layout.row_bytes()) / 4), scratch;
    char* const row = reinterpret_cast<char*>(memory.data());
    layout.SetFloats(floats.data(), row);
    const float* const back = layout.Floats(row, &scratch);
    EXPECT_THAT(std::vector<float>(back, back + layout.floats()), ElementsAreArray(floats));
  }
}

TEST(RowLayoutTest, AChangeIsRememberedBesideTheUse) {
  const RowLayout layout = Layout(v1::FLOAT32, /*on_disk=*/true);
  std::vector<char> row(static_cast<size_t>(layout.row_bytes()));
  layout.ClearUse(row.data());
  EXPECT_FALSE(layout.Changed(row.data()));
  layout.MarkChanged(row.data());
  layout.SetUse(row.data(), 17);
  EXPECT_TRUE(layout.Changed(row.data()));
  EXPECT_EQ(layout.Use(row.data()), 17u);
  layout.MarkUnchanged(row.data());
  EXPECT_FALSE(layout.Changed(row.data()));
  EXPECT_EQ(layout.Use(row.data()), 17u);
}

TEST(RowLayoutTest, ATableInMemoryMarksNoChange) {
  const RowLayout layout = Layout(v1::FLOAT32, /*on_disk=*/false);
  std::vector<char> row(static_cast<size_t>(layout.row_bytes()), 5);
  layout.MarkChanged(row.data());
  EXPECT_THAT(row, ::testing::Each(5));
}

}  // namespace
}  // namespace weir
