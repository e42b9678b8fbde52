// launch: runs a whole cluster on this machine. See `launch --help`.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/command_line.h"
#include "framework/base/exhausted.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "framework/base/thread_budget.h"
#include "framework/profile/profile_run.h"
#include "proto/job.pb.h"
#include "tools/launcher.h"

ABSL_FLAG(std::string, job, "", "the job file; required");
ABSL_FLAG(int, servers, -1,
          "parameter servers to start; 0: every trainer has one inside; default: distribute.servers of the job");
ABSL_FLAG(int, trainers, -1, "trainers to start; default: distribute.trainers of the job");
ABSL_FLAG(std::string, log_dir, "./mylog", "directory for one log file per process; created if missing");
ABSL_FLAG(std::string, bin_dir, "", "where the programs pserver and trainer are; default: beside launch");
ABSL_FLAG(bool, keep_going, false, "a process that fails does not end the others");
ABSL_FLAG(int64_t, digest_every, -1,
          "train.digest_every_steps: as --set train.digest_every_steps=k, in every process of the job; 0 = none");

namespace weir {
namespace {

constexpr char kUsage[] =
    "launch --job=FILE --servers=S --trainers=T [--set path=value ...] [-- arguments of every trainer]\n"
    "\n"
    "Starts a cluster on this machine, shows its output (\"[trainer.0] ...\") and ends with its exit code: 0, or that "
    "of\n"
    "the process that failed first (128 + signal). SIGTERM, SIGINT and SIGHUP end the job in good order; a second "
    "SIGTERM or\n"
    "SIGINT at once.\n";

struct CommandLineOfLaunch {
  std::vector<std::string> overrides;
  std::vector<std::string> trainer_arguments;
  bool help = false;
};

absl::StatusOr<CommandLineOfLaunch> ReadCommandLine(int argc, char** argv) {
  // Arguments after "--" go to the trainers unchanged.
  char** const end = argv + argc;
  char** const dashes = std::find_if(argv + 1, end, [](const char* arg) { return std::strcmp(arg, "--") == 0; });
  ASSIGN_OR_RETURN(CommandLine line, ParseCommandLine(static_cast<int>(dashes - argv), argv));
  if (!line.rest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", line.rest[0], "' is no flag; arguments for the trainers stand after --"));
  }
  CommandLineOfLaunch result{.overrides = std::move(line.overrides), .help = line.help};
  if (const int64_t every = absl::GetFlag(FLAGS_digest_every); every >= 0) {
    result.overrides.push_back(absl::StrCat("train.digest_every_steps=", every));
  }
  if (dashes != end) result.trainer_arguments.assign(dashes + 1, end);
  return result;
}

// Reads the job as far as launch needs it. Returns nullopt if it has message types that only the user's own program
// links.
absl::StatusOr<std::optional<v1::JobConfig>> ReadJob(const std::string& file,
                                                     const std::vector<std::string>& overrides) {
  if (file.empty()) return absl::InvalidArgumentError("--job=FILE is required");
  constexpr uint64_t kLargestJob = uint64_t{64} << 20;
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file, kLargestJob));
  v1::JobConfig job;
  absl::Status status = ParseTextProto(text, file, &job, nullptr);
  for (size_t i = 0; status.ok() && i < overrides.size(); ++i) status = ApplyOverride(overrides[i], &job, nullptr);
  if (status.GetPayload(kUnlinkedType).has_value()) return std::optional<v1::JobConfig>();
  RETURN_IF_ERROR(status);
  return std::optional<v1::JobConfig>(std::move(job));
}

// Returns the number in the flag, else that in the job.
absl::StatusOr<int> CountOf(const char* what, int flag, std::optional<int> in_job, int least) {
  const int count = flag >= 0 ? flag : in_job.value_or(0);
  if (flag < 0 && !in_job.has_value()) return absl::InvalidArgumentError(absl::StrCat("--", what, " is required"));
  if (count < least) {
    return absl::InvalidArgumentError(absl::StrCat("--", what, "=", count, ": at least ", least,
                                                   " is needed; to train in one process use trainer --role=local"));
  }
  // More processes exhaust the ports and descriptors of one machine.
  constexpr int kMost = 256;
  if (count > kMost) return absl::InvalidArgumentError(absl::StrCat("--", what, "=", count, ": at most ", kMost));
  return count;
}

// Refuses a --set of another number than launch starts.
absl::Status CheckOverride(const std::vector<std::string>& overrides, const std::string& field, int count) {
  for (const std::string& override : overrides) {
    const size_t equals = override.find('=');
    if (equals == std::string::npos || absl::StripAsciiWhitespace(override.substr(0, equals)) != field) continue;
    const std::string value(absl::StripAsciiWhitespace(override.substr(equals + 1)));
    if (value != absl::StrCat(count)) {
      return absl::InvalidArgumentError(absl::StrCat("--set ", override, ", but launch starts ", count, ": use --",
                                                     field.substr(field.find('.') + 1), "=", value));
    }
  }
  return absl::OkStatus();
}

bool IsProgram(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

// In the package all programs are in one directory; in a build each is in the directory of its room.
absl::StatusOr<std::string> FindProgram(const std::string& name) {
  std::vector<std::string> candidates;
  if (const std::string bin_dir = absl::GetFlag(FLAGS_bin_dir); !bin_dir.empty()) {
    candidates = {JoinPath(bin_dir, name), JoinPath(bin_dir, name + "/" + name)};
  } else {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    candidates = {(self / name).string(), (self.parent_path() / name / name).string()};
  }
  for (const std::string& candidate : candidates) {
    if (IsProgram(candidate)) return candidate;
  }
  return absl::NotFoundError(absl::StrCat("no program ", name, ": looked for ", candidates[0], " and ", candidates[1],
                                          "; build it, or give --bin_dir"));
}

// Returns the value of the last --<flag>=value or --<flag> value; "" if there is none.
std::string ValueOf(const std::vector<std::string>& arguments, const std::string& flag) {
  std::string value;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string name(arguments[i].substr(0, arguments[i].find('=')));
    if (name != "--" + flag && name != "-" + flag) continue;
    if (name.size() < arguments[i].size()) {
      value = arguments[i].substr(name.size() + 1);
    } else if (i + 1 < arguments.size()) {
      value = arguments[i + 1];
    }
  }
  return value;
}

