// `launch --agent` as a process: the test is the launch on the other side.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/hosts/agent_messages.h"
#include "tools/hosts/child_process.h"
#include "tools/hosts/process.h"
#include "tools/machine/machine.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Longer than anything here takes on a busy machine, short enough to find out.
constexpr absl::Duration kPatience = absl::Seconds(30);

// An agent. It and its processes hold a "life line": a pipe that ends when the last of them is gone.
class Agent {
 public:
  Agent() {
    signal(SIGPIPE, SIG_IGN);
    int life[2];
    EXPECT_EQ(pipe(life), 0);
    fcntl(life[0], F_SETFD, FD_CLOEXEC);
    const std::string launch = absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"), "/tools/launch");
    auto process = ChildProcess::Start({.name = "agent", .command = {launch, "--agent"}, .input = true},
                                       [this](bool is_stdout, std::string_view line) {
                                         if (is_stdout) {
                                           messages_.push_back(*DecodeMessage(line));
                                         } else {
                                           errors_ += absl::StrCat(std::string(line), "\n");
                                         }
                                       });
    EXPECT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
    close(life[1]);
    life_ = life[0];
  }
  ~Agent() { close(life_); }

  ChildProcess& process() { return *process_; }
  const std::string& errors() const { return errors_; }

  void Send(const std::string& message) { process_->Write(message); }
  void SetUp(absl::Duration silence = kPatience) {
    Send(EncodeSetup({.directory = "/", .silence = silence}));
    EXPECT_THAT(Await("ready"), ElementsAre("ready"));
  }
  void Start(int index, const std::string& script, Variables environment = {}, std::vector<int> cpus = {}) {
    Send(EncodeStart({.index = index,
                      .cpus = std::move(cpus),
                      .command = {"/bin/sh", "-c", script},
                      .environment = std::move(environment)}));
  }

  // Returns the first message that begins with the fields, and forgets it.
  std::vector<std::string> Await(const std::string& verb, const std::string& index = "") {
    const absl::Time end = absl::Now() + kPatience;
    while (absl::Now() < end) {
      for (auto each = messages_.begin(); each != messages_.end(); ++each) {
        if ((*each)[0] != verb || (!index.empty() && (each->size() < 2 || (*each)[1] != index))) continue;
        const std::vector<std::string> found = *each;
        messages_.erase(each);
        return found;
      }
      if (!Poll()) break;
    }
    ADD_FAILURE() << "no " << verb << " " << index << "; " << errors_;
    return {};
  }

  // Returns the exit code when the agent and all of its processes are gone.
  int AwaitEnd() {
    while (Poll()) {
    }
    process_->Reap();
    pollfd end = {life_, POLLIN, 0};
    EXPECT_EQ(poll(&end, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))), 1) << "a process is left over";
    return process_->ending()->code();
  }

 private:
  // False when both outputs have ended.
  bool Poll() {
    std::vector<pollfd> fds;
    for (const bool is_stdout : {true, false}) {
      if (process_->output(is_stdout) >= 0) fds.push_back({process_->output(is_stdout), POLLIN, 0});
    }
    if (fds.empty()) return false;
    const int ready = poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(kPatience)));
    EXPECT_GT(ready, 0) << "silence; " << errors_;
    process_->ReadOutput();
    return ready > 0;
  }

  std::unique_ptr<ChildProcess> process_;
  std::vector<std::vector<std::string>> messages_;
  std::string errors_;
  int life_ = -1;
};

TEST(HostAgentTest, ItDescribesItsMachineAndDrawsPorts) {
  Agent agent;
  const auto hello = ParseHello(agent.Await("hello"));
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_GE(hello->machine.usable_cores, 1);
  agent.Send(EncodeSetup({.directory = "/", .ports = 2}));
  const std::vector<std::string> ready = agent.Await("ready");
  ASSERT_EQ(ready.size(), 3u);
  EXPECT_NE(ready[1], ready[2]);
  agent.process().CloseInput();
  EXPECT_EQ(agent.AwaitEnd(), 0);
}

