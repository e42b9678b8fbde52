// Holds every source of the tree against the rule that no wait, deadline or span of time is by the wall clock, which is
// set while we run. Time that has passed comes from Clock::Real() (framework/base/clock.h), waits from CondVar
// (framework/base/mutex.h), deadlines of gRPC from GrpcDeadline (pserver/network/grpc_timers.h). Tests and examples may
// ask what time it is.
//
// And against the rule that threads are started by StartThread (framework/base/exhausted.h), which says what is missing
// where the system gives none; std::thread by itself ends the process with an exception that nobody catches.
//
// And against the rule that a program returns from main through EndWithOutput (framework/process/standard_output.h), or
// through RunJobProgram, which does it: a full disk under its standard output is a failure.

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Names that read the wall clock or wait for one of its times: Abseil's condition variables wait on it even for a
// duration.
const std::vector<std::string>& Refused() {
  static const auto* const refused = new std::vector<std::string>{
      "absl::Now",
      "absl::GetCurrentTimeNanos",
      "absl::ToChronoTime",
      "absl::Mutex",
      "absl::MutexLock",
      "absl::CondVar",
      "absl::Notification",
      "absl::BlockingCounter",
      "absl::Barrier",
      "std::timed_mutex",
      "std::recursive_timed_mutex",
      "std::shared_timed_mutex",
      "std::condition_variable",
      "std::condition_variable_any",
      "system_clock",
      "high_resolution_clock",
      "utc_clock",
      "CLOCK_REALTIME",
      "CLOCK_REALTIME_COARSE",
      "GPR_CLOCK_REALTIME",
      "gettimeofday",
      "time(nullptr)",
      "time(NULL)",
      "time(0)",
      "timespec_get",
      "pthread_cond_timedwait",
      "pthread_mutex_timedlock",
      "sem_timedwait",
      "timer_create",
      "timerfd_create",
      "std::async",
      "std::jthread",
      "pthread_create",
  };
  return *refused;
}

// Beginnings of a thread that has something to run.
constexpr std::string_view kStartedThreads[] = {"std::thread(", "std::thread{"};

// The only time that a call of gRPC may be given.
constexpr std::string_view kSetDeadline = "set_deadline(";
constexpr std::string_view kGrpcDeadline = "GrpcDeadline(";

constexpr std::string_view kMain = "int main(";
constexpr std::string_view kEndsOfMain[] = {"EndWithOutput(", "RunJobProgram("};

struct Allowed {
  std::string file;
  std::string word;
  std::string reason;
};

const std::vector<Allowed>& AllowedUses() {
  static const auto* const allowed = new std::vector<Allowed>{
      {"framework/base/clock.cc", "absl::Now", "where the times of the steady clock begin, once"},
      {"framework/base/atomic_file.cc", "absl::Now", "part of a name that no other process chooses"},
      {"framework/base/exhausted.cc", "std::thread(", "StartThread itself"},
      {"framework/base/mutex.h", "std::condition_variable", "given times of the steady clock"},
      {"pserver/network/grpc_timers.cc", "CLOCK_REALTIME", "looks whether the clock has been set back"},
      {"pserver/network/processor_alarm.cc", "timer_create", "a timer of the process's processor time"},
  };
  return *allowed;
}

// Without what stands behind //.
std::string WithoutComment(const std::string& line) { return line.substr(0, line.find("//")); }

bool IsWordCharacter(char c) { return c == '_' || (std::isalnum(static_cast<unsigned char>(c)) != 0); }

// Whether `word` stands in the line as a word of its own.
bool Has(std::string_view line, std::string_view word) {
  for (size_t at = line.find(word); at != std::string_view::npos; at = line.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !IsWordCharacter(line[at - 1]);
    if (begins && (end == line.size() || !IsWordCharacter(line[end]))) return true;
  }
  return false;
}

// "path:line: word" of every refused word. `used` gets the allowed uses, by place in the list.
std::vector<std::string> RefusedWords(const std::string& path, const std::string& text, std::set<size_t>* used) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string place = path + ":" + std::to_string(number) + ": ";
    const std::string code = WithoutComment(line);
    const size_t deadline = code.find(kSetDeadline);
    if (deadline != std::string::npos &&
        code.compare(deadline + kSetDeadline.size(), kGrpcDeadline.size(), kGrpcDeadline) != 0) {
      found.push_back(place + std::string(kSetDeadline) + " without " + std::string(kGrpcDeadline));
    }
    std::vector<std::string> words;
    for (const std::string& word : Refused()) {
      if (Has(code, word)) words.push_back(word);
    }
    for (const std::string_view start : kStartedThreads) {
      if (code.find(start) != std::string::npos) words.emplace_back(start);
    }
    for (const std::string& word : words) {
      bool allowed = false;
      for (size_t i = 0; i < AllowedUses().size(); ++i) {
        if (AllowedUses()[i].file != path || AllowedUses()[i].word != word) continue;
        allowed = true;
        used->insert(i);
      }
      if (!allowed) found.push_back(place + word);
    }
  }
  return found;
}

