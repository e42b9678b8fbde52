// launch as a process, with stand-ins for pserver and trainer (fakes/fake_process.cc).

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/hosts/reserved_ports.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Longer than anything here takes on a busy machine, short enough to find out.
constexpr absl::Duration kPatience = absl::Seconds(30);

std::string Runfile(const std::string& path) {
  return absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"), "/", path);
}

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Result {
  // Exit code, or minus the signal.
  int code = 0;
  std::string out;
  std::string err;
};

// One launch. Every process of its cluster holds a "life line": a pipe that ends when the last of them is gone.
class Launched {
 public:
  // `prepare` runs in launch's process before it begins.
  Launched(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& variables,
           const std::function<void()>& prepare = {}) {
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
  ~Launched() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (const int fd : {out_, err_, life_}) {
      if (fd >= 0) close(fd);
    }
  }

  pid_t pid() const { return pid_; }
  const Result& so_far() const { return result_; }

  // Reads until one of the outputs holds `text` so many times.
  void Await(const std::string& text, int times = 1) {
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

  // Reads the rest and waits for the end, then for the end of everyone.
  Result Finish(bool read_stdout = true) {
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

 private:
  // False at the end of both outputs.
  bool Read() {
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

  void AwaitEveryonesEnd() {
    pollfd end = {life_, POLLIN, 0};
    ASSERT_EQ(poll(&end, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))), 1) << "a process is left over";
    char byte;
    EXPECT_EQ(read(life_, &byte, 1), 0);
  }

  pid_t pid_ = -1;
  int status_ = 0;
  int out_ = -1;
  int err_ = -1;
  int life_ = -1;
  Result result_;
};

class LaunchTest : public ::testing::Test {
 protected:
  LaunchTest() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = fs::path(::testing::TempDir()) / test->name();
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    logs_ = directory_ / "some" / "logs";
    job_ = directory_ / "job.textproto";
    WriteJob("deadlines { lease_s: 0.3 connect_deadline_s: 20 slow_warning_s: 0.1 }");
  }

  void WriteJob(const std::string& text) { std::ofstream(job_) << text; }

  std::vector<std::string> Arguments(int servers, int trainers, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {
        "--job=" + job_.string(), absl::StrCat("--servers=", servers), absl::StrCat("--trainers=", trainers),
        "--log_dir=" + logs_.string(),
        "--bin_dir=" + fs::path(Runfile("tests/tools/fakes/trainer")).parent_path().string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::vector<std::string> ArgumentsWithoutNumbers(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = Arguments(1, 1, more);
    arguments.erase(arguments.begin() + 1, arguments.begin() + 3);
    return arguments;
  }

  // A run with -H in which fakes/ssh reaches other hosts. Addresses of 203.0.113.0/24 are no machine's.
  std::vector<std::string> RemoteArguments(const std::string& hosts, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all = {"-H",
                                    hosts,
                                    "--servers=1",
                                    "--master_addr=127.0.0.1",
                                    "--ssh=" + Runfile("tests/tools/fakes/ssh"),
                                    "--ssh_timeout_s=20"};
    all.insert(all.end(), more.begin(), more.end());
    return ArgumentsWithoutNumbers(all);
  }

  Result Run(int servers, int trainers, const std::map<std::string, std::string>& scripts,
             const std::vector<std::string>& more = {}) {
    return Launched(Arguments(servers, trainers, more), scripts).Finish();
  }

  std::string Log(const std::string& name) { return ReadFile(logs_ / (name + ".log")); }

  fs::path directory_, logs_, job_;
};

std::vector<std::string> Lines(const std::string& text) { return absl::StrSplit(text, '\n', absl::SkipEmpty()); }

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

// First of `count` ports in a row at which nobody listens.
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

int CoresHere() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return CPU_COUNT(&set);
}

TEST_F(LaunchTest, LinesCarryTheNameOfTheirProcessAndGoToItsLog) {
  const Result result = Run(1, 2, {{"FAKE_TRAINER_1", "out hello;err trouble;partial cut short"}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out), AllOf(Contains("[trainer.1] hello"), Contains("[trainer.1] cut short"),
                                       Contains(StartsWith("[pserver.0] ready server=0 endpoint=127.0.0.1:"))));
  EXPECT_THAT(Lines(result.err), Contains("[trainer.1] trouble"));
  EXPECT_THAT(Log("trainer.1"), AllOf(HasSubstr("hello\n"), HasSubstr("trouble\n"), HasSubstr("cut short\n")));
  EXPECT_THAT(Log("trainer.1"), Not(HasSubstr("[trainer.1]")));
  EXPECT_EQ(Log("trainer.0"), "");
  EXPECT_THAT(Log("pserver.0"), StartsWith("ready server=0"));
}

TEST_F(LaunchTest, ARunWithFewerTrainersTruncatesTheLogsItUses) {
  Run(1, 1, {{"FAKE_TRAINER", "out first run"}});
  Run(1, 1, {{"FAKE_TRAINER", "out second run"}});
  EXPECT_EQ(Log("trainer.0"), "second run\n");
}

TEST_F(LaunchTest, TheChiefsDoneLineIsTheLastLineUnprefixed) {
  const Result result = Run(2, 2,
                            {{"FAKE_TRAINER_0", "out done steps=1 loss=9;out done steps=10 loss=0.5;out bye"},
                             {"FAKE_TRAINER_1", "out done steps=7"}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Lines(result.out).back(), "done steps=10 loss=0.5");
  EXPECT_THAT(Lines(result.out), Not(Contains("done steps=7")));
}

TEST_F(LaunchTest, WhatTheChiefPredictedIsTheLastLineUnprefixed) {
  const Result result = Run(1, 1, {{"FAKE_TRAINER_0", "out predicted examples=9 output=x;out bye"}});
  EXPECT_EQ(Lines(result.out).back(), "predicted examples=9 output=x");
}

TEST_F(LaunchTest, TheFirstFailureIsNamedWithItsCodeAndLastLines) {
  const std::string a = (directory_ / "a").string(), b = (directory_ / "b").string();
  const Result result =
      Run(2, 3,
          {{"FAKE_TRAINER_0", "block;touch " + a + ";wait"},
           {"FAKE_TRAINER_1", "block;touch " + b + ";wait"},
           {"FAKE_TRAINER_2", "await " + a + ";await " + b + ";repeat 20 line;err no such file: train.tsv;exit 7"}});
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.2 failed: exit code 7; ending the others\n"));
  const std::string log = (logs_ / "trainer.2.log").string();
  const size_t report = result.err.find("launch: trainer.2 failed: exit code 7; the last lines of " + log + ":\n");
  ASSERT_NE(report, std::string::npos) << result.err;
  EXPECT_THAT(result.err.substr(report), AllOf(HasSubstr("launch:   no such file: train.tsv\n"),
                                               HasSubstr("launch:   19 line\n"), Not(HasSubstr("launch:   3 line\n"))));
  EXPECT_THAT(result.out, AllOf(HasSubstr("[trainer.0] got signal 15"), HasSubstr("[trainer.1] got signal 15")));
}

TEST_F(LaunchTest, AKilledProcessGivesItsSignal) {
  const Result result = Run(1, 2, {{"FAKE_TRAINER", "wait"}, {"FAKE_TRAINER_0", "raise 9"}});
  EXPECT_EQ(result.code, 128 + 9);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.0 failed: killed by signal 9 (Killed); the last lines"));
  EXPECT_THAT(result.err, HasSubstr("(it said nothing)"));
  EXPECT_THAT(result.err, HasSubstr("launch: launch has not sent that signal to trainer.0; the system "));
}

TEST_F(LaunchTest, AServerThatFailsIsNamed) {
  const Result result = Run(2, 1, {{"FAKE_TRAINER", "wait"}, {"FAKE_PSERVER_1", "exit 4"}});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err, HasSubstr("launch: pserver.1 failed: exit code 4"));
}

TEST_F(LaunchTest, TheBearerOfBadNewsIsNotBlamed) {
  // trainer.0 notices that trainer.1 is lost before trainer.1 has ended.
  const std::string news = (directory_ / "news").string();
  const Result result = Run(1, 2,
                            {{"FAKE_TRAINER_0", "touch " + news + ";exit 3"},
                             {"FAKE_TRAINER_1", "await " + news + ";err the culprit;exit 2"}});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 failed: exit code 2; the last lines"));
  EXPECT_THAT(result.err, HasSubstr("launch:   the culprit"));
}

TEST_F(LaunchTest, ALostPeerThatNobodyIsIsTheMessengersFailure) {
  const Result result = Run(1, 2, {{"FAKE_TRAINER_0", "exit 3"}, {"FAKE_TRAINER_1", "wait"}});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.0 failed: exit code 3; the last lines"));
}

TEST_F(LaunchTest, WhoDoesNotEndWithinTwoLeasesIsKilled) {
  const std::string ready = (directory_ / "ready").string();
  const Result result = Run(
      1, 2,
      {{"FAKE_TRAINER_0", "block;child;touch " + ready + ";ignore"}, {"FAKE_TRAINER_1", "await " + ready + ";exit 7"}});
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.err, HasSubstr("did not end within two leases"));
}

