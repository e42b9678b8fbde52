// Processes that get no more threads or memory.

#include "framework/base/exhausted.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "framework/base/exit_code.h"
#include "framework/base/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

// Limits the address space of this process to its present size plus `more` bytes.
void LimitMemory(uint64_t more) {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * 4096 + more;
  const rlimit limit = {most, most};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
}

TEST(ExhaustedTest, AThreadHasItsName) {
  char name[16] = "";
  StartThread("weir-with-a-long-name", [&name] { pthread_getname_np(pthread_self(), name, sizeof name); }).join();
  EXPECT_STREQ(name, "weir-with-a-lon");
}

TEST(ExhaustedDeathTest, AProcessWithoutRoomForAThreadSaysSoAndExits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        // The first two stacks fit, those of the rest do not.
        LimitMemory(40 << 20);
        ThreadPool pool("weir-compute", 100);
      },
      ::testing::ExitedWithCode(kExitFailure),
      "cannot start thread weir-compute: .*ulimit -u and -v.*it has [0-9]+ MiB of address space, ulimit -v allows "
      "[0-9]+ MiB");
}

TEST(ExhaustedDeathTest, AProcessWithoutMemorySaysSoAndExits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ExitWhenOutOfMemory("trainer");
        LimitMemory(64 << 20);
        std::vector<std::unique_ptr<std::vector<char>>> pieces;
        while (true) pieces.push_back(std::make_unique<std::vector<char>>(1 << 20));
      },
      ::testing::ExitedWithCode(kExitFailure),
      "trainer: out of memory: .*it has [0-9]+ MiB of address space, ulimit -v allows [0-9]+ MiB");
}

// Sets both limits, as `ulimit -n` does.
void LimitDescriptors(rlim_t soft, rlim_t hard) {
  const rlimit limit = {soft, hard};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(ExhaustedDeathTest, ALimitOfDescriptorsIsRaisedAsFarAsItMay) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        LimitDescriptors(16, 500);
        const absl::Status enough = WantDescriptors(300, "3 connections to each of 100 trainers");
        const absl::Status too_many = WantDescriptors(900, "3 connections to each of 300 trainers");
        std::cerr << enough << "; " << too_many.message();
        ::_exit(7);
      },
      ::testing::ExitedWithCode(7),
      "OK; this process needs 9[0-9]+ file descriptors: [0-9]+ that are open and 900 for 3 connections to each of 300 "
      "trainers; ulimit -n "
      "allows this process 3[0-9]+: raise it");
}

TEST(ExhaustedDeathTest, TheLimitOfDescriptorsIsRaisedToTheHardOneAndBackForOtherPrograms) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        LimitDescriptors(100, 500);
        const auto soft = [] {
          rlimit limit = {};
          ::getrlimit(RLIMIT_NOFILE, &limit);
          return limit.rlim_cur;
        };
        RaiseDescriptorLimit();
        std::cerr << soft() << " ";
        RaiseDescriptorLimit();
        RestoreDescriptorLimit();
        std::cerr << soft();
        ::_exit(7);
      },
      ::testing::ExitedWithCode(7), "500 100");
}

}  // namespace
}  // namespace weir
