#include "trainer/files/piped_command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "glog/logging.h"
#include "trainer/files/command_guard.h"

extern char** environ;

namespace weir {
namespace {

std::atomic<bool> allowed{false};

constexpr size_t kLastWords = 2000;  // bytes of standard error that are kept

// Runs functions on a thread that lives as long as the process, and has the guard of what they start. The system kills
// a child with its parent's death, and takes the end of the thread that started it for that; readers' threads come and
// go.
class Starter {
 public:
  static Starter& Global() {
    static auto* const starter = new Starter();
    return *starter;
  }

  // Runs `work` on the thread and waits for it.
  void Run(const std::function<void(CommandGuard&)>& work) {
    MutexLock lock(&mu_);
    const Work todo = {&work, next_++};
    queue_.push_back(todo);
    more_.Signal();
    while (done_ <= todo.number) finished_.Wait(&mu_);
  }

 private:
  struct Work {
    const std::function<void(CommandGuard&)>* work;
    int64_t number;
  };

  // The thread is never joined: it ends with the process.
  Starter() {
    StartThread("weir-pipes", [this] { Loop(); }).detach();
  }

  [[noreturn]] void Loop() {
    CommandGuard guard;
    mu_.Lock();
    while (true) {
      while (queue_.empty()) more_.Wait(&mu_);
      const Work todo = queue_.front();
      queue_.pop_front();
      mu_.Unlock();
      (*todo.work)(guard);
      mu_.Lock();
      done_ = todo.number + 1;
      finished_.SignalAll();
    }
  }

  Mutex mu_;
  CondVar more_, finished_;
  std::deque<Work> queue_ ABSL_GUARDED_BY(mu_);
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t done_ ABSL_GUARDED_BY(mu_) = 0;  // work below this number is done
};

// Becomes the command. Runs in the child between vfork and exec, on the memory of the parent: no allocation, no lock.
[[noreturn]] void BecomeCommand(pid_t parent, int out, int err, const char* command, const CommandGuard& guard) {
  setpgid(0, 0);
  guard.Announce(getpid());
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before prctl.
  if (getppid() != parent) _exit(127);
  const int in = open("/dev/null", O_RDONLY);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  // The command would inherit ignored and blocked signals.
  for (const int number : {SIGPIPE, SIGHUP, SIGINT, SIGTERM, SIGCHLD, SIGXFSZ}) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Some programs close, or have tables for, as many descriptors as they may have.
  RestoreDescriptorLimit();
  const char* const argv[] = {"sh", "-c", command, nullptr};
  execve("/bin/sh", const_cast<char* const*>(argv), environ);
  _exit(127);
}

// Starts the command; -1 with errno if that fails. Without a copy of the page tables, which takes long in a process of
// many gigabytes.
[[gnu::noinline]] pid_t StartCommand(int out, int err, const char* command, const CommandGuard& guard) {
  const pid_t parent = getpid();
  // No handler may run in the child on this memory.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = vfork();
  if (pid == 0) BecomeCommand(parent, out, err, command, guard);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

void CloseFd(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

int Milliseconds(absl::Duration left) {
  return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 0, 3600 * 1000));
}

}  // namespace

void AllowPipes() { allowed.store(true, std::memory_order_relaxed); }

absl::Status PipesAllowed(std::string_view field) {
  if (allowed.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      std::string(field),
      ": the job names a command, which runs only where the program is started with --allow_pipes; look at the "
      "command first if the job is not yours"));
}

std::string CommandFor(std::string_view command, std::string_view name) {
  const std::string quoted = absl::StrCat("'", absl::StrReplaceAll(std::string(name), {{"'", "'\\''"}}), "'");
  return absl::StrReplaceAll(std::string(command), {{"{}", quoted}});
}

absl::StatusOr<std::unique_ptr<PipedCommand>> PipedCommand::Start(PipedCommandOptions options) {
  std::unique_ptr<PipedCommand> command(new PipedCommand(std::move(options)));
  RETURN_IF_ERROR(command->Spawn());
  return command;
}

absl::Status PipedCommand::Spawn() {
  int out[2] = {-1, -1}, err[2] = {-1, -1};
  int error = 0;
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
    error = errno;
  } else {
    Starter::Global().Run([&](CommandGuard& guard) {
      error = guard.Ensure();
      if (error != 0) return;
      pid_ = StartCommand(out[1], err[1], o_.command.c_str(), guard);
      if (pid_ < 0) error = errno;
      if (pid_ > 0) guard.Enter(pid_);
    });
  }
  CloseFd(&out[1]);
  CloseFd(&err[1]);
  out_ = out[0];
  err_ = err[0];
  if (error != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat(About("cannot be started: "), strerror(error), error == EMFILE ? " (" : "",
                     error == EMFILE ? DescriptorLimitText() : "", error == EMFILE ? ")" : ""));
  }
  // Both are read only where poll says so, but another process may share them.
  for (const int fd : {out_, err_}) fcntl(fd, F_SETFL, O_NONBLOCK);
  // A larger buffer lets the command work while this side parses; a hint.
  fcntl(out_, F_SETPIPE_SZ, 1 << 20);
  return absl::OkStatus();
}