TEST_F(LaunchTest, KeepGoingLetsTheOthersFinish) {
  const std::string dead = (directory_ / "dead").string();
  const Result result =
      Run(1, 2,
          {{"FAKE_TRAINER_0", "await " + dead + ";out done steps=3"}, {"FAKE_TRAINER_1", "touch " + dead + ";exit 6"}},
          {"--keep_going"});
  EXPECT_EQ(result.code, 6);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 failed: exit code 6; the others go on"));
  EXPECT_EQ(Lines(result.out).back(), "done steps=3");
}

TEST_F(LaunchTest, ASignalIsPassedOnOnceAndACleanEndIsZero) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Launched launched(Arguments(2, 2), {{"FAKE_TRAINER", "wait"}});
    launched.Await("] waiting", 2);
    kill(launched.pid(), signal);
    const Result result = launched.Finish();
    EXPECT_EQ(result.code, 0) << result.err;
    const std::string got = absl::StrCat("got signal ", signal);
    EXPECT_THAT(Lines(result.out), AllOf(Contains("[trainer.0] " + got), Contains("[trainer.1] " + got)));
    EXPECT_THAT(result.out, Not(HasSubstr("second signal")));
  }
}

TEST_F(LaunchTest, AJobThatWasStoppedIsNeitherCompleteNorFailed) {
  struct Case {
    std::vector<std::string> flags;
    int code;
  };
  for (const Case& c : {Case{{}, 5}, Case{{"--stop_code=75"}, 75}, Case{{"--stop_code=0"}, 0}}) {
    Launched launched(Arguments(1, 2, c.flags), {{"FAKE_TRAINER", "halt"}});
    launched.Await("] waiting", 2);
    kill(launched.pid(), SIGTERM);
    const Result result = launched.Finish();
    EXPECT_EQ(result.code, c.code) << result.err;
    EXPECT_EQ(Lines(result.out).back(), "done steps=3 stopped=1");
    EXPECT_THAT(result.err, Not(HasSubstr("failed")));
  }
}

TEST_F(LaunchTest, AStopThatAnotherProcessWasAskedForIsOneToo) {
  const Result result = Run(1, 2, {{"FAKE_TRAINER", "out done steps=3 stopped=1;exit 5"}});
  EXPECT_EQ(result.code, 5);
  EXPECT_EQ(Lines(result.out).back(), "done steps=3 stopped=1");
  EXPECT_THAT(result.err, Not(HasSubstr("failed")));
}

TEST_F(LaunchTest, AJobThatWasStoppedIsNotStartedAgain) {
  const Result result = Run(1, 2, {{"FAKE_TRAINER", "exit 5"}}, {"--restarts=3"});
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.err, Not(HasSubstr("restart")));
}

TEST_F(LaunchTest, AFailureBesideAStopCounts) {
  const std::string dead = (directory_ / "dead").string();
  const Result result =
      Run(1, 2, {{"FAKE_TRAINER_0", "await " + dead + ";exit 5"}, {"FAKE_TRAINER_1", "touch " + dead + ";exit 2"}});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 failed: exit code 2; the last lines"));
}

TEST_F(LaunchTest, AProcessThatWasStoppedIsNotBlamedForALostPeer) {
  const std::string lost = (directory_ / "lost").string();
  const Result result =
      Run(1, 2, {{"FAKE_TRAINER_0", "await " + lost + ";exit 5"}, {"FAKE_TRAINER_1", "touch " + lost + ";exit 3"}});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 failed: exit code 3; the last lines"));
}

// While a program is loaded, SIGTERM would kill it.
TEST_F(LaunchTest, SignalsThatAskForAnEndWaitUntilAProgramIsThere) {
  const Result result = Run(1, 1, {{"FAKE_TRAINER", "held"}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out), Contains("[trainer.0] held 1 2 15"));
}

// A terminal that goes away says so, and the shell in it may say so too.
TEST_F(LaunchTest, ASecondHangUpKillsNobody) {
  Launched launched(Arguments(1, 2), {{"FAKE_TRAINER", "wait"}});
  launched.Await("] waiting", 2);
  kill(launched.pid(), SIGHUP);
  launched.Await("is passed on");
  kill(launched.pid(), SIGHUP);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out), Contains(absl::StrCat("[trainer.0] got signal ", SIGHUP)));
}

TEST_F(LaunchTest, AnEndThatIsNotCleanAfterASignalIsNot) {
  Launched launched(Arguments(1, 2), {{"FAKE_TRAINER", "wait"}, {"FAKE_TRAINER_1", "out waiting;ignore"}});
  launched.Await("] waiting", 2);
  launched.Await("ignoring");
  kill(launched.pid(), SIGTERM);
  launched.Await("got signal");
  kill(launched.pid(), SIGTERM);  // the same request again
  kill(launched.pid(), SIGINT);
  EXPECT_EQ(launched.Finish().code, 128 + SIGTERM);
}

