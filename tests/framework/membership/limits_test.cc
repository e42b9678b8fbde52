#include "framework/membership/limits.h"

#include <limits>

#include "gtest/gtest.h"

namespace weir {
namespace {

const absl::Time kNow = absl::UnixEpoch() + absl::Hours(1000);

TEST(WaitUntilTest, ACallWaitsAsLongAsItAsks) { EXPECT_EQ(WaitUntil(kNow, 2.5), kNow + absl::Seconds(2.5)); }

TEST(WaitUntilTest, NoCallWaitsLongerThanTheLongestWait) {
  EXPECT_EQ(WaitUntil(kNow, 1e300), kNow + kMaxWait);
  EXPECT_EQ(WaitUntil(kNow, std::numeric_limits<double>::infinity()), kNow + kMaxWait);
}

TEST(WaitUntilTest, AWaitThatIsNoneEndsAtOnce) {
  EXPECT_EQ(WaitUntil(kNow, -1), kNow);
  EXPECT_EQ(WaitUntil(kNow, std::numeric_limits<double>::quiet_NaN()), kNow);
}

}  // namespace
}  // namespace weir
