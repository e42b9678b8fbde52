// Who holds a lock of a file.

#include "framework/process/lock_holder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kLocks[] =
    "1: FLOCK  ADVISORY  WRITE 28 fe:00:10960902 0 EOF\n"
    "2: POSIX  ADVISORY  WRITE 71 fe:00:11092737 0 EOF\n"
    "2: -> POSIX  ADVISORY  WRITE 99 fe:00:5 0 EOF\n"
    "3: OFDLCK ADVISORY  READ -1 08:11:77 0 EOF\n"
    "4: POSIX  ADVISORY  READ 0 08:11:78 0 EOF\n";

TEST(LockHolderTest, TheLineOfTheFileNamesTheHolder) {
  EXPECT_EQ(LockHolderIn(kLocks, 0xfe, 0, 11092737), 71);
  EXPECT_EQ(LockHolderIn(kLocks, 0xfe, 0, 10960902), 28);
  EXPECT_EQ(LockHolderIn(kLocks, 0xfe, 1, 11092737), 0) << "the same number on another disk";
}

TEST(LockHolderTest, OneThatWaitsHoldsNothing) { EXPECT_EQ(LockHolderIn(kLocks, 0xfe, 0, 5), 0); }

// Locks of an open file description, and of processes of other containers.
TEST(LockHolderTest, ALockWithoutAProcessHasNoHolder) {
  EXPECT_EQ(LockHolderIn(kLocks, 8, 0x11, 77), 0);
  EXPECT_EQ(LockHolderIn(kLocks, 8, 0x11, 78), 0);
}

TEST(LockHolderTest, TextOfAnotherFormNamesNobody) {
  for (const char* text : {"", "\n\n", "1: POSIX", "1: POSIX ADVISORY WRITE x fe:00:1 0 EOF"}) {
    EXPECT_EQ(LockHolderIn(text, 0xfe, 0, 1), 0) << text;
  }
}

// A process that takes the lock of a file and keeps it until it is killed.
class Holder {
 public:
  explicit Holder(const std::string& file) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      const int fd = open(file.c_str(), O_RDWR | O_CREAT, 0600);
      struct flock lock = {};
      lock.l_type = F_WRLCK;
      const bool taken = fcntl(fd, F_SETLK, &lock) == 0;
      if (write(ready[1], taken ? "y" : "n", 1) != 1) _exit(1);
      alarm(60);
      while (true) pause();
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 'y');
    close(ready[0]);
  }
  ~Holder() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

TEST(LockHolderTest, TheHolderIsNamedAndWhetherItIsStopped) {
  const std::string file = absl::StrCat(::testing::TempDir(), "/lock_holder.", getpid());
  EXPECT_EQ(LockHolder(file), "a process that /proc/locks does not name");
  {
    const Holder holder(file);
    const std::string named = absl::StrCat("process ", holder.pid(), " (");
    if (LockHolder(file) == "a process that /proc/locks does not name") {
      GTEST_SKIP() << "/proc/locks does not have the device and number of " << file << " as stat tells them";
    }
    EXPECT_THAT(LockHolder(file), StartsWith(named));
    EXPECT_THAT(LockHolder(file), Not(HasSubstr("stopped")));
    ASSERT_EQ(kill(holder.pid(), SIGSTOP), 0);
    ASSERT_EQ(waitpid(holder.pid(), nullptr, WUNTRACED), holder.pid());
    EXPECT_THAT(LockHolder(file), AllOf(StartsWith(named), HasSubstr("), which is stopped")));
  }
  EXPECT_EQ(LockHolder(file), "a process that /proc/locks does not name");
  unlink(file.c_str());
}

}  // namespace
}  // namespace weir
