// Message of the job with its place in the file; and registries that resolve the oneofs which users extend.
#ifndef WEIR_TRANSPILER_BASE_SETTING_H_
#define WEIR_TRANSPILER_BASE_SETTING_H_

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

// A message of the job with its path. Borrows the message and the positions; both must live as long as the job.
class Setting {
 public:
  Setting(const google::protobuf::Message* message, std::string path, const TextPositions* positions)
      : message_(message), path_(std::move(path)), positions_(positions) {}
  // Keeps a message alive that was unpacked from an Any.
  Setting(std::shared_ptr<const google::protobuf::Message> unpacked, std::string path, const TextPositions* positions)
      : message_(unpacked.get()), unpacked_(std::move(unpacked)), path_(std::move(path)), positions_(positions) {}

  // Returns the setting for another message of the same job.
  Setting Member(const google::protobuf::Message* message, std::string path) const {
    return Setting(message, std::move(path), positions_);
  }
  Setting Member(std::shared_ptr<const google::protobuf::Message> unpacked, std::string path) const {
    return Setting(std::move(unpacked), std::move(path), positions_);
  }

  const google::protobuf::Message& message() const { return *message_; }
  // Returns the path: "model.layer[2].fc".
  const std::string& path() const { return path_; }
  // Returns InvalidArgument "job.textproto:5:3: <path>.<field> <text>"; without a field about the message itself.
  absl::Status Error(std::string_view field, std::string_view text) const;
  // Returns InvalidArgument "job.textproto:5:3: <text>", at the place of the field.
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

// Returns the kind. InvalidArgument if no member is set (lists them), or if the Any holds a type that is not linked in,
// or bytes that are not a message of that type.
absl::StatusOr<Kind> KindOf(const Setting& parent, std::string_view oneof);
// Returns the message in an Any field that is set.
absl::StatusOr<Kind> CustomKind(const Setting& parent, std::string_view any_field);

// Rules by kind. Filled before main, read-only afterwards.
template <typename Rule>
class KindRegistry {
 public:
  // `what` is the name in messages: "layer".
  explicit KindRegistry(std::string what) : what_(std::move(what)) {}

  // CHECK-fails if the kind is already registered.
  void Register(const std::string& key, Rule rule) {
    CHECK(rules_.emplace(key, std::move(rule)).second) << what_ << " " << key << " is registered twice";
  }

  // Returns the rule of a kind. InvalidArgument lists the kinds that are linked in.
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

#endif  // WEIR_TRANSPILER_BASE_SETTING_H_
