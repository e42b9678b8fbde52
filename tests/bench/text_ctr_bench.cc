// From text to a trained model, end to end: examples/synthetic_ctr/libsvm.textproto (Wide & Deep 64-32, 26 slots of
// 38,461 ids by Zipf 1.05 and 13 values, width 16, batch 4096, sync) on 1 server + 1 trainer, real processes started by
// tools/launch. Samples a second of one pass over 262,144 lines, the reading of text included, and the AUC on 65,536
// others beside the one possible.
//
//   bazel build //tools:launch //tools:generate_ctr //pserver //trainer //tests/bench:text_ctr_bench
//   bazel-bin/tests/bench/text_ctr_bench --job=examples/synthetic_ctr/libsvm.textproto
//
//   bazel-bin/tests/bench/text_ctr_bench --job=examples/synthetic_ctr/libsvm.textproto --async
//   bazel-bin/tests/bench/text_ctr_bench --job=examples/synthetic_ctr/libsvm.textproto --shuffle=ALL
//
// The second one without waiting for updates, with the rows of a batch pulled while the one before is computed; the
// third with all lines in memory before the first step. The figures of a call count only if every turn ends with an AUC
// of at least --least_auc and, but with --async, with the same loss and AUC.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"

ABSL_FLAG(std::string, job, "", "the job file, with its data in data/ beside it");
ABSL_FLAG(std::string, tools, "", "directory of launch and generate_ctr; default: tools in bazel-bin");
ABSL_FLAG(int, turns, 3, "runs");
ABSL_FLAG(int, servers, 1, "servers");
ABSL_FLAG(int, trainers, 1, "trainers");
ABSL_FLAG(bool, async, false, "sync: false and prefetch_rows: true");
ABSL_FLAG(std::string, shuffle, "", "data.shuffle; default: the job's");
ABSL_FLAG(double, least_auc, 0.678, "what a run must reach");

namespace weir {
namespace {

namespace fs = std::filesystem;

// The last line that a command prints.
absl::StatusOr<std::string> LastLine(const std::string& command) {
  FILE* const out = popen(command.c_str(), "r");
  if (out == nullptr) return absl::InternalError(absl::StrCat("cannot run ", command));
  std::string last;
  char line[1024];
  while (std::fgets(line, sizeof(line), out) != nullptr) {
    if (line[0] != '\n') last = line;
  }
  const int status = pclose(out);
  if (status != 0)
    return absl::InternalError(absl::StrCat("'", command, "' ended with ", status, " and says last '", last, "'"));
  return last;
}

// "auc" of "done steps=65 auc=0.68".
absl::StatusOr<std::string> Field(const std::string& line, const std::string& name) {
  for (const absl::string_view word : absl::StrSplit(line, absl::ByAnyChar(" \n"))) {
    const std::vector<std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (parts.size() == 2 && parts[0] == name) return parts[1];
  }
  return absl::InternalError(absl::StrCat("'", line, "' has no ", name));
}

absl::StatusOr<double> Number(const std::string& line, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string text, Field(line, name));
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) return absl::InternalError(absl::StrCat(name, "=", text, " is no number"));
  return value;
}

absl::Status BenchIn(const fs::path& directory) {
  std::string tools = absl::GetFlag(FLAGS_tools);
  if (tools.empty()) tools = fs::canonical("/proc/self/exe").parent_path().parent_path().parent_path() / "tools";
  const fs::path job = directory / "job.textproto";
  std::error_code error;
  fs::copy_file(absl::GetFlag(FLAGS_job), job, error);
  if (error)
    return absl::InvalidArgumentError(
        absl::StrCat("--job: cannot copy '", absl::GetFlag(FLAGS_job), "': ", error.message()));
  ASSIGN_OR_RETURN(
      const std::string made,
      LastLine(absl::StrCat(tools, "/generate_ctr --output=", (directory / "data").string(),
                            " --format=libsvm --ids=38461 --zipf=1.05 --rows=262144 --eval_rows=65536 --files=4"
                            " --weight_scale=0.195 --vector_scale=0")));
  ASSIGN_OR_RETURN(const double possible, Number(made, "possible_auc"));
  std::string settings;
  const bool async = absl::GetFlag(FLAGS_async);
  if (async) absl::StrAppend(&settings, " --set distribute.sync=false --set distribute.prefetch_rows=true");
  if (!absl::GetFlag(FLAGS_shuffle).empty())
    absl::StrAppend(&settings, " --set data.shuffle=", absl::GetFlag(FLAGS_shuffle));
  std::vector<double> rates;
  std::string result;
  for (int turn = 0; turn < absl::GetFlag(FLAGS_turns); ++turn) {
    ASSIGN_OR_RETURN(
        const std::string done,
        LastLine(absl::StrCat(tools, "/launch --job=", job.string(), " --servers=", absl::GetFlag(FLAGS_servers),
                              " --trainers=", absl::GetFlag(FLAGS_trainers), settings, " 2>/dev/null")));
    ASSIGN_OR_RETURN(const double rate, Number(done, "examples_per_s"));
    ASSIGN_OR_RETURN(const double auc, Number(done, "auc"));
    ASSIGN_OR_RETURN(const std::string loss, Field(done, "loss"));
    std::printf("%8.0f samples/s   loss %s   auc %.6f of %.4f\n", rate, loss.c_str(), auc, possible);
    std::fflush(stdout);
    if (auc < absl::GetFlag(FLAGS_least_auc))
      return absl::InternalError("the model is worse than it must be: the figures count for nothing");
    const std::string this_result = absl::StrCat(loss, " ", auc);
    if (turn > 0 && !async && this_result != result)
      return absl::InternalError("runs of one job differ: the figures count for nothing");
    result = this_result;
    rates.push_back(rate);
  }
  std::sort(rates.begin(), rates.end());
  std::printf("median %.0f, best %.0f samples/s\n", rates[rates.size() / 2], rates.back());
  return absl::OkStatus();
}

absl::Status Bench() {
  if (absl::GetFlag(FLAGS_turns) < 1) return absl::InvalidArgumentError("--turns must be positive");
  const fs::path directory = fs::temp_directory_path() / absl::StrCat("weir_text_ctr_bench_", getpid());
  fs::create_directories(directory);
  absl::Status status = BenchIn(directory);
  fs::remove_all(directory);
  return status;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = weir::Bench();
  if (!status.ok()) std::fprintf(stderr, "text_ctr_bench: %s\n", std::string(status.message()).c_str());
  return weir::ExitCodeOf(status);
}