// Returns the directory of the checkpoints that trainers with --role=predict score with; "" for other trainers. Servers
// must read the same checkpoint, so all processes get it as their checkpoint.dir.
std::string DirectoryToScoreWith(const std::vector<std::string>& trainer_arguments) {
  const std::string checkpoint = ValueOf(trainer_arguments, "checkpoint");
  if (checkpoint.empty() || absl::AsciiStrToLower(ValueOf(trainer_arguments, "role")) != "predict") return "";
  std::filesystem::path dir = std::filesystem::absolute(checkpoint).lexically_normal();
  if (!dir.has_filename()) dir = dir.parent_path();
  if (dir.filename().string().starts_with("step-")) dir = dir.parent_path();
  return dir.string();
}

std::string Count(int n, const char* what) { return absl::StrCat(n, " ", what, n == 1 ? "" : "s"); }

// Servers wait while trainers compute and vice versa, so each kind may use all cores.
void DivideThreads(LaunchOptions* options) {
  const std::string trainers = Count(options->trainers, "trainer");
  const std::string cluster = absl::StrCat(
      "launch: ",
      options->servers == 0 ? absl::StrCat(trainers, options->trainers == 1 ? "" : ", each", " with a server")
                            : absl::StrCat(Count(options->servers, "server"), " and ", trainers),
      " on ", Count(UsableCores(), "core"), ", ");
  for (const std::string& override : options->overrides) {
    if (override.starts_with("train.threads")) {
      std::fprintf(stderr, "%sthreads by --set %s; logs in %s\n", cluster.c_str(), override.c_str(),
                   options->log_dir.c_str());
      return;
    }
  }
  options->trainer_threads = std::max(1, UsableCores() / options->trainers);
  if (options->servers == 0) {
    std::fprintf(stderr, "%s%s a trainer; logs in %s\n", cluster.c_str(),
                 Count(options->trainer_threads, "thread").c_str(), options->log_dir.c_str());
    return;
  }
  options->server_threads = std::max(1, UsableCores() / options->servers);
  std::fprintf(stderr, "%s%s a server, %s a trainer; logs in %s\n", cluster.c_str(),
               Count(options->server_threads, "thread").c_str(), Count(options->trainer_threads, "thread").c_str(),
               options->log_dir.c_str());
}

absl::StatusOr<LaunchOptions> MakeOptions(const CommandLineOfLaunch& line) {
  LaunchOptions options{.job = absl::GetFlag(FLAGS_job),
                        .log_dir = absl::GetFlag(FLAGS_log_dir),
                        .overrides = line.overrides,
                        .trainer_arguments = line.trainer_arguments,
                        .keep_going = absl::GetFlag(FLAGS_keep_going)};
  ASSIGN_OR_RETURN(const ProfileFlags profile, ReadProfileFlags());
  options.profile = profile.file;
  options.profile_steps = absl::StrCat(profile.begin, ":", profile.end);
  ASSIGN_OR_RETURN(const std::optional<v1::JobConfig> job, ReadJob(options.job, options.overrides));
  std::optional<int> servers, trainers;
  if (job.has_value()) {
    servers = job->distribute().servers();
    trainers = job->distribute().trainers();
    options.lease = absl::Seconds(job->deadlines().lease_s());
    options.slow_warning = absl::Seconds(job->deadlines().slow_warning_s());
    options.connect_deadline = absl::Seconds(job->deadlines().connect_deadline_s());
  }
  ASSIGN_OR_RETURN(options.servers, CountOf("servers", absl::GetFlag(FLAGS_servers), servers, /*least=*/0));
  ASSIGN_OR_RETURN(options.trainers, CountOf("trainers", absl::GetFlag(FLAGS_trainers), trainers, /*least=*/1));
  RETURN_IF_ERROR(CheckOverride(options.overrides, "distribute.servers", options.servers));
  RETURN_IF_ERROR(CheckOverride(options.overrides, "distribute.trainers", options.trainers));
  if (const std::string dir = DirectoryToScoreWith(options.trainer_arguments); !dir.empty()) {
    options.overrides.push_back(absl::StrCat("checkpoint.dir=\"", absl::CEscape(dir), "\""));
  }
  if (options.servers > 0) {
    ASSIGN_OR_RETURN(options.pserver, FindProgram("pserver"));
  }
  ASSIGN_OR_RETURN(options.trainer, FindProgram("trainer"));
  return options;
}

int Main(int argc, char** argv) {
  ExitWhenOutOfMemory("launch");
  absl::StatusOr<CommandLineOfLaunch> line = ReadCommandLine(argc, argv);
  if (line.ok() && line->help) {
    std::fputs(HelpText(kUsage).c_str(), stdout);
    return kExitOk;
  }
  absl::StatusOr<LaunchOptions> options = line.ok() ? MakeOptions(*line) : line.status();
  if (!options.ok()) {
    std::fprintf(stderr, "launch: %s\n", std::string(options.status().message()).c_str());
    return ExitCodeOf(options.status());
  }
  DivideThreads(&*options);
  return Launch(*options);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Main(argc, argv); }
