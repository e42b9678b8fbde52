#include "framework/base/exit_code.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(ExitCodeTest, TheFourEndsAreToldApart) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0) << "complete";
  // Would fail again.
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("")), 4);
  // May be tried again.
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), 3);
  EXPECT_EQ(ExitCodeOf(absl::AbortedError("")), 3);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), 3);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("")), 5) << "stopped";
}

}  // namespace
}  // namespace weir
