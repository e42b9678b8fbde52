#include "tools/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/stop_signals.h"
#include "glog/logging.h"

extern char** environ;

namespace weir {
namespace {

constexpr size_t kLongestLine = size_t{64} << 10;

// Returns this process's environment with the changes.
std::vector<std::string> EnvironmentWith(const std::map<std::string, std::optional<std::string>>& changes) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!changes.contains(std::string(text.substr(0, text.find('='))))) entries.emplace_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (value.has_value()) entries.push_back(absl::StrCat(name, "=", *value));
  }
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

absl::Status SystemError(int error, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", strerror(error)));
}

// Pipe whose ends are closed on exec and, unless taken, by the destructor.
class Pipe {
 public:
  Pipe() {
    const int made = pipe2(fds_, O_CLOEXEC);
    if (made != 0) fds_[0] = fds_[1] = -1;
  }
  ~Pipe() {
    CloseEnd(0);
    CloseEnd(1);
  }
  bool ok() const { return fds_[0] >= 0; }
  int read_end() const { return fds_[0]; }
  int write_end() const { return fds_[1]; }
  void CloseWriteEnd() { CloseEnd(1); }
  int TakeReadEnd() { return std::exchange(fds_[0], -1); }

 private:
  void CloseEnd(int i) {
    if (fds_[i] >= 0) close(fds_[i]);
    fds_[i] = -1;
  }
  int fds_[2];
};

// Runs in the child between fork and exec, where only async-signal-safe functions may be called: no allocation.
[[noreturn]] void BecomeProgram(pid_t parent, int out, int err, int failure, const char* program, char* const* argv,
                                char* const* envp) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before prctl.
  if (getppid() != parent) _exit(127);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  // The program would inherit ignored and blocked signals. Signals that ask for an end stay blocked until the program
  // waits for them (framework/base/stop_signals.h), since they would kill it while it is loaded.
  signal(SIGPIPE, SIG_DFL);
  const sigset_t held = StopSignalSet();
  sigprocmask(SIG_SETMASK, &held, nullptr);
  execve(program, argv, envp);
  const int error = errno;
  const ssize_t told = write(failure, &error, sizeof error);
  _exit(told == sizeof error ? 127 : 126);
}

}  // namespace

bool Ending::ok() const { return WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }

int Ending::code() const { return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_); }

std::string Ending::ToString() const {
  if (!WIFSIGNALED(status_)) return absl::StrCat("exit code ", WEXITSTATUS(status_));
  return absl::StrCat("killed by signal ", WTERMSIG(status_), " (", strsignal(WTERMSIG(status_)), ")");
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(ChildOptions options, OnLine on_line) {
  CHECK(!options.command.empty());
  std::unique_ptr<ChildProcess> child(new ChildProcess(std::move(options), std::move(on_line)));
  RETURN_IF_ERROR(child->Spawn());
  return child;
}

absl::Status ChildProcess::Spawn() {
  log_ = open(options_.log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (log_ < 0) return SystemError(errno, absl::StrCat("cannot write ", options_.log_file));
  Pipe out, err, failure;
  if (!out.ok() || !err.ok() || !failure.ok()) return SystemError(errno, "cannot make a pipe");
  std::vector<std::string> command = options_.command;
  std::vector<std::string> environment = EnvironmentWith(options_.environment);
  const std::vector<char*> argv = Pointers(command);
  const std::vector<char*> envp = Pointers(environment);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    BecomeProgram(parent, out.write_end(), err.write_end(), failure.write_end(), argv[0], argv.data(), envp.data());
  }
  if (pid_ < 0) return SystemError(errno, absl::StrCat("cannot start ", name()));
  // Set the group here too: a signal to the group then finds the child whichever process runs first.
  setpgid(pid_, pid_);
  failure.CloseWriteEnd();
  int error = 0;
  if (read(failure.read_end(), &error, sizeof error) == sizeof error) {
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
    return SystemError(error, absl::StrCat("cannot start ", options_.command[0]));
  }
  stdout_.fd = out.TakeReadEnd();
  stderr_.fd = err.TakeReadEnd();
  fcntl(stdout_.fd, F_SETFL, O_NONBLOCK);
  fcntl(stderr_.fd, F_SETFL, O_NONBLOCK);
  return absl::OkStatus();
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !ending_.has_value()) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {stdout_.fd, stderr_.fd, log_}) {
    if (fd >= 0) close(fd);
  }
}

void ChildProcess::ReadOutput() {
  Read(&stdout_);
  Read(&stderr_);
}

void ChildProcess::Read(Output* output) {
  char buffer[16 << 10];
  while (output->fd >= 0) {
    const ssize_t n = read(output->fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      if (!output->partial.empty()) EndLine(output);
      close(output->fd);
      output->fd = -1;
      return;
    }
    for (const char c : std::string_view(buffer, static_cast<size_t>(n))) {
      if (c != '\n') output->partial.push_back(c);
      if (c == '\n' || output->partial.size() >= kLongestLine) EndLine(output);
    }
  }
}

void ChildProcess::EndLine(Output* output) {
  const std::string line = std::exchange(output->partial, "");
  if (last_lines_.size() == kLastLines) last_lines_.pop_front();
  last_lines_.push_back(line);
  const std::string logged = line + "\n";
  size_t written = 0;
  while (log_ >= 0 && written < logged.size()) {
    const ssize_t n = write(log_, logged.data() + written, logged.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      // A full disk must not end the training.
      LOG(ERROR) << "cannot write " << options_.log_file << ": " << strerror(errno) << "; " << name()
                 << " is shown here only";
      close(log_);
      log_ = -1;
      break;
    }
    written += static_cast<size_t>(n);
  }
  on_line_(*this, output == &stdout_, line);
}

void ChildProcess::Signal(int signal) {
  if (pid_ > 0 && !ending_.has_value()) kill(-pid_, signal);
}

void ChildProcess::Reap() {
  // Before it is reaped, its group id cannot be reused by another process.
  kill(-pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  ReadOutput();
  for (Output* output : {&stdout_, &stderr_}) {
    if (!output->partial.empty()) EndLine(output);
    if (output->fd >= 0) close(output->fd);
    output->fd = -1;
  }
  ending_ = Ending(status);
}

}  // namespace weir
