#include "pserver/cluster/tf_config.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/invalid.h"
#include "framework/base/status_macros.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace weir {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

constexpr char kVariable[] = "TF_CONFIG";
constexpr char kExample[] =
    R"({"cluster": {"worker": ["HOST:PORT"], "ps": ["HOST:PORT"]}, "task": {"type": "worker", "index": 0}})";

// "TF_CONFIG (cluster.ps)", for messages.
std::string Member(std::string_view path) { return absl::StrCat(kVariable, " (", std::string(path), ")"); }

absl::StatusOr<Struct> ParseObject(const std::string& json) {
  Struct object;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &object);
  if (status.ok()) return object;
  // Below its message the parser quotes the text, and marks the place in a third line.
  const std::string message(status.message());
  const std::vector<std::string> lines = absl::StrSplit(message, '\n');
  return Invalid(kVariable, " must be a JSON object like ", kExample, ", and is none: ", lines[0],
                 lines.size() > 1 ? absl::StrCat(" Near: ", lines[1]) : "", "; correct or unset it");
}

// Returns the object of that name; null if it is missing.
absl::StatusOr<const Struct*> ObjectIn(const Struct& object, const std::string& name) {
  const auto found = object.fields().find(name);
  if (found == object.fields().end()) return nullptr;
  if (found->second.has_struct_value()) return &found->second.struct_value();
  return Invalid(Member(name), " must be an object, as in ", kExample);
}

// The lists of `cluster`.
struct Lists {
  std::vector<std::string> chief, worker, ps;
  // "chief" or "master", as the variable says.
  std::string chief_name = "chief";
};

absl::StatusOr<std::vector<std::string>> EndpointsOf(const std::string& name, const Value& value) {
  const std::string member = Member(absl::StrCat("cluster.", name));
  if (!value.has_list_value()) return Invalid(member, " must be a list of texts \"HOST:PORT\", as in ", kExample);
  std::vector<std::string> endpoints;
  for (const Value& each : value.list_value().values()) {
    if (each.kind_case() != Value::kStringValue || absl::StrContains(each.string_value(), ',')) {
      return Invalid("endpoint ", endpoints.size(), " of ", member, " must be one text \"HOST:PORT\", as in ",
                     kExample);
    }
    endpoints.push_back(each.string_value());
  }
  return endpoints;
}

absl::StatusOr<Lists> ListsOf(const Struct& cluster) {
  Lists lists;
  // Sorted, so that of several mistakes the same one is reported each time.
  std::set<std::string> names;
  for (const auto& [name, value] : cluster.fields()) names.insert(name);
  if (names.contains("chief") && names.contains("master")) {
    return Invalid(kVariable, " has cluster.chief and cluster.master, two names of trainer 0: give one of them");
  }
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(std::vector<std::string> endpoints, EndpointsOf(name, cluster.fields().at(name)));
    if (name == "ps") {
      lists.ps = std::move(endpoints);
    } else if (name == "worker") {
      lists.worker = std::move(endpoints);
    } else if (name == "chief" || name == "master") {
      lists.chief_name = name;
      lists.chief = std::move(endpoints);
    } else if (name != "evaluator") {
      return Invalid(kVariable, " has cluster.", name, ", must be chief, master, worker, ps or evaluator");
    }
  }
  if (lists.chief.size() <= 1) return lists;
  return Invalid(Member("cluster." + lists.chief_name), " lists ", lists.chief.size(),
                 " processes, must be one: list the others as worker");
}

void TakeLists(const Lists& lists, TfConfig* config) {
  if (!lists.ps.empty()) config->servers = Sourced{absl::StrJoin(lists.ps, ","), Member("cluster.ps")};
  std::vector<std::string> trainers = lists.chief, names;
  if (!lists.chief.empty()) names.push_back("cluster." + lists.chief_name);
  if (!lists.worker.empty()) names.push_back("cluster.worker");
  trainers.insert(trainers.end(), lists.worker.begin(), lists.worker.end());
  if (trainers.empty()) return;
  const std::string source = Member(absl::StrJoin(names, " and "));
  config->trainers = Sourced{absl::StrJoin(trainers, ","), source};
  config->number_of_trainers = Sourced{absl::StrCat(trainers.size()), source};
}

// The place of this process in its list of `listed` ones. TensorFlow takes numbers and texts, and 0 if there is none.
absl::StatusOr<int> IndexOf(const Struct& task, const std::string& type, size_t listed) {
  std::string text = "0";
  if (const auto found = task.fields().find("index"); found != task.fields().end()) {
    const Value& value = found->second;
    text = value.kind_case() == Value::kNumberValue ? absl::StrCat(value.number_value()) : value.string_value();
  }
  ASSIGN_OR_RETURN(const int index, Number({text, Member("task.index")}, "a whole number, from 0"));
  if (static_cast<size_t>(index) < listed) return index;
  return Invalid(Member("task.index"), " is ", index, ", but cluster.", type, " lists ", listed,
                 listed == 1 ? " process: 0" : absl::StrCat(" processes: 0 to ", listed - 1));
}

absl::Status TakeTask(const Struct& task, const Lists& lists, TfConfig* config) {
  const auto found = task.fields().find("type");
  const std::string type = found == task.fields().end() ? "" : found->second.string_value();
  if (type == "evaluator") {
    config->evaluates = true;
    return absl::OkStatus();
  }
  const bool is_chief = type == "chief" || type == "master";
  if (!is_chief && type != "worker" && type != "ps") {
    return Invalid(Member("task.type"), " is '", type, "', must be chief, master, worker, ps or evaluator");
  }
  const std::vector<std::string> none;
  const std::vector<std::string>& listed = type == "ps"                           ? lists.ps
                                           : type == "worker"                     ? lists.worker
                                           : is_chief && type == lists.chief_name ? lists.chief
                                                                                  : none;
  if (listed.empty()) {
    return Invalid(Member("task.type"), " is ", type, ", but there is no cluster.", type,
                   ": list this process in it, too");
  }
  ASSIGN_OR_RETURN(const int index, IndexOf(task, type, listed.size()));
  const std::string source = Member(absl::StrCat("task ", type, " ", index));
  config->role = Sourced{type == "ps" ? "pserver" : "trainer", source};
  if (type == "ps") {
    config->server_id = Sourced{absl::StrCat(index), source};
  } else {
    const int first = is_chief ? 0 : static_cast<int>(lists.chief.size());
    config->trainer_id = Sourced{absl::StrCat(first + index), source};
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TfConfig> ReadTfConfig(const Environment& environment) {
  TfConfig config;
  const MaybeSourced variable = ReadVariable(environment, kVariable);
  if (!variable.has_value()) return config;
  ASSIGN_OR_RETURN(const Struct object, ParseObject(variable->value));
  ASSIGN_OR_RETURN(const Struct* cluster, ObjectIn(object, "cluster"));
  ASSIGN_OR_RETURN(const Struct* task, ObjectIn(object, "task"));
  Lists lists;
  if (cluster != nullptr) {
    ASSIGN_OR_RETURN(lists, ListsOf(*cluster));
  }
  TakeLists(lists, &config);
  if (task != nullptr) RETURN_IF_ERROR(TakeTask(*task, lists, &config));
  return config;
}

}  // namespace weir
