#include "pserver/cluster/cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/invalid.h"
#include "framework/base/status_macros.h"
#include "pserver/cluster/launched.h"
#include "pserver/cluster/tf_config.h"

namespace weir {
namespace {

constexpr char kWayOut[] = "unset or leave out the one that does not describe this process";
// Port of Fluid's oldest scripts, which give hosts alone.
constexpr char kFluidPort[] = "6174";

// The settings as text, before anything is made of them.
class Settings {
 public:
  Settings(const ClusterFlags& flags, const Environment& environment) : flags_(flags), environment_(environment) {}

  // Reads TF_CONFIG, for all members below. With --role=local it does not count.
  absl::Status ReadTfConfig() {
    if (absl::EqualsIgnoreCase(flags_.role, "local")) return absl::OkStatus();
    ASSIGN_OR_RETURN(tf_config_, weir::ReadTfConfig(environment_));
    return absl::OkStatus();
  }
  const TfConfig& tf_config() const { return tf_config_; }

  // Reads the launcher's variables, for all members below.
  absl::Status ReadLauncher() {
    ASSIGN_OR_RETURN(launched_, ReadLaunched(environment_));
    return absl::OkStatus();
  }
  const Launched& launched() const { return launched_; }

  static MaybeSourced Flag(std::string_view name, const std::string& value) {
    if (value.empty()) return std::nullopt;
    return Sourced{value, absl::StrCat("--", std::string(name))};
  }

  MaybeSourced Variable(std::string_view name) const { return weir::ReadVariable(environment_, name); }

  absl::StatusOr<MaybeSourced> GivenRole() const {
    if (MaybeSourced flag = Flag("role", flags_.role)) return flag;
    if (tf_config_.evaluates) {
      return Invalid("TF_CONFIG (task.type) is evaluator, and a job has no such process: its trainers evaluate on ",
                     "data.eval; start no process with this task, or give it a --role");
    }
    ASSIGN_OR_RETURN(MaybeSourced fluid, OneOf(Variable("TRAINING_ROLE"), Variable("PADDLE_TRAINING_ROLE"),
                                               /*ignore_case=*/true));
    return OneOf(std::move(fluid), tf_config_.role, /*ignore_case=*/true);
  }

  absl::StatusOr<MaybeSourced> Pservers() const {
    if (MaybeSourced flag = Flag("pservers", flags_.pservers)) return flag;
    ASSIGN_OR_RETURN(MaybeSourced fluid, FluidPservers());
    return OneOf(std::move(fluid), tf_config_.servers);
  }
  absl::StatusOr<MaybeSourced> ServingTrainers() const {
    if (MaybeSourced flag = Flag("pservers", flags_.pservers)) return flag;
    if (tf_config_.servers.has_value()) {
      return Invalid(tf_config_.servers->source, " lists servers (", tf_config_.servers->value,
                     "), but distribute.servers is 0: every trainer has a server inside; set distribute.servers to ",
                     "their number, or take ps out of TF_CONFIG");
    }
    ASSIGN_OR_RETURN(MaybeSourced fluid, FluidPservers());
    ASSIGN_OR_RETURN(fluid, OneOf(Variable("PADDLE_TRAINER_ENDPOINTS"), std::move(fluid)));
    return OneOf(std::move(fluid), tf_config_.trainers);
  }

  // of_pod: whether POD_IP and PADDLE_PORT are those of this process.
  absl::StatusOr<MaybeSourced> OwnEndpoint(bool of_pod) const {
    ASSIGN_OR_RETURN(MaybeSourced flag,
                     OneOf(Flag("current_endpoint", flags_.current_endpoint), Flag("endpoint", flags_.endpoint)));
    if (flag.has_value()) return flag;
    if (MaybeSourced variable = Variable("PADDLE_CURRENT_ENDPOINT")) return variable;
    if (!of_pod) return MaybeSourced();
    MaybeSourced of_pod_ip = Joined("POD_IP", "PADDLE_PORT", /*port=*/"");
    return of_pod_ip.has_value() ? of_pod_ip : Joined("PADDLE_CURRENT_IP", "PADDLE_PSERVER_PORT", kFluidPort);
  }