TEST_F(LaunchTest, ASecondSignalKillsEveryoneAtOnce) {
  Launched launched(Arguments(1, 2), {{"FAKE_TRAINER", "child;ignore"}});
  launched.Await("ignoring", 2);
  kill(launched.pid(), SIGINT);
  launched.Await("a second signal stops them at once");
  kill(launched.pid(), SIGINT);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 128 + SIGINT);
  EXPECT_THAT(result.err, HasSubstr("second signal"));
}

TEST_F(LaunchTest, ASignalBeforeTheTrainersStartEndsTheServers) {
  for (const auto& [flag, code] : {std::pair{"--stop_code=5", 5}, std::pair{"--stop_code=0", 128 + SIGTERM}}) {
    Launched launched(Arguments(2, 1, {flag}), {{"FAKE_PSERVER", "unready"}});
    launched.Await("waiting for pserver.0, pserver.1 to be ready");
    kill(launched.pid(), SIGTERM);
    const Result result = launched.Finish();
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("before the trainers were started"), Not(HasSubstr("failed"))));
  }
}

TEST_F(LaunchTest, ASecondSignalBeforeTheTrainersStartKillsTheServers) {
  Launched launched(Arguments(1, 1), {{"FAKE_PSERVER", "unready;ignore"}});
  launched.Await("ignoring");
  kill(launched.pid(), SIGTERM);
  launched.Await("before the trainers were started");
  kill(launched.pid(), SIGINT);
  EXPECT_EQ(launched.Finish().code, 128 + SIGTERM);
}

TEST_F(LaunchTest, ASignalAfterAFailureBeforeTheTrainersStartHidesNothing) {
  WriteJob("deadlines { lease_s: 25 slow_warning_s: 0.1 }");
  const std::string here = (directory_ / "here").string(), stopped = (directory_ / "stopped").string();
  Launched launched(Arguments(2, 1),
                    {{"FAKE_PSERVER_0", "unready;await " + here + ";exit 2"},
                     {"FAKE_PSERVER_1", "unready;block;touch " + here + ";await " + stopped + ";exit 5"}});
  launched.Await("failed: exit code 2");
  kill(launched.pid(), SIGTERM);
  launched.Await("before the trainers were started");
  std::ofstream(stopped) << "";
  EXPECT_EQ(launched.Finish().code, 2);
}

TEST_F(LaunchTest, NobodyOutlivesALaunchThatIsKilled) {
  Launched launched(Arguments(2, 2), {{"FAKE_TRAINER", "ignore"}});
  launched.Await("ignoring", 2);
  kill(launched.pid(), SIGKILL);
  EXPECT_EQ(launched.Finish().code, -SIGKILL);
}

TEST_F(LaunchTest, WhatAProcessLeavesBehindEndsWithIt) {
  EXPECT_EQ(Run(1, 1, {{"FAKE_TRAINER", "child;exit 0"}}).code, 0);
}

TEST_F(LaunchTest, CoresAreDividedAmongProcessesOfAKind) {
  const int cores = CoresHere();
  const Result one = Run(1, 1, {{"FAKE_TRAINER", "args"}, {"FAKE_PSERVER", "args"}});
  EXPECT_THAT(Lines(one.out), AllOf(Contains(absl::StrCat("[trainer.0] arg --threads=", cores)),
                                    Contains(absl::StrCat("[pserver.0] arg --threads=", cores))));
  EXPECT_THAT(one.err, HasSubstr(absl::StrCat("1 server and 1 trainer on ", cores, cores == 1 ? " core" : " cores")));
  const Result many = Run(1, cores + 1, {{"FAKE_TRAINER", "args"}});
  EXPECT_THAT(Lines(many.out), Contains("[trainer.0] arg --threads=1"));
  const Result own = Run(1, 1, {{"FAKE_TRAINER", "args"}}, {"--set=train.threads=3"});
  EXPECT_THAT(own.out, Not(HasSubstr("--threads=")));
}

TEST_F(LaunchTest, EveryoneGetsTheSettingsAndOnlyTrainersTheRest) {
  const Result result = Run(2, 2, {{"FAKE_TRAINER", "args"}, {"FAKE_PSERVER", "args"}},
                            {"--set", "train.seed=7", "--set=name=\"a b\"", "--", "--role=predict", "--output=x"});
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* name : {"[pserver.0]", "[pserver.1]", "[trainer.0]", "[trainer.1]"}) {
    for (const char* flag :
         {"--set=train.seed=7", "--set=name=\"a b\"", "--set=distribute.servers=2", "--set=distribute.trainers=2"}) {
      EXPECT_THAT(Lines(result.out), Contains(absl::StrCat(name, " arg ", flag)));
    }
    EXPECT_THAT(Lines(result.out), Contains(absl::StrCat(name, " arg --job=", job_.string())));
  }
  EXPECT_THAT(
      Lines(result.out),
      AllOf(Contains("[trainer.1] arg --role=predict"), Contains("[trainer.1] arg --output=x"),
            Contains("[trainer.1] arg --trainer_id=1"), Contains(StartsWith("[trainer.1] arg --pservers=127.0.0.1:"))));
  EXPECT_THAT(Lines(result.out),
              AllOf(Not(Contains("[pserver.1] arg --role=predict")), Contains("[pserver.1] arg --server_id=1"),
                    Contains("[pserver.1] arg --endpoint=127.0.0.1:0")));
}