PipedCommand::~PipedCommand() {
  CloseFd(&out_);
  CloseFd(&err_);
  if (pid_ > 0) KillAndReap();
}

int PipedCommand::KillAndReap() {
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);  // if it has not become the leader of its group yet
  Starter::Global().Run([this](CommandGuard& guard) { guard.Leave(pid_); });
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

bool PipedCommand::ReadErrors() {
  char block[4096];
  while (true) {
    const ssize_t got = read(err_, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) {
      CloseFd(&err_);
      return false;
    }
    last_words_.append(block, static_cast<size_t>(got));
    if (last_words_.size() > 2 * kLastWords) last_words_.erase(0, last_words_.size() - kLastWords);
  }
}

std::string PipedCommand::About(std::string_view what) const {
  return absl::StrCat(o_.name, ": the command `", o_.command, "` ", std::string(what));
}

absl::Status PipedCommand::Ended(int status) const {
  std::string words =
      last_words_.size() > kLastWords ? last_words_.substr(last_words_.size() - kLastWords) : last_words_;
  absl::StripAsciiWhitespace(&words);
  words = words.empty() ? "; it wrote nothing to its standard error" : absl::StrCat("; its last words: ", words);
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return absl::UnavailableError(
        absl::StrCat(About("was ended by signal "), number, " (", strsignal(number), ")", words));
  }
  const int code = WEXITSTATUS(status);
  if (code == 0) return absl::OkStatus();
  const bool cannot_run = code == 126 || code == 127;
  const std::string text =
      absl::StrCat(About(cannot_run ? "cannot be run: exit code " : "failed: exit code "), code, words);
  if (cannot_run || code == 2) return absl::InvalidArgumentError(text);
  return code == 4 ? absl::DataLossError(text) : absl::UnavailableError(text);
}

absl::Status PipedCommand::AwaitEnd() {
  CloseFd(&out_);
  const absl::Time until = Clock::Real()->Now() + o_.deadline;
  // glibc 2.36 declares pidfd_open for C only.
  int fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  while (true) {
    siginfo_t ended = {};
    // It is left unreaped, so that its number is not another's before its group has been killed.
    const int looked = waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (looked < 0 && errno != EINTR) {
      const int error = errno;
      CloseFd(&fd);
      Starter::Global().Run([this](CommandGuard& guard) { guard.Leave(pid_); });
      pid_ = -1;
      return absl::UnavailableError(absl::StrCat(About("has ended with an exit code that the system does not tell: "),
                                                 strerror(error),
                                                 "; is SIGCHLD ignored where this program was started?"));
    }
    if (looked == 0 && ended.si_pid == pid_) break;
    const absl::Duration left = until - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) {
      CloseFd(&fd);
      return absl::UnavailableError(absl::StrCat(About("has closed its output and not ended within "),
                                                 absl::FormatDuration(o_.deadline), " (data.pipe_deadline_s)"));
    }
    pollfd of[2] = {{.fd = fd, .events = POLLIN}, {.fd = err_, .events = POLLIN}};
    // Without a descriptor of the process it is looked at ten times a second.
    poll(of, 2, fd >= 0 ? Milliseconds(left) : 100);
    if (of[1].revents != 0) ReadErrors();
  }
  CloseFd(&fd);
  if (err_ >= 0) ReadErrors();
  // Others of its group may be left, such as a part of a pipeline.
  const int status = KillAndReap();
  ended_ = true;
  return Ended(status);
}

absl::StatusOr<size_t> PipedCommand::Read(char* out, size_t size) {
  RETURN_IF_ERROR(failed_);
  if (ended_ || size == 0) return 0;
  absl::StatusOr<size_t> got = ReadOrEnd(out, size);
  failed_ = got.status();
  return got;
}

absl::StatusOr<size_t> PipedCommand::ReadOrEnd(char* out, size_t size) {
  const absl::Time until = Clock::Real()->Now() + o_.deadline;
  while (true) {
    const ssize_t got = read(out_, out, size);
    if (got > 0) return static_cast<size_t>(got);
    if (got == 0) {
      RETURN_IF_ERROR(AwaitEnd());
      return 0;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return absl::UnavailableError(absl::StrCat(About("cannot be read: "), strerror(errno)));
    const absl::Duration left = until - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) {
      return absl::UnavailableError(absl::StrCat(About("has written nothing for "), absl::FormatDuration(o_.deadline),
                                                 " (data.pipe_deadline_s)"));
    }
    pollfd of[2] = {{.fd = out_, .events = POLLIN}, {.fd = err_, .events = POLLIN}};
    poll(of, 2, Milliseconds(left));
    if (of[1].revents != 0 && err_ >= 0) ReadErrors();
  }
}

absl::StatusOr<std::string> OutputOf(PipedCommandOptions options, size_t limit) {
  ASSIGN_OR_RETURN(const std::unique_ptr<PipedCommand> command, PipedCommand::Start(options));
  std::string output;
  char block[4096];
  while (true) {
    ASSIGN_OR_RETURN(const size_t got, command->Read(block, sizeof block));
    if (got == 0) return output;
    output.append(block, got);
    if (output.size() > limit) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.name, ": the command `", options.command, "` writes more than ", limit, " bytes"));
    }
  }
}

}  // namespace weir
