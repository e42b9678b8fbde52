#include "framework/tensor/device_spans.h"

#include <utility>
#include <vector>

#include "glog/logging.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/emulated_device.h"

namespace weir {
namespace {

class DeviceSpansTest : public ::testing::Test {
 protected:
  std::vector<DeviceSpans::Span> Take() {
    auto taken = spans_.Take(/*wait=*/true);
    CHECK(taken.ok()) << taken.status();
    return *std::move(taken);
  }

  EmulatedDevice device_;
  DeviceSpans spans_{&device_};
};

TEST_F(DeviceSpansTest, NothingIsRecordedUntilAStepIs) {
  EXPECT_FALSE(spans_.recording());
  ASSERT_TRUE(spans_.Begin(DeviceQueue::kCompute, "fc", "y").ok());
  ASSERT_TRUE(spans_.End(DeviceQueue::kCompute).ok());
  EXPECT_TRUE(Take().empty());
}

TEST_F(DeviceSpansTest, ASpanHasItsStepAndIsTakenOnce) {
  ASSERT_TRUE(spans_.Record(3).ok());
  ASSERT_TRUE(spans_.Begin(DeviceQueue::kCopyIn, "x", "data", 64).ok());
  ASSERT_TRUE(spans_.End(DeviceQueue::kCopyIn).ok());
  ASSERT_TRUE(spans_.Record(-1).ok());
  EXPECT_FALSE(spans_.recording());
  const std::vector<DeviceSpans::Span> spans = Take();
  ASSERT_EQ(spans.size(), 1);
  EXPECT_EQ(spans[0].queue, DeviceQueue::kCopyIn);
  EXPECT_EQ(spans[0].name, "x");
  EXPECT_EQ(spans[0].detail, "data");
  EXPECT_EQ(spans[0].bytes, 64);
  EXPECT_EQ(spans[0].step, 3);
  EXPECT_LE(spans[0].begin_ns, spans[0].end_ns);
  EXPECT_TRUE(Take().empty());
}

TEST_F(DeviceSpansTest, SpansThatTheDeviceHasNotReachedStayUntilItHas) {
  ASSERT_TRUE(spans_.Record(0).ok());
  ASSERT_TRUE(spans_.Begin(DeviceQueue::kCompute, "fc", "y").ok());
  ASSERT_TRUE(spans_.End(DeviceQueue::kCompute).ok());
  const auto early = spans_.Take(/*wait=*/false);  // nothing runs before a wait
  ASSERT_TRUE(early.ok()) << early.status();
  EXPECT_TRUE(early->empty());
  EXPECT_EQ(Take().size(), 1);
}

TEST_F(DeviceSpansTest, WorkThatFailedHasNoSpan) {
  ASSERT_TRUE(spans_.Record(0).ok());
  ASSERT_TRUE(spans_.Begin(DeviceQueue::kCompute, "failed", "").ok());
  ASSERT_TRUE(spans_.Begin(DeviceQueue::kCompute, "next", "").ok());
  ASSERT_TRUE(spans_.End(DeviceQueue::kCompute).ok());
  const std::vector<DeviceSpans::Span> spans = Take();
  ASSERT_EQ(spans.size(), 1);
  EXPECT_EQ(spans[0].name, "next");
}

TEST_F(DeviceSpansTest, AnEndWithoutABeginDoesNothing) {
  ASSERT_TRUE(spans_.Record(0).ok());
  ASSERT_TRUE(spans_.Begin(DeviceQueue::kCompute, "open", "").ok());
  EXPECT_TRUE(Take().empty());
  ASSERT_TRUE(spans_.End(DeviceQueue::kCompute).ok());
  ASSERT_TRUE(spans_.End(DeviceQueue::kCopyOut).ok());
  EXPECT_TRUE(Take().empty());
}

}  // namespace
}  // namespace weir
