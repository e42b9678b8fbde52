// simulate: runs admission and eviction settings of tables over the ids of a job's data.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_budget.h"
#include "framework/base/thread_pool.h"
#include "framework/process/command_line.h"
#include "framework/process/standard_output.h"
#include "glog/logging.h"
#include "tools/simulate_tables.h"
#include "transpiler/job/job_dir.h"
#include "transpiler/job/load_job.h"

ABSL_FLAG(std::string, job, "", "the job file");
ABSL_FLAG(int64_t, steps, 1000, "so many steps of data.train, from its beginning");
ABSL_FLAG(std::string, table, "", "settings of --try are of this table alone; default: of every distributed one");
ABSL_FLAG(std::string, try, "",
          "settings to compare with the job's own, alternatives divided by ';', settings of one by ',': fields of a "
          "table as --set "
          "takes them");

namespace weir {
namespace {

constexpr char kUsage[] =
    "simulate --job=F --steps=N [--table=T] [--try='lifecycle.admit_after=2; lifecycle.ttl_steps=500, "
    "dict_size=100000']\n"
    "\n"
    "Reads the ids of the job's steps and puts them into its tables as servers would, without a model. For each "
    "alternative and\n"
    "table: rows at the end and at most, memory, ids that wait for admission, rows made, expired and evicted; lost: "
    "gradient rows\n"
    "of ids that were not admitted; absent: reads of ids that had no row and saw initial values.";

std::string Trimmed(absl::string_view text) { return std::string(absl::StripAsciiWhitespace(text)); }

// Settings of one alternative as overrides of the job.
absl::StatusOr<std::vector<std::string>> Overrides(const Job& job, const std::string& alternative) {
  const std::string wanted = absl::GetFlag(FLAGS_table);
  std::vector<std::string> overrides;
  bool any = false;
  for (int t = 0; t < job.config.table_size(); ++t) {
    const v1::Table& table = job.config.table(t);
    if (wanted.empty() ? !table.is_distributed() : table.name() != wanted) continue;
    any = true;
    for (const absl::string_view setting : absl::StrSplit(alternative, ',')) {
      overrides.push_back(absl::StrCat("table[", t, "].", Trimmed(setting)));
    }
  }
  if (any) return overrides;
  return absl::InvalidArgumentError(wanted.empty() ? std::string("the job has no distributed table")
                                                   : absl::StrCat("--table=", wanted, ": the job has no such table"));
}

absl::Status Run(const CommandLine& line) {
  const std::string file = absl::GetFlag(FLAGS_job);
  if (file.empty()) return absl::InvalidArgumentError("--job is required");
  if (!line.rest.empty()) return absl::InvalidArgumentError(absl::StrCat("unexpected '", line.rest[0], "'"));
  if (absl::GetFlag(FLAGS_steps) < 1) {
    return absl::InvalidArgumentError(absl::StrCat("--steps must be at least 1, got ", absl::GetFlag(FLAGS_steps)));
  }
  ThreadPool pool("simulate", UsableCores() - 1);
  ASSIGN_OR_RETURN(const std::string directory, JobDirectory());
  ASSIGN_OR_RETURN(const std::string text, ReadJobFile(file));
  ASSIGN_OR_RETURN(const Job job, ParseJob(text, file, line.overrides, {.directory = directory}));
  std::vector<std::string> names = {"as the job says"};
  std::vector<Simulation> simulations(1);
  ASSIGN_OR_RETURN(simulations[0], SimulateTables(job, absl::GetFlag(FLAGS_steps), &pool));
  for (const absl::string_view each : absl::StrSplit(absl::GetFlag(FLAGS_try), ';', absl::SkipWhitespace())) {
    ASSIGN_OR_RETURN(std::vector<std::string> overrides, Overrides(job, Trimmed(each)));
    overrides.insert(overrides.begin(), line.overrides.begin(), line.overrides.end());
    ASSIGN_OR_RETURN(const Job other, ParseJob(text, file, overrides, {.directory = directory}));
    ASSIGN_OR_RETURN(Simulation simulation, SimulateTables(other, absl::GetFlag(FLAGS_steps), &pool));
    names.push_back(Trimmed(each));
    simulations.push_back(std::move(simulation));
  }
  std::printf("%lld steps of %lld examples\n%s", static_cast<long long>(simulations[0].steps),
              static_cast<long long>(job.config.data().batch_size()), SimulationText(names, simulations).c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = google::GLOG_WARNING;
  google::InitGoogleLogging(argv[0]);
  const absl::StatusOr<CommandLine> line = ParseCommandLine(argc, argv);
  if (line.ok() && line->help) {
    std::printf("%s", HelpText(kUsage).c_str());
    return kExitOk;
  }
  const absl::Status status = line.ok() ? Run(*line) : line.status();
  if (status.ok()) return kExitOk;
  std::fprintf(stderr, "simulate: %s\n", std::string(status.message()).c_str());
  return ExitCodeOf(status);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::EndWithOutput("simulate", weir::Main(argc, argv)); }
