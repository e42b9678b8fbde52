// Parses the command lines of Weir's binaries: absl flags, and --set, which may be repeated.
//
// absl::ParseCommandLine keeps only the last value of a repeated flag and ends the process with its own exit code; here
// a wrong command line is a Status, so that main can end with kExitBadInput.
#ifndef WEIR_FRAMEWORK_PROCESS_COMMAND_LINE_H_
#define WEIR_FRAMEWORK_PROCESS_COMMAND_LINE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct CommandLine {
  // Values of --set, in order: "distribute.servers=3".
  std::vector<std::string> overrides;
  // Positional arguments: those that are not flags, and everything after "--".
  std::vector<std::string> rest;
  // True if --help was given; the caller prints HelpText and ends.
  bool help = false;
};

// Reads --flag=value, --flag value (not for booleans), --flag and --noflag (booleans only), --flag=false, with one dash
// or two; '-' and '_' in names are equal. Sets the ABSL_FLAGs linked into this program. InvalidArgument names the flag,
// with the nearest known one, or the value.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// Returns `usage`, then one entry for each flag of Weir: name, meaning, default. --set is one where the program reads a
// job.
std::string HelpText(std::string_view usage, bool reads_job = true);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_PROCESS_COMMAND_LINE_H_
