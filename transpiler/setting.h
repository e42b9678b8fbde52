// A message of the job and where it stands; and registries that resolve the oneofs which users extend.
#ifndef WEIR_TRANSPILER_SETTING_H_
#define WEIR_TRANSPILER_SETTING_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/textproto.h"
#include "glog/logging.h"
#include "google/protobuf/message.h"

namespace weir {

// Borrows the message and the positions; both live as long as the job.
class Setting {
 public:
  Setting(const google::protobuf::Message* message, std::string path, const TextPositions* positions)
      : message_(message), path_(std::move(path)), positions_(positions) {}
  // Keeps a message alive that was unpacked from an Any.
  Setting(std::shared_ptr<const google::protobuf::Message> unpacked, std::string path, const TextPositions* positions)
      : message_(unpacked.get()), unpacked_(std::move(unpacked)), path_(std::move(path)), positions_(positions) {}

  // A message of the same job.
  Setting Member(const google::protobuf::Message* message, std::string path) const {
    return Setting(message, std::move(path), positions_);
  }
  Setting Member(std::shared_ptr<const google::protobuf::Message> unpacked, std::string path) const {
    return Setting(std::move(unpacked), std::move(path), positions_);
  }

  const google::protobuf::Message& message() const { return *message_; }
  // "model.layer[2].fc"
  const std::string& path() const { return path_; }
  // InvalidArgument "job.textproto:5:3: <path>.<field> <text>"; without a field about the message itself.
  absl::Status Error(std::string_view field, std::string_view text) const;
  // InvalidArgument "job.textproto:5:3: <text>", at the place of the field.
  absl::Status Place(std::string_view field, std::string_view text) const;

 private:
  std::string FieldPath(std::string_view field) const;
  const google::protobuf::Message* message_;
  std::shared_ptr<const google::protobuf::Message> unpacked_;
  std::string path_;
  const TextPositions* positions_;
};

// The member of a oneof that is set.
struct Kind {
  // "fc"; for `custom` the full name of the message in the Any, "my.package.Layer".
  std::string key;
  Setting setting;
};

// InvalidArgument when no member is set (lists them), or when the Any holds a type that is not linked in or bytes that
// are not a message of it.
absl::StatusOr<Kind> KindOf(const Setting& parent, std::string_view oneof);
// The message in an Any field that is set.
absl::StatusOr<Kind> CustomKind(const Setting& parent, std::string_view any_field);

// Rules by kind. Filled before main, read-only afterwards.
template <typename Rule>
class KindRegistry {
 public:
  // `what` is for messages: "layer".
  explicit KindRegistry(std::string what) : what_(std::move(what)) {}

  // The same kind twice is our own mistake.
  void Register(const std::string& key, Rule rule) {
    CHECK(rules_.emplace(key, std::move(rule)).second) << what_ << " " << key << " is registered twice";
  }

  // InvalidArgument lists what is linked in.
  absl::StatusOr<const Rule*> Find(const Kind& kind) const {
    const auto found = rules_.find(kind.key);
    if (found != rules_.end()) return &found->second;
    std::vector<std::string> known;
    for (const auto& [key, rule] : rules_) known.push_back(key);
    return kind.setting.Error(
        "", absl::StrCat("is no ", what_, " that is linked into this program; there are ", absl::StrJoin(known, ", ")));
  }

 private:
  const std::string what_;
  std::map<std::string, Rule> rules_;
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_SETTING_H_