  MaybeSourced ServerId() const {
    MaybeSourced flag = Flag("server_id", flags_.server_id);
    return flag.has_value() ? flag : tf_config_.server_id;
  }

  // Place among the processes of the own role that the launcher has started, and their number.
  struct Rank {
    MaybeSourced id, number;
  };
  Rank RankAs(bool server, int servers) const {
    Rank rank = {launched_.rank, launched_.size};
    int all = 0, global = 0;
    if (servers == 0 || !launched_.program.has_value() || !rank.id.has_value() || !rank.number.has_value() ||
        !absl::SimpleAtoi(rank.id->value, &global) || !absl::SimpleAtoi(rank.number->value, &all)) {
      return rank;
    }
    // One mpirun may start servers and trainers, and counts them through.
    const Launched::Program& own = *launched_.program;
    if (server ? own.size != servers : all != own.size + servers) return rank;
    rank.id = Sourced{absl::StrCat(global - own.first_rank), absl::StrCat(rank.id->source, " within the program")};
    rank.number = Sourced{absl::StrCat(own.size), absl::StrCat(rank.number->source, " within the program")};
    return rank;
  }

  absl::StatusOr<MaybeSourced> TrainerId(int servers) const {
    MaybeSourced given = Flag("trainer_id", flags_.trainer_id);
    if (!given.has_value()) {
      ASSIGN_OR_RETURN(given, OneOf(Variable("PADDLE_TRAINER_ID"), tf_config_.trainer_id));
    }
    const MaybeSourced rank = DealsRoles(servers) ? MaybeSourced() : RankAs(/*server=*/false, servers).id;
    return OneOf(std::move(given), rank, /*ignore_case=*/false, kWayOut);
  }

  // Returns the number of trainers that flags or the environment set; none if the job's own value stands. of_trainer:
  // this process is a trainer, and the launcher has started others like it.
  absl::StatusOr<MaybeSourced> Trainers(bool of_trainer, int servers) const {
    MaybeSourced set;
    for (const std::string& override : flags_.overrides) {
      const size_t equals = override.find('=');
      if (equals == std::string::npos) continue;
      if (absl::StripAsciiWhitespace(override.substr(0, equals)) != "distribute.trainers") continue;
      set = Sourced{std::string(absl::StripAsciiWhitespace(override.substr(equals + 1))), "--set distribute.trainers"};
    }
    MaybeSourced launched;
    if (of_trainer && !DealsRoles(servers)) launched = RankAs(/*server=*/false, servers).number;
    ASSIGN_OR_RETURN(MaybeSourced given, OneOf(Flag("trainers", flags_.trainers), set));
    if (!given.has_value()) {
      ASSIGN_OR_RETURN(given, OneOf(Variable("PADDLE_TRAINERS_NUM"), Variable("PADDLE_NUM_TRAINERS")));
      ASSIGN_OR_RETURN(given, OneOf(given, Variable("PADDLE_TRAINERS")));
      ASSIGN_OR_RETURN(given, OneOf(given, tf_config_.number_of_trainers));
    }
    return OneOf(given, launched, /*ignore_case=*/false, kWayOut);
  }

  // Returns the meeting point of the processes, if they meet. by_default: MASTER_ADDR and MASTER_PORT are enough to
  // name one.
  absl::StatusOr<std::optional<InitMethod>> Method(bool by_default) const {
    std::string text = flags_.init_method;
    if (!text.empty() && !flags_.pservers.empty()) {
      return Invalid("--init_method is ", text, " but --pservers is ", flags_.pservers,
                     ": processes that meet tell each other their addresses; give one of them");
    }
    if (text.empty() && by_default && Variable("MASTER_ADDR").has_value() && Variable("MASTER_PORT").has_value()) {
      text = "env://";
    }
    if (text.empty()) return std::optional<InitMethod>();
    ASSIGN_OR_RETURN(InitMethod method, ParseInitMethod(text, environment_, launched_.agent_has_master_port));
    return std::optional<InitMethod>(std::move(method));
  }

