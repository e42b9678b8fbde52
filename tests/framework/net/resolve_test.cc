#include "framework/net/resolve.h"

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(ResolveTest, AddressesAreNotLookedUp) {
  // Not even for no time at all.
  for (const auto& [host, text] : std::vector<std::pair<std::string, std::string>>{
           {"10.1.2.3", "10.1.2.3:80"}, {"[fe80::1]", "[fe80::1]:80"}, {"::1", "[::1]:80"}}) {
    bool again = true;
    const auto found = Resolve(host, 80, absl::ZeroDuration(), &again);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->size(), 1u);
    EXPECT_EQ((*found)[0].ToString(), text);
    EXPECT_FALSE(again);
  }
}

TEST(ResolveTest, NamesHaveTheirAddressesOrAReason) {
  const std::vector<Resolved> found =
      ResolveAll({"localhost", "10.0.0.1", "no.such.host.invalid", ""}, absl::Seconds(30));
  ASSERT_EQ(found.size(), 4u);
  ASSERT_TRUE(found[0].status.ok()) << found[0].status;
  for (const SocketAddress& address : found[0].addresses) EXPECT_TRUE(IsLoopback(address.raw()));
  EXPECT_TRUE(found[1].status.ok()) << found[1].status;
  EXPECT_EQ(found[2].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(found[2].status.message()), HasSubstr("host no.such.host.invalid: "));
  EXPECT_FALSE(found[3].status.ok());
  EXPECT_TRUE(ResolveAll({}, absl::ZeroDuration()).empty());
}

TEST(ResolveTest, ALookUpEndsAtItsDeadline) {
  const absl::Time begun = absl::Now();
  bool again = false;
  const auto found = Resolve("no.such.host.invalid", 1, absl::ZeroDuration(), &again);
  EXPECT_FALSE(found.ok());
  EXPECT_LT(absl::Now() - begun, absl::Seconds(5));
  // It may have been that quick.
  if (again) {
    EXPECT_THAT(std::string(found.status().message()), HasSubstr("host no.such.host.invalid: "));
  }
}

}  // namespace
}  // namespace weir
