// One process of a job as launch sees it, on this machine (child_process.h) or on another (remote_host.h).
#ifndef WEIR_TOOLS_HOSTS_PROCESS_H_
#define WEIR_TOOLS_HOSTS_PROCESS_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace weir {

// Ending of a process: its status as waitpid reports it, or the loss of the connection to its host.
class Ending {
 public:
  explicit Ending(int wait_status) : status_(wait_status) {}
  // Ending of a process that nobody can see any more. `why`: "the connection to ps-1 is lost".
  static Ending Lost(std::string why);

  bool ok() const;
  // Returns the exit code, 128 + signal, or kExitPeerLost for a lost process.
  int code() const;
  bool lost() const { return lost_.has_value(); }
  // Returns whether SIGKILL has ended it, as far as it is known.
  bool killed() const;
  int wait_status() const { return status_; }
  // Returns "exit code 2", "killed by signal 9 (Killed)" or why it is lost.
  std::string ToString() const;

 private:
  int status_;
  std::optional<std::string> lost_;
};

// Keeps what a process says in a file and its last lines in memory. One thread.
class Process {
 public:
  virtual ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Name in messages: "trainer.0", or "trainer.0 on ps-1".
  const std::string& name() const { return name_; }
  const std::string& log_file() const { return log_file_; }
  // Returns the last lines of both outputs, at most kLastLines.
  const std::deque<std::string>& last_lines() const { return last_lines_; }
  static constexpr size_t kLastLines = 10;
  // Set when it has ended and all its output was read.
  const std::optional<Ending>& ending() const { return ending_; }
  // Returns whether a signal (SIGSTOP) has stopped it, so that it does not run.
  bool stopped() const { return stopped_; }
  void SetStopped(bool stopped) { stopped_ = stopped; }

  // Sends the signal to the process and to all that it has started. Does nothing after its end.
  virtual void Signal(int signal) = 0;

 protected:
  // log_file: receives both outputs, line by line; "": none. Its directory must exist.
  Process(std::string name, std::string log_file) : name_(std::move(name)), log_file_(std::move(log_file)) {}
  // Creates or truncates the log. InvalidArgument names the file.
  absl::Status OpenLog();
  void Keep(std::string_view line);
  void SetEnding(Ending ending) { ending_ = std::move(ending); }

 private:
  const std::string name_;
  const std::string log_file_;
  int log_ = -1;
  std::deque<std::string> last_lines_;
  std::optional<Ending> ending_;
  bool stopped_ = false;
};

}  // namespace weir

#endif  // WEIR_TOOLS_HOSTS_PROCESS_H_
