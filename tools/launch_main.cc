// launch: runs a whole cluster on this machine, its part of one on a node, or one on several hosts. See `launch
// --help`.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/atomic_file.h"
#include "framework/base/exhausted.h"
#include "framework/base/exit_code.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "framework/process/command_line.h"
#include "framework/process/standard_output.h"
#include "framework/profile/profile_run.h"
#include "proto/job.pb.h"
#include "pserver/cluster/cluster.h"
#include "tools/hosts/host_agent.h"
#include "tools/hosts/host_names.h"
#include "tools/hosts/hosts.h"
#include "tools/hosts/ssh.h"
#include "tools/launching/child_commands.h"
#include "tools/launching/core_shares.h"
#include "tools/launching/inherited_variables.h"
#include "tools/launching/launch_options.h"
#include "tools/launching/placement.h"
#include "tools/launching/supervisor.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job_dir.h"
#include "transpiler/job/modes.h"
#include "transpiler/start/start_from_flag.h"

ABSL_FLAG(std::string, job, "", "the job file; required");
ABSL_FLAG(int, servers, -1,
          "parameter servers to start; 0: every trainer has one inside; default: distribute.servers of the job");
ABSL_FLAG(int, trainers, -1, "trainers of the job; default: distribute.trainers of the job, or with -H all slots");
ABSL_FLAG(int, nnodes, -1, "one launch for each node: number of nodes; default: 1");
ABSL_FLAG(int, node_rank, -1, "which node this is, from 0; else NODE_RANK or the rank that another launcher has set");
ABSL_FLAG(int, nproc_per_node, -1, "trainers on each node; default: trainers divided by nodes");
ABSL_FLAG(std::string, node_addr, "",
          "--nnodes: this node's host in --pservers, default: every address of this machine; without --pservers the "
          "address at which servers of this node listen, default: every interface");
ABSL_FLAG(std::string, master_addr, "", "where the other nodes reach node 0, or the first host; else MASTER_ADDR");
ABSL_FLAG(int, master_port, -1,
          "--nnodes: port at which the processes meet; server i, on node i modulo nnodes, listens at the port 1 + i "
          "above it; else MASTER_PORT; default: 29500 with --nnodes, else a free one");
ABSL_FLAG(int, np, -1, "trainers of the job, as mpirun and horovodrun call it");
ABSL_FLAG(std::string, H, "",
          "one launch for several hosts: host:slots,host:slots; a host without a number has one slot");
ABSL_FLAG(std::string, hostfile, "", "as -H, from a file: a line \"host slots=N address=HOST\" for each; # comments");
ABSL_FLAG(std::string, server_hosts, "", "-H: hosts of the servers, in turns; default: all hosts with trainers");
ABSL_FLAG(std::string, pservers, "",
          "host:port of every server in order of their index; default: free ports, or those above --master_port");
ABSL_FLAG(std::string, pserver_ports, "", "port of every server, with commas");
ABSL_FLAG(std::string, ssh, "ssh", "the program that reaches other hosts; searched in PATH");
ABSL_FLAG(int, ssh_port, 0, "port of ssh on other hosts; default: that of its configuration");
ABSL_FLAG(std::string, ssh_options, "", "further arguments of ssh, with quotes as in a shell: \"-i key -l user\"");
ABSL_FLAG(int, ssh_timeout_s, 30, "seconds for each host to answer");
ABSL_FLAG(std::string, env, "", "NAME=VALUE, or NAME for its value here, for every process; many times");
ABSL_FLAG(std::string, gpus, "",
          "devices of the trainers on each host: a count, or a list with a comma in it (0,2 or 2,), which "
          "CUDA_VISIBLE_DEVICES may narrow; local rank i has the i-th; default: left as they are");
ABSL_FLAG(std::string, bind, "auto",
          "processors of processes: none; cores (some of its own each); numa (a node each); auto: numa if there are "
          "several nodes and a process for each, else none");
ABSL_FLAG(std::string, log_dir, "./mylog",
          "directory for one log file per process; created if missing; with --nnodes in node.<rank> below it");
ABSL_FLAG(std::string, bin_dir, "",
          "where the programs pserver and trainer are, on every host; default: beside launch");
