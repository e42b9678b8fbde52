// Command lines of our binaries: absl flags, and --set, which may be given many times.
//
// absl::ParseCommandLine keeps only the last value of a repeated flag and ends the process with its own exit code; here
// a wrong command line is a Status, so that main can end with kExitBadInput.
#ifndef WEIR_FRAMEWORK_BASE_COMMAND_LINE_H_
#define WEIR_FRAMEWORK_BASE_COMMAND_LINE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

struct CommandLine {
  // Values of --set, in order: "distribute.servers=3".
  std::vector<std::string> overrides;
  // What is no flag, and everything after "--".
  std::vector<std::string> rest;
  // --help was given; the caller prints HelpText and ends.
  bool help = false;
};

// Reads --flag=value, --flag value (not for booleans), --flag and --noflag (booleans only), --flag=false; one dash or
// two,
// '-' and '_' in names are equal. Sets the ABSL_FLAGs linked into this program. InvalidArgument names the flag, with
// the nearest known one, or the value.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// `usage`, then one entry for each flag of ours: name, meaning, default.
std::string HelpText(std::string_view usage);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_COMMAND_LINE_H_
