// A process that cannot outlive the one that started it, and whose output arrives in lines.
#ifndef WEIR_TOOLS_HOSTS_CHILD_PROCESS_H_
#define WEIR_TOOLS_HOSTS_CHILD_PROCESS_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/hosts/process.h"

namespace weir {

// Variables set over those of the parent; nullopt removes a variable.
using Variables = std::map<std::string, std::optional<std::string>>;

struct ChildOptions {
  // Name in messages: "trainer.0".
  std::string name;
  // Path of the program, which is not searched in PATH, and its arguments.
  std::vector<std::string> command;
  Variables environment;
  // File that receives both outputs, line by line; "": none. Its directory must exist.
  std::string log_file;
  // Processors that the child and its threads run on; empty: those of the parent.
  std::vector<int> cpus;
  // A longer line of output arrives in pieces.
  size_t longest_line = size_t{64} << 10;
  // If true, stdin is a pipe from ChildProcess::Write; else the file below.
  bool input = false;
  // Descriptor whose file is opened anew, from its begin, as stdin; -1: /dev/null. Borrowed by Start.
  int stdin_fd = -1;
};

// Child process. Used by one thread, which must be the one that started it: the child is killed when that thread ends,
// for whatever reason.
class ChildProcess : public Process {
 public:
  // Gets a line of stdout (else of stderr) without its newline. Called by ReadOutput and Reap, on their thread.
  using OnLine = std::function<void(bool is_stdout, std::string_view line)>;

  // Starts the child in a process group of its own. SIGPIPE and SIGXFSZ have their default action, and only the stop
  // signals are blocked, until the program waits for them (framework/process/stop_signals.h). InvalidArgument names the
  // program, the file, or the processors that do not exist.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(ChildOptions options, OnLine on_line);
  // Kills the group and reaps the child, unless Reap has done so. Output that has not been read is lost. Waits at most
  // kLongestKill: a process that waits in the system, for a file server that is gone, cannot be killed.
  ~ChildProcess() override;
  static constexpr absl::Duration kLongestKill = absl::Seconds(5);

  pid_t pid() const { return pid_; }

  // Returns the descriptor to poll; -1 when closed.
  int output(bool is_stdout) const { return is_stdout ? stdout_.fd : stderr_.fd; }
  // Reads the output that is available now.
  void ReadOutput();

  // Sends text to the child's stdin, as far as it takes it now; the rest waits. The caller ignores SIGPIPE.
  void Write(std::string_view text);
  // Returns the descriptor to poll for POLLOUT while input is waiting, after which FlushInput is called; else -1.
  int waiting_input() const { return input_buffer_.empty() ? -1 : input_; }
  void FlushInput();
  // Ends the child's stdin. Input that waits is lost.
  void CloseInput();

  // Sends the signal to the whole group.
  void Signal(int signal) override;

  // Reaps the child: kills what is left of its group, waits for its end, and reads the rest of its output. Call it when
  // waitid with WNOWAIT reports the end, so that the process id is still the child's; a running child is killed.
  void Reap();

 private:
  struct Output {
    int fd = -1;
    std::string partial;
  };

  ChildProcess(ChildOptions options, OnLine on_line)
      : Process(options.name, options.log_file), options_(std::move(options)), on_line_(std::move(on_line)) {}
  absl::Status Spawn();
  void Read(Output* output);
  void EndLine(Output* output);

  const ChildOptions options_;
  const OnLine on_line_;
  pid_t pid_ = -1;
  Output stdout_;
  Output stderr_;
  int input_ = -1;
  std::string input_buffer_;
};

}  // namespace weir

#endif  // WEIR_TOOLS_HOSTS_CHILD_PROCESS_H_
