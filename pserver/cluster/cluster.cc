#include "pserver/cluster/cluster.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

// A value and where it came from, for messages: "--pservers", "PADDLE_TRAINER_ID".
struct Sourced {
  std::string value;
  std::string source;
};
using MaybeSourced = std::optional<Sourced>;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// The settings as text, before anything is made of them.
class Settings {
 public:
  Settings(const ClusterFlags& flags, const Environment& environment) : flags_(flags), environment_(environment) {}

  static MaybeSourced Flag(std::string_view name, const std::string& value) {
    if (value.empty()) return std::nullopt;
    return Sourced{value, absl::StrCat("--", std::string(name))};
  }

  MaybeSourced Variable(std::string_view name) const {
    std::optional<std::string> value = environment_(name);
    if (!value.has_value() || value->empty()) return std::nullopt;
    return Sourced{*std::move(value), std::string(name)};
  }

  // The one that is given; if both are, they must say the same.
  static absl::StatusOr<MaybeSourced> OneOf(MaybeSourced a, MaybeSourced b, bool ignore_case = false) {
    if (!a.has_value()) return b;
    if (!b.has_value()) return a;
    const bool same = ignore_case ? absl::EqualsIgnoreCase(a->value, b->value) : a->value == b->value;
    if (!same) return Invalid(a->source, " is ", a->value, " but ", b->source, " is ", b->value, ": give one of them");
    return a;
  }

  absl::StatusOr<MaybeSourced> Role() const {
    if (MaybeSourced flag = Flag("role", flags_.role)) return flag;
    return OneOf(Variable("TRAINING_ROLE"), Variable("PADDLE_TRAINING_ROLE"), /*ignore_case=*/true);
  }

  absl::StatusOr<MaybeSourced> Pservers(bool in_trainers) const {
    if (MaybeSourced flag = Flag("pservers", flags_.pservers)) return flag;
    MaybeSourced servers = Variable("PADDLE_PSERVERS_IP_PORT_LIST");
    if (!in_trainers) return servers;
    return OneOf(Variable("PADDLE_TRAINER_ENDPOINTS"), std::move(servers));
  }

  // of_pod: whether POD_IP and PADDLE_PORT are those of this process.
  absl::StatusOr<MaybeSourced> OwnEndpoint(bool of_pod) const {
    ASSIGN_OR_RETURN(MaybeSourced flag,
                     OneOf(Flag("current_endpoint", flags_.current_endpoint), Flag("endpoint", flags_.endpoint)));
    if (flag.has_value()) return flag;
    if (MaybeSourced variable = Variable("PADDLE_CURRENT_ENDPOINT")) return variable;
    if (!of_pod) return MaybeSourced();
    const MaybeSourced host = Variable("POD_IP");
    const MaybeSourced port = Variable("PADDLE_PORT");
    if (!host.has_value() || !port.has_value()) return MaybeSourced();
    return MaybeSourced(Sourced{absl::StrCat(host->value, ":", port->value), "POD_IP:PADDLE_PORT"});
  }

  MaybeSourced ServerId() const { return Flag("server_id", flags_.server_id); }

  MaybeSourced TrainerId() const {
    if (MaybeSourced flag = Flag("trainer_id", flags_.trainer_id)) return flag;
    return Variable("PADDLE_TRAINER_ID");
  }

  // Nothing when the job's own value stands.
  absl::StatusOr<MaybeSourced> Trainers() const {
    MaybeSourced set;
    for (const std::string& override : flags_.overrides) {
      const size_t equals = override.find('=');
      if (equals == std::string::npos) continue;
      if (absl::StripAsciiWhitespace(override.substr(0, equals)) != "distribute.trainers") continue;
      set = Sourced{std::string(absl::StripAsciiWhitespace(override.substr(equals + 1))), "--set distribute.trainers"};
    }
    ASSIGN_OR_RETURN(MaybeSourced flag, OneOf(Flag("trainers", flags_.trainers), set));
    if (flag.has_value()) return flag;
    return OneOf(Variable("PADDLE_TRAINERS_NUM"), Variable("PADDLE_NUM_TRAINERS"));
  }

 private:
  const ClusterFlags& flags_;
  const Environment& environment_;
};

absl::StatusOr<int> Number(const Sourced& setting, std::string_view what) {
  int32_t number = 0;
  if (!absl::SimpleAtoi(setting.value, &number) || number < 0) {
    return Invalid(setting.source, " is '", setting.value, "', must be ", std::string(what));
  }
  return number;
}