ABSL_FLAG(
    int, stop_code, weir::kExitStopped,
    "exit code of a job that a signal has stopped in good order before it was complete: 5 to 125; 0: as if it were "
    "complete");
ABSL_FLAG(int, page, -1, "port of a page in the browser that shows the running job; 0: any that is free");
ABSL_FLAG(std::string, page_address, "127.0.0.1",
          "address that --page listens at; there is no password: others can read it at any but a local one");
ABSL_FLAG(int, metrics_port, -1,
          "port with /metrics for Prometheus of the first server; each further server, then trainer, has the next; 0: "
          "any that are free");
ABSL_FLAG(std::string, metrics_address, "", "address that --metrics_port listens at; default: 127.0.0.1");
ABSL_FLAG(std::string, tensorboard, "",
          "directory for TensorBoard's event files, one directory in it for each process");
ABSL_FLAG(int64_t, tensorboard_histograms, 0, "steps between histograms in the event files; 0: none");
ABSL_FLAG(bool, allow_pipes, false, "trainers run the commands that the job names (data.pipe, data.pipe_list)");
ABSL_FLAG(bool, keep_going, false, "a process that fails does not end the others");
ABSL_FLAG(
    std::string, restarts, "",
    "after a death, start the job again from its newest checkpoint: at most so many times, or so many in an hour: "
    "20, 3/hour; default: cluster.restarts of the job, or 0");
ABSL_FLAG(int, min_trainers, 0,
          "-H with --restarts: go on without hosts that do not answer, with at least so many trainers; default: all");
ABSL_FLAG(int64_t, digest_every, -1,
          "train.digest_every_steps: as --set train.digest_every_steps=k, in every process of the job; 0 = none");
ABSL_FLAG(bool, agent, false, "how launch starts itself on other hosts; obeys messages on stdin");

