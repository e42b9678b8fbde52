// Hosts of one launch: starts processes on this machine and, over SSH, on others, without a difference to the caller.
#ifndef WEIR_TOOLS_HOSTS_HOST_SET_H_
#define WEIR_TOOLS_HOSTS_HOST_SET_H_

#include <poll.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/hosts/child_process.h"
#include "tools/hosts/process.h"
#include "tools/hosts/remote_host.h"
#include "tools/hosts/reserved_ports.h"
#include "tools/hosts/ssh.h"
#include "tools/machine/machine.h"

namespace weir {

struct HostSetOptions {
  // Hosts by their index: a name to reach it by ssh, or "" for this machine.
  std::vector<std::string> names;
  // Ports to draw on each host.
  std::vector<int> ports;
  SshSettings ssh;
  // Command line of the agent on other hosts, and the directory of its processes.
  std::vector<std::string> agent;
  std::string directory;
  // The job's. After two of them without a sign of life, an agent takes launch for dead, and launch an agent.
  absl::Duration lease = absl::Seconds(10);
};

// Used by one thread, which ignores SIGPIPE and reaps children (reaper.h).
class HostSet {
 public:
  // Shortest silence after which an agent takes launch for dead: a job of one machine may have leases that a network
  // does not keep.
  static constexpr absl::Duration kLeastSilence = absl::Seconds(4);

  // Gets a line that a host itself says, not a process on it.
  using OnHostLine = std::function<void(const std::string& host, std::string_view line)>;

  // Starts ssh to the hosts that need it. Errors name the host.
  absl::Status Connect(HostSetOptions options, const OnHostLine& on_line);
  // Returns the names of hosts that are not ready yet, and have not failed; processes may be started when there are
  // none, and no failure.
  std::vector<std::string> Missing() const;
  // Returns the names of hosts that have failed, or are not ready, but for those of which only the ssh was killed.
  std::vector<std::string> Unreached() const;
  // Returns the first failure of a host; OK if there is none.
  absl::Status failure() const;
  // Returns whether hosts have failed, and all of them by a signal that has ended their ssh.
  bool Interrupted() const;
  // Ends what still runs on hosts that have not answered for too long.
  void Abandon(const absl::Status& why);

  const Machine& machine(size_t host) const;
  const std::vector<int>& ports(size_t host) const;

  // Starts a process. Its pointer lives as long as this object. Lines come while ReadOutput and Reap run.
  absl::StatusOr<Process*> Start(size_t host, ChildOptions options, ChildProcess::OnLine on_line);

  // Adds what to poll for.
  void AddTo(std::vector<pollfd>* fds) const;
  // Reads and writes what can be read and written now, and gives signs of life.
  void Work();
  absl::Time next_beat() const { return next_beat_; }
  // Notes that a child was stopped by a signal, or continued.
  void SetStopped(pid_t pid, bool stopped);
  // Reaps a child that has ended. Returns false if it is none of this object.
  bool Reap(pid_t pid);

  // Closes the connections: agents learn that nothing more comes, and ssh ends. Kills ssh where no agent has answered.
  void Close();
  // Returns whether an ssh still runs.
  bool connected() const;

 private:
  struct Entry {
    // Connection to the host. Null: this machine.
    std::unique_ptr<RemoteHost> remote;
    Machine machine;
    ReservedPorts ports;
  };
  // Calls f with each process that is a child of this one: those here, and ssh.
  void ForEachChild(const std::function<void(ChildProcess&)>& f) const;

  std::vector<Entry> entries_;
  std::vector<std::unique_ptr<ChildProcess>> children_;
  absl::Duration beat_;
  absl::Time next_beat_ = absl::InfiniteFuture();
};

}  // namespace weir

#endif  // WEIR_TOOLS_HOSTS_HOST_SET_H_