TEST_F(LaunchTest, EveryoneGetsTheDirectoryOfTheCheckpointToScoreWith) {
  for (const std::vector<std::string>& checkpoint :
       {std::vector<std::string>{"--checkpoint=/some/where/step-000000000120/"}, {"--checkpoint", "/some/where"}}) {
    std::vector<std::string> arguments = {"--", "--role=predict"};
    arguments.insert(arguments.end(), checkpoint.begin(), checkpoint.end());
    const Result result = Run(1, 1, {{"FAKE_TRAINER", "args"}, {"FAKE_PSERVER", "args"}}, arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(Lines(result.out), AllOf(Contains("[pserver.0] arg --set=checkpoint.dir=\"/some/where\""),
                                         Contains("[trainer.0] arg --set=checkpoint.dir=\"/some/where\"")));
  }
  const Result training = Run(1, 1, {{"FAKE_PSERVER", "args"}}, {"--", "--resume"});
  EXPECT_THAT(training.out, Not(HasSubstr("checkpoint.dir")));
}

TEST_F(LaunchTest, ChildrenSeeThisClustersVariablesAndNoOthers) {
  const std::string ask =
      "env TRAINING_ROLE;env PADDLE_TRAINING_ROLE;env PADDLE_TRAINER_ID;env PADDLE_TRAINERS_NUM;env LOCAL_RANK;"
      "env PADDLE_PSERVERS_IP_PORT_LIST;env POD_IP;env PADDLE_PORT;env PADDLE_CURRENT_ENDPOINT;env OTHER";
  const Result result = Run(1, 2,
                            {{"FAKE_TRAINER", ask},
                             {"FAKE_PSERVER", ask},
                             {"PADDLE_TRAINING_ROLE", "PSERVER"},
                             {"PADDLE_TRAINER_ID", "9"},
                             {"POD_IP", "10.0.0.1"},
                             {"PADDLE_PORT", "1"},
                             {"PADDLE_PSERVERS_IP_PORT_LIST", "x:1"},
                             {"PADDLE_CURRENT_ENDPOINT", "x:1"},
                             {"OTHER", "kept"}});
  for (const char* line :
       {"[trainer.1] TRAINING_ROLE=TRAINER", "[trainer.1] PADDLE_TRAINER_ID=1", "[trainer.1] PADDLE_TRAINERS_NUM=2",
        "[trainer.1] LOCAL_RANK=1", "[trainer.1] OTHER=kept", "[trainer.1] PADDLE_TRAINING_ROLE unset",
        "[trainer.1] POD_IP unset", "[trainer.1] PADDLE_PORT unset", "[trainer.1] PADDLE_CURRENT_ENDPOINT unset",
        "[pserver.0] TRAINING_ROLE=PSERVER", "[pserver.0] PADDLE_TRAINER_ID unset", "[pserver.0] PADDLE_TRAINERS_NUM=2",
        "[pserver.0] LOCAL_RANK unset", "[pserver.0] PADDLE_PSERVERS_IP_PORT_LIST unset"}) {
    EXPECT_THAT(Lines(result.out), Contains(line));
  }
  EXPECT_THAT(Lines(result.out), Contains(StartsWith("[trainer.1] PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:")));
}

TEST_F(LaunchTest, TheJobSaysHowManyWhenNoFlagDoes) {
  WriteJob("distribute { servers: 2 trainers: 3 } deadlines { lease_s: 0.3 }");
  std::vector<std::string> arguments = Arguments(0, 0);
  arguments.erase(arguments.begin() + 1, arguments.begin() + 3);
  const Result result = Launched(arguments, {}).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("2 servers and 3 trainers on "));
}

TEST_F(LaunchTest, AJobWithTypesOfTheUsersOwnIsLeftToTheProgramsThatKnowThem) {
  WriteJob("model { layer { name: \"a\" custom { [type.googleapis.com/my.own.Layer] { size: 3 } } } }");
  EXPECT_EQ(Run(1, 1, {}).code, 0);
}

TEST_F(LaunchTest, AServerThatIsNeverReadyIsNamed) {
  WriteJob("deadlines { lease_s: 0.3 connect_deadline_s: 0.5 slow_warning_s: 0.2 }");
  const Result result = Run(3, 1, {{"FAKE_PSERVER_1", "unready"}});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: waiting for pserver.1 to be ready"));
  EXPECT_THAT(result.err, HasSubstr("pserver.1 was not ready within 1 s (deadlines.connect_deadline_s of the job)"));
  EXPECT_FALSE(fs::exists(logs_ / "trainer.0.log"));
}

TEST_F(LaunchTest, AServerThatFailsAtStartStopsBeforeTheTrainers) {
  const Result result = Run(
      2, 1,
      {{"FAKE_PSERVER_0", "unready"}, {"FAKE_PSERVER_1", "unready;err job.textproto:3:1: unknown field 'nam';exit 2"}});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("launch: pserver.1 failed: exit code 2; the last lines"));
  EXPECT_THAT(result.err, HasSubstr("launch:   job.textproto:3:1: unknown field 'nam'"));
  EXPECT_FALSE(fs::exists(logs_ / "trainer.0.log"));
}

TEST_F(LaunchTest, AServerThatOutlivesTheTrainersIsNamed) {
  const Result result = Run(2, 1, {{"FAKE_PSERVER_1", "ignore"}});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.err, HasSubstr("launch: pserver.1 did not end within three leases"));
}

TEST_F(LaunchTest, ATrainerThatOutlivesTheServersIsNamedAndKilled) {
  WriteJob("deadlines { lease_s: 0.1 }");
  const std::string begun = (directory_ / "begun").string(), done = (directory_ / "done").string();
  const Result result = Run(1, 2,
                            {{"FAKE_PSERVER", "await " + done + ";exit 0"},
                             {"FAKE_TRAINER_0", "await " + begun + ";out done steps=9;touch " + done},
                             {"FAKE_TRAINER_1", "block;touch " + begun + ";ignore"}});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 did not end within three leases (0 s) after the last server: "));
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 did not end within two leases (0 s): killed"));
}

// Waits until the process is stopped that has said "stopped by PID".
void AwaitStop(const std::string& output) {
  const size_t at = output.find("stopped by ");
  ASSERT_NE(at, std::string::npos) << output;
  const std::string stat = absl::StrCat("/proc/", std::atoi(output.c_str() + at + 11), "/stat");
  const absl::Time end = absl::Now() + kPatience;
  while (ReadFile(stat).find(") T ") == std::string::npos && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
}

TEST_F(LaunchTest, AServerThatEndsBeforeTheTrainersAreDoneIsNamed) {
  WriteJob("deadlines { lease_s: 0.1 }");
  const std::string begun = (directory_ / "begun").string();
  const Result result = Run(2, 1,
                            {{"FAKE_PSERVER_0", "await " + begun + ";exit 0"},
                             {"FAKE_PSERVER_1", "ignore"},
                             {"FAKE_TRAINER_0", "unconnected;block;touch " + begun + ";ignore"}});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: pserver.0 (exit code 0) ended before the trainers were done: pserver.1, "
                                    "trainer.0 did not end within three leases (0 s) after it; was it asked to end "
                                    "before they had joined?\n"));
}

TEST_F(LaunchTest, AServerThatEndsWhileOthersStartIsNamed) {
  const Result result = Run(2, 1, {{"FAKE_PSERVER_0", "exit 0"}, {"FAKE_PSERVER_1", "unready"}});
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: pserver.0 ended before the trainers were started\n"));
  EXPECT_FALSE(fs::exists(logs_ / "trainer.0.log"));
}

TEST_F(LaunchTest, AProcessThatIsStoppedForTwoLeasesIsKilledAndNamed) {
  Launched launched(Arguments(1, 2), {{"FAKE_TRAINER_0", "wait"}, {"FAKE_TRAINER_1", "block;stop;ignore"}});
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err,
              HasSubstr("launch: trainer.1 was stopped by a signal (SIGSTOP) for two leases (1 s): killed\n"));
  EXPECT_THAT(result.out, AllOf(HasSubstr("[trainer.0] got signal 15"), Not(HasSubstr("[trainer.1] ignoring"))));
}

TEST_F(LaunchTest, KeepGoingKillsAStoppedProcessAndLetsTheOthersFinish) {
  const std::string killed = (directory_ / "killed").string();
  Launched launched(Arguments(0, 2, {"--keep_going"}),
                    {{"FAKE_TRAINER_0", "unconnected;await " + killed + ";out done steps=3"},
                     {"FAKE_TRAINER_1", "unconnected;stop"}});
  launched.Await("launch: trainer.1 failed: killed by signal 9");
  std::ofstream(killed) << "";
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err,
              HasSubstr("launch: trainer.1 was stopped by a signal (SIGSTOP) for two leases (1 s): killed\n"));
  EXPECT_EQ(Lines(result.out).back(), "done steps=3");
}

