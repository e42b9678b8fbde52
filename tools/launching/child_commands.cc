#include "tools/launching/child_commands.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/atomic_file.h"
#include "framework/base/exit_code.h"
#include "pserver/cluster/endpoint.h"

namespace weir {
namespace {

// Variables that launch sets for its children. Those that do not concern a process are removed: a cluster's own scripts
// may have set them for another cluster.
constexpr std::string_view kOwn =
    "TRAINING_ROLE RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK MASTER_ADDR "
    "MASTER_PORT PADDLE_TRAINER_ID PADDLE_TRAINERS_NUM PADDLE_NUM_TRAINERS PADDLE_TRAINER_ENDPOINTS "
    "PADDLE_CURRENT_ENDPOINT PADDLE_PSERVERS_IP_PORT_LIST";
// Variables that are removed: other names of the same settings, and those by which other launchers tell launch, as
// their child, which of their processes it is.
constexpr std::string_view kForeign =
    "PADDLE_TRAINING_ROLE POD_IP PADDLE_PORT PADDLE_TRAINERS PADDLE_CURRENT_IP PADDLE_PSERVER_IPS "
    "PADDLE_PSERVER_PORT FLAGS_selected_gpus TF_CONFIG GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME "
    "TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS "
    "TORCHELASTIC_USE_AGENT_STORE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK "
    "OMPI_COMM_WORLD_LOCAL_SIZE OMPI_COMM_WORLD_NODE_RANK OMPI_FIRST_RANKS OMPI_APP_CTX_NUM_PROCS "
    "PMIX_RANK PMI_RANK PMI_SIZE SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS "
    "SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE";

std::vector<std::string> Words(std::string_view text) {
  return absl::StrSplit(absl::string_view(text.data(), text.size()), ' ');
}

// Flags that servers and trainers have in common.
void AddSettings(const LaunchOptions& options, bool server, int id, int threads, std::vector<std::string>* command) {
  if (!options.profile.empty()) {
    command->insert(command->end(), {"--profile=" + ProfileFile(options, server, id),
                                     "--profile_steps=" + options.profile_steps, "--profile_table=false"});
  }
  const Watching& watching = options.watching;
  if (watching.metrics_port >= 0) {
    const int place = server ? id : static_cast<int>(options.placement.servers.size()) + id;
    command->push_back(absl::StrCat("--metrics_port=", watching.metrics_port == 0 ? 0 : watching.metrics_port + place));
    if (!watching.metrics_address.empty()) command->push_back("--metrics_address=" + watching.metrics_address);
  }
  if (!watching.tensorboard.empty()) {
    command->push_back("--tensorboard=" + watching.tensorboard);
    if (watching.tensorboard_histograms > 0) {
      command->push_back(absl::StrCat("--tensorboard_histograms=", watching.tensorboard_histograms));
    }
  }
  command->push_back("--job=" + options.job);
  if (!options.job_dir.empty()) command->push_back("--job_dir=" + options.job_dir);
  if (!options.start_from.empty()) command->push_back("--start_from=" + options.start_from);
  if (options.stop_code != kExitStopped) command->push_back(absl::StrCat("--stop_code=", options.stop_code));
  if (!options.threads_by_job) command->push_back(absl::StrCat("--threads=", threads));
  for (const std::string& override : options.overrides) command->push_back("--set=" + override);
  command->push_back(absl::StrCat("--set=distribute.servers=", options.placement.servers.size()));
  command->push_back(absl::StrCat("--set=distribute.trainers=", options.placement.trainers));
}

// Variables that servers and trainers have in common.
Variables CommonVariables(const LaunchOptions& options, bool server) {
  Variables variables;
  for (const std::string_view names : {kOwn, kForeign}) {
    for (const std::string& name : Words(names)) variables[name] = std::nullopt;
  }
  for (const auto& [name, value] : options.environment) variables[name] = value;
  variables["TRAINING_ROLE"] = server ? "PSERVER" : "TRAINER";
  variables["PADDLE_TRAINERS_NUM"] = absl::StrCat(options.placement.trainers);
  variables["PADDLE_NUM_TRAINERS"] = absl::StrCat(options.placement.trainers);
  return variables;
}

// Tells a process where the others meet: at the master, unless the arguments of the trainers name another place.
void AddMeetingPoint(const LaunchOptions& options, const std::string& master_addr, int master_port, bool server,
                     ChildCommand* child) {
  const std::optional<std::string> given = ValueOf(options.trainer_arguments, "init_method");
  if (!given.has_value()) {
    child->command.push_back(absl::StrCat("--init_method=tcp://", JoinHostPort(master_addr, master_port)));
  } else if (server) {
    child->command.push_back("--init_method=" + *given);
  }
  // Set the variables that env:// reads.
  child->environment["MASTER_ADDR"] = master_addr;
  child->environment["MASTER_PORT"] = absl::StrCat(master_port);
}

// Flags and variables by which a trainer finds the others.
void AddMeeting(const LaunchOptions& options, const Meeting& meeting, int id, const PlacedHost& host,
                ChildCommand* child) {
  if (options.placement.meet_at_master) {
    return AddMeetingPoint(options, meeting.master_addr, meeting.master_port, /*server=*/false, child);
  }
  if (!meeting.master_addr.empty()) {
    child->environment["MASTER_ADDR"] = meeting.master_addr;
    child->environment["MASTER_PORT"] = absl::StrCat(meeting.master_port);
  }
  const std::string list = absl::StrJoin(meeting.endpoints, ",");
  child->command.push_back("--pservers=" + list);
  if (!options.placement.trainers_serve()) {
    child->environment["PADDLE_PSERVERS_IP_PORT_LIST"] = list;
    return;
  }
  const std::string& own = meeting.endpoints[static_cast<size_t>(id)];
  child->environment["PADDLE_TRAINER_ENDPOINTS"] = list;
  child->environment["PADDLE_CURRENT_ENDPOINT"] = own;
  if (host.listen != host.address) {
    child->command.push_back(absl::StrCat("--endpoint=", host.listen, own.substr(own.rfind(':'))));
  }
}

}  // namespace

std::optional<std::string> ValueOf(const std::vector<std::string>& arguments, std::string_view flag) {
  std::optional<std::string> value;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    std::string name = arguments[i].substr(0, equals);
    std::replace(name.begin(), name.end(), '-', '_');
    if (name != absl::StrCat("__", std::string(flag)) && name != absl::StrCat("_", std::string(flag))) continue;
    value = equals != std::string::npos ? arguments[i].substr(equals + 1)
            : i + 1 < arguments.size()  ? arguments[i + 1]
                                        : "";
  }
  return value;
}

