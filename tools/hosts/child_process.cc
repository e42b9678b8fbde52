#include "tools/hosts/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/process/stop_signals.h"
#include "glog/logging.h"

extern char** environ;

namespace weir {
namespace {

// Returns this process's environment with the changes.
std::vector<std::string> EnvironmentWith(const Variables& changes) {
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
  pointers.reserve(texts.size() + 1);
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
  int TakeWriteEnd() { return std::exchange(fds_[1], -1); }

 private:
  void CloseEnd(int i) {
    if (fds_[i] >= 0) close(fds_[i]);
    fds_[i] = -1;
  }
  int fds_[2];
};

// Set of processors of any number, in the form that the kernel reads.
std::vector<cpu_set_t> CpuSet(const std::vector<int>& cpus) {
  if (cpus.empty()) return {};
  const size_t each = 8 * sizeof(cpu_set_t);
  const auto largest = static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end()));
  std::vector<cpu_set_t> sets(largest / each + 1);
  for (cpu_set_t& set : sets) CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), sets.size() * sizeof(cpu_set_t), sets.data());
  return sets;
}

// Values that the child needs between fork and exec.
struct Birth {
  pid_t parent;
  int in;  // -1: in_file
  const char* in_file;
  int out;
  int err;
  int failure;
  const std::vector<cpu_set_t>& cpus;
  char* const* argv;
  char* const* envp;
};

[[noreturn]] void Fail(int failure, int error) {
  const ssize_t told = write(failure, &error, sizeof error);
  _exit(told == sizeof error ? 127 : 126);
}

// Runs in the child between fork and exec, where only async-signal-safe functions may be called: no allocation.
[[noreturn]] void BecomeProgram(const Birth& birth) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before prctl.
  if (getppid() != birth.parent) _exit(127);
  if (!birth.cpus.empty() && sched_setaffinity(0, birth.cpus.size() * sizeof(cpu_set_t), birth.cpus.data()) != 0) {
    Fail(birth.failure, errno);
  }
  const int in = birth.in >= 0 ? birth.in : open(birth.in_file, O_RDONLY);
  dup2(in, STDIN_FILENO);
  dup2(birth.out, STDOUT_FILENO);
  dup2(birth.err, STDERR_FILENO);
  // The program would inherit ignored and blocked signals. Signals that ask for an end stay blocked until the program
  // waits for them (framework/process/stop_signals.h), since they would kill it while it is loaded.
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  const sigset_t held = StopSignalSet();
  sigprocmask(SIG_SETMASK, &held, nullptr);
  execve(birth.argv[0], birth.argv, birth.envp);
  Fail(birth.failure, errno);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(ChildOptions options, OnLine on_line) {
  CHECK(!options.command.empty());
  std::unique_ptr<ChildProcess> child(new ChildProcess(std::move(options), std::move(on_line)));
  RETURN_IF_ERROR(child->Spawn());
  return child;
}

absl::Status ChildProcess::Spawn() {
  RETURN_IF_ERROR(OpenLog());
  Pipe in, out, err, failure;
  if (!in.ok() || !out.ok() || !err.ok() || !failure.ok()) return SystemError(errno, "cannot make a pipe");
  std::vector<std::string> command = options_.command;
  std::vector<std::string> environment = EnvironmentWith(options_.environment);
  const std::vector<char*> argv = Pointers(command);
  const std::vector<char*> envp = Pointers(environment);
  const std::vector<cpu_set_t> cpus = CpuSet(options_.cpus);
  const std::string in_file =
      options_.stdin_fd >= 0 ? absl::StrCat("/proc/self/fd/", options_.stdin_fd) : std::string("/dev/null");
  const Birth birth = {.parent = getpid(),
                       .in = options_.input ? in.read_end() : -1,
                       .in_file = in_file.c_str(),
                       .out = out.write_end(),
                       .err = err.write_end(),
                       .failure = failure.write_end(),
                       .cpus = cpus,
                       .argv = argv.data(),
                       .envp = envp.data()};
  pid_ = fork();
  if (pid_ == 0) BecomeProgram(birth);
  if (pid_ < 0) return SystemError(errno, absl::StrCat("cannot start ", name()));
  // Set the group here too: a signal to the group then finds the child whichever process runs first.
  setpgid(pid_, pid_);
  failure.CloseWriteEnd();
  int error = 0;
  if (read(failure.read_end(), &error, sizeof error) == sizeof error) {
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
    const std::string where = cpus.empty() ? "" : absl::StrCat(" on processors ", absl::StrJoin(options_.cpus, ","));
    return SystemError(error, absl::StrCat("cannot start ", options_.command[0], where));
  }
  stdout_.fd = out.TakeReadEnd();
  stderr_.fd = err.TakeReadEnd();
  if (options_.input) input_ = in.TakeWriteEnd();
  for (const int fd : {stdout_.fd, stderr_.fd, input_}) {
    if (fd >= 0) fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  return absl::OkStatus();
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !ending().has_value()) {
    kill(-pid_, SIGKILL);
    // glibc 2.36 declares pidfd_open for C only.
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    pollfd end = {.fd = fd, .events = POLLIN, .revents = 0};
    const bool ended = fd < 0 || poll(&end, 1, static_cast<int>(absl::ToInt64Milliseconds(kLongestKill))) != 0;
    waitpid(pid_, nullptr, ended ? 0 : WNOHANG);
    if (fd >= 0) close(fd);
  }
  for (const int fd : {stdout_.fd, stderr_.fd, input_}) {
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
      if (c == '\n' || output->partial.size() >= options_.longest_line) EndLine(output);
    }
  }
}

void ChildProcess::EndLine(Output* output) {
  const std::string line = std::exchange(output->partial, "");
  Keep(line);
  on_line_(output == &stdout_, line);
}

void ChildProcess::Write(std::string_view text) {
  if (input_ < 0) return;
  input_buffer_.append(text);
  FlushInput();
}

void ChildProcess::FlushInput() {
  while (input_ >= 0 && !input_buffer_.empty()) {
    const ssize_t n = write(input_, input_buffer_.data(), input_buffer_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return CloseInput();
    input_buffer_.erase(0, static_cast<size_t>(n));
  }
}

void ChildProcess::CloseInput() {
  if (input_ >= 0) close(input_);
  input_ = -1;
  input_buffer_.clear();
}

void ChildProcess::Signal(int signal) {
  if (pid_ > 0 && !ending().has_value()) kill(-pid_, signal);
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
  CloseInput();
  SetEnding(Ending(status));
}

}  // namespace weir