absl::StatusOr<Role> ResolveRole(Role program, const Settings& settings) {
  ASSIGN_OR_RETURN(const MaybeSourced setting, settings.Role());
  if (!setting.has_value()) return program;
  std::optional<Role> role;
  for (const Role each : {Role::kPserver, Role::kTrainer, Role::kLocal, Role::kPredict}) {
    const std::string name(RoleName(each));
    if (absl::EqualsIgnoreCase(setting->value, name)) role = each;
  }
  if (!role.has_value()) {
    return Invalid(setting->source, " is '", setting->value, "', must be pserver, trainer, local or predict");
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

absl::StatusOr<ServerList> ResolveList(const Settings& settings, const v1::JobConfig& job, bool in_trainers) {
  ServerList list;
  std::vector<std::string> texts;
  ASSIGN_OR_RETURN(const MaybeSourced setting, settings.Pservers(in_trainers));
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
  ASSIGN_OR_RETURN(const MaybeSourced setting, settings.Trainers());
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

// Index and endpoint of a server.
absl::Status ResolveServer(const Settings& settings, const v1::JobConfig& job, ClusterConfig* config) {
  if (job.distribute().servers() == 0) {
    return Invalid("distribute.servers is 0: every trainer has a server inside, and no pserver takes part; start ",
                   "trainers only, or set distribute.servers to the number of servers");
  }
  ASSIGN_OR_RETURN(const MaybeSourced endpoint_setting, settings.OwnEndpoint(/*of_pod=*/true));
  ASSIGN_OR_RETURN(const std::optional<Endpoint> own, ParseOwnEndpoint(endpoint_setting));
  const bool port_by_system = own.has_value() && own->port == 0;
  ServerList list;
  if (!port_by_system) {
    ASSIGN_OR_RETURN(list, ResolveList(settings, job, /*in_trainers=*/false));
  }
  RETURN_IF_ERROR(CountServers(list, job, config));
  for (const Endpoint& endpoint : list.endpoints) config->pservers.push_back(endpoint.ToString());

  const MaybeSourced id_setting = settings.ServerId();
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
  if (!id.has_value() && own.has_value() && config->servers == 1) id = 0;

  if (!id.has_value() && !own.has_value()) {
    return Invalid(
        "which server this is is not known: give --current_endpoint or the variable PADDLE_CURRENT_ENDPOINT ",
        "(or POD_IP and PADDLE_PORT), or --server_id");
  }
  if (!id.has_value()) {
    return Invalid("which of the ", config->servers, " servers ", own->ToString(),
                   " is is not known: give --server_id, or ",
                   "the list of servers by --pservers or the variable PADDLE_PSERVERS_IP_PORT_LIST");
  }
  if (!own.has_value() && list.endpoints.empty()) {
    return Invalid("where server ", *id, " listens is not known: give --current_endpoint or the variable ",
                   "PADDLE_CURRENT_ENDPOINT, or the list of servers by --pservers or the variable ",
                   "PADDLE_PSERVERS_IP_PORT_LIST");
  }
  config->server_id = *id;
  config->endpoint = own.has_value() ? own->ToString() : list.endpoints[*id].ToString();
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
    ASSIGN_OR_RETURN(const MaybeSourced setting, settings.Trainers());
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

// Id and endpoint of a trainer that has a server inside, and where the others listen.
absl::Status ResolveServingTrainer(const Settings& settings, const v1::JobConfig& job, ClusterConfig* config) {
  ASSIGN_OR_RETURN(const ServerList list, ResolveList(settings, job, /*in_trainers=*/true));
  RETURN_IF_ERROR(CountServingTrainers(settings, list, job, config));
  if (list.endpoints.empty()) {
    if (config->role == Role::kPredict) {
      // Prediction without a list is one process, whatever the cluster that trained.
      config->trainer_id = 0;
      return absl::OkStatus();
    }
    return Invalid("distribute.servers is 0, so every trainer listens, but where is not given: use ",
                   "--pservers=HOST:PORT,HOST:PORT with one entry for each trainer or the variable ",
                   "PADDLE_TRAINER_ENDPOINTS, write cluster.pserver in the job, or train in one process with ",
                   "--role=local");
  }
  for (const Endpoint& endpoint : list.endpoints) config->pservers.push_back(endpoint.ToString());
  ASSIGN_OR_RETURN(const MaybeSourced endpoint_setting, settings.OwnEndpoint(/*of_pod=*/false));
  ASSIGN_OR_RETURN(const std::optional<Endpoint> own, ParseOwnEndpoint(endpoint_setting));
  const MaybeSourced id_setting = settings.TrainerId();
  ASSIGN_OR_RETURN(std::optional<int> id, TrainerIdOf(id_setting, *config));
  ASSIGN_OR_RETURN(const std::optional<int> place, PlaceOfSelf("trainer", list, endpoint_setting, own, id_setting, id));
  if (!id.has_value()) id = place;
  if (!id.has_value() && config->trainers == 1) id = 0;
  if (!id.has_value()) {
    return Invalid("which of the ", config->trainers, " trainers this is is not known: give --trainer_id or the ",
                   "variable PADDLE_TRAINER_ID, or --current_endpoint or the variable PADDLE_CURRENT_ENDPOINT");
  }
  config->servers_in_trainers = true;
  config->trainer_id = *id;
  config->endpoint = own.has_value() ? own->ToString() : config->pservers[static_cast<size_t>(*id)];
  return absl::OkStatus();
}

// Id of a trainer, and its servers where the role has any.
absl::Status ResolveTrainer(const Settings& settings, const v1::JobConfig& job, ClusterConfig* config) {
  ASSIGN_OR_RETURN(const ServerList list, ResolveList(settings, job, /*in_trainers=*/false));
  RETURN_IF_ERROR(CountServers(list, job, config));
  for (const Endpoint& endpoint : list.endpoints) config->pservers.push_back(endpoint.ToString());
  if (config->role == Role::kTrainer && config->pservers.empty()) {
    return Invalid("no servers are given: use --pservers=HOST:PORT,HOST:PORT or the variable ",
                   "PADDLE_PSERVERS_IP_PORT_LIST, write cluster.pserver in the job, or train in one process with ",
                   "--role=local");
  }
  ASSIGN_OR_RETURN(const std::optional<int> id, TrainerIdOf(settings.TrainerId(), *config));
  if (!id.has_value()) {
    // Prediction without servers is one process, whatever the cluster that trained.
    const bool alone = config->role == Role::kPredict && config->pservers.empty();
    if (config->trainers > 1 && !alone) {
      return Invalid("which of the ", config->trainers,
                     " trainers this is is not known: give --trainer_id or the variable ", "PADDLE_TRAINER_ID");
    }
    config->trainer_id = 0;
    return absl::OkStatus();
  }
  config->trainer_id = *id;
  return absl::OkStatus();
}

}  // namespace

std::string Endpoint::ToString() const { return absl::StrCat(host, ":", port); }

bool Endpoint::IsWildcard() const { return host == "0.0.0.0" || host == "[::]"; }

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text) {
  const std::string quoted = absl::StrCat("'", std::string(text), "'");
  if (text.empty()) return Invalid("blank, must be host:port");
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isspace(c); })) {
    return Invalid(quoted, " has a blank in it, must be host:port");
  }
  const size_t colon = text.rfind(':');
  const bool bracketed = text.front() == '[';
  const size_t bracket = text.find(']');
  if (colon == std::string_view::npos || (bracketed && bracket != std::string_view::npos && colon < bracket)) {
    return Invalid(quoted, " has no port, must be host:port");
  }
  Endpoint endpoint{.host = std::string(text.substr(0, colon))};
  if (endpoint.host.empty()) return Invalid(quoted, " has no host, must be host:port");
  if (bracketed) {
    const bool address = bracket == colon - 1 && bracket > 1 &&
                         std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(bracket),
                                     [](unsigned char c) { return absl::ascii_isxdigit(c) || c == ':' || c == '.'; });
    if (!address) return Invalid(quoted, " is no [IPv6 address]:port");
  } else {
    if (endpoint.host.find(':') != std::string::npos) {
      return Invalid(quoted, " has more than one ':'; an IPv6 address stands in brackets, [::1]:6170");
    }
    const bool name = std::all_of(endpoint.host.begin(), endpoint.host.end(), [](unsigned char c) {
      return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
    });
    if (!name) return Invalid(quoted, " has no host name or address before the port");
  }
  const std::string port(text.substr(colon + 1));
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::all_of(port.begin(), port.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
  int32_t number = 0;
  if (!digits || !absl::SimpleAtoi(port, &number) || number > 65535) {
    return Invalid(quoted, ": the port must be a number from 1 to 65535", port.empty() ? "" : ", got ", port);
  }
  endpoint.port = number;
  return endpoint;
}

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
  }
  return "unknown";
}