TEST(HostAgentTest, LinesAndEndsOfProcessesArrive) {
  Agent agent;
  agent.SetUp();
  agent.Start(5, "pwd; echo \"it's $A\" >&2; printf unended; exit 7", {{"A", "x 'y' \"z\""}});
  agent.Start(6, "kill -9 $$");
  EXPECT_THAT(agent.Await("out", "5"), ElementsAre("out", "5", "/"));
  EXPECT_THAT(agent.Await("err", "5"), ElementsAre("err", "5", "it's x 'y' \"z\""));
  EXPECT_THAT(agent.Await("out", "5"), ElementsAre("out", "5", "unended"));
  const std::vector<std::string> end = agent.Await("end", "5");
  ASSERT_EQ(end.size(), 3u);
  EXPECT_EQ(Ending(*NumberIn(end, 2)).code(), 7);
  EXPECT_EQ(Ending(*NumberIn(agent.Await("end", "6"), 2)).code(), 128 + SIGKILL);
  agent.process().CloseInput();
  EXPECT_EQ(agent.AwaitEnd(), 0);
}

TEST(HostAgentTest, ProcessesRunOnTheirProcessors) {
  Agent agent;
  agent.SetUp();
  const int cpu = ThisMachine().numa_nodes[0][0];
  agent.Start(0, "grep Cpus_allowed_list /proc/self/status", {}, {cpu});
  EXPECT_THAT(agent.Await("out", "0"), ElementsAre("out", "0", absl::StrCat("Cpus_allowed_list:\t", cpu)));
  agent.process().CloseInput();
  agent.AwaitEnd();
}

TEST(HostAgentTest, SignalsArePassedOn) {
  Agent agent;
  agent.SetUp();
  // The shell takes the stop signals that are held back only when it sets a trap.
  agent.Start(0, "trap 'echo got; exit 3' USR1; echo up; while :; do sleep 0.05; done");
  agent.Await("out", "0");
  agent.Send(EncodeMessage({"signal", "0", absl::StrCat(SIGUSR1)}));
  EXPECT_THAT(agent.Await("out", "0"), ElementsAre("out", "0", "got"));
  EXPECT_EQ(Ending(*NumberIn(agent.Await("end", "0"), 2)).code(), 3);
  // One for a process that has ended changes nothing.
  agent.Send(EncodeMessage({"signal", "0", absl::StrCat(SIGUSR1)}));
  agent.process().CloseInput();
  EXPECT_EQ(agent.AwaitEnd(), 0);
}

TEST(HostAgentTest, AProcessThatIsStoppedAndContinuedIsTold) {
  Agent agent;
  agent.SetUp();
  agent.Start(3, "kill -STOP $$; echo on");
  EXPECT_THAT(agent.Await("stopped"), ElementsAre("stopped", "3", "1"));
  agent.Send(EncodeMessage({"signal", "3", absl::StrCat(SIGCONT)}));
  EXPECT_THAT(agent.Await("out", "3"), ElementsAre("out", "3", "on"));
  agent.Await("end", "3");
  agent.process().CloseInput();
  EXPECT_EQ(agent.AwaitEnd(), 0);
}

TEST(HostAgentTest, ASignOfLifeIsAnswered) {
  Agent agent;
  agent.SetUp();
  agent.Send(EncodeMessage({"beat"}));
  EXPECT_THAT(agent.Await("beat"), ElementsAre("beat"));
  agent.process().CloseInput();
  EXPECT_EQ(agent.AwaitEnd(), 0);
}

constexpr char kStay[] = "sleep 1000 & echo up; wait";

TEST(HostAgentTest, NothingIsLeftWhenTheConnectionEnds) {
  Agent agent;
  agent.SetUp();
  agent.Start(0, kStay);
  agent.Await("out", "0");
  agent.process().CloseInput();
  EXPECT_EQ(agent.AwaitEnd(), 0);
}

TEST(HostAgentTest, NothingIsLeftWhenTheAgentIsKilled) {
  Agent agent;
  agent.SetUp();
  agent.Start(0, "echo up; exec sleep 1000");
  agent.Await("out", "0");
  kill(agent.process().pid(), SIGKILL);
  EXPECT_EQ(agent.AwaitEnd(), 128 + SIGKILL);
}

