// Trainers as real processes that form a group, over every backend: one is killed or stopped before, during and after a
// large operation, among hundreds of small ones, and before the group forms. All others end in time and name it, and no
// process is left.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exit_code.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/network/grpc_server.h"
#include "pserver/server/server_core.h"
#include "tests/pserver/group_job.h"

extern char** environ;

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr int kVictim = 1;
// Longer than anything here takes on a busy machine.
constexpr absl::Duration kPatience = absl::Seconds(30);
// Promised: docs/collective.md, "What ranks check".
constexpr absl::Duration kKilled = absl::Seconds(5);
const absl::Duration kStopped = absl::Seconds(2 * kGroupLeaseSeconds);

absl::Time Now() { return Clock::Real()->Now(); }

// The server of the job, in this process.
class Server {
 public:
  Server() {
    const HandMadeJob job = GroupJob(kRanks);
    absl::StatusOr<std::unique_ptr<ServerCore>> core = ServerCore::Create({.main = job.Main(0),
                                                                           .startup = job.Startup(0),
                                                                           .job_name = kGroupJob,
                                                                           .plan_text = job.PlanText(),
                                                                           .deadlines = GroupDeadlines(),
                                                                           .process = "test",
                                                                           .arithmetic = kGroupArithmetic,
                                                                           .clock = Clock::Real(),
                                                                           .pool = &pool_});
    EXPECT_TRUE(core.ok()) << core.status();
    core_ = *std::move(core);
    absl::StatusOr<std::unique_ptr<GrpcServer>> network =
        GrpcServer::Start({.endpoint = "127.0.0.1:0", .core = core_.get()});
    EXPECT_TRUE(network.ok()) << network.status();
    network_ = *std::move(network);
    ticks_ = std::thread([this] {
      while (true) {
        core_->Tick();
        MutexLock lock(&mu_);
        if (!over_) changed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
        if (over_) return;
      }
    });
  }
  ~Server() {
    {
      MutexLock lock(&mu_);
      over_ = true;
      changed_.SignalAll();
    }
    ticks_.join();
    network_->Shutdown(absl::ZeroDuration());
  }

  const std::string& endpoint() const { return network_->endpoint(); }

 private:
  ThreadPool pool_{"server", 0};
  std::unique_ptr<ServerCore> core_;
  std::unique_ptr<GrpcServer> network_;
  Mutex mu_;
  CondVar changed_;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  std::thread ticks_;
};

// A trainer's process. Killed by the destructor if it still runs.
class Rank {
 public:
  explicit Rank(const std::vector<std::string>& flags) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    std::vector<std::string> args = {
        absl::StrCat(::getenv("TEST_SRCDIR"), "/", ::getenv("TEST_WORKSPACE"), "/tests/pserver/group_rank")};
    args.insert(args.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    EXPECT_EQ(::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    out_ = ends[0];
    process_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    EXPECT_GE(process_, 0);
  }
  ~Rank() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(out_);
    ::close(process_);
  }

  // Returns when a line that begins with `word` has come; false if none comes by kPatience.
  bool AwaitLine(const std::string& word) {
    const absl::Time end = Now() + kPatience;
    while (text_.find("\n" + word) == std::string::npos) {
      if (!Ready(out_, end - Now())) return false;
      char bytes[4096];
      const ssize_t got = ::read(out_, bytes, sizeof(bytes));
      if (got <= 0) return false;
      text_.append(bytes, static_cast<size_t>(got));
    }
    return true;
  }
  void Continue() { ::kill(pid_, SIGCONT); }
  // Returns the exit code, or minus the signal, when the process has ended; nothing within kPatience: 999.
  int AwaitEnd() {
    if (!Ready(process_, kPatience)) return 999;
    ended_at_ = Now();
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    char bytes[4096];
    for (ssize_t got; (got = ::read(out_, bytes, sizeof(bytes))) > 0;) text_.append(bytes, static_cast<size_t>(got));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  absl::Time ended_at() const { return ended_at_; }
  const std::string& text() const { return text_; }

 private:
  static bool Ready(int descriptor, absl::Duration timeout) {
    pollfd wanted = {.fd = descriptor, .events = POLLIN, .revents = 0};
    return ::poll(&wanted, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) == 1;
  }

  pid_t pid_ = -1;
  int out_ = -1, process_ = -1;
  std::string text_ = "\n";
  absl::Time ended_at_;
};

struct Fault {
  const char *backend, *action, *moment;
};
constexpr const char* kBackends[] = {"WIRE", "GLOO"};
constexpr const char* kMoments[] = {"joined", "before", "during", "after", "small"};

std::vector<std::unique_ptr<Rank>> Start(const Server& server, const Fault& fault) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < kRanks; ++r) {
    ranks.push_back(std::make_unique<Rank>(std::vector<std::string>{
        absl::StrCat("--server=", server.endpoint()), absl::StrCat("--backend=", fault.backend),
        absl::StrCat("--rank=", r), absl::StrCat("--ranks=", kRanks), absl::StrCat("--victim=", kVictim),
        absl::StrCat("--action=", fault.action), absl::StrCat("--moment=", fault.moment)}));
  }
  return ranks;
}

