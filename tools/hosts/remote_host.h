// Another host on which launch starts processes, over one SSH connection to an agent there (host_agent.h).
#ifndef WEIR_TOOLS_HOSTS_REMOTE_HOST_H_
#define WEIR_TOOLS_HOSTS_REMOTE_HOST_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/hosts/agent_messages.h"
#include "tools/hosts/child_process.h"
#include "tools/hosts/process.h"
#include "tools/hosts/ssh.h"
#include "tools/machine/machine.h"

namespace weir {

// Process that an agent runs. Belongs to its RemoteHost.
class RemoteProcess : public Process {
 public:
  // send: hands a message to the agent.
  RemoteProcess(std::string name, std::string log_file, int index, std::function<void(const std::string&)> send,
                ChildProcess::OnLine on_line)
      : Process(std::move(name), std::move(log_file)),
        index_(index),
        send_(std::move(send)),
        on_line_(std::move(on_line)) {}

  absl::Status Open() { return OpenLog(); }
  void Signal(int signal) override;
  void Line(bool is_stdout, std::string_view line);
  void End(Ending ending);

 private:
  const int index_;
  const std::function<void(const std::string&)> send_;
  const ChildProcess::OnLine on_line_;
};

struct RemoteHostOptions {
  // Name that ssh knows.
  std::string host;
  SshSettings ssh;
  // Agent's command line there.
  std::vector<std::string> agent;
  AgentSetup setup;
};

// Used by one thread, as ChildProcess. Messages are handled while ReadOutput and Reap of connection() run.
class RemoteHost {
 public:
  // Gets what the host says by itself, a line without its newline.
  using OnLine = std::function<void(std::string_view line)>;

  // Starts ssh. InvalidArgument if it cannot be started.
  static absl::StatusOr<std::unique_ptr<RemoteHost>> Connect(RemoteHostOptions options, OnLine on_line);

  const std::string& name() const { return options_.host; }
  // Process of ssh: to be polled, read and reaped with launch's other children.
  ChildProcess* connection() { return connection_.get(); }

  // True when processes can be started.
  bool ready() const { return ready_; }
  // Returns why the host takes no more part; OK while it does. The text names the host.
  const absl::Status& failure() const { return failure_; }
  // True when a signal from elsewhere has ended ssh, whose host may work as well as before.
  bool interrupted() const { return interrupted_; }
  // Valid when ready.
  const Machine& machine() const { return machine_; }
  const std::vector<int>& ports() const { return ports_; }

  // Starts a process; name and log_file as for a process here, to which the host's name is added. The pointer lives as
  // long as this object. A process that cannot be started ends with a line that says why, and ending code 2.
  absl::StatusOr<Process*> Start(const std::string& name, const std::string& log_file, AgentStart start,
                                 ChildProcess::OnLine on_line);

  // Tells the agent that launch is alive. Requires: called four times in setup.silence. Gives up an agent that has sent
  // nothing for that long: it is stopped, or the network is down.
  void Beat();
  // Takes in that connection() was reaped: processes that still run are lost.
  void OnConnectionEnd();
  // Gives up an agent that does not answer: fails the host with `why`, and kills ssh, at which the agent ends.
  void Abandon(absl::Status why);
  // Tells the agent that nothing more comes; it ends what still runs. Kills ssh if the host is not ready. This is no
  // failure of the host.
  void Close();

 private:
  RemoteHost(RemoteHostOptions options, OnLine on_line) : options_(std::move(options)), on_line_(std::move(on_line)) {}
  void OnLineOfSsh(bool is_stdout, std::string_view line);
  absl::Status OnMessage(std::string_view line);
  absl::Status OnHello(const std::vector<std::string>& fields);
  absl::Status OnReady(const std::vector<std::string>& fields);
  absl::Status OnProcess(const std::vector<std::string>& fields);
  void Fail(absl::Status why);

  const RemoteHostOptions options_;
  const OnLine on_line_;
  std::unique_ptr<ChildProcess> connection_;
  bool greeted_ = false;
  bool ready_ = false;
  bool closed_ = false;
  bool interrupted_ = false;
  // First beat to which nothing has come from the agent.
  absl::Time unanswered_since_ = absl::InfiniteFuture();
  absl::Status failure_;
  Machine machine_;
  std::vector<int> ports_;
  std::map<int, std::unique_ptr<RemoteProcess>> processes_;
};

}  // namespace weir

#endif  // WEIR_TOOLS_HOSTS_REMOTE_HOST_H_