namespace weir {
namespace {

constexpr char kUsage[] =
    "launch --job=FILE --servers=S --trainers=T [--set path=value ...] [-- arguments of every trainer]\n"
    "launch --job=FILE --nnodes=N --node_rank=R --nproc_per_node=T --master_addr=HOST ...   on each of N nodes\n"
    "launch --job=FILE -np T -H host:slots,host:slots ...                                   once, over SSH\n"
    "\n"
    "Starts a cluster on this machine, this node's part of one, or one on several hosts; shows its output\n"
    "(\"[trainer.0] ...\") and ends with its exit code: 0 if the job is complete, or that of the process that failed\n"
    "first (128 + signal). SIGTERM, SIGINT and SIGHUP end the job in good order, with 5; a second SIGTERM or SIGINT "
    "at\n"
    "once.\n";

// Limit for names of hosts to be looked up.
constexpr absl::Duration kLookUp = absl::Seconds(10);

struct CommandLineOfLaunch {
  std::vector<std::string> overrides;
  std::vector<std::string> trainer_arguments;
  std::map<std::string, std::string> environment;
  bool help = false;
};

std::optional<std::string> VariableHere(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// Adds "NAME=VALUE", or NAME with its value here.
absl::Status AddVariable(const std::string& text, std::map<std::string, std::string>* environment) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  RETURN_IF_ERROR(CheckVariable(name));
  const std::optional<std::string> here =
      equals == std::string::npos ? VariableHere(name) : std::optional<std::string>(text.substr(equals + 1));
  if (!here.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--env ", name, ": there is no such variable; write --env ", name, "=VALUE, or leave it out"));
  }
  const auto [place, added] = environment->emplace(name, *here);
  if (added || place->second == *here) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--env gives ", name, " twice: '", place->second, "' and '", *here, "'"));
}

// Takes --env out of the arguments, since other flags keep only their last value.
absl::StatusOr<std::vector<char*>> TakeVariables(char** begin, char** end,
                                                 std::map<std::string, std::string>* environment) {
  std::vector<char*> rest;
  for (char** each = begin; each != end; ++each) {
    std::string_view argument = *each;
    if (argument.starts_with("--")) argument.remove_prefix(1);
    if (argument == "-env") {
      if (each + 1 == end) return absl::InvalidArgumentError("--env needs NAME=VALUE or NAME");
      RETURN_IF_ERROR(AddVariable(*++each, environment));
    } else if (argument.starts_with("-env=")) {
      RETURN_IF_ERROR(AddVariable(std::string(argument.substr(5)), environment));
    } else {
      rest.push_back(*each);
    }
  }
  return rest;
}

absl::StatusOr<CommandLineOfLaunch> ReadCommandLine(int argc, char** argv) {
  // Arguments after "--" go to the trainers unchanged.
  char** const end = argv + argc;
  char** const dashes = std::find_if(argv + 1, end, [](const char* arg) { return std::strcmp(arg, "--") == 0; });
  CommandLineOfLaunch result;
  ASSIGN_OR_RETURN(const std::vector<char*> own, TakeVariables(argv, dashes, &result.environment));
  ASSIGN_OR_RETURN(CommandLine line, ParseCommandLine(static_cast<int>(own.size()), own.data()));
  if (!line.rest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", line.rest[0], "' is no flag; arguments for the trainers stand after --"));
  }
  result.overrides = std::move(line.overrides);
  result.help = line.help;
  if (const int64_t every = absl::GetFlag(FLAGS_digest_every); every >= 0) {
    result.overrides.push_back(absl::StrCat("train.digest_every_steps=", every));
  }
  if (dashes != end) result.trainer_arguments.assign(dashes + 1, end);
  if (absl::GetFlag(FLAGS_allow_pipes)) result.trainer_arguments.push_back("--allow_pipes");
  return result;
}

// Keeps the text of a job that the processes cannot read themselves in a file of memory.
absl::Status KeepJob(const std::string& text, LaunchOptions* options) {
  options->job_fd = memfd_create("job", MFD_CLOEXEC);
  if (options->job_fd < 0 || write(options->job_fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot keep the job of ", options->job, ": ", strerror(errno)));
  }
  options->job = "/dev/stdin";
  return absl::OkStatus();
}

// Parses the job as far as launch needs it. Returns nullopt if it has message types that only the user's own program
// links.
absl::StatusOr<std::optional<v1::JobConfig>> ParseJobText(const std::string& text, const std::string& file,
                                                          const std::vector<std::string>& overrides) {
  v1::JobConfig job;
  absl::Status status = ParseTextProto(text, file, &job, nullptr);
  for (size_t i = 0; status.ok() && i < overrides.size(); ++i) status = ApplyOverride(overrides[i], &job, nullptr);
  if (status.GetPayload(kUnlinkedType).has_value()) return std::optional<v1::JobConfig>();
  RETURN_IF_ERROR(status);
  return std::optional<v1::JobConfig>(std::move(job));
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
absl::StatusOr<std::string> FindProgram(const std::string& room, const std::string& name) {
  std::vector<std::string> candidates;
  if (const std::string bin_dir = absl::GetFlag(FLAGS_bin_dir); !bin_dir.empty()) {
    candidates = {JoinPath(bin_dir, name), JoinPath(bin_dir, room + "/" + name)};
  } else {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
    candidates = {(self / name).string(), (self.parent_path() / room / name).string()};
  }
  for (const std::string& candidate : candidates) {
    if (IsProgram(candidate)) return candidate;
  }
  return absl::NotFoundError(absl::StrCat("no program ", name, ": looked for ", candidates[0], " and ", candidates[1],
                                          "; build it, or give --bin_dir"));
}

// Returns whether the trainers score examples with a checkpoint.
bool ScoresExamples(const std::vector<std::string>& trainer_arguments) {
  const std::string role = absl::AsciiStrToLower(ValueOf(trainer_arguments, "role").value_or(""));
  return role == "predict" || role == "importance";
}

// Returns the directory of the checkpoints that trainers with --role=predict or importance score with; "" for other
// trainers. Servers must read the same checkpoint, so all processes get it as their checkpoint.dir.
std::string DirectoryToScoreWith(const std::vector<std::string>& trainer_arguments) {
  const std::string checkpoint = ValueOf(trainer_arguments, "checkpoint").value_or("");
  if (checkpoint.empty() || !ScoresExamples(trainer_arguments)) return "";
  std::filesystem::path dir = std::filesystem::absolute(checkpoint).lexically_normal();
  if (!dir.has_filename()) dir = dir.parent_path();
  if (dir.filename().string().starts_with("step-")) dir = dir.parent_path();
  return dir.string();
}

// Returns the checkpoint of trainers with --checkpoint_job, for the servers; "" without the flag.
std::string CheckpointOfJob(const std::vector<std::string>& trainer_arguments) {
  const std::optional<std::string> given = ValueOf(trainer_arguments, "checkpoint_job");
  if (!given.has_value() || *given == "false" || *given == "0") return "";
  const std::string checkpoint = ValueOf(trainer_arguments, "checkpoint").value_or("");
  return std::filesystem::absolute(checkpoint).lexically_normal().string();
}

// Hosts of -H or --hostfile; none without them.
absl::Status ReadHosts(PlacementFlags* flags) {
  const std::string list = absl::GetFlag(FLAGS_H), file = absl::GetFlag(FLAGS_hostfile);
  if (!list.empty() && !file.empty()) {
    return absl::InvalidArgumentError("-H and --hostfile both name hosts: give one of them");
  }
  if (!list.empty()) {
    flags->hosts_from = "-H";
    ASSIGN_OR_RETURN(flags->hosts, ParseHostList(list));
  } else if (!file.empty()) {
    flags->hosts_from = file;
    constexpr uint64_t kLargestHostfile = uint64_t{16} << 20;
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file, kLargestHostfile));
    ASSIGN_OR_RETURN(flags->hosts, ParseHostfile(text, file));
  }
  return absl::OkStatus();
}

// `without`: hosts that are left out.
absl::StatusOr<Placement> PlaceProcesses(JobNumbers job, const std::vector<std::string>& without = {}) {
  PlacementFlags flags{.servers = absl::GetFlag(FLAGS_servers),
                       .trainers = absl::GetFlag(FLAGS_trainers),
                       .nnodes = absl::GetFlag(FLAGS_nnodes),
                       .node_rank = absl::GetFlag(FLAGS_node_rank),
                       .nproc_per_node = absl::GetFlag(FLAGS_nproc_per_node),
                       .node_addr = absl::GetFlag(FLAGS_node_addr),
                       .master_addr = absl::GetFlag(FLAGS_master_addr),
                       .master_port = absl::GetFlag(FLAGS_master_port),
                       .np = absl::GetFlag(FLAGS_np),
                       .server_hosts = absl::GetFlag(FLAGS_server_hosts),
                       .pservers = absl::GetFlag(FLAGS_pservers),
                       .pserver_ports = absl::GetFlag(FLAGS_pserver_ports)};
  RETURN_IF_ERROR(ReadHosts(&flags));
  if (!without.empty()) {
    flags.hosts.erase(std::remove_if(flags.hosts.begin(), flags.hosts.end(),
                                     [&](const Host& host) {
                                       return std::find(without.begin(), without.end(), host.name) != without.end();
                                     }),
                      flags.hosts.end());
    int slots = 0;
    for (const Host& host : flags.hosts) slots += host.slots;
    for (int* const trainers : {&flags.np, &flags.trainers, &job.trainers}) *trainers = std::min(*trainers, slots);
  }
  RETURN_IF_ERROR(ReadInherited(VariableHere, &flags));
  ASSIGN_OR_RETURN(Placement placement, Place(flags, job, [](const std::vector<std::string>& names) {
                     return AreThisMachine(names, kLookUp);
                   }));
  RETURN_IF_ERROR(CheckInherited(VariableHere, placement));
  return placement;
}

// Returns the path of a program that is searched in PATH, unless it has a slash.
absl::StatusOr<std::string> SearchPath(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  for (const std::string& directory :
       std::vector<std::string>(absl::StrSplit(VariableHere("PATH").value_or(""), ':'))) {
    if (const std::string path = JoinPath(directory, name); IsProgram(path)) return path;
  }
  return absl::NotFoundError(absl::StrCat("no program ", name,
                                          " in PATH, which reaches other hosts; install it "
                                          "(openssh-client), or give --ssh"));
}

absl::StatusOr<SshSettings> ReadSshSettings(const Placement& placement) {
  SshSettings ssh{.port = absl::GetFlag(FLAGS_ssh_port), .timeout = absl::Seconds(absl::GetFlag(FLAGS_ssh_timeout_s))};
  if (ssh.port < 0 || ssh.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("--ssh_port=", ssh.port, ": must be 1 to 65535"));
  }
  if (ssh.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ssh_timeout_s=", absl::GetFlag(FLAGS_ssh_timeout_s), ": must be at least 1"));
  }
  absl::StatusOr<std::vector<std::string>> words = SplitWords(absl::GetFlag(FLAGS_ssh_options));
  if (!words.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--ssh_options: ", std::string(words.status().message())));
  }
  ssh.options = *std::move(words);
  if (std::none_of(placement.hosts.begin(), placement.hosts.end(), [](const auto& host) { return host.remote; })) {
    return ssh;
  }
  ASSIGN_OR_RETURN(ssh.program, SearchPath(absl::GetFlag(FLAGS_ssh)));
  return ssh;
}

// Settings of the job that decide how many processes there are, now and after a restart.
struct JobSettings {
  JobNumbers numbers;
  const char* fixed = "launch does not know all messages of the job";  // WhyTrainersAreFixed
};

absl::StatusOr<JobSettings> ReadJobSettings(LaunchOptions* options) {
  if (options->job.empty()) return absl::InvalidArgumentError("--job=FILE is required");
  ASSIGN_OR_RETURN(const std::string text, ReadJobText(options->job));
  ASSIGN_OR_RETURN(const std::optional<v1::JobConfig> job, ParseJobText(text, options->job, options->overrides));
  if (IsStream(options->job)) RETURN_IF_ERROR(KeepJob(text, options));
  if (!job.has_value()) return JobSettings();
  options->deadlines = {.lease = absl::Seconds(job->deadlines().lease_s()),
                        .slow_warning = absl::Seconds(job->deadlines().slow_warning_s()),
                        .connect = absl::Seconds(job->deadlines().connect_deadline_s()),
                        .progress = absl::Seconds(job->deadlines().progress_deadline_s())};
  v1::Distribute distribute = job->distribute();
  ApplyMode(&distribute);
  options->watching.job.set_name(job->name());
  options->watching.job.set_epochs(static_cast<double>(job->train().epochs()));
  options->watching.job.set_max_steps(static_cast<double>(job->train().max_steps()));
  if (job->cluster().has_restarts()) {
    ASSIGN_OR_RETURN(options->restarts.limit, ParseRestarts("cluster.restarts", job->cluster().restarts()));
  }
  options->restarts.keeps_checkpoints = !job->checkpoint().dir().empty();
  if (options->restarts.keeps_checkpoints) {
    ASSIGN_OR_RETURN(std::string directory, JobDirectory());
    if (directory.empty()) directory = std::filesystem::path(options->job).parent_path();
    options->watching.checkpoints = std::filesystem::path(directory) / job->checkpoint().dir();
  }
  return JobSettings{.numbers = {.servers = distribute.servers(), .trainers = distribute.trainers()},
                     .fixed = WhyTrainersAreFixed(*job)};
}

// Returns a name that no other run has.
std::string DrawRunName() {
  std::random_device device;
  return absl::StrCat("launch.", absl::Hex(uint64_t{device()} << 32 | device(), absl::kZeroPad16));
}

// Places the job without some of its hosts.
absl::StatusOr<Placement> PlaceWithout(const JobNumbers& numbers, const std::vector<std::string>& without) {
  const int least = absl::GetFlag(FLAGS_min_trainers);
  ASSIGN_OR_RETURN(Placement placement, PlaceProcesses(numbers, without));
  if (placement.trainers >= least) return placement;
  return absl::UnavailableError(
      absl::StrCat("the other hosts have slots for ", placement.trainers, " of --min_trainers=", least));
}

// Reads --restarts and --min_trainers.
absl::Status ReadRestarts(const JobSettings& job, LaunchOptions* options) {
  const int least = absl::GetFlag(FLAGS_min_trainers);
  if (const std::string text = absl::GetFlag(FLAGS_restarts); !text.empty()) {
    ASSIGN_OR_RETURN(options->restarts.limit, ParseRestarts("--restarts", text));
  }
  if (least != 0 && options->restarts.limit.most == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--min_trainers=", least, " says how a job is started again, and there is no --restarts"));
  }
  if (options->restarts.limit.most == 0) return absl::OkStatus();
  if (options->keep_going) {
    return absl::InvalidArgumentError(
        "--restarts ends all processes when one has failed, and --keep_going none: give one of them");
  }
  if (ScoresExamples(options->trainer_arguments)) options->restarts.keeps_checkpoints = false;
  const auto given = [&](const char* flag) { return ValueOf(options->trainer_arguments, flag).has_value(); };
  if (options->restarts.keeps_checkpoints && !given("resume") && !given("resume_run")) {
    // Checkpoints of an earlier run in the same directory are none of this one. Where nodes meet, the first one names
    // the run for all.
    const bool learns = options->placement.meet_at_master && options->placement.hosts[0].node > 0;
    if (!given("run_id")) options->trainer_arguments.push_back("--run_id=" + (learns ? kAnyRun : DrawRunName()));
    options->restarts.trainer_arguments = {"--resume_run"};
  }
  if (least == 0) return absl::OkStatus();
  if (least < 1 || least > options->placement.trainers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--min_trainers=", least, ": must be 1 to the number of trainers, ", options->placement.trainers));
  }
  if (options->placement.hosts.size() < 2) {
    return absl::InvalidArgumentError("--min_trainers goes with several hosts (-H, --hostfile)");
  }
  if (job.fixed != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("--min_trainers=", least, ": ", job.fixed, "; leave it out"));
  }
  options->restarts.place_without = [numbers = job.numbers](const std::vector<std::string>& without) {
    return PlaceWithout(numbers, without);
  };
  return absl::OkStatus();
}

