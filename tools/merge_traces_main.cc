// merge_traces: puts traces of --profile together. See `merge_traces --help`.

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/process/command_line.h"
#include "framework/process/standard_output.h"
#include "framework/profile/profile_table.h"
#include "framework/profile/trace.h"

ABSL_FLAG(std::string, output, "", "the file for all; required");

namespace weir {
namespace {

constexpr char kUsage[] =
    "merge_traces --output=FILE TRACE TRACE...\n"
    "\n"
    "Puts what processes of one job have written with --profile together, and prints where the steps went. Clocks of "
    "several\n"
    "machines are set by the calls between them, so servers must be among the processes. `launch` does this by "
    "itself.\n";

absl::Status Run(const CommandLine& line) {
  const std::string output = absl::GetFlag(FLAGS_output);
  if (output.empty()) return absl::InvalidArgumentError("--output=FILE is required");
  if (line.rest.empty()) return absl::InvalidArgumentError("no traces are given; see --help");
  if (!line.overrides.empty()) return absl::InvalidArgumentError("--set is no flag of merge_traces");
  std::vector<v1::Trace> traces;
  for (const std::string& file : line.rest) {
    ASSIGN_OR_RETURN(v1::Trace trace, ReadTrace(file));
    traces.push_back(std::move(trace));
  }
  ASSIGN_OR_RETURN(const v1::Trace merged, MergeTraces(traces));
  RETURN_IF_ERROR(WriteTrace(output, merged));
  std::printf("profile: %s\n%s", output.c_str(), ProfileTable(merged).c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(argc, argv);
  if (line.ok() && line->help) {
    std::fputs(HelpText(kUsage, /*reads_job=*/false).c_str(), stdout);
    return kExitOk;
  }
  const absl::Status status = line.ok() ? Run(*line) : line.status();
  if (!status.ok()) std::fprintf(stderr, "merge_traces: %s\n", std::string(status.message()).c_str());
  return ExitCodeOf(status);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::EndWithOutput("merge_traces", weir::Main(argc, argv)); }
