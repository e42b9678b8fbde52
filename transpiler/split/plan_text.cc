// PlanText, SettingsText, PlanFingerprint, FirstDifference: what every process of a job must agree on.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/stable_hash.h"
#include "framework/base/textproto.h"
#include "glog/logging.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"
#include "proto/agreement.pb.h"
#include "transpiler/job/job.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

namespace pb = google::protobuf;

// Returns true if processes may differ in the field, and so in all fields inside it.
bool IsFree(const pb::FieldDescriptor& field, const v1::JobConfig& config) {
  switch (field.options().GetExtension(v1::agreement)) {
    case v1::SAME:
      return false;
    case v1::FREE:
      return true;
    case v1::SAME_IF_REPRODUCIBLE:
      // Without the promise of equal bits every machine may use what it has.
      return !PromisesEqualBits(config.distribute());
  }
  LOG(FATAL) << field.full_name() << " has an agreement that this build does not know";
}

bool HasFreeMember(const pb::FieldOptions& options, const std::string& name) {
  for (int i = 0; i < options.ExtensionSize(v1::free_member); ++i) {
    if (options.GetExtension(v1::free_member, i) == name) return true;
  }
  return false;
}

class SettingsPrinter {
 public:
  SettingsPrinter(const v1::JobConfig& config, std::string* out) : config_(config), out_(out) {}

  // `options`: those of the field that holds the message.
  void Print(const pb::Message& message, const std::string& prefix, const pb::FieldOptions& options) {
    const pb::Descriptor* descriptor = message.GetDescriptor();
    if (descriptor->full_name() == "google.protobuf.Any") {
      Line(prefix, SingleLineText(message));
      return;
    }
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const pb::FieldDescriptor* field = descriptor->field(i);
      const std::string path = prefix.empty() ? field->name() : absl::StrCat(prefix, ".", field->name());
      if (!IsFree(*field, config_) && !HasFreeMember(options, field->name())) PrintField(message, field, path);
    }
  }

 private:
  void PrintField(const pb::Message& message, const pb::FieldDescriptor* field, const std::string& path) {
    const pb::Reflection* reflection = message.GetReflection();
    const bool is_message = field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_repeated()) {
      for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
        const std::string element = absl::StrCat(path, "[", i, "]");
        if (is_message) {
          Print(reflection->GetRepeatedMessage(message, field, i), element, field->options());
        } else {
          Line(element, Value(message, field, i));
        }
      }
      return;
    }
    const bool set = reflection->HasField(message, field);
    if (is_message) {
      if (!set && !field->options().GetExtension(v1::absent_is_default)) return;
      // A message without fields, "sgd {}", must leave a line too.
      if (set && field->containing_oneof() != nullptr) Line(path, "set");
      Print(reflection->GetMessage(message, field), path, field->options());
      return;
    }
    // In a oneof only the member that is set means anything. A field without a written default and without a value is
    // absent, which may mean something of its own (padding_id, axis).
    if (!set && (field->containing_oneof() != nullptr || !field->has_default_value())) return;
    Line(path, Value(message, field, -1));
  }

  static std::string Value(const pb::Message& message, const pb::FieldDescriptor* field, int index) {
    std::string text;
    pb::TextFormat::PrintFieldValueToString(message, field, index, &text);
    return text;
  }

  void Line(const std::string& path, const std::string& value) { absl::StrAppend(out_, path, ": ", value, "\n"); }

  const v1::JobConfig& config_;
  std::string* const out_;
};

std::string BlockLine(const v1::PlacedBlock& block) {
  const std::string trainer = block.has_trainer() ? absl::StrCat(", trainer ", block.trainer()) : "";
  return absl::StrCat("server ", block.server(), trainer, ", elements ", block.element_begin(), " to ",
                      block.element_begin() + block.element_count(), " of ", block.parameter(), ", [",
                      absl::StrJoin(block.dims(), ", "), "], gradient ", block.gradient(),
                      block.sparse_gradient() ? " by rows" : "");
}

std::vector<std::pair<std::string, std::string>> Lines(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t colon = std::min(line.find(": "), line.size());
    lines.emplace_back(line.substr(0, colon), colon == line.size() ? std::string_view() : line.substr(colon + 2));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::string SettingsText(const v1::JobConfig& config) {
  std::string text;
  SettingsPrinter(config, &text).Print(config, "", pb::FieldOptions::default_instance());
  return text;
}

std::string PlanText(const Job& job, const v1::Plan& plan) {
  std::string text = SettingsText(job.config);
  if (job.config.has_program()) {
    absl::StrAppend(&text, "program.contents: ", absl::Hex(StableHash(job.program_text), absl::kZeroPad16), "\n");
  }
  absl::StrAppend(&text, "plan.scheme_version: ", plan.scheme_version(), "\n");
  for (const v1::PlacedBlock& block : plan.blocks()) {
    absl::StrAppend(&text, "plan.block ", block.name(), ": ", BlockLine(block), "\n");
  }
  for (const v1::FetchedRows& fetched : plan.fetched_rows()) {
    absl::StrAppend(&text, "plan.fetched_rows ", fetched.parameter(), ": at most ", fetched.most_rows(), " of ",
                    fetched.rows(), fetched.forced() ? ", as the job says" : "", "\n");
  }
  for (const v1::PlacedTable& table : plan.tables()) {
    absl::StrAppend(&text, "plan.table ", table.name(), ": width ", table.width(), ", state ", table.state_width(),
                    ", ", table.logical_shards(), " shards, capacity ", table.capacity(), "\n");
  }
  return text;
}

uint64_t PlanFingerprint(std::string_view plan_text) { return StableHash(plan_text); }

std::string FirstDifference(std::string_view here, std::string_view there) {
  if (here == there) return "";
  const auto ours = Lines(here), theirs = Lines(there);
  size_t i = 0;
  while (i < ours.size() && i < theirs.size() && ours[i] == theirs[i]) ++i;
  if (i == ours.size() && i == theirs.size()) return "line ends differ";
  std::map<std::string, std::string> theirs_by_path(theirs.begin(), theirs.end());
  if (i == ours.size()) return absl::StrCat(theirs[i].first, ": not set here, ", theirs[i].second, " there");
  const auto found = theirs_by_path.find(ours[i].first);
  if (found == theirs_by_path.end()) return absl::StrCat(ours[i].first, ": ", ours[i].second, " here, not set there");
  if (found->second == ours[i].second) {
    // It comes later there: what stands in its place there is new.
    return absl::StrCat(theirs[i].first, ": not set here, ", theirs[i].second, " there");
  }
  return absl::StrCat(ours[i].first, ": ", ours[i].second, " here, ", found->second, " there");
}

}  // namespace weir
