// Which backends can be used, by what the machine has.

#include "pserver/collective/backends.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

const absl::Status kOk = absl::OkStatus();

TEST(BackendsTest, NcclNeedsItsLibraryAndADevice) {
  EXPECT_EQ(UsableBackends(CollectiveBackends(kOk, kOk)), "WIRE, GLOO, NCCL");
  EXPECT_EQ(UsableBackends(CollectiveBackends(absl::FailedPreconditionError("no library"), kOk)), "WIRE, GLOO");
  EXPECT_EQ(UsableBackends(CollectiveBackends(kOk, absl::FailedPreconditionError("no device"))), "WIRE, GLOO");
}

TEST(BackendsTest, TheLibraryIsTheFirstReason) {
  const auto backends =
      CollectiveBackends(absl::FailedPreconditionError("no library"), absl::FailedPreconditionError("no device"));
  EXPECT_EQ(backends.back().usable.message(), "no library");
  EXPECT_EQ(CollectiveBackends(kOk, absl::FailedPreconditionError("no device")).back().usable.message(), "no device");
}

TEST(BackendsTest, ParametersGoOverWire) { EXPECT_EQ(AutoBackend(), v1::Comm::WIRE); }

}  // namespace
}  // namespace weir