// What became of a run with a fault.
struct Outcome {
  bool fault_seen = false;
  struct Other {
    int rank = 0, code = 0;
    absl::Duration took;  // from the fault to its end
    std::string text;
  };
  std::vector<Other> others;
  int victim_code = 0;
  absl::Duration victim_took;  // stopped: from SIGCONT to its end
};

bool Kills(const Fault& fault) { return std::string(fault.action) == "KILL"; }

Outcome RunWith(const Fault& fault) {
  const Server server;
  const std::vector<std::unique_ptr<Rank>> ranks = Start(server, fault);
  Rank& victim = *ranks[kVictim];
  Outcome outcome;
  outcome.fault_seen = victim.AwaitLine("fault");
  const absl::Time begin = Now();
  for (const int r : {0, 2}) {
    Rank& rank = *ranks[static_cast<size_t>(r)];
    const int code = rank.AwaitEnd();
    outcome.others.push_back({r, code, rank.ended_at() - begin, rank.text()});
  }
  if (!Kills(fault)) victim.Continue();
  const absl::Time woken = Now();
  outcome.victim_code = victim.AwaitEnd();
  outcome.victim_took = victim.ended_at() - woken;
  return outcome;
}

class GroupFaultsTest : public ::testing::TestWithParam<std::tuple<const char*, const char*, const char*>> {
 protected:
  static Fault FaultOf(const ParamType& param) { return {std::get<0>(param), std::get<1>(param), std::get<2>(param)}; }

  // Runs with a trainer that is stopped wait for leases to run out, which takes no processor: all of them wait at the
  // same time, from the first that a test asks for.
  static Outcome OutcomeOf(const Fault& fault) {
    if (Kills(fault)) return RunWith(fault);
    static auto* const stopped = [] {
      auto* const runs = new std::map<std::string, std::shared_future<Outcome>>;
      for (const char* const backend : kBackends) {
        for (const char* const moment : kMoments) {
          (*runs)[absl::StrCat(backend, moment)] =
              std::async(std::launch::async, RunWith, Fault{backend, "STOP", moment});
        }
      }
      return runs;
    }();
    return stopped->at(absl::StrCat(fault.backend, fault.moment)).get();
  }
};

TEST_P(GroupFaultsTest, AllOthersEndInTimeAndNameTheTrainer) {
  const Fault fault = FaultOf(GetParam());
  const Outcome outcome = OutcomeOf(fault);
  ASSERT_TRUE(outcome.fault_seen);
  // Before the group has formed only the lease tells that a trainer is dead.
  const bool in_operation = std::string(fault.moment) != "joined";
  const absl::Duration limit = Kills(fault) && in_operation ? kKilled : kStopped;
  for (const Outcome::Other& other : outcome.others) {
    EXPECT_EQ(other.code, kExitPeerLost) << "rank " << other.rank;
    EXPECT_LE(other.took, limit) << "rank " << other.rank;
    EXPECT_THAT(other.text, HasSubstr(absl::StrCat("trainer ", kVictim))) << "rank " << other.rank;
    std::printf("%s %s %s: rank %d ended after %.2f s: %s\n", fault.backend, fault.action, fault.moment, other.rank,
                absl::ToDoubleSeconds(other.took), other.text.c_str() + 1);
  }
  if (Kills(fault)) {
    EXPECT_EQ(outcome.victim_code, -SIGKILL);
    return;
  }
  // A process that wakes finds that the job goes on without it, and ends.
  EXPECT_TRUE(outcome.victim_code == kExitPeerLost || outcome.victim_code == kExitBadInput) << outcome.victim_code;
  EXPECT_LE(outcome.victim_took, 2 * kStopped);
}

INSTANTIATE_TEST_SUITE_P(All, GroupFaultsTest,
                         ::testing::Combine(::testing::ValuesIn(kBackends), ::testing::Values("KILL", "STOP"),
                                            ::testing::ValuesIn(kMoments)),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "_", std::get<1>(info.param), "_",
                                               std::get<2>(info.param));
                         });

TEST(GroupTest, ProcessesWithoutFaultsEndWell) {
  for (const char* backend : kBackends) {
    const Server server;
    for (const std::unique_ptr<Rank>& rank : Start(server, {backend, "", "small"})) {
      EXPECT_EQ(rank->AwaitEnd(), kExitOk) << rank->text();
    }
  }
}

}  // namespace
}  // namespace weir