  // A server may have been started by another launcher, whose name of the run means nothing to trainers.
  std::string RunId(bool server) const { return !flags_.run_id.empty() || server ? flags_.run_id : launched_.run_id; }

 private:
  // A script that deals the roles of a cluster counts the trainers itself; the launcher's ranks count servers, too.
  bool DealsRoles(int servers) const {
    return servers > 0 && Variable("PADDLE_TRAINER_ID").has_value() &&
           (Variable("TRAINING_ROLE").has_value() || Variable("PADDLE_TRAINING_ROLE").has_value());
  }

  // "host:port" of two variables. port: of a port that is not set; "": it must be.
  MaybeSourced Joined(std::string_view host_variable, std::string_view port_variable, const std::string& port) const {
    const MaybeSourced host = Variable(host_variable);
    MaybeSourced given = Variable(port_variable);
    if (!given.has_value() && !port.empty()) given = Sourced{port, ""};
    if (!host.has_value() || !given.has_value()) return std::nullopt;
    return Sourced{absl::StrCat(host->value, ":", given->value),
                   absl::StrCat(std::string(host_variable), ":", std::string(port_variable))};
  }

  absl::StatusOr<MaybeSourced> FluidPservers() const {
    return OneOf(Variable("PADDLE_PSERVERS_IP_PORT_LIST"), OldPservers());
  }

  // Fluid's oldest scripts: hosts, and one port for all.
  MaybeSourced OldPservers() const {
    const MaybeSourced hosts = Variable("PADDLE_PSERVER_IPS");
    if (!hosts.has_value()) return std::nullopt;
    const MaybeSourced port = Variable("PADDLE_PSERVER_PORT");
    const std::string suffix = absl::StrCat(":", port.has_value() ? port->value : kFluidPort);
    const std::vector<std::string> list = absl::StrSplit(hosts->value, ',');
    return Sourced{absl::StrCat(absl::StrJoin(list, absl::StrCat(suffix, ",")), suffix),
                   "PADDLE_PSERVER_IPS:PADDLE_PSERVER_PORT"};
  }

  const ClusterFlags& flags_;
  const Environment& environment_;
  TfConfig tf_config_;
  Launched launched_;
};

absl::StatusOr<Role> ResolveRole(Role program, const Settings& settings) {
  ASSIGN_OR_RETURN(const MaybeSourced setting, settings.GivenRole());
  if (!setting.has_value()) return program;
  std::optional<Role> role;
  for (const Role each : {Role::kPserver, Role::kTrainer, Role::kLocal, Role::kPredict, Role::kImportance}) {
    const std::string name(RoleName(each));
    if (absl::EqualsIgnoreCase(setting->value, name)) role = each;
  }
  if (!role.has_value()) {
    return Invalid(setting->source, " is '", setting->value,
                   "', must be pserver, trainer, local, predict or importance");
  }
  if ((program == Role::kPserver) != (*role == Role::kPserver)) {
    const std::string other = *role == Role::kPserver ? "pserver" : "trainer";
    return Invalid(setting->source, " is ", setting->value, ", but the role of this program is ",
                   std::string(RoleName(program)), ": start the program ", other, ", or change ", setting->source);
  }
  return *role;
}

// Checked endpoints; none when no list is given anywhere.
struct ServerList {
  std::vector<Endpoint> endpoints;
  std::string source;

