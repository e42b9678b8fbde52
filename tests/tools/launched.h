// Runs launch as a process, with stand-ins for pserver and trainer (fakes/fake_process.cc).
#ifndef WEIR_TESTS_TOOLS_LAUNCHED_H_
#define WEIR_TESTS_TOOLS_LAUNCHED_H_

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace weir {

// Longer than anything here takes on a busy machine, short enough to find out.
inline constexpr absl::Duration kPatience = absl::Seconds(30);

// Returns the place of a file that the test has as data.
std::string Runfile(const std::string& path);

std::string ReadFile(const std::filesystem::path& path);

std::vector<std::string> Lines(const std::string& text);

// Returns the first of `count` ports in a row at which nobody listens.
int FreePorts(int count);

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
           const std::function<void()>& prepare = {});
  ~Launched();

  pid_t pid() const { return pid_; }
  const Result& so_far() const { return result_; }

  // Reads until one of the outputs holds `text` so many times.
  void Await(const std::string& text, int times = 1);
  // Reads the rest and waits for the end, then for the end of everyone.
  Result Finish(bool read_stdout = true);

 private:
  // False at the end of both outputs.
  bool Read();
  void AwaitEveryonesEnd();

  pid_t pid_ = -1;
  int status_ = 0;
  int out_ = -1;
  int err_ = -1;
  int life_ = -1;
  Result result_;
};

// A job, a directory for its logs, and command lines of launch.
class LaunchTest : public ::testing::Test {
 protected:
  LaunchTest();

  void WriteJob(const std::string& text);
  std::vector<std::string> Arguments(int servers, int trainers, const std::vector<std::string>& more = {});
  std::vector<std::string> ArgumentsWithoutNumbers(const std::vector<std::string>& more);
  // A run with -H in which fakes/ssh reaches other hosts. Addresses of 203.0.113.0/24 are no machine's.
  std::vector<std::string> RemoteArguments(const std::string& hosts, const std::vector<std::string>& more = {});
  Result Run(int servers, int trainers, const std::map<std::string, std::string>& scripts,
             const std::vector<std::string>& more = {});
  std::string Log(const std::string& name);

  std::filesystem::path directory_, logs_, job_;
};

}  // namespace weir

#endif  // WEIR_TESTS_TOOLS_LAUNCHED_H_