std::vector<std::string> ServerEndpoints(const Placement& placement) {
  std::vector<std::string> endpoints;
  for (const PlacedServer& server : placement.servers) {
    endpoints.push_back(absl::StrCat(server.address, ":", server.port));
  }
  return endpoints;
}

std::string ProcessName(bool server, int id) { return absl::StrCat(server ? "pserver." : "trainer.", id); }

std::string ProfileName(bool server, int id) { return absl::StrCat(server ? "server " : "trainer ", id); }

std::string ProfileFile(const LaunchOptions& options, bool server, int id) {
  return JoinPath(options.log_dir, absl::StrCat("profile.", server ? "server." : "trainer.", id, ".json"));
}

ChildCommand ServerCommand(const LaunchOptions& options, int id, int threads) {
  const PlacedServer& server = options.placement.servers[static_cast<size_t>(id)];
  ChildCommand child{.command = {options.programs.pserver}, .environment = CommonVariables(options, /*server=*/true)};
  child.command.push_back(absl::StrCat("--endpoint=", server.listen, ":", server.port));
  child.command.push_back(absl::StrCat("--server_id=", id));
  if (options.placement.meet_at_master) {
    AddMeetingPoint(options, options.placement.master_addr, options.placement.master_port, /*server=*/true, &child);
  } else if (server.port > 0) {
    child.command.push_back("--pservers=" + absl::StrJoin(ServerEndpoints(options.placement), ","));
  }
  AddSettings(options, /*server=*/true, id, threads, &child.command);
  if (!options.checkpoint_job.empty()) child.command.push_back("--checkpoint_job=" + options.checkpoint_job);
  return child;
}

ChildCommand TrainerCommand(const LaunchOptions& options, const Meeting& meeting, const TrainerPlace& place) {
  const PlacedHost& host = options.placement.hosts[place.host];
  const int id = host.first_trainer + place.local_rank;
  ChildCommand child{.command = {options.programs.trainer, absl::StrCat("--trainer_id=", id)},
                     .environment = CommonVariables(options, /*server=*/false)};
  AddMeeting(options, meeting, id, host, &child);
  AddSettings(options, /*server=*/false, id, place.threads, &child.command);
  // After all others, which they may override.
  child.command.insert(child.command.end(), options.trainer_arguments.begin(), options.trainer_arguments.end());
  Variables& variables = child.environment;
  variables["RANK"] = absl::StrCat(id);
  variables["PADDLE_TRAINER_ID"] = absl::StrCat(id);
  variables["WORLD_SIZE"] = absl::StrCat(options.placement.trainers);
  variables["LOCAL_RANK"] = absl::StrCat(place.local_rank);
  variables["LOCAL_WORLD_SIZE"] = absl::StrCat(host.trainers);
  variables["NODE_RANK"] = absl::StrCat(host.node);
  variables["GROUP_RANK"] = absl::StrCat(host.node);
  if (!place.gpus.empty()) variables["CUDA_VISIBLE_DEVICES"] = place.gpus;
  return child;
}

absl::Status CheckVariable(const std::string& name) {
  const bool good =
      !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name[0])) &&
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; });
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat("--env: '", name, "' is no name of a variable; write NAME=VALUE, or NAME for its value here"));
  }
  if (const std::vector<std::string> own = Words(kOwn); std::find(own.begin(), own.end(), name) != own.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--env: launch sets ", name, " for every process itself; leave it out"));
  }
  return absl::OkStatus();
}

}  // namespace weir
