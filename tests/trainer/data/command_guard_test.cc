// Groups of processes that end with their guard, and those that do not.

#include "trainer/files/command_guard.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "gtest/gtest.h"

namespace weir {
namespace {

// The leader of a group that the guard is told of. Killed by the destructor.
class Leader {
 public:
  explicit Leader(CommandGuard* guard) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      setpgid(0, 0);
      guard->Announce(getpid());
      // As exec would close this process's end of the guard's socket.
      syscall(SYS_close_range, 3U, ~0U, 0U);
      while (true) pause();
    }
    close(ready[1]);
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 0);
    close(ready[0]);
    guard->Enter(pid_);
  }
  ~Leader() {
    if (ended_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  bool HasEnded() {
    ended_ = ended_ || waitpid(pid_, nullptr, WNOHANG) == pid_;
    return ended_;
  }
  // Returns the signal that has ended it.
  int AwaitEnd() {
    int status = 0;
    ended_ = waitpid(pid_, &status, 0) == pid_;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  pid_t pid_;
  bool ended_ = false;
};

TEST(CommandGuardTest, GroupsEndWithTheirGuardUnlessTheyHaveLeft) {
  auto guard = std::make_unique<CommandGuard>();
  ASSERT_EQ(guard->Ensure(), 0);
  Leader first(guard.get()), second(guard.get()), third(guard.get());
  guard->Leave(second.pid());
  // Waits for the end of the guard's process, which is behind its last kill.
  guard = nullptr;
  EXPECT_EQ(first.AwaitEnd(), SIGKILL);
  EXPECT_EQ(third.AwaitEnd(), SIGKILL);
  EXPECT_FALSE(second.HasEnded());
}

TEST(CommandGuardTest, AGuardThatWasKilledIsReplacedByOneThatKnowsTheSame) {
  auto guard = std::make_unique<CommandGuard>();
  ASSERT_EQ(guard->Ensure(), 0);
  Leader leader(guard.get());
  const pid_t before = guard->pid();
  ASSERT_EQ(guard->Ensure(), 0);
  EXPECT_EQ(guard->pid(), before);
  kill(before, SIGKILL);
  siginfo_t ended = {};
  waitid(P_PID, static_cast<id_t>(before), &ended, WEXITED | WNOWAIT);
  ASSERT_EQ(guard->Ensure(), 0);
  EXPECT_NE(guard->pid(), before);
  EXPECT_FALSE(leader.HasEnded());
  guard = nullptr;
  EXPECT_EQ(leader.AwaitEnd(), SIGKILL);
}

}  // namespace
}  // namespace weir
