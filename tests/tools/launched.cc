#include "tests/tools/launched.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tools/hosts/reserved_ports.h"

namespace weir {

namespace fs = std::filesystem;

namespace {

bool IsFree(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool free = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  close(fd);
  return free;
}

}  // namespace

std::string Runfile(const std::string& path) {
  return absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"), "/", path);
}

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> Lines(const std::string& text) { return absl::StrSplit(text, '\n', absl::SkipEmpty()); }

int FreePorts(int count) {
  const auto drawn = ReservedPorts::Draw(200);
  EXPECT_TRUE(drawn.ok()) << drawn.status();
  for (const int first : drawn->ports()) {
    bool free = first + count < 32768;
    for (int port = first; free && port < first + count; ++port) free = IsFree(port);
    if (free) return first;
  }
  ADD_FAILURE() << "no " << count << " free ports in a row";
  return 0;
}

Launched::Launched(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& variables,
                   const std::function<void()>& prepare) {
  int out[2], err[2], life[2];
  EXPECT_EQ(pipe2(out, O_CLOEXEC) + pipe2(err, O_CLOEXEC) + pipe2(life, O_CLOEXEC), 0);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    fcntl(life[1], F_SETFD, 0);
    if (prepare) prepare();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    std::vector<std::string> texts = {Runfile("tools/launch")};
    texts.insert(texts.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& text : texts) argv.push_back(text.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  for (const int fd : {out[1], err[1], life[1]}) close(fd);
  out_ = out[0];
  err_ = err[0];
  life_ = life[0];
}
Launched::~Launched() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {out_, err_, life_}) {
    if (fd >= 0) close(fd);
  }
}

void Launched::Await(const std::string& text, int times) {
  const absl::Time end = absl::Now() + kPatience;
  const auto count = [&] {
    int n = 0;
    for (const std::string* output : {&result_.out, &result_.err}) {
      for (size_t at = output->find(text); at != std::string::npos; at = output->find(text, at + 1)) ++n;
    }
    return n;
  };
  while (count() < times) {
    ASSERT_LT(absl::Now(), end) << "no '" << text << "' in " << result_.out << result_.err;
    ASSERT_TRUE(Read()) << "no '" << text << "' in " << result_.out << result_.err;
  }
}

Result Launched::Finish(bool read_stdout) {
  if (!read_stdout) {
    waitpid(pid_, &status_, 0);
    pid_ = -1;
  }
  while (Read()) {
  }
  if (pid_ > 0) waitpid(pid_, &status_, 0);
  pid_ = -1;
  result_.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  AwaitEveryonesEnd();
  return result_;
}

bool Launched::Read() {
  std::vector<pollfd> fds;
  for (const int fd : {out_, err_}) {
    if (fd >= 0) fds.push_back({fd, POLLIN, 0});
  }
  if (fds.empty()) return false;
  const int ready = poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(kPatience)));
  EXPECT_GT(ready, 0) << "silence after " << result_.out << result_.err;
  if (ready <= 0) return false;
  char buffer[4096];
  for (const pollfd& fd : fds) {
    if (fd.revents == 0) continue;
    const ssize_t n = read(fd.fd, buffer, sizeof buffer);
    std::string& output = fd.fd == out_ ? result_.out : result_.err;
    if (n > 0) {
      output.append(buffer, static_cast<size_t>(n));
    } else {
      int& closed = fd.fd == out_ ? out_ : err_;
      close(closed);
      closed = -1;
    }
  }
  return true;
}

void Launched::AwaitEveryonesEnd() {
  pollfd end = {life_, POLLIN, 0};
  ASSERT_EQ(poll(&end, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))), 1) << "a process is left over";
  char byte;
  EXPECT_EQ(read(life_, &byte, 1), 0);
}

LaunchTest::LaunchTest() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  directory_ = fs::path(::testing::TempDir()) / test->name();
  fs::remove_all(directory_);
  fs::create_directories(directory_);
  logs_ = directory_ / "some" / "logs";
  job_ = directory_ / "job.textproto";
  WriteJob("deadlines { lease_s: 0.3 connect_deadline_s: 20 slow_warning_s: 0.1 }");
}

void LaunchTest::WriteJob(const std::string& text) { std::ofstream(job_) << text; }

std::vector<std::string> LaunchTest::Arguments(int servers, int trainers, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      "--job=" + job_.string(), absl::StrCat("--servers=", servers), absl::StrCat("--trainers=", trainers),
      "--log_dir=" + logs_.string(),
      "--bin_dir=" + fs::path(Runfile("tests/tools/fakes/trainer")).parent_path().string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> LaunchTest::ArgumentsWithoutNumbers(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = Arguments(1, 1, more);
  arguments.erase(arguments.begin() + 1, arguments.begin() + 3);
  return arguments;
}

std::vector<std::string> LaunchTest::RemoteArguments(const std::string& hosts, const std::vector<std::string>& more) {
  std::vector<std::string> all = {"-H",
                                  hosts,
                                  "--servers=1",
                                  "--master_addr=127.0.0.1",
                                  "--ssh=" + Runfile("tests/tools/fakes/ssh"),
                                  "--ssh_timeout_s=20"};
  all.insert(all.end(), more.begin(), more.end());
  return ArgumentsWithoutNumbers(all);
}

Result LaunchTest::Run(int servers, int trainers, const std::map<std::string, std::string>& scripts,
                       const std::vector<std::string>& more) {
  return Launched(Arguments(servers, trainers, more), scripts).Finish();
}

std::string LaunchTest::Log(const std::string& name) { return ReadFile(logs_ / (name + ".log")); }

}  // namespace weir
