// Command lines that start a program on another machine.
#ifndef WEIR_TOOLS_HOSTS_SSH_H_
#define WEIR_TOOLS_HOSTS_SSH_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weir {

struct SshSettings {
  // Path of the program ssh.
  std::string program;
  // 0: that of ssh's own configuration.
  int port = 0;
  // Further arguments, before the host.
  std::vector<std::string> options;
  // Time until the host must have answered.
  absl::Duration timeout = absl::Seconds(30);
  // Time after which a connection is lost on which the host answers nothing; at least 4 s.
  absl::Duration lost_after = absl::Seconds(20);
};

// Returns text that a POSIX shell reads as the one word `text`, whatever bytes but 0 are in it.
std::string ShellQuote(std::string_view text);

// Splits --ssh_options as a shell would: blanks separate words; '...' keeps all, "..." and \ keep what follows; nothing
// is expanded. InvalidArgument if a quote has no end.
absl::StatusOr<std::vector<std::string>> SplitWords(std::string_view text);

// Returns the command that runs `command` on `host`. It never asks for a password (BatchMode), opens no forwarding,
// shares no connection, and notices within settings.lost_after that the network is gone. settings.options may change
// all but BatchMode, since ssh takes the first value of each option.
std::vector<std::string> SshCommand(const SshSettings& settings, const std::string& host,
                                    const std::vector<std::string>& command);

}  // namespace weir

#endif  // WEIR_TOOLS_HOSTS_SSH_H_