TEST_F(LaunchTest, AProcessIsNamedThatIsStoppedWhenOthersHaveLostIt) {
  WriteJob("deadlines { lease_s: 25 }");
  const std::string stopped = (directory_ / "stopped").string();
  Launched launched(Arguments(1, 2), {{"FAKE_TRAINER_0", "await " + stopped + ";exit 3"}, {"FAKE_TRAINER_1", "stop"}});
  launched.Await("stopped by");
  AwaitStop(launched.so_far().out);
  std::ofstream(stopped) << "";
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.0 failed: exit code 3; waiting for the others\n"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("launch: trainer.1 was stopped by a signal (SIGSTOP), and the others have "
                                          "lost it: killed\n"),
                                Not(HasSubstr("did not end within two leases"))));
}

// Nobody there tells when the job is over.
TEST_F(LaunchTest, AStoppedTrainerOfANodeWithoutServersIsKilledAndNamed) {
  const std::vector<std::string> flags = {"--servers=1",          "--nnodes=2",   "--node_rank=1",
                                          "--nproc_per_node=1",   "--keep_going", "--master_addr=203.0.113.1",
                                          "--node_addr=127.0.0.1"};
  const Result result = Launched(ArgumentsWithoutNumbers(flags), {{"FAKE_TRAINER_1", "unconnected;stop"}}).Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err,
              HasSubstr("launch: trainer.1 was stopped by a signal (SIGSTOP) for two leases (1 s): killed\n"));
}

TEST_F(LaunchTest, AStoppedProcessOnAnotherHostIsKilledAndNamed) {
  const Result result =
      Launched(RemoteArguments("127.0.0.1:1,203.0.113.1:1"), {{"FAKE_TRAINER_0", "wait"}, {"FAKE_TRAINER_1", "stop"}})
          .Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 on 203.0.113.1 was stopped by a signal (SIGSTOP) for two leases "
                                    "(1 s): killed\n"));
}

TEST_F(LaunchTest, TrainersWithoutServersOfTheirOwnAreNotHurried) {
  WriteJob("deadlines { lease_s: 0.1 }");
  const std::string done = (directory_ / "done").string();
  Launched launched(Arguments(0, 2), {{"FAKE_TRAINER_0", "unconnected;touch " + done},
                                      // Four leases longer.
                                      {"FAKE_TRAINER_1", "unconnected;await " + done + ";sleep 400;out done steps=9"}});
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST_F(LaunchTest, AProcessThatIsStoppedHearsTheFirstSignal) {
  WriteJob("deadlines { lease_s: 25 }");
  Launched launched(Arguments(1, 1), {{"FAKE_TRAINER", "block;stop;wait"}});
  launched.Await("stopped by");
  AwaitStop(launched.so_far().out);
  kill(launched.pid(), SIGTERM);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[trainer.0] got signal 15"));
}

TEST_F(LaunchTest, OneSignalEndsProcessesThatDoNotAnswerIt) {
  WriteJob("deadlines { lease_s: 0.1 progress_deadline_s: 0.2 }");
  Launched launched(Arguments(1, 1), {{"FAKE_TRAINER", "block;ignore"}});
  launched.Await("ignoring");
  kill(launched.pid(), SIGTERM);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: pserver.0, trainer.0 neither ended nor said anything for 0 s "
                                    "(deadlines.progress_deadline_s) after Terminated\n"));
}

TEST_F(LaunchTest, AClosedStandardOutputHoldsNothingUp) {
  WriteJob("deadlines { lease_s: 25 }");
  const absl::Time begin = absl::Now();
  const Result result =
      Launched(Arguments(1, 1), {{"FAKE_TRAINER", "out done steps=9"}}, [] { close(STDOUT_FILENO); }).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Log("trainer.0"), "done steps=9\n");
  // It would wait a lease for the console.
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

TEST_F(LaunchTest, ALimitOfFilesEndsALogAndNotTheJob) {
  const Result result = Launched(Arguments(1, 1), {{"FAKE_TRAINER", "repeat 300 line;out done steps=9"}}, [] {
                          rlimit limit = {};
                          limit.rlim_cur = limit.rlim_max = 1000;
                          setrlimit(RLIMIT_FSIZE, &limit);
                        }).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("trainer.0.log: File too large (ulimit -f allows this process files of 1000 "
                                    "bytes); trainer.0 is shown here only"));
  EXPECT_EQ(Lines(result.out).back(), "done steps=9");
}

TEST_F(LaunchTest, AJobFromAPipeReachesEveryProcess) {
  const std::string pipe = (directory_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  // `launch --job=<(command)` of a shell; twice, since every process reads it from its begin.
  std::thread writer([&pipe] { std::ofstream(pipe) << "name: \"piped\"\ndistribute { servers: 1 trainers: 2 }\n"; });
  job_ = pipe;
  const Result result =
      Launched(ArgumentsWithoutNumbers({"--job_dir=jobs"}),
               {{"FAKE_PSERVER", "args;cat /dev/stdin"}, {"FAKE_TRAINER", "args;cat /dev/stdin;cat /dev/stdin"}})
          .Finish();
  writer.join();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out),
              AllOf(Contains("[pserver.0] name: \"piped\""), Contains("[trainer.0] name: \"piped\""),
                    Contains("[trainer.1] arg --job=/dev/stdin"), Contains("[trainer.1] arg --job_dir=jobs"),
                    Contains("[pserver.0] arg --job_dir=jobs")));
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '"'), 2 * 5);
}

TEST_F(LaunchTest, AJobFromStandardInputIsOneOfThisMachine) {
  const auto from_text = [](const std::string& text) {
    return [text] {
      int ends[2];
      if (pipe(ends) != 0 || write(ends[1], text.data(), text.size()) < 0) _exit(1);
      close(ends[1]);
      dup2(ends[0], STDIN_FILENO);
    };
  };
  const std::vector<std::string> arguments = {"--job=/dev/stdin", "--servers=1", "--trainers=1"};
  const Result empty = Launched(arguments, {}, from_text("")).Finish();
  EXPECT_EQ(empty.code, 2);
  EXPECT_EQ(empty.err,
            "launch: /dev/stdin is empty; what comes from a pipe or standard input can be read once only: has another "
            "program read it?\n");
  std::vector<std::string> far = RemoteArguments("127.0.0.1:1,203.0.113.1:1");
  far[0] = "--job=/dev/stdin";
  const Result remote = Launched(far, {}, from_text("name: \"x\"\n")).Finish();
  EXPECT_EQ(remote.code, 2);
  EXPECT_THAT(remote.err, HasSubstr("launch: --job=/dev/stdin is not on 203.0.113.1: write the job into a file"));
}

TEST_F(LaunchTest, TwoLaunchesDoNotShareALogDirectory) {
  Launched first(Arguments(1, 1), {{"FAKE_TRAINER", "wait"}});
  first.Await("] waiting");
  const Result second = Run(1, 1, {});
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr("another launch uses it"));
  kill(first.pid(), SIGTERM);
  EXPECT_EQ(first.Finish().code, 0);
}