  std::optional<int> PlaceOf(const Endpoint& endpoint) const {
    const auto found = std::find(endpoints.begin(), endpoints.end(), endpoint);
    if (found == endpoints.end()) return std::nullopt;
    return static_cast<int>(found - endpoints.begin());
  }
  std::string ToString() const {
    return absl::StrJoin(endpoints, ",",
                         [](std::string* out, const Endpoint& endpoint) { out->append(endpoint.ToString()); });
  }
};

absl::StatusOr<ServerList> ResolveList(const MaybeSourced& setting, const v1::JobConfig& job) {
  ServerList list;
  std::vector<std::string> texts;
  if (setting.has_value()) {
    list.source = setting->source;
    texts = absl::StrSplit(setting->value, ',');
  } else {
    list.source = "cluster.pserver of the job";
    texts.assign(job.cluster().pserver().begin(), job.cluster().pserver().end());
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string where = absl::StrCat("endpoint ", i, " of ", list.source);
    absl::StatusOr<Endpoint> endpoint = ParseEndpoint(texts[i]);
    if (!endpoint.ok()) return Invalid(where, ": ", endpoint.status().message());
    if (endpoint->port == 0) return Invalid(where, ": ", texts[i], " has port 0, where nobody can find it");
    if (endpoint->IsWildcard()) {
      return Invalid(where, ": ", texts[i], " is no address that trainers can reach; name the server's host");
    }
    if (const std::optional<int> first = list.PlaceOf(*endpoint)) {
      return Invalid(where, " is ", texts[i], ", the same as endpoint ", *first, ": two servers cannot share it");
    }
    list.endpoints.push_back(*std::move(endpoint));
  }
  return list;
}

// The number of servers: the job's when it says one, else the length of the list.
absl::Status CountServers(const ServerList& list, const v1::JobConfig& job, ClusterConfig* config) {
  config->servers = job.distribute().servers();
  const int listed = static_cast<int>(list.endpoints.size());
  if (listed == 0 || listed == config->servers) return absl::OkStatus();
  if (job.distribute().has_servers()) {
    return Invalid(list.source, " lists ", listed, listed == 1 ? " server (" : " servers (", list.ToString(),
                   "), but distribute.servers is ", config->servers, ": they must be equal");
  }
  config->servers = listed;
  config->overrides.push_back(absl::StrCat("distribute.servers=", listed));
  return absl::OkStatus();
}

absl::Status CountTrainers(const Settings& settings, const v1::JobConfig& job, ClusterConfig* config) {
  config->trainers = job.distribute().trainers();
  ASSIGN_OR_RETURN(const MaybeSourced setting,
                   settings.Trainers(config->role != Role::kPserver, job.distribute().servers()));
  if (!setting.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int trainers, Number(*setting, "the number of trainers (not their endpoints)"));
  if (trainers == 0) return Invalid(setting->source, " is 0, must be at least 1");
  if (trainers != config->trainers) config->overrides.push_back(absl::StrCat("distribute.trainers=", trainers));
  config->trainers = trainers;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Endpoint>> ParseOwnEndpoint(const MaybeSourced& setting) {
  if (!setting.has_value()) return std::optional<Endpoint>();
  absl::StatusOr<Endpoint> endpoint = ParseEndpoint(setting->value);
  if (!endpoint.ok()) return Invalid(setting->source, ": ", endpoint.status().message());
  return std::optional<Endpoint>(*std::move(endpoint));
}

// Returns the place of a process in the list, by its own endpoint; nothing if one of the two is not given. `what` and
// `id`: "server" and its index, or "trainer" and its id.
absl::StatusOr<std::optional<int>> PlaceOfSelf(const std::string& what, const ServerList& list,
                                               const MaybeSourced& endpoint_setting, const std::optional<Endpoint>& own,
                                               const MaybeSourced& id_setting, std::optional<int> id) {
  if (!own.has_value() || list.endpoints.empty()) return std::optional<int>();
  std::optional<int> place = list.PlaceOf(*own);
  if (own->IsWildcard() && id.has_value()) {
    const Endpoint& listed = list.endpoints[static_cast<size_t>(*id)];
    if (listed.port != own->port) {
      return Invalid(endpoint_setting->source, " listens at port ", own->port, ", but ", list.source, " says that ",
                     what, " ", *id, " is at ", listed.ToString());
    }
    place = id;
  }
  if (!place.has_value()) {
    return Invalid(endpoint_setting->source, " is ", own->ToString(), ", which is not in ", list.source, " (",
                   list.ToString(), ")");
  }
  if (id.has_value() && *id != *place) {
    return Invalid(id_setting->source, " is ", *id, ", but ", endpoint_setting->source, " ", own->ToString(), " is ",
                   what, " ", *place, " of ", list.source, " (", list.ToString(), ")");
  }
  return place;
}

// Takes the place of a server among those that its launcher has started, for a server that nothing else tells its
// index. Sets the number of servers if the job does not.
absl::StatusOr<MaybeSourced> LaunchedServerId(const Settings& settings, const v1::JobConfig& job,
                                              ClusterConfig* config) {
  const Settings::Rank rank = settings.RankAs(/*server=*/true, config->servers);
  if (!rank.id.has_value() || !rank.number.has_value()) return rank.id;
  ASSIGN_OR_RETURN(const int number, Number(*rank.number, "the number of processes"));
  if (number == config->servers) return rank.id;
  if (job.distribute().has_servers()) {
    return Invalid(rank.number->source, " is ", number, ", but distribute.servers is ", config->servers,
                   ": a launcher of servers must start all of them, or give --server_id");
  }
  config->servers = number;
  config->overrides.push_back(absl::StrCat("distribute.servers=", number));
  return rank.id;
}

// Returns the error of a server that lacks its index or its address.
absl::Status UnknownServer(const std::optional<Endpoint>& own, const ClusterConfig& config) {
  if (config.server_id >= 0) {
    return Invalid("where server ", config.server_id, " listens is not known: give --current_endpoint or the variable ",
                   "PADDLE_CURRENT_ENDPOINT, or the list of servers by --pservers or the variable ",
                   "PADDLE_PSERVERS_IP_PORT_LIST");
  }
  if (config.init_method.has_value()) {
    return Invalid("which of the ", config.servers, " servers this is is not known: give --server_id, or start all ",
                   "servers by one mpirun, srun or torchrun");
  }
  if (!own.has_value()) {
    return Invalid(
        "which server this is is not known: give --current_endpoint or the variable PADDLE_CURRENT_ENDPOINT ",
        "(or POD_IP and PADDLE_PORT), or --server_id");
  }
  return Invalid("which of the ", config.servers, " servers ", own->ToString(),
                 " is is not known: give --server_id, or ",
                 "the list of servers by --pservers or the variable PADDLE_PSERVERS_IP_PORT_LIST");
}

// Index and endpoint of a server.
absl::Status ResolveServer(const Settings& settings, const v1::JobConfig& job, ClusterConfig* config) {
  if (job.distribute().servers() == 0) {
    return Invalid("distribute.servers is 0: every trainer has a server inside, and no pserver takes part; start ",
                   "trainers only, or set distribute.servers to the number of servers");
  }
  ASSIGN_OR_RETURN(config->init_method, settings.Method(/*by_default=*/false));
  ASSIGN_OR_RETURN(const MaybeSourced endpoint_setting, settings.OwnEndpoint(/*of_pod=*/true));
  ASSIGN_OR_RETURN(const std::optional<Endpoint> own, ParseOwnEndpoint(endpoint_setting));
  const bool port_by_system = own.has_value() && own->port == 0;
  const bool meets = config->init_method.has_value();
  ServerList list;
  if (!port_by_system && !meets) {
    ASSIGN_OR_RETURN(const MaybeSourced pservers, settings.Pservers());
    ASSIGN_OR_RETURN(list, ResolveList(pservers, job));
  }
  RETURN_IF_ERROR(CountServers(list, job, config));
  for (const Endpoint& endpoint : list.endpoints) config->pservers.push_back(endpoint.ToString());

  MaybeSourced id_setting = settings.ServerId();
  if (!id_setting.has_value() && (meets || !own.has_value())) {
    ASSIGN_OR_RETURN(id_setting, LaunchedServerId(settings, job, config));
  }
  std::optional<int> id;
  if (id_setting.has_value()) {
    ASSIGN_OR_RETURN(id, Number(*id_setting, "the index of this server, from 0"));
    if (*id >= config->servers) {
      return Invalid(id_setting->source, " is ", *id, ", but there are ", config->servers, " servers: 0 to ",
                     config->servers - 1);
    }
  }
  ASSIGN_OR_RETURN(const std::optional<int> place, PlaceOfSelf("server", list, endpoint_setting, own, id_setting, id));
  if (!id.has_value()) id = place;
  if (!id.has_value() && (own.has_value() || meets) && config->servers == 1) id = 0;
  config->server_id = id.value_or(-1);
  if (!id.has_value() || (!own.has_value() && list.endpoints.empty() && !meets)) return UnknownServer(own, *config);
  if (own.has_value()) {
    config->endpoint = own->ToString();
  } else if (!meets) {
    config->endpoint = list.endpoints[static_cast<size_t>(*id)].ToString();
  }
  return absl::OkStatus();
}

// Returns the id of a trainer, if it is given.
absl::StatusOr<std::optional<int>> TrainerIdOf(const MaybeSourced& setting, const ClusterConfig& config) {
  if (!setting.has_value()) return std::optional<int>();
  ASSIGN_OR_RETURN(const int id, Number(*setting, "the id of this trainer, from 0"));
  if (id >= config.trainers) {
    return Invalid(setting->source, " is ", id, ", but there ", config.trainers == 1 ? "is " : "are ", config.trainers,
                   config.trainers == 1 ? " trainer" : " trainers", ": 0 to ", config.trainers - 1);
  }
  return std::optional<int>(id);
}

// The number of trainers that serve: the given one, which the list must have, else the length of the list.
absl::Status CountServingTrainers(const Settings& settings, const ServerList& list, const v1::JobConfig& job,
                                  ClusterConfig* config) {
  const int listed = static_cast<int>(list.endpoints.size());
  if (listed > 0 && listed != config->trainers) {
    ASSIGN_OR_RETURN(const MaybeSourced setting, settings.Trainers(/*of_trainer=*/true, /*servers=*/0));
    if (setting.has_value() || job.distribute().has_trainers()) {
      return Invalid(list.source, " lists ", listed, listed == 1 ? " trainer (" : " trainers (", list.ToString(),
                     "), but ", setting.has_value() ? setting->source : "distribute.trainers", " is ", config->trainers,
                     ": with distribute.servers: 0 every trainer listens, so they must be equal");
    }
    config->trainers = listed;
    config->overrides.push_back(absl::StrCat("distribute.trainers=", listed));
  }
  config->servers = config->trainers;
  return absl::OkStatus();
}

// Returns whether the launcher has started several processes like this one.
bool StartedAmongOthers(const Settings& settings) {
  const MaybeSourced& size = settings.launched().size;
  return size.has_value() && size->value != "1";
}

// Returns the error of a trainer that no one tells who it is. `or_else`: another way to tell it.
absl::Status UnknownTrainer(const Settings& settings, const ClusterConfig& config,
                            std::string_view or_else = "start the trainers by torchrun, mpirun or srun") {
  return Invalid("which of the ", config.trainers, " trainers this is is not known: give --trainer_id or the variable ",
                 "PADDLE_TRAINER_ID, or ", std::string(or_else),
                 settings.launched().in_batch_shell
                     ? "; SLURM_PROCID is that of the batch script and no trainer's: start the trainers by srun"
                     : "");
}

// Returns the error of a trainer without any word of where the others are.
absl::Status NoAddresses(const Settings& settings) {
  const std::string& launcher = settings.launched().launcher;
  if (!launcher.empty()) {
    const bool slurm = launcher == "Slurm";
    return Invalid(
        launcher, " has started this trainer and gives no address at which the trainers meet: use ",
        "--init_method=tcp://HOST:PORT with the host of trainer 0 and a free port there, like ",
        slurm ? "tcp://$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1):6170" : "tcp://node-0:6170",
        ", or --init_method=file:///DIRECTORY that all machines see, or list the trainers by --pservers");
  }
  return Invalid("distribute.servers is 0, so every trainer listens, but where is not given: use ",
                 "--pservers=HOST:PORT,HOST:PORT with one entry for each trainer or the variable ",
                 "PADDLE_TRAINER_ENDPOINTS, write cluster.pserver in the job, let the trainers meet at ",
                 "--init_method=tcp://HOST:PORT, or train in one process with --role=local");
}

// Id of a trainer that learns the others' addresses when they meet.
absl::Status ResolveMeetingTrainer(const Settings& settings, const v1::JobConfig& job, ClusterConfig* config) {
  ASSIGN_OR_RETURN(const MaybeSourced id_setting, settings.TrainerId(job.distribute().servers()));
  ASSIGN_OR_RETURN(std::optional<int> id, TrainerIdOf(id_setting, *config));
  if (!id.has_value() && config->trainers == 1) id = 0;
  if (!id.has_value()) return UnknownTrainer(settings, *config);
  config->trainer_id = *id;
  return absl::OkStatus();
}

// The same for one that has a server inside, and the endpoint of this.
absl::Status ResolveMeetingServer(const Settings& settings, const v1::JobConfig& job, ClusterConfig* config) {
  config->servers = config->trainers;
  config->servers_in_trainers = true;
  RETURN_IF_ERROR(ResolveMeetingTrainer(settings, job, config));
  ASSIGN_OR_RETURN(const MaybeSourced endpoint_setting, settings.OwnEndpoint(/*of_pod=*/false));
  ASSIGN_OR_RETURN(const std::optional<Endpoint> own, ParseOwnEndpoint(endpoint_setting));
  if (own.has_value()) config->endpoint = own->ToString();
  return absl::OkStatus();
}

// Id and endpoint of a trainer that has a server inside, and where the others listen.
absl::Status ResolveServingTrainer(const Settings& settings, const v1::JobConfig& job, ClusterConfig* config) {
  ASSIGN_OR_RETURN(config->init_method, settings.Method(/*by_default=*/false));
  if (config->init_method.has_value()) return ResolveMeetingServer(settings, job, config);
  ASSIGN_OR_RETURN(const MaybeSourced trainers, settings.ServingTrainers());
  ASSIGN_OR_RETURN(const ServerList list, ResolveList(trainers, job));
  RETURN_IF_ERROR(CountServingTrainers(settings, list, job, config));
  const bool alone = IsScoring(config->role) && !StartedAmongOthers(settings);
  if (list.endpoints.empty() && !alone) {
    ASSIGN_OR_RETURN(config->init_method, settings.Method(/*by_default=*/true));
    if (!config->init_method.has_value()) return NoAddresses(settings);
    return ResolveMeetingServer(settings, job, config);
  }
  if (list.endpoints.empty()) {
    // Scoring without a list is one process, whatever the cluster that trained.
    config->trainer_id = 0;
    return absl::OkStatus();
  }
  for (const Endpoint& endpoint : list.endpoints) config->pservers.push_back(endpoint.ToString());
  ASSIGN_OR_RETURN(const MaybeSourced endpoint_setting, settings.OwnEndpoint(/*of_pod=*/false));
  ASSIGN_OR_RETURN(const std::optional<Endpoint> own, ParseOwnEndpoint(endpoint_setting));
  ASSIGN_OR_RETURN(const MaybeSourced id_setting, settings.TrainerId(/*servers=*/0));
  ASSIGN_OR_RETURN(std::optional<int> id, TrainerIdOf(id_setting, *config));
  ASSIGN_OR_RETURN(const std::optional<int> place, PlaceOfSelf("trainer", list, endpoint_setting, own, id_setting, id));
  if (!id.has_value()) id = place;
  if (!id.has_value() && config->trainers == 1) id = 0;
  config->servers_in_trainers = true;
  if (!id.has_value()) {
    return UnknownTrainer(settings, *config, "--current_endpoint or the variable PADDLE_CURRENT_ENDPOINT");
  }
  config->trainer_id = *id;
  config->endpoint = own.has_value() ? own->ToString() : config->pservers[static_cast<size_t>(*id)];
  return absl::OkStatus();
}

// Id of a trainer, and its servers where the role has any.
absl::Status ResolveTrainer(const Settings& settings, const v1::JobConfig& job, ClusterConfig* config) {
  ASSIGN_OR_RETURN(config->init_method, settings.Method(/*by_default=*/false));
  if (config->init_method.has_value()) {
    config->servers = job.distribute().servers();
    return ResolveMeetingTrainer(settings, job, config);
  }
  ASSIGN_OR_RETURN(const MaybeSourced pservers, settings.Pservers());
  ASSIGN_OR_RETURN(const ServerList list, ResolveList(pservers, job));
  RETURN_IF_ERROR(CountServers(list, job, config));
  for (const Endpoint& endpoint : list.endpoints) config->pservers.push_back(endpoint.ToString());
  // Scoring without servers is one process, whatever the cluster that trained.
  const bool alone = IsScoring(config->role) && config->pservers.empty() && !StartedAmongOthers(settings);
  if (config->pservers.empty() && !alone) {
    return Invalid(
        "no servers are given: use --pservers=HOST:PORT,HOST:PORT or the variable ",
        "PADDLE_PSERVERS_IP_PORT_LIST, write cluster.pserver in the job, give servers and trainers the same ",
        "--init_method, or train in one process with --role=local",
        settings.tf_config().trainers.has_value()
            ? "; TF_CONFIG lists no ps: with distribute.servers: 0 its trainers have the servers inside"
            : "");
  }
  ASSIGN_OR_RETURN(const MaybeSourced id_setting, settings.TrainerId(job.distribute().servers()));
  ASSIGN_OR_RETURN(const std::optional<int> id, TrainerIdOf(id_setting, *config));
  if (!id.has_value() && config->trainers > 1 && !alone) return UnknownTrainer(settings, *config);
  config->trainer_id = id.value_or(0);
  return absl::OkStatus();
}

}  // namespace

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kPserver:
      return "pserver";
    case Role::kTrainer:
      return "trainer";
    case Role::kLocal:
      return "local";
    case Role::kPredict:
      return "predict";
    case Role::kImportance:
      return "importance";
  }
  return "unknown";
}

