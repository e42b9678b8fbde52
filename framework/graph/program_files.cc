// Programs in files: the ending says what is in one.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "framework/graph/format_version.h"
#include "framework/graph/program_text.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/json_util.h"

namespace weir {
namespace {

std::string_view Ending(std::string_view path) {
  const size_t slash = path.rfind('/');
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos || (slash != std::string_view::npos && dot < slash) ? std::string_view()
                                                                                           : path.substr(dot);
}

absl::Status UnknownEnding(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": a program file ends in .program, .textproto, .json or .pb, which says what is in it"));
}

absl::Status CheckVersion(const v1::ProgramDesc& program, const std::string& path) {
  if (program.format_version() <= kProgramFormatVersion) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": program format version ", program.format_version(),
                                                 " is newer than ", kProgramFormatVersion,
                                                 ", the newest that this build reads"));
}

// Names of all fields of a message and of those in it.
void AddFieldNames(const google::protobuf::Descriptor* message, std::set<const google::protobuf::Descriptor*>* seen,
                   std::vector<std::string>* names) {
  if (!seen->insert(message).second) return;
  for (int i = 0; i < message->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = message->field(i);
    names->push_back(field->name());
    if (field->message_type() != nullptr) AddFieldNames(field->message_type(), seen, names);
  }
}

// protobuf says "(blocks[0].ops[2]) tpye: Cannot find field.".
std::string JsonError(const std::string& message) {
  constexpr char kUnknown[] = ": Cannot find field.";
  const size_t end = message.find(kUnknown);
  if (end == std::string::npos) return message;
  const size_t begin = std::min(message.rfind(' ', end) + 1, end);
  const std::string name = message.substr(begin, end - begin);
  std::string place = begin == 0 ? "" : message.substr(0, begin - 1);
  if (place.starts_with('(') && place.ends_with(')')) place = place.substr(1, place.size() - 2);
  std::set<const google::protobuf::Descriptor*> seen;
  std::vector<std::string> names;
  AddFieldNames(v1::ProgramDesc::descriptor(), &seen, &names);
  const std::string near = NearestName(name, names);
  return absl::StrCat(place.empty() ? "" : place + ": ", "unknown field '", name, "'",
                      near.empty() ? "" : absl::StrCat(" (did you mean '", near, "'?)"));
}

}  // namespace

absl::StatusOr<v1::ProgramDesc> ReadProgramFile(const std::string& path) {
  const std::string_view ending = Ending(path);
  if (ending != ".program" && ending != ".textproto" && ending != ".json" && ending != ".pb")
    return UnknownEnding(path);
  ASSIGN_OR_RETURN(const std::string data, ReadWholeFile(path));
  if (ending == ".program") return ParseProgramText(data, path);
  v1::ProgramDesc program;
  if (ending == ".textproto") {
    RETURN_IF_ERROR(ParseTextProto(data, path, &program, nullptr));
  } else if (ending == ".json") {
    const auto status = google::protobuf::util::JsonStringToMessage(data, &program);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", JsonError(std::string(status.message()))));
    }
  } else if (!program.ParseFromString(data)) {
    return absl::DataLossError(absl::StrCat(path, ": ", data.size(), " bytes that are no program"));
  }
  RETURN_IF_ERROR(CheckVersion(program, path));
  // The other formats refuse them by name; what cannot be shown is not run either.
  v1::ProgramDesc known = program;
  known.DiscardUnknownFields();
  if (known.ByteSizeLong() != program.ByteSizeLong()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has fields that this build does not know; it was written by another"));
  }
  return program;
}

absl::Status WriteProgramFile(const std::string& path, const v1::ProgramDesc& program) {
  const std::string_view ending = Ending(path);
  if (ending == ".pb") return WriteFileAtomically(path, program.SerializeAsString());
  if (ending != ".program" && ending != ".textproto" && ending != ".json") return UnknownEnding(path);
  ASSIGN_OR_RETURN(const std::string text, FormatProgram(program, ending == ".program" ? "text" : ending.substr(1)));
  return WriteFileAtomically(path, text);
}

}  // namespace weir
