// Starts the processes of a job on their hosts and sends them signals. Attempt decides when.
#ifndef WEIR_TOOLS_LAUNCHING_LAUNCHER_H_
#define WEIR_TOOLS_LAUNCHING_LAUNCHER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/hosts/host_set.h"
#include "tools/hosts/process.h"
#include "tools/launching/child_commands.h"
#include "tools/launching/display.h"
#include "tools/launching/host_shares.h"
#include "tools/launching/launch_options.h"

namespace weir {

// One start of a job. Used by one thread, the one that polls its hosts.
class Launcher {
 public:
  // One process of a job: a server or a trainer.
  struct Member {
    bool server;
    int id;
    Process* process;
    // Where a server listens; empty until it is ready.
    std::string endpoint;
    // True if its end has been seen.
    bool seen = false;
    size_t on_page = 0;  // its index there

    bool alive() const { return !process->ending().has_value(); }
    // Returns whether it has ended with this code.
    bool ended_with(int code) const {
      return !alive() && !process->ending()->lost() && process->ending()->code() == code;
    }
  };

  // Borrows both.
  Launcher(const LaunchOptions& options, Display* display) : options_(options), display_(*display) {}

  // The steps of a start, in this order: StartServers when no host is missing, StartTrainers when no server is.
  absl::Status ConnectHosts();
  // Returns the names of hosts that may become ready. The failure of one if there are none, and at once if the job
  // cannot do without it.
  absl::StatusOr<std::vector<std::string>> MissingHosts() const;
  // Divides the cores and devices of each host first, and says how.
  absl::Status StartServers();
  // Returns the names of servers that are not ready; Unavailable if one has ended as if its work were done.
  absl::StatusOr<std::vector<std::string>> MissingServers() const;
  absl::Status StartTrainers();

  HostSet& hosts() { return hosts_; }
  const HostSet& hosts() const { return hosts_; }
  // Processes in the order of their starts. References stay valid.
  std::deque<Member>& members() { return members_; }

  // Sends a signal to all processes, and SIGCONT to those that would not hear it.
  void SignalAll(int signal);

  int AliveServers() const { return Alive(/*servers=*/true); }
  int AliveTrainers() const { return Alive(/*servers=*/false); }
  bool AnyAlive() const { return AliveServers() + AliveTrainers() > 0; }
  // Returns whether the process has ended as it should: its work is complete, or the job was stopped.
  bool EndedWell(const Member& member) const;
  // Returns whether some process says that the job was stopped before it was complete.
  bool JobStopped() const;
  // Returns names for messages: "trainer.0, trainer.1"; "pserver.0 (exit code 0)".
  std::string AliveNames() const;
  std::string EndedServers() const;

  // Returns the line "done ..." or "predicted ..." of the lowest trainer that has said one; "": none has.
  const std::string& done_line() const { return done_line_; }
  // Step of the newest checkpoint that a trainer has told of; -1: none.
  int64_t saved_step() const { return saved_step_; }
  // Time of the last line of a process.
  absl::Time last_line_at() const { return last_line_at_; }

  // Puts the profiles of all processes together and shows the table, if a profile was asked for.
  void MergeProfile();

 private:
  absl::Status DivideHosts();
  absl::Status StartProcess(bool server, int id, size_t host, ChildCommand child, std::vector<int> cpus);
  void OnLine(Member& member, bool is_stdout, std::string_view line);
  int Alive(bool servers) const;

  const LaunchOptions& options_;
  Display& display_;
  HostSet hosts_;
  std::vector<HostShares> shares_;
  std::deque<Member> members_;
  std::string done_line_;
  int done_by_ = -1;
  int64_t saved_step_ = -1;
  absl::Time last_line_at_ = absl::InfinitePast();
};

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_LAUNCHER_H_
