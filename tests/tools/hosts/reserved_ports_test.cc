#include "tools/hosts/reserved_ports.h"

#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(ReservedPortsTest, NobodyDrawsWhatAnotherHolds) {
  const auto first = ReservedPorts::Draw(100);
  auto second = ReservedPorts::Draw(100);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  // The ports stay held by the object that they were moved to.
  const ReservedPorts moved = *std::move(second);
  const auto third = ReservedPorts::Draw(100);
  ASSERT_TRUE(third.ok()) << third.status();
  std::set<int> all;
  for (const ReservedPorts* each : {&*first, &moved, &*third}) all.insert(each->ports().begin(), each->ports().end());
  EXPECT_EQ(all.size(), 300u);
  EXPECT_GE(*all.begin(), 10000);
}

}  // namespace
}  // namespace weir