absl::Status FindPrograms(LaunchOptions* options) {
  const std::vector<PlacedServer>& servers = options->placement.servers;
  if (std::any_of(servers.begin(), servers.end(), [](const PlacedServer& server) { return server.host >= 0; })) {
    ASSIGN_OR_RETURN(options->programs.pserver, FindProgram("pserver", "pserver"));
  }
  ASSIGN_OR_RETURN(options->programs.trainer, FindProgram("trainer", "trainer"));
  std::error_code error;
  options->programs.launch = std::filesystem::read_symlink("/proc/self/exe", error).string();
  return absl::OkStatus();
}

absl::Status CheckStopCode(int code) {
  if (code == kExitOk || (code >= kExitStopped && code <= 125)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--stop_code=", code, ": must be 0, or 5 to 125: the others have a meaning"));
}

absl::Status CheckPort(const char* flag, int port, int most) {
  if (port >= -1 && port <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", port, ": must be 0 to ", most));
}

// Reads the flags of the page, /metrics and event files.
absl::Status ReadWatching(LaunchOptions* options) {
  const int processes = static_cast<int>(options->placement.servers.size()) + options->placement.trainers;
  options->stop_code = absl::GetFlag(FLAGS_stop_code);
  RETURN_IF_ERROR(CheckStopCode(options->stop_code));
  // A process that ends with a code that launch does not know of has failed.
  if (const std::string code = ValueOf(options->trainer_arguments, "stop_code").value_or(""); !code.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--stop_code=", code, " stands after --, where trainers alone get it: give it before --"));
  }
  Watching& watching = options->watching;
  watching.page_port = absl::GetFlag(FLAGS_page);
  watching.page_address = absl::GetFlag(FLAGS_page_address);
  watching.job.set_file(options->job);
  watching.metrics_port = absl::GetFlag(FLAGS_metrics_port);
  watching.metrics_address = absl::GetFlag(FLAGS_metrics_address);
  RETURN_IF_ERROR(CheckPort("page", watching.page_port, 65535));
  RETURN_IF_ERROR(CheckPort("metrics_port", watching.metrics_port, 65535 - processes + 1));
  // The page asks the processes for their state.
  if (watching.page_port >= 0 && watching.metrics_port < 0) watching.metrics_port = 0;
  if (const std::string directory = absl::GetFlag(FLAGS_tensorboard); !directory.empty()) {
    watching.tensorboard = std::filesystem::absolute(directory).string();
  }
  watching.tensorboard_histograms = absl::GetFlag(FLAGS_tensorboard_histograms);
  if (watching.tensorboard_histograms < 0 || (watching.tensorboard_histograms > 0 && watching.tensorboard.empty())) {
    return absl::InvalidArgumentError("--tensorboard_histograms is a number of steps, and goes with --tensorboard=DIR");
  }
  if (watching.page_port >= 0) {
    options->programs.transpile = FindProgram("transpiler", "transpile").value_or("");
  }
  return absl::OkStatus();
}

// Returns --start_from with absolute paths; "" if it is not given.
absl::StatusOr<std::string> StartOfAllProcesses(const std::vector<std::string>& trainer_arguments) {
  if (const std::string value = ValueOf(trainer_arguments, "start_from").value_or(""); !value.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--start_from=", value,
                     " stands after --, where trainers alone get it, and servers need it, too: give it ", "before --"));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> directories, StartFromFlag());
  return absl::StrJoin(directories, ",");
}

