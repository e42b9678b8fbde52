#include "framework/process/command_line.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "framework/process/inherited_state.h"

namespace weir {
namespace {

// Returns false for flags of libraries, which users of our programs do not set.
bool IsOurs(const absl::CommandLineFlag& flag) {
  const std::string file = flag.Filename();
  return file.find("absl/") == std::string::npos && file.find("grpc") == std::string::npos;
}

// Returns our flags by name, because GetAllFlags has no order.
std::map<std::string, absl::CommandLineFlag*> OurFlags() {
  std::map<std::string, absl::CommandLineFlag*> flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (IsOurs(*flag)) flags[std::string(name.data(), name.size())] = flag;
  }
  return flags;
}

struct Argument {
  std::string name;
  bool has_value = false;
  std::string value;
};

Argument Split(std::string_view text) {
  text.remove_prefix(text.substr(0, 2) == "--" ? 2 : 1);
  const size_t equals = text.find('=');
  Argument argument{.name = std::string(text.substr(0, equals))};
  std::replace(argument.name.begin(), argument.name.end(), '-', '_');
  if (equals != std::string_view::npos) {
    argument.has_value = true;
    argument.value = std::string(text.substr(equals + 1));
  }
  return argument;
}

absl::Status UnknownFlag(const std::string& name, const std::map<std::string, absl::CommandLineFlag*>& flags) {
  std::vector<std::string> known = {"set", "help"};
  for (const auto& [flag_name, flag] : flags) known.push_back(flag_name);
  const std::string near = NearestName(name, known);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag --", name,
                   near.empty() ? "; --help lists the flags" : absl::StrCat(" (did you mean --", near, "?)")));
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  MendInheritedState();
  const std::map<std::string, absl::CommandLineFlag*> flags = OurFlags();
  CommandLine line;
  int i = 1;
  // Returns the value of a flag: the text after '=', or the next argument.
  const auto value_of = [&](const Argument& argument) -> absl::StatusOr<std::string> {
    if (argument.has_value) return argument.value;
    if (i + 1 >= argc) return absl::InvalidArgumentError(absl::StrCat("--", argument.name, " needs a value"));
    return std::string(argv[++i]);
  };
  for (; i < argc; ++i) {
    const std::string_view text = argv[i];
    if (text == "--") {
      line.rest.insert(line.rest.end(), argv + i + 1, argv + argc);
      break;
    }
    if (text.size() < 2 || text[0] != '-') {
      line.rest.emplace_back(text);
      continue;
    }
    const Argument argument = Split(text);
    if (argument.name == "help" || argument.name == "h") {
      line.help = true;
      continue;
    }
    if (argument.name == "set") {
      ASSIGN_OR_RETURN(std::string value, value_of(argument));
      line.overrides.push_back(std::move(value));
      continue;
    }
    auto found = flags.find(argument.name);
    std::string value;
    if (found != flags.end() && found->second->IsOfType<bool>()) {
      value = argument.has_value ? argument.value : "true";
    } else if (found != flags.end()) {
      ASSIGN_OR_RETURN(value, value_of(argument));
    } else {
      found = argument.name.starts_with("no") ? flags.find(argument.name.substr(2)) : flags.end();
      if (found == flags.end() || !found->second->IsOfType<bool>() || argument.has_value) {
        return UnknownFlag(argument.name, flags);
      }
      value = "false";
    }
    std::string error;
    if (!found->second->ParseFrom(value, &error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", found->first, "=", value, ": ", error.empty() ? "not a value of this flag" : error));
    }
  }
  return line;
}

std::string HelpText(std::string_view usage, bool reads_job) {
  std::string text(usage);
  if (!text.empty() && text.back() != '\n') text += '\n';
  text += "\nFlags:\n";
  for (const auto& [name, flag] : OurFlags()) {
    absl::StrAppend(&text, "  --", name, "  ", flag->Help());
    const std::string initial = flag->DefaultValue();
    absl::StrAppend(&text, initial.empty() ? "" : absl::StrCat(" (default: ", initial, ")"), "\n");
  }
  if (reads_job) text += "  --set  path.to.field=value: overrides a field of the job; may be given many times\n";
  return text;
}

}  // namespace weir
