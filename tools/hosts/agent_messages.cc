#include "tools/hosts/agent_messages.h"

#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

absl::Status NoMessage(const std::string& line) {
  constexpr size_t kShown = 80;
  return absl::InvalidArgumentError(
      absl::StrCat("'", absl::CEscape(line.substr(0, kShown)), "' is no message between launch and its agent"));
}

absl::Status Check(const std::vector<std::string>& fields, const char* verb, size_t least) {
  if (fields.size() >= least && fields[0] == verb) return absl::OkStatus();
  return NoMessage(absl::StrJoin(fields, " "));
}

}  // namespace

std::string EncodeMessage(const std::vector<std::string>& fields) {
  const auto escaped = [](std::string* out, const std::string& field) { out->append(absl::Utf8SafeCEscape(field)); };
  return absl::StrJoin(fields, "\t", escaped) + "\n";
}

absl::StatusOr<std::vector<std::string>> DecodeMessage(std::string_view line) {
  const std::string text(line);
  std::vector<std::string> fields = absl::StrSplit(text, '\t');
  for (std::string& field : fields) {
    std::string plain;
    if (!absl::CUnescape(field, &plain)) return NoMessage(text);
    field = std::move(plain);
  }
  return fields;
}

absl::StatusOr<int> NumberIn(const std::vector<std::string>& fields, size_t field) {
  int number = 0;
  if (field >= fields.size() || !absl::SimpleAtoi(fields[field], &number)) return NoMessage(absl::StrJoin(fields, " "));
  return number;
}

std::string EncodeHello(const AgentHello& hello) {
  const std::vector<std::vector<int>>& nodes = hello.machine.numa_nodes;
  // The order of processors in a node tells which share a core, so ranges would lose something.
  const std::string cpus = absl::StrJoin(nodes, ";", [](std::string* out, const std::vector<int>& node) {
    absl::StrAppend(out, absl::StrJoin(node, ","));
  });
  const std::optional<std::string>& gpus = hello.machine.visible_gpus;
  return EncodeMessage({"hello", absl::StrCat(hello.version), hello.host, absl::StrCat(hello.machine.usable_cores),
                        cpus, gpus.has_value() ? "=" + *gpus : ""});
}

absl::StatusOr<AgentHello> ParseHello(const std::vector<std::string>& fields) {
  RETURN_IF_ERROR(Check(fields, "hello", 2));
  AgentHello hello;
  ASSIGN_OR_RETURN(hello.version, NumberIn(fields, 1));
  // Another version may have other fields.
  if (hello.version != kAgentVersion) return hello;
  RETURN_IF_ERROR(Check(fields, "hello", 6));
  hello.host = fields[2];
  ASSIGN_OR_RETURN(hello.machine.usable_cores, NumberIn(fields, 3));
  for (const std::string& node : std::vector<std::string>(absl::StrSplit(fields[4], ';'))) {
    std::vector<int> cpus;
    for (const std::string& cpu : std::vector<std::string>(absl::StrSplit(node, ','))) {
      ASSIGN_OR_RETURN(const std::vector<int> one, ParseCpuList(cpu));
      cpus.insert(cpus.end(), one.begin(), one.end());
    }
    if (cpus.empty()) return NoMessage(absl::StrJoin(fields, " "));
    hello.machine.numa_nodes.push_back(std::move(cpus));
  }
  if (hello.machine.usable_cores < 1) return NoMessage(absl::StrJoin(fields, " "));
  if (!fields[5].empty()) hello.machine.visible_gpus = fields[5].substr(1);
  return hello;
}

std::string EncodeSetup(const AgentSetup& setup) {
  return EncodeMessage({"setup", absl::StrCat(setup.version), setup.directory,
                        absl::StrCat(absl::ToInt64Milliseconds(setup.silence)), absl::StrCat(setup.ports)});
}

absl::StatusOr<AgentSetup> ParseSetup(const std::vector<std::string>& fields) {
  RETURN_IF_ERROR(Check(fields, "setup", 5));
  AgentSetup setup{.directory = fields[2]};
  ASSIGN_OR_RETURN(setup.version, NumberIn(fields, 1));
  ASSIGN_OR_RETURN(const int silence, NumberIn(fields, 3));
  setup.silence = absl::Milliseconds(silence);
  ASSIGN_OR_RETURN(setup.ports, NumberIn(fields, 4));
  return setup;
}

std::string EncodeStart(const AgentStart& start) {
  std::vector<std::string> fields = {"start", absl::StrCat(start.index), FormatCpuList(start.cpus),
                                     absl::StrCat(start.command.size())};
  fields.insert(fields.end(), start.command.begin(), start.command.end());
  // A name without = is removed.
  for (const auto& [name, value] : start.environment) {
    fields.push_back(value.has_value() ? absl::StrCat(name, "=", *value) : name);
  }
  return EncodeMessage(fields);
}

absl::StatusOr<AgentStart> ParseStart(const std::vector<std::string>& fields) {
  constexpr size_t kWords = 4;
  RETURN_IF_ERROR(Check(fields, "start", kWords + 1));
  AgentStart start;
  ASSIGN_OR_RETURN(start.index, NumberIn(fields, 1));
  ASSIGN_OR_RETURN(start.cpus, ParseCpuList(fields[2]));
  ASSIGN_OR_RETURN(const int words, NumberIn(fields, 3));
  if (words < 1 || static_cast<size_t>(words) > fields.size() - kWords) return NoMessage(absl::StrJoin(fields, " "));
  const auto variables = fields.begin() + kWords + words;
  start.command.assign(fields.begin() + kWords, variables);
  for (auto each = variables; each != fields.end(); ++each) {
    const size_t equals = each->find('=');
    start.environment[each->substr(0, equals)] =
        equals == std::string::npos ? std::nullopt : std::optional<std::string>(each->substr(equals + 1));
  }
  return start;
}

}  // namespace weir