absl::StatusOr<LaunchOptions> MakeOptions(const CommandLineOfLaunch& line) {
  LaunchOptions options{.job = absl::GetFlag(FLAGS_job),
                        .job_dir = absl::GetFlag(FLAGS_job_dir),
                        .log_dir = absl::GetFlag(FLAGS_log_dir),
                        .overrides = line.overrides,
                        .trainer_arguments = line.trainer_arguments,
                        .environment = line.environment,
                        .gpus = absl::GetFlag(FLAGS_gpus),
                        .keep_going = absl::GetFlag(FLAGS_keep_going)};
  ASSIGN_OR_RETURN(options.start_from, StartOfAllProcesses(options.trainer_arguments));
  ASSIGN_OR_RETURN(const ProfileFlags profile, ReadProfileFlags());
  options.profile = profile.file;
  options.profile_steps = absl::StrCat(profile.begin, ":", profile.end);
  ASSIGN_OR_RETURN(options.bind, ParseBind(absl::GetFlag(FLAGS_bind)));
  ASSIGN_OR_RETURN(const JobSettings job, ReadJobSettings(&options));
  ASSIGN_OR_RETURN(options.placement, PlaceProcesses(job.numbers));
  const Placement& placement = options.placement;
  for (const PlacedHost& host : placement.hosts) {
    if (options.job_fd < 0 || !host.remote) continue;
    return absl::InvalidArgumentError(absl::StrCat("--job=", absl::GetFlag(FLAGS_job), " is not on ", host.name,
                                                   ": write the job into a file that every host has at the same path"));
  }
  RETURN_IF_ERROR(CheckOverride(options.overrides, "distribute.servers", static_cast<int>(placement.servers.size())));
  RETURN_IF_ERROR(CheckOverride(options.overrides, "distribute.trainers", placement.trainers));
  options.threads_by_job =
      std::any_of(options.overrides.begin(), options.overrides.end(),
                  [](const std::string& override) { return override.starts_with("train.threads"); });
  if (const std::string dir = DirectoryToScoreWith(options.trainer_arguments); !dir.empty()) {
    options.overrides.push_back(absl::StrCat("checkpoint.dir=\"", absl::CEscape(dir), "\""));
    options.checkpoint_job = CheckpointOfJob(options.trainer_arguments);
  }
  // Nodes may share a file system.
  if (absl::GetFlag(FLAGS_nnodes) > 1) {
    options.log_dir = JoinPath(options.log_dir, absl::StrCat("node.", placement.hosts[0].node));
  }
  RETURN_IF_ERROR(ReadRestarts(job, &options));
  ASSIGN_OR_RETURN(options.ssh, ReadSshSettings(placement));
  options.ssh.lost_after = std::clamp(2 * options.deadlines.lease, absl::Seconds(4), options.ssh.lost_after);
  RETURN_IF_ERROR(FindPrograms(&options));
  RETURN_IF_ERROR(ReadWatching(&options));
  return options;
}

int Main(int argc, char** argv) {
  ExitWhenOutOfMemory("launch");
  RaiseDescriptorLimit();
  absl::StatusOr<CommandLineOfLaunch> line = ReadCommandLine(argc, argv);
  if (line.ok() && line->help) {
    std::fputs(HelpText(kUsage).c_str(), stdout);
    return kExitOk;
  }
  if (line.ok() && absl::GetFlag(FLAGS_agent)) return RunHostAgent();
  absl::StatusOr<LaunchOptions> options = line.ok() ? MakeOptions(*line) : line.status();
  if (!options.ok()) {
    std::fprintf(stderr, "launch: %s\n", std::string(options.status().message()).c_str());
    return ExitCodeOf(options.status());
  }
  return Launch(*options);
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::EndWithOutput("launch", weir::Main(argc, argv)); }
