// The thread that renews the mark of a checkpoint directory, where the system gives no more threads.

#include <sys/resource.h>

#include <fstream>

#include "framework/base/exit_code.h"
#include "framework/checkpoint/owner.h"
#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

// Leaves no room for the stack of a thread.
void LimitMemory() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * 4096 + (rlim_t{1} << 20);
  const rlimit limit = {most, most};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
}

TEST(OwnerThreadDeathTest, AProcessWithoutRoomForTheThreadSaysSoAndExits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        DirectoryOwner owner({.dir = FreshDir("owner_thread"), .job = "j", .run = "r"});
        LimitMemory();
        std::string holder;
        (void)owner.Take(&holder);
      },
      ::testing::ExitedWithCode(kExitFailure), "cannot start thread weir-owner: .*ulimit -u and -v");
}

}  // namespace
}  // namespace weir