TEST_F(LaunchTest, AConsoleThatNobodyReadsHoldsNothingUp) {
  Launched launched(Arguments(1, 1), {{"FAKE_TRAINER", "repeat 20000 a line that is repeated many times over"}});
  EXPECT_EQ(launched.Finish(/*read_stdout=*/false).code, 0);
  EXPECT_EQ(Lines(Log("trainer.0")).size(), 20000u);
}

TEST_F(LaunchTest, ANodeStartsItsPartOfTheTrainers) {
  const std::string port = absl::StrCat(FreePorts(2));
  const std::string ask =
      "args;env RANK;env WORLD_SIZE;env LOCAL_RANK;env LOCAL_WORLD_SIZE;env NODE_RANK;env GROUP_RANK;"
      "env MASTER_ADDR;env MASTER_PORT;env PADDLE_TRAINER_ID";
  const std::vector<std::string> flags = {"--nnodes=2", "--nproc_per_node=1", "--master_addr=127.0.0.1",
                                          "--master_port=" + port};
  const auto node = [&](const std::string& rank) {
    std::vector<std::string> arguments = ArgumentsWithoutNumbers({"--servers=1", "--node_rank=" + rank});
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return arguments;
  };
  Launched first(node("0"), {{"FAKE_TRAINER", ask}});
  first.Await("ready server=0");
  const Result second = Launched(node("1"), {{"FAKE_TRAINER", ask}}).Finish();
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(first.Finish().code, 0);
  EXPECT_THAT(second.err, HasSubstr("launch: node 1 of 2: 1 trainer on "));
  for (const std::string& line :
       {std::string("arg --trainer_id=1"), std::string("arg --set=distribute.trainers=2"), std::string("RANK=1"),
        std::string("WORLD_SIZE=2"), std::string("LOCAL_RANK=0"), std::string("LOCAL_WORLD_SIZE=1"),
        std::string("NODE_RANK=1"), std::string("GROUP_RANK=1"), std::string("MASTER_ADDR=127.0.0.1"),
        "MASTER_PORT=" + port, std::string("PADDLE_TRAINER_ID=1")}) {
    EXPECT_THAT(Lines(second.out), Contains("[trainer.1] " + line));
  }
  EXPECT_THAT(second.out, Not(HasSubstr("[pserver")));
  EXPECT_TRUE(fs::exists(logs_ / "node.1" / "trainer.1.log"));
  EXPECT_TRUE(fs::exists(logs_ / "node.0" / "pserver.0.log"));
}

TEST_F(LaunchTest, ServersOfANodeGoOnWithTrainersOfAnotherWhenItsOwnHaveFailed) {
  const std::string port = absl::StrCat("--master_port=", FreePorts(2));
  const auto node = [&](const std::string& rank) {
    return ArgumentsWithoutNumbers({"--servers=1", "--nnodes=2", "--node_rank=" + rank, "--nproc_per_node=1",
                                    "--master_addr=127.0.0.1", port, "--keep_going"});
  };
  Launched first(node("0"), {{"FAKE_TRAINER", "exit 6"}});
  first.Await("launch: trainer.0 failed: exit code 6; the others go on");
  // Longer than three leases.
  const Result second = Launched(node("1"), {{"FAKE_TRAINER", "sleep 1500;out done steps=3"}}).Finish();
  EXPECT_EQ(second.code, 0) << second.err;
  const Result result = first.Finish();
  EXPECT_EQ(result.code, 6);
  EXPECT_THAT(result.err, Not(HasSubstr("three leases")));
}

TEST_F(LaunchTest, TheFirstNodeNamesTheRunForAll) {
  WriteJob("checkpoint { dir: \"saved\" } deadlines { lease_s: 0.3 }");
  const auto node = [&](const std::string& rank) {
    return Launched(ArgumentsWithoutNumbers({"--servers=0", "--nnodes=2", "--node_rank=" + rank, "--nproc_per_node=1",
                                             "--master_addr=127.0.0.1", "--restarts=1"}),
                    {{"FAKE_TRAINER", "unconnected;args"}})
        .Finish();
  };
  EXPECT_THAT(node("0").out, ContainsRegex("\\[trainer.0\\] arg --run_id=launch\\.[0-9a-f]+\n"));
  EXPECT_THAT(node("1").out, HasSubstr("[trainer.1] arg --run_id=*\n"));
}

TEST_F(LaunchTest, AnSshThatIsKilledIsNoHostThatHasNeverWorked) {
  const std::map<std::string, std::string> variables = {{"FAKE_SSH_LEAVE", (directory_ / "left").string()},
                                                        {"FAKE_TRAINER", "out done steps=3"}};
  const Result result = Launched(RemoteArguments("127.0.0.1:1,203.0.113.73:1", {"--restarts=1"}), variables).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("launch: restart 1 (--restarts=1): host 203.0.113.73: no connection (ssh: killed by "
                        "signal 9 (Killed)); the job starts again"));
  // With a host that refuses the key, no signal matters.
  std::filesystem::remove(directory_ / "left");
  const Result refused = Launched(RemoteArguments("127.0.0.1:1,203.0.113.67:1", {"--restarts=1"}), variables).Finish();
  EXPECT_EQ(refused.code, 3) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("launch: the job is not started again: it has not begun"));
}

TEST_F(LaunchTest, HostsThatAreThisMachineNeedNoSsh) {
  std::vector<std::string> arguments = ArgumentsWithoutNumbers({"-np", "2", "-H", "localhost:2", "--ssh=/no/such/ssh"});
  const Result result = Launched(arguments, {{"FAKE_TRAINER", "env NODE_RANK;env LOCAL_RANK"}}).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out), AllOf(Contains("[trainer.1] NODE_RANK=0"), Contains("[trainer.1] LOCAL_RANK=1"),
                                       Contains(StartsWith("[pserver.0] ready server=0 endpoint=127.0.0.1:"))));
}

TEST_F(LaunchTest, OtherHostsAreStartedOverSsh) {
  const std::string log = (directory_ / "ssh.log").string();
  const Result result =
      Launched(RemoteArguments("127.0.0.1:1,203.0.113.1:2",
                               {"--ssh_port=2222", "--ssh_options=-i 'a key'", "--env=GREETING=it's \"a\" $b", "--env",
                                "KEPT", "--set=name=\"a b\"", "--", "--output=c d"}),
               {{"FAKE_SSH_LOG", log},
                {"KEPT", "as it was"},
                {"FAKE_TRAINER", "args;env GREETING;env KEPT;env RANK;env LOCAL_RANK;env NODE_RANK;err bye"}})
          .Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("launch: 1 server and 3 trainers on 2 hosts; logs in "),
                                HasSubstr("launch: 127.0.0.1: 1 server and 1 trainer on "),
                                HasSubstr("launch: 203.0.113.1: 2 trainers on "),
                                HasSubstr("[203.0.113.1] Welcome to 203.0.113.1\n"), HasSubstr("[trainer.2] bye\n")));
  for (const char* line :
       {"arg --output=c d", "arg --set=name=\"a b\"", "GREETING=it's \"a\" $b", "KEPT=as it was", "RANK=2",
        "LOCAL_RANK=1", "NODE_RANK=1", "arg --trainer_id=2", "arg --set=distribute.trainers=3"}) {
    EXPECT_THAT(Lines(result.out), Contains(absl::StrCat("[trainer.2] ", line)));
  }
  EXPECT_THAT(Log("trainer.2"), AllOf(HasSubstr("LOCAL_RANK=1\n"), HasSubstr("bye\n")));
  // One connection for both processes.
  const std::vector<std::string> words = Lines(ReadFile(log));
  EXPECT_EQ(std::count(words.begin(), words.end(), "203.0.113.1"), 1);
  EXPECT_THAT(words,
              AllOf(Contains("BatchMode=yes"), Contains("2222"), Contains("a key"), Contains("ConnectTimeout=20")));
}

