#include "trainer/files/command_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace weir {
namespace {

// A line "+ GROUP" or "- GROUP" for each group that begins or ends. Uses builtins of the shell only.
constexpr char kScript[] =
    "live=\n"
    "while read -r verb group; do\n"
    "  rest=\n"
    "  for each in $live; do [ \"$each\" = \"$group\" ] || rest=\"$rest $each\"; done\n"
    "  live=$rest\n"
    "  [ \"$verb\" != + ] || live=\"$live $group\"\n"
    "done\n"
    "for each in $live; do kill -s KILL -- \"-$each\"; done\n";

// Becomes the guard. Runs in the child between vfork and exec, on the memory of the parent: no allocation, no lock.
[[noreturn]] void BecomeGuard(int socket) {
  // Neither a terminal nor whoever ends the group of this process reaches the guard.
  setsid();
  for (const int number : {SIGHUP, SIGINT, SIGTERM}) signal(number, SIG_IGN);
  for (const int number : {SIGPIPE, SIGCHLD}) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(socket, STDIN_FILENO);
  // It must not hold open what others read to the end.
  const int nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  syscall(SYS_close_range, 3U, ~0U, 0U);
  const char* const argv[] = {"sh", "-c", kScript, "weir-command-guard", nullptr};
  const char* const envp[] = {nullptr};
  execve("/bin/sh", const_cast<char* const*>(argv), const_cast<char* const*>(envp));
  _exit(127);
}

[[gnu::noinline]] pid_t StartGuard(int socket) {
  // No handler may run in the child on this memory.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = vfork();
  if (pid == 0) BecomeGuard(socket);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

}  // namespace

CommandGuard::~CommandGuard() {
  if (socket_ < 0) return;
  close(socket_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

int CommandGuard::Ensure() {
  pollfd end = {.fd = socket_, .events = 0, .revents = 0};
  if (socket_ >= 0 && poll(&end, 1, 0) == 0) return 0;
  Drop();
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return errno;
  pid_ = StartGuard(sockets[1]);
  const int error = errno;
  close(sockets[1]);
  if (pid_ < 0) {
    close(sockets[0]);
    return error;
  }
  socket_ = sockets[0];
  for (const pid_t group : groups_) Tell('+', group);
  return 0;
}

void CommandGuard::Announce(pid_t group) const { Tell('+', group); }

void CommandGuard::Leave(pid_t group) {
  // A guard that is stopped, and would kill what has this number later, is worse than none.
  if (groups_.erase(group) > 0 && socket_ >= 0 && !Tell('-', group)) Drop();
}

bool CommandGuard::Tell(char verb, pid_t group) const {
  char line[32];
  char* begin = line + sizeof line;
  *--begin = '\n';
  for (auto rest = static_cast<unsigned>(group); rest > 0; rest /= 10) *--begin = static_cast<char>('0' + rest % 10);
  *--begin = ' ';
  *--begin = verb;
  const auto size = static_cast<size_t>(line + sizeof line - begin);
  return send(socket_, begin, size, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
}

void CommandGuard::Drop() {
  if (socket_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  close(socket_);
  socket_ = pid_ = -1;
}

}  // namespace weir
