// A process that cannot outlive the one that started it, and whose output arrives in lines.
#ifndef WEIR_TOOLS_CHILD_PROCESS_H_
#define WEIR_TOOLS_CHILD_PROCESS_H_

#include <sys/types.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

struct ChildOptions {
  // Name in messages: "trainer.0".
  std::string name;
  // Path of the program, which is not searched in PATH, and its arguments.
  std::vector<std::string> command;
  // Variables set over this process's own; nullopt removes a variable.
  std::map<std::string, std::optional<std::string>> environment;
  // File that receives both outputs, line by line. Its directory must exist.
  std::string log_file;
};

// Ending of a process, as reported by waitpid.
class Ending {
 public:
  explicit Ending(int wait_status) : status_(wait_status) {}
  bool ok() const;
  // Returns the exit code, or 128 + signal.
  int code() const;
  // Returns "exit code 2" or "killed by signal 9 (Killed)".
  std::string ToString() const;

 private:
  int status_;
};

// Child process. Used by one thread, which must be the one that started it: the child is killed when that thread ends,
// for whatever reason.
class ChildProcess {
 public:
  // Gets a line of stdout (else of stderr) without its newline; a line longer than 64 KiB arrives in pieces. Called by
  // ReadOutput and Reap, on their thread.
  using OnLine = std::function<void(const ChildProcess& child, bool is_stdout, std::string_view line)>;

  // Starts the child in a process group of its own. Its stdin is /dev/null, SIGPIPE has its default action, and only
  // the stop signals are blocked, until the program waits for them (framework/base/stop_signals.h). InvalidArgument
  // names the program or the file.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(ChildOptions options, OnLine on_line);
  // Kills the group and reaps the child, unless Reap has done so. Output that has not been read is lost.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const std::string& name() const { return options_.name; }
  const std::string& log_file() const { return options_.log_file; }
  pid_t pid() const { return pid_; }

  // Returns the descriptor to poll; -1 when closed.
  int output(bool is_stdout) const { return is_stdout ? stdout_.fd : stderr_.fd; }
  // Reads the output that is available now.
  void ReadOutput();

  // Sends the signal to the whole group.
  void Signal(int signal);

  // Reaps the child: kills what is left of its group, waits for its end, and reads the rest of its output. Call it when
  // waitid with WNOWAIT reports the end, so that the process id is still the child's; a running child is killed.
  void Reap();
  const std::optional<Ending>& ending() const { return ending_; }

  // Returns the last lines of both outputs, at most kLastLines.
  const std::deque<std::string>& last_lines() const { return last_lines_; }
  static constexpr size_t kLastLines = 10;

 private:
  struct Output {
    int fd = -1;
    std::string partial;
  };

  ChildProcess(ChildOptions options, OnLine on_line) : options_(std::move(options)), on_line_(std::move(on_line)) {}
  absl::Status Spawn();
  void Read(Output* output);
  void EndLine(Output* output);

  const ChildOptions options_;
  const OnLine on_line_;
  int log_ = -1;
  pid_t pid_ = -1;
  Output stdout_;
  Output stderr_;
  std::optional<Ending> ending_;
  std::deque<std::string> last_lines_;
};

}  // namespace weir

#endif  // WEIR_TOOLS_CHILD_PROCESS_H_