// Whether the text has a main function, and nothing that looks at the standard output at its end.
bool EndsBlindly(const std::string& text) {
  if (text.find(kMain) == std::string::npos) return false;
  for (const std::string_view end : kEndsOfMain) {
    if (text.find(end) != std::string::npos) return false;
  }
  return true;
}

struct Source {
  std::string path, text;
};

std::vector<Source> AllSources() {
  // WORKSPACE among the test's files is a link to the real one.
  const fs::path root =
      fs::canonical(fs::path(std::getenv("TEST_SRCDIR")) / std::getenv("TEST_WORKSPACE") / "WORKSPACE").parent_path();
  std::vector<Source> sources;
  for (const char* top : {"framework", "ops", "pserver", "trainer", "transpiler", "tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      const std::string ending = entry.path().extension();
      if (ending != ".h" && ending != ".cc" && ending != ".cu" && ending != ".cuh") continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      sources.push_back({fs::relative(entry.path(), root), text.str()});
    }
  }
  EXPECT_GT(sources.size(), 300u);
  return sources;
}

TEST(ClocksTest, NoSourceWaitsForATimeOfTheWallClockOrStartsABareThread) {
  std::vector<std::string> found;
  std::set<size_t> used;
  for (const Source& source : AllSources()) {
    const std::vector<std::string> in_file = RefusedWords(source.path, source.text, &used);
    found.insert(found.end(), in_file.begin(), in_file.end());
  }
  EXPECT_THAT(found, IsEmpty());
  for (size_t i = 0; i < AllowedUses().size(); ++i) {
    EXPECT_TRUE(used.contains(i)) << AllowedUses()[i].file << " is allowed " << AllowedUses()[i].word
                                  << " and does not use it";
  }
}

TEST(ClocksTest, EveryProgramLooksAtItsOutputAtTheEnd) {
  std::vector<std::string> found;
  for (const Source& source : AllSources()) {
    if (EndsBlindly(source.text)) found.push_back(source.path);
  }
  EXPECT_THAT(found, IsEmpty()) << "return EndWithOutput(name, code) from main";
}

// The checks above can fail.

std::vector<std::string> RefusedIn(const std::string& text) {
  std::set<size_t> used;
  return RefusedWords("pserver/a.cc", text, &used);
}

TEST(ClocksTest, WordsOfTheWallClockAreFound) {
  for (const char* line :
       {"const absl::Time end = absl::Now() + timeout;", "  absl::CondVar changed_;", "absl::Mutex mu;",
        "auto t = std::chrono::system_clock::now();", "clock_gettime(CLOCK_REALTIME, &now);", "srand(time(nullptr));",
        "call->context.set_deadline(absl::FromChrono(later));", "std::condition_variable changed;"}) {
    EXPECT_THAT(RefusedIn(line), ElementsAre(HasSubstr("pserver/a.cc:1: "))) << line;
  }
}

TEST(ClocksTest, ThreadsThatStartThreadHasNotStartedAreFound) {
  for (const char* line : {"  thread_ = std::thread([this] { Beats(); });", "std::jthread waiter(Wait);",
                           "auto later = std::async([] { return 1; });", "threads.push_back(std::thread{Work});"}) {
    EXPECT_THAT(RefusedIn(line), ElementsAre(HasSubstr("pserver/a.cc:1: "))) << line;
  }
  EXPECT_THAT(RefusedIn("std::thread thread_;\nstd::vector<std::thread> threads;\nstd::thread StartThread(int);\n"),
              IsEmpty());
}

TEST(ClocksTest, MainFunctionsThatForgetTheirOutputAreFound) {
  EXPECT_TRUE(EndsBlindly("int main(int argc, char** argv) { return weir::Main(argc, argv); }\n"));
  EXPECT_FALSE(EndsBlindly("int main() { return weir::EndWithOutput(\"tool\", weir::Main()); }\n"));
  EXPECT_FALSE(EndsBlindly("int Main() { return 0; }\n"));
}

TEST(ClocksTest, OtherWordsAreNot) {
  EXPECT_THAT(
      RefusedIn("Clock::Real()->Now();\n// absl::Now() would be set back\nchanged_.WaitWithTimeout(&mu_, left);\n"
                "context.set_deadline(GrpcDeadline(timeout));\nabsl::SetMutexDeadlockDetectionMode(mode);\n"
                "std::chrono::steady_clock::now();\nserver_->Shutdown(GrpcDeadline(grace));\nReadtime(0);\n"),
      IsEmpty());
}

}  // namespace
}  // namespace weir
