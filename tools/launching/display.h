// Shows a job on the console and on its page, from its first start to its end.
#ifndef WEIR_TOOLS_LAUNCHING_DISPLAY_H_
#define WEIR_TOOLS_LAUNCHING_DISPLAY_H_

#include <poll.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tools/hosts/process.h"
#include "tools/launching/console.h"
#include "tools/launching/launch_options.h"
#include "tools/page/job_page.h"

namespace weir {

// Never waits for a reader, except in Finish. One thread, which ignores SIGPIPE.
class Display {
 public:
  // Borrows the options.
  explicit Display(const LaunchOptions& options) : options_(options) {}

  // Starts the page, if the options ask for one. Errors as JobPage::Start.
  absl::Status StartPage();

  // Shows a line of launch itself, on stderr.
  void Say(const std::string& text) { err_.Line("launch: " + text); }
  // Shows a line of another host, on stderr: "[ps-1] ...".
  void ShowHostLine(const std::string& host, std::string_view line);

  // Adds a process to the page and returns its index there. `host`: "" for this machine. One that is there already has
  // been started again.
  size_t AddProcess(bool server, int id, const std::string& host, const Process& process);
  // Shows a line of a process: "[trainer.0] ..." on the output that it came from.
  void ShowLine(size_t on_page, const std::string& name, bool is_stdout, std::string_view line);
  // Shows a line on stdout as it is.
  void ShowResult(const std::string& line) { out_.Line(line); }
  void SetEnd(size_t on_page, const Ending& ending);
  // State of the job on its page: as JobPageState::SetJob.
  void SetJob(const std::string& state, int exit_code, const std::string& message);

  // Adds what to poll for before Flush has more to do.
  void AddTo(std::vector<pollfd>* fds) const;
  void Flush();

  // Waits until readers of page and console have the end, within limits. Returns the exit status: `code`, or
  // kExitFailure instead of 0 if stdout could not be written, unless it is closed or its reader is gone.
  int Finish(int code);

 private:
  const LaunchOptions& options_;
  Console out_{STDOUT_FILENO};
  Console err_{STDERR_FILENO};
  std::unique_ptr<JobPageState> page_state_;  // null: no page
  std::unique_ptr<JobPage> page_;
};

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_DISPLAY_H_
