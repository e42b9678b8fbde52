#include "pserver/network/grpc_threads.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

#include "framework/base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(GrpcThreadsTest, AProcessThatHasThemGoesOn) {
  CheckGrpcThreads();
  CheckGrpcThreads();
}

// The process may have six more MiB: less than a thread's stack.
void LimitMemory() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<uint64_t>(::getpagesize()) + (6 << 20);
  const rlimit limit = {most, most};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
}

TEST(GrpcThreadsDeathTest, AProcessWithoutRoomForThemSaysSoAndExits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        LimitMemory();
        CheckGrpcThreads();
      },
      testing::ExitedWithCode(kExitFailure),
      "cannot start the threads of gRPC .*it has [0-9]+ MiB of address space, ulimit -v allows");
}

}  // namespace
}  // namespace weir