TEST(HostAgentTest, NothingIsLeftWhenASignalHasStoppedTheAgentForTooLong) {
  Agent agent;
  agent.SetUp(absl::Milliseconds(300));
  // Its parent is the agent; the other process is the guard.
  agent.Start(0, "echo $PPID; exec sleep 1000");
  const std::vector<std::string> parent = agent.Await("out", "0");
  ASSERT_EQ(parent.size(), 3u);
  EXPECT_NE(parent[2], absl::StrCat(agent.process().pid()));
  kill(*NumberIn(parent, 2), SIGSTOP);
  EXPECT_EQ(agent.AwaitEnd(), 128 + SIGKILL);
  EXPECT_THAT(agent.errors(), HasSubstr(absl::StrCat("launch --agent: process ", parent[2],
                                                     " was stopped by a signal (SIGSTOP) for 300ms: killed")));
}

TEST(HostAgentTest, AnAgentThatIsContinuedInTimeGoesOn) {
  Agent agent;
  agent.SetUp();
  agent.Start(0, "kill -STOP $PPID; kill -CONT $PPID; echo on; exec sleep 1000");
  agent.Await("out", "0");
  agent.Send(EncodeMessage({"beat"}));
  EXPECT_THAT(agent.Await("beat"), ElementsAre("beat"));
  agent.process().CloseInput();
  EXPECT_EQ(agent.AwaitEnd(), 0);
}

TEST(HostAgentTest, NothingIsLeftAfterAStopSignal) {
  Agent agent;
  agent.SetUp();
  agent.Start(0, kStay);
  agent.Await("out", "0");
  kill(agent.process().pid(), SIGTERM);
  EXPECT_EQ(agent.AwaitEnd(), 128 + SIGTERM);
}

TEST(HostAgentTest, NothingIsLeftWhenLaunchIsSilent) {
  Agent agent;
  agent.SetUp(absl::Milliseconds(300));
  agent.Start(0, kStay);
  EXPECT_EQ(agent.AwaitEnd(), 3);
  EXPECT_THAT(agent.errors(), HasSubstr("launch --agent: launch was silent for 300ms: ending its processes"));
}

TEST(HostAgentTest, AProgramThatIsNotThereIsNamed) {
  Agent agent;
  agent.SetUp();
  agent.Send(EncodeStart({.index = 1, .command = {"/no/such/program"}}));
  const std::vector<std::string> failed = agent.Await("failed", "1");
  ASSERT_EQ(failed.size(), 4u);
  EXPECT_EQ(failed[2], "2");
  EXPECT_THAT(failed[3], HasSubstr("cannot start /no/such/program: No such file"));
  agent.process().CloseInput();
  agent.AwaitEnd();
}

TEST(HostAgentTest, ADirectoryThatIsNotThereIsNamed) {
  Agent agent;
  agent.Send(EncodeSetup({.directory = "/no/such/directory"}));
  const std::vector<std::string> refused = agent.Await("refused");
  ASSERT_EQ(refused.size(), 3u);
  EXPECT_EQ(refused[1], "2");
  EXPECT_THAT(refused[2], HasSubstr("cannot change to the directory /no/such/directory: No such file"));
  agent.process().CloseInput();
  agent.AwaitEnd();
}

TEST(HostAgentTest, WhatIsNoMessageEndsIt) {
  for (const char* text : {"stop\n", "\\q\n", "setup\t1\n", "start\t0\t\t1\tx\n"}) {
    Agent agent;
    agent.Send(text);
    EXPECT_EQ(agent.AwaitEnd(), 2) << text;
    EXPECT_THAT(agent.errors(), HasSubstr("launch --agent: ")) << text;
  }
}

TEST(HostAgentTest, AProcessIsStartedOnce) {
  Agent agent;
  agent.SetUp();
  agent.Start(0, kStay);
  agent.Start(0, kStay);
  EXPECT_EQ(agent.AwaitEnd(), 2);
  EXPECT_THAT(agent.errors(), HasSubstr("launch starts process 0 a second time"));
}

// An agent whose output nobody reads holds its processes up, and still notices the end of the connection.
TEST(HostAgentTest, OutputThatNobodyReadsDoesNotKeepItAlive) {
  Agent agent;
  agent.SetUp();
  agent.Start(0, "while :; do echo a line that is repeated for ever; done");
  agent.Await("out", "0");
  agent.process().CloseInput();
  EXPECT_EQ(agent.AwaitEnd(), 0);
}

}  // namespace
}  // namespace weir
