// Kernel and row rule registries, step health, scope.

#include <string>

#include "framework/base/thread_pool.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/row_rule.h"
#include "framework/runtime/scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/testing/toy_ops.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

class Halving : public RowRule {
 public:
  std::vector<State> states(int width) const override { return {{"last", width}, {"count", 1}}; }
  void InitState(int, float*) const override {}
  void Update(int, float, float, int64_t, float* const*, const float* const*) const override {}
};

REGISTER_ROW_RULE(descend, [](const AttrReader&) -> absl::StatusOr<std::unique_ptr<RowRule>> {
  return std::make_unique<Halving>();
});

TEST(KernelRegistryTest, KernelsAreFoundByType) {
  EXPECT_NE(KernelRegistry::Global().Find("copy"), nullptr);
  EXPECT_EQ(KernelRegistry::Global().Find("nobody"), nullptr);
}

REGISTER_HOST_OP(plus);

TEST(KernelRegistryTest, HostOpsAreThoseThatSaySo) {
  EXPECT_TRUE(KernelRegistry::Global().IsHostOp("plus"));
  EXPECT_FALSE(KernelRegistry::Global().IsHostOp("copy"));
  EXPECT_FALSE(KernelRegistry::Global().IsHostOp("nobody"));
}

TEST(RowRuleRegistryTest, RulesAreMadeFromUpdateOps) {
  const auto rule = RowRuleRegistry::Global().Make(MakeOp("descend", {}, {}));
  ASSERT_TRUE(rule.ok()) << rule.status();
  EXPECT_EQ((*rule)->state_width(4), 5);
  const auto none = RowRuleRegistry::Global().Make(MakeOp("copy", {}, {}));
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("optimizers that can: descend"));
}

TEST(StepHealthTest, TheFirstReportIsKept) {
  StepHealth health;
  EXPECT_EQ(health.non_finite(), "");
  ThreadPool pool("test", 2);
  pool.ParallelFor(8, [&](int64_t) { health.ReportNonFinite("loss"); });
  health.ReportNonFinite("other");
  EXPECT_EQ(health.non_finite(), "loss");
  health.Reset();
  EXPECT_EQ(health.non_finite(), "");
}

TEST(ScopeTest, PointersStayAndNamesAreSorted) {
  Scope scope;
  EXPECT_EQ(scope.Find("a"), nullptr);
  Variable* b = scope.FindOrCreate("b");
  Variable* a = scope.FindOrCreate("a");
  for (int i = 0; i < 1000; ++i) scope.FindOrCreate(std::to_string(i));
  EXPECT_EQ(scope.Find("a"), a);
  EXPECT_EQ(scope.FindOrCreate("b"), b);
  EXPECT_EQ(scope.vars().begin()->first, "0");
}

}  // namespace
}  // namespace weir
