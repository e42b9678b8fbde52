// Figures of memory with which launch explains a process that was killed.

#include "tools/machine/memory_shortage.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

class MemoryShortageTest : public ::testing::Test {
 protected:
  MemoryShortageTest() : root_(fs::path(::testing::TempDir()) / "memory_shortage") {
    fs::remove_all(root_);
    Write("proc/vmstat", "nr_free_pages 5\noom_kill 7\n");
    Write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    1048576 kB\n");
  }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  MemoryFigures Read() const { return ReadMemoryFigures(root_.string()); }

  const fs::path root_;
};

TEST_F(MemoryShortageTest, TheNearestGroupWithALimitCounts) {
  Write("proc/self/cgroup", "0::/pods/pod1/main\n");
  Write("sys/fs/cgroup/pods/pod1/main/memory.max", "max\n");
  Write("sys/fs/cgroup/pods/pod1/main/memory.events", "oom 0\noom_kill 0\n");
  Write("sys/fs/cgroup/pods/pod1/memory.max", "2147483648\n");
  Write("sys/fs/cgroup/pods/pod1/memory.events", "low 0\noom 2\noom_kill 3\n");
  const MemoryFigures before = Read();
  EXPECT_EQ(before.group, "/pods/pod1");
  EXPECT_EQ(before.killed_in_group, 3);
  EXPECT_EQ(before.group_limit, int64_t{2} << 30);
  Write("sys/fs/cgroup/pods/pod1/memory.events", "oom_kill 4\n");
  EXPECT_EQ(DescribeKills(before, Read()),
            "the system has meanwhile killed for memory in the control group /pods/pod1: 1; the group may have 2048 "
            "MiB; the machine has 16384 MiB, of which 1024 MiB are free now");
}

TEST_F(MemoryShortageTest, AContainerSeesItsGroupAsTheRoot) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "1048576\n");
  Write("sys/fs/cgroup/memory.events", "oom_kill 0\n");
  EXPECT_EQ(Read().group_limit, 1 << 20);
  // The path of the host is not there.
  Write("proc/self/cgroup", "0::/docker/0123\n");
  EXPECT_EQ(Read().group_limit, 1 << 20);
}

TEST_F(MemoryShortageTest, GroupsOfVersionOneAreRead) {
  Write("proc/self/cgroup", "9:cpu:/a\n4:memory:/job\n0::/\n");
  Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  EXPECT_EQ(Read().killed_in_group, 5);
  EXPECT_EQ(Read().group_limit, -1);
}

TEST_F(MemoryShortageTest, AKillOutsideOfTheGroupIsOneOfTheMachine) {
  const MemoryFigures before = Read();
  Write("proc/vmstat", "oom_kill 9\n");
  EXPECT_THAT(DescribeKills(before, Read()), HasSubstr("has meanwhile killed for memory on this machine: 2; "));
  EXPECT_TRUE(MayBeShort(before, Read()));
}

TEST_F(MemoryShortageTest, WithoutAKillSomebodyHasSentTheSignalAndWithoutCountersNothingIsKnown) {
  EXPECT_THAT(DescribeKills(Read(), Read()), HasSubstr("no kill for memory meanwhile: somebody may have sent"));
  EXPECT_FALSE(MayBeShort(Read(), Read()));
  fs::remove_all(root_);
  EXPECT_EQ(DescribeKills(Read(), Read()), "the system does that when memory is short (see dmesg)");
  EXPECT_TRUE(MayBeShort(Read(), Read()));
}

}  // namespace
}  // namespace weir