TEST_F(LaunchTest, ServersRunOnTheHostsThatAreNamed) {
  const Result result = Launched(RemoteArguments("127.0.0.1:1", {"--server_hosts=203.0.113.1"}), {}).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("launch: 203.0.113.1: 1 server on "));
}

TEST_F(LaunchTest, ServersOfSeveralHostsAreDealtToThemInTurns) {
  const Result result = Launched(RemoteArguments("127.0.0.1:1,203.0.113.1:2", {"--servers=3"}), {}).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("launch: 127.0.0.1: 2 servers and 1 trainer on "),
                                HasSubstr("launch: 203.0.113.1: 1 server and 2 trainers on ")));
}

TEST_F(LaunchTest, TrainersOfSeveralHostsThatServeKnowOneAnothersPorts) {
  std::vector<std::string> arguments = RemoteArguments("127.0.0.1:1,203.0.113.1:2", {"--servers=0"});
  const Result result =
      Launched(arguments, {{"FAKE_TRAINER", "unconnected;args;env PADDLE_CURRENT_ENDPOINT"}}).Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex("\\[trainer.2\\] arg --pservers=127.0.0.1:[0-9]+,203.0.113.1:[0-9]+,"
                                        "203.0.113.1:[0-9]+\n"));
  EXPECT_THAT(result.out, ContainsRegex("\\[trainer.2\\] PADDLE_CURRENT_ENDPOINT=203.0.113.1:[0-9]+\n"));
}

TEST_F(LaunchTest, ARemoteProcessThatFailsIsNamedWithItsHost) {
  const Result result =
      Launched(RemoteArguments("127.0.0.1:1,203.0.113.1:2"),
               {{"FAKE_TRAINER", "block;wait"}, {"FAKE_TRAINER_2", "err no such file: train.tsv;raise 9"}})
          .Finish();
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr("launch: trainer.2 on 203.0.113.1 failed: killed by signal 9 (Killed); ending the others\n"),
            HasSubstr("launch:   no such file: train.tsv\n")));
  EXPECT_THAT(result.err, HasSubstr("; the last lines of " + (logs_ / "trainer.2.log").string()));
}

TEST_F(LaunchTest, ASignalIsPassedOnToOtherHosts) {
  Launched launched(RemoteArguments("127.0.0.1:1,203.0.113.1:2"), {{"FAKE_TRAINER", "wait"}});
  launched.Await("] waiting", 3);
  kill(launched.pid(), SIGTERM);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out), AllOf(Contains("[trainer.0] got signal 15"), Contains("[trainer.2] got signal 15")));
}

TEST_F(LaunchTest, RemoteProcessesThatDoNotEndAreKilled) {
  const std::string ready = (directory_ / "ready").string();
  const Result result = Launched(RemoteArguments("127.0.0.1:1,203.0.113.1:1"),
                                 {{"FAKE_TRAINER_0", "await " + ready + ";exit 7"},
                                  {"FAKE_TRAINER_1", "block;child;touch " + ready + ";ignore"}})
                            .Finish();
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.err, HasSubstr("trainer.1 on 203.0.113.1 did not end within two leases"));
}

TEST_F(LaunchTest, NobodyOnOtherHostsOutlivesALaunchThatIsKilled) {
  Launched launched(RemoteArguments("127.0.0.1:1,203.0.113.1:2"), {{"FAKE_TRAINER", "ignore"}});
  launched.Await("ignoring", 3);
  kill(launched.pid(), SIGKILL);
  EXPECT_EQ(launched.Finish().code, -SIGKILL);
}

// The stand-in for ssh becomes the agent.
TEST_F(LaunchTest, AnAgentThatSaysNothingIsGivenUp) {
  const std::string agent = (directory_ / "agent").string();
  Launched launched(RemoteArguments("127.0.0.1:1,203.0.113.1:1"),
                    {{"FAKE_TRAINER_0", "block;wait"}, {"FAKE_TRAINER_1", "parent " + agent + ";ignore"}});
  launched.Await("ignoring");
  kill(std::atoi(ReadFile(agent).c_str()), SIGSTOP);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, ContainsRegex("launch: trainer.1 on 203.0.113.1 failed: host 203.0.113.1: its agent has said "
                                        "nothing for [0-9]+s: it is stopped, or the network between the hosts is cut; "
                                        "ending the others"));
}

TEST_F(LaunchTest, NobodyOutlivesAnAgentThatIsKilled) {
  const std::string agent = (directory_ / "agent").string();
  Launched launched(RemoteArguments("127.0.0.1:1,203.0.113.1:1"),
                    {{"FAKE_TRAINER_0", "block;wait"}, {"FAKE_TRAINER_1", "parent " + agent + ";ignore"}});
  launched.Await("ignoring");
  kill(std::atoi(ReadFile(agent).c_str()), SIGKILL);
  const Result result = launched.Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err, HasSubstr("launch: trainer.1 on 203.0.113.1 failed: the connection to 203.0.113.1 is lost"));
}

TEST_F(LaunchTest, ALostConnectionIsNamed) {
  const std::string leave = (directory_ / "leave").string();
  const Result result =
      Launched(RemoteArguments("127.0.0.1:1,203.0.113.70:1"), {{"FAKE_SSH_LEAVE", leave},
                                                               {"FAKE_TRAINER_0", "block;wait"},
                                                               {"FAKE_TRAINER_1", "touch " + leave + ";ignore"}})
          .Finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_THAT(result.err,
              HasSubstr("launch: trainer.1 on 203.0.113.70 failed: the connection to 203.0.113.70 is lost (ssh: "
                        "exit code 255); ending the others"));
}

