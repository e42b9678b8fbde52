// Messages between launch and its agent on another host (host_agent.h), over the stdin and stdout of ssh: lines of
// fields, C-escaped and separated by tabs. <variable> is NAME=VALUE, or NAME for one that is removed.
//
//   launch -> agent                               agent -> launch
//   setup <version> <directory> <silence ms>      hello <version> <host name> <cores> <nodes> <gpus>
//         <ports to draw>                         ready <port>...
//   start <index> <cpus> <n> <n words>            refused <exit code> <text>
//         <variable>...                           failed <index> <exit code> <text>
//   signal <index> <number>                       out <index> <line>      err <index> <line>
//   beat                                          end <index> <wait status>
//                                                 stopped <index> <1, or 0: continued>
//                                                 beat
//
// The agent's first line is hello; lines before it come from the shell on the host. It answers `setup`
// with `ready` or `refused`, and each `start` with `failed` or, some time after its lines, `end`. `stopped` says that a
// signal (SIGSTOP) has stopped a process. `beat` says that launch is alive; the agent answers it with its own.
#ifndef WEIR_TOOLS_HOSTS_AGENT_MESSAGES_H_
#define WEIR_TOOLS_HOSTS_AGENT_MESSAGES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/hosts/child_process.h"
#include "tools/machine/machine.h"

namespace weir {

// Changes with the messages; launch and agents of different versions refuse each other.
inline constexpr int kAgentVersion = 2;

// Returns the fields as one line with its newline; fields may hold any bytes.
std::string EncodeMessage(const std::vector<std::string>& fields);
// Inverse of EncodeMessage; the line comes without its newline. InvalidArgument shows the beginning of
// another line.
absl::StatusOr<std::vector<std::string>> DecodeMessage(std::string_view line);

struct AgentHello {
  int version = kAgentVersion;
  std::string host;
  Machine machine;
};
std::string EncodeHello(const AgentHello& hello);
// Parse the fields of a message. InvalidArgument if it is no such message. A hello of another version has only that.
absl::StatusOr<AgentHello> ParseHello(const std::vector<std::string>& fields);

struct AgentSetup {
  int version = kAgentVersion;
  // Working directory of the processes.
  std::string directory;
  // Time without a message after which the agent takes launch for dead.
  absl::Duration silence = absl::Seconds(60);
  // Ports that it draws for processes (reserved_ports.h).
  int ports = 0;
};
std::string EncodeSetup(const AgentSetup& setup);
absl::StatusOr<AgentSetup> ParseSetup(const std::vector<std::string>& fields);

struct AgentStart {
  // Number of the process in further messages.
  int index = 0;
  std::vector<int> cpus;
  std::vector<std::string> command;
  Variables environment;
};
std::string EncodeStart(const AgentStart& start);
absl::StatusOr<AgentStart> ParseStart(const std::vector<std::string>& fields);

// Returns the number in a field. InvalidArgument if there is no such field, or no number in it.
absl::StatusOr<int> NumberIn(const std::vector<std::string>& fields, size_t field);

}  // namespace weir

#endif  // WEIR_TOOLS_HOSTS_AGENT_MESSAGES_H_