absl::StatusOr<ClusterConfig> ResolveCluster(Role program, const ClusterFlags& flags, const Environment& environment,
                                             const v1::JobConfig& job) {
  const Settings settings(flags, environment);
  ClusterConfig config;
  ASSIGN_OR_RETURN(config.role, ResolveRole(program, settings));
  if (config.role == Role::kLocal) {
    // One process owns all lanes, whatever the cluster around it looks like.
    config.trainer_id = 0;
    config.trainers = job.distribute().trainers();
    config.servers = job.distribute().servers() == 0 ? config.trainers : job.distribute().servers();
    return config;
  }
  RETURN_IF_ERROR(CountTrainers(settings, job, &config));
  if (config.role == Role::kPserver) {
    RETURN_IF_ERROR(ResolveServer(settings, job, &config));
  } else if (job.distribute().servers() == 0) {
    RETURN_IF_ERROR(ResolveServingTrainer(settings, job, &config));
  } else {
    RETURN_IF_ERROR(ResolveTrainer(settings, job, &config));
  }
  if (config.role != Role::kPredict && config.servers > config.trainers) {
    config.warnings.push_back(absl::StrCat(config.servers, " servers for ", config.trainers,
                                           config.trainers == 1 ? " trainer" : " trainers",
                                           ": more servers than trainers seldom help"));
  }
  return config;
}

}  // namespace weir