absl::StatusOr<ClusterConfig> ResolveCluster(Role program, const ClusterFlags& flags, const Environment& environment,
                                             const v1::JobConfig& job) {
  Settings settings(flags, environment);
  ClusterConfig config;
  RETURN_IF_ERROR(settings.ReadTfConfig());
  ASSIGN_OR_RETURN(config.role, ResolveRole(program, settings));
  config.local_rank = ReadLocalRank(environment);
  if (config.role == Role::kLocal) {
    // One process owns all lanes, whatever the cluster around it looks like. Its launcher's run counts for nothing.
    config.run_id = settings.RunId(/*server=*/true);
    config.trainer_id = 0;
    config.trainers = job.distribute().trainers();
    config.servers = job.distribute().servers() == 0 ? config.trainers : job.distribute().servers();
    return config;
  }
  RETURN_IF_ERROR(settings.ReadLauncher());
  if (settings.launched().several_programs && job.distribute().servers() > 0) {
    return Invalid("SLURM_HET_SIZE is not 1: one srun has started several programs, and does not say which ranks are ",
                   "servers and which are trainers; start them by two sruns");
  }
  config.run_id = settings.RunId(config.role == Role::kPserver);
  RETURN_IF_ERROR(CountTrainers(settings, job, &config));
  if (config.role == Role::kPserver) {
    RETURN_IF_ERROR(ResolveServer(settings, job, &config));
  } else if (job.distribute().servers() == 0) {
    RETURN_IF_ERROR(ResolveServingTrainer(settings, job, &config));
  } else {
    RETURN_IF_ERROR(ResolveTrainer(settings, job, &config));
  }
  if (config.run_id == kAnyRun && (!config.init_method.has_value() || config.trainer_id <= 0)) {
    return Invalid("--run_id=", kAnyRun,
                   " is the name that trainer 0 gives where the processes meet: trainer 0 needs a ",
                   "name, the other trainers an --init_method, and servers no name");
  }
  if (!IsScoring(config.role) && config.servers > config.trainers) {
    config.warnings.push_back(absl::StrCat(config.servers, " servers for ", config.trainers,
                                           config.trainers == 1 ? " trainer" : " trainers",
                                           ": more servers than trainers seldom help"));
  }
  return config;
}

}  // namespace weir