TEST_F(LaunchTest, AHostThatCannotBeUsedIsNamedAndNothingIsStarted) {
  struct Case {
    std::string host, message;
    int code;
  };
  const std::vector<Case> cases = {
      {"203.0.113.66", "launch: host 203.0.113.66 was not ready within 1 s (--ssh_timeout_s)", 3},
      {"203.0.113.67",
       "launch: host 203.0.113.67: no connection (ssh: exit code 255): root@203.0.113.67: Permission denied "
       "(publickey).",
       3},
      {"203.0.113.68", "/launch cannot be run there; every host needs the programs at the same place", 2},
      {"203.0.113.69", "speaks version 99 of the messages among launches, this one 2; install the same version", 2},
      {"203.0.113.71", "launch: host 203.0.113.71: cannot change to the directory /here", 2},
      {"203.0.113.72", "launch: host 203.0.113.72: a message 'out' about process 9, which is none", 1}};
  for (const Case& c : cases) {
    std::vector<std::string> flags;
    if (c.host == "203.0.113.66") flags.push_back("--ssh_timeout_s=1");
    const Result result = Launched(RemoteArguments("127.0.0.1:1," + c.host + ":1", flags), {}).Finish();
    EXPECT_EQ(result.code, c.code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.message));
    EXPECT_THAT(result.err, HasSubstr("host " + c.host));
    EXPECT_FALSE(fs::exists(logs_ / "pserver.0.log"));
  }
}

TEST_F(LaunchTest, ASignalWhileHostsAreAwaitedEndsLaunch) {
  Launched launched(RemoteArguments("127.0.0.1:1,203.0.113.66:1", {"--ssh_timeout_s=1000"}), {});
  launched.Await("waiting for host 203.0.113.66 to be ready");
  kill(launched.pid(), SIGTERM);
  EXPECT_EQ(launched.Finish().code, 5);
}

TEST_F(LaunchTest, ProcessorsAreDividedOnRequest) {
  const Result result = Run(1, 1, {{"FAKE_TRAINER", "cpus"}}, {"--bind=cores"});
  EXPECT_THAT(Lines(result.out), Contains(absl::StrCat("[trainer.0] cpus ", CoresHere())));
  const Result each = Run(1, CoresHere(), {{"FAKE_TRAINER", "cpus"}}, {"--bind=cores"});
  EXPECT_EQ(each.code, 0) << each.err;
  EXPECT_THAT(Lines(each.out), Contains("[trainer.0] cpus 1"));
  const Result many = Run(1, CoresHere() + 1, {}, {"--bind=cores"});
  EXPECT_EQ(many.code, 2);
  EXPECT_THAT(many.err, HasSubstr("launch: --bind=cores: "));
}

TEST_F(LaunchTest, EveryLocalRankHasADevice) {
  const std::string ask = "env CUDA_VISIBLE_DEVICES;env LOCAL_RANK";
  const Result result = Run(1, 2, {{"FAKE_TRAINER", ask}, {"CUDA_VISIBLE_DEVICES", "4,6,7"}}, {"--gpus=2,0"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(Lines(result.out),
              AllOf(Contains("[trainer.1] CUDA_VISIBLE_DEVICES=7,4"), Contains("[trainer.1] LOCAL_RANK=1")));
  const Result few = Run(1, 2, {}, {"--gpus=1"});
  EXPECT_EQ(few.code, 2);
  EXPECT_EQ(few.err, "launch: --gpus=1: 1 device for 2 trainers; every trainer needs one of its own\n");
}

TEST_F(LaunchTest, VariablesOfAnotherLauncherThatContradictAreRefused) {
  const Result result = Run(1, 2, {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("launch: the variable OMPI_COMM_WORLD_RANK is 1: launch is itself one of several"));
}

TEST_F(LaunchTest, WrongCommandLinesAreRefused) {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const std::string job = "--job=" + job_.string();
  const std::string fakes = "--bin_dir=" + fs::path(Runfile("tests/tools/fakes/trainer")).parent_path().string();
  const std::vector<Case> cases = {
      {{}, "--job=FILE is required"},
      {{"--job=" + (directory_ / "none").string(), "--servers=1", "--trainers=1"}, "No such file"},
      {{job, "--servers=1", "--trainers=0"}, "--trainers=0: at least 1 is needed"},
      {{job, "--servers=1000", "--trainers=1"}, "--servers=1000: at most 256"},
      {{job, "--server=1"}, "unknown flag --server (did you mean --servers?)"},
      {{job, "--servers=two"}, "--servers=two"},
      {{job, "--servers=1", "--trainers=1", fakes, "--", "--stop_code=75"}, "--stop_code=75 stands after --, where"},
      {{job, "train.py"}, "'train.py' is no flag; arguments for the trainers stand after --"},
      {{job, "--servers=2", "--trainers=1", "--set=distribute.servers=3"},
       "--set distribute.servers=3, but launch starts 2: use --servers=3"},
      {{job, "--set=train.sede=3"}, "sede"},
      {{job, "--servers=1", "--trainers=1", "--bin_dir=" + directory_.string()}, "no program pserver: looked for "},
      {{job, "-H", "a:2,b:x"}, "-H: column 5: 'b:x' must have a number of slots"},
      {{job, "-H", "a", "--hostfile=f"}, "-H and --hostfile both name hosts"},
      {{job, "--hostfile=" + (directory_ / "none").string()}, "No such file"},
      {{job, "--hostfile=" + job_.string()}, "job.textproto:1:11: '{' is not known here"},
      {{job, "-H", "203.0.113.1", "--ssh=no-such-ssh"}, "no program no-such-ssh in PATH, which reaches other hosts"},
      {{job, "--nnodes=2", "--trainers=2"}, "--nnodes=2 needs --node_rank=R"},
      {{job, "--env=RANK=1"}, "--env: launch sets RANK for every process itself"},
      {{job, "--env", "NO_SUCH_VARIABLE"}, "--env NO_SUCH_VARIABLE: there is no such variable"},
      {{job, "--env=A=1", "--env=A=2"}, "--env gives A twice: '1' and '2'"},
      {{job, "--env"}, "--env needs NAME=VALUE or NAME"},
      {{job, "--bind=core"}, "--bind=core: must be auto, none, cores or numa"},
      {{job, "--servers=1", "--trainers=1", "--ssh_options='x"}, "--ssh_options: ''x' has a ' without its end"},
      {{job, "--servers=1", "--trainers=1", "--ssh_timeout_s=0"}, "--ssh_timeout_s=0: must be at least 1"},
      {{job, "--servers=1", "--trainers=1", "--ssh_port=70000"}, "--ssh_port=70000: must be 1 to 65535"},
      {{job, "--servers=1", "--trainers=1", "--log_dir=" + job_.string(), fakes}, job_.string()},
  };
  for (const Case& c : cases) {
    const Result result = Launched(c.arguments, {}).Finish();
    EXPECT_EQ(result.code, 2) << c.message << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(c.message));
  }
  WriteJob("nam: \"x\"");
  const Result result = Run(1, 1, {});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("job.textproto:1:1: unknown field 'nam' (did you mean 'name'?)"));
}

TEST_F(LaunchTest, HelpNamesTheFlags) {
  const Result result = Launched({"--help"}, {}).Finish();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("--servers"), HasSubstr("--log_dir"), HasSubstr("--set"),
                                HasSubstr("--nnodes"), HasSubstr("--H"), HasSubstr("--env")));
}

}  // namespace
}  // namespace weir
