#include "transpiler/base/setting.h"

#include "framework/base/status_macros.h"
#include "google/protobuf/any.pb.h"
#include "google/protobuf/descriptor.h"

namespace weir {

namespace pb = google::protobuf;

std::string Setting::FieldPath(std::string_view field) const {
  if (field.empty()) return path_;
  return path_.empty() ? std::string(field) : absl::StrCat(path_, ".", std::string(field));
}

absl::Status Setting::Error(std::string_view field, std::string_view text) const {
  const std::string path = FieldPath(field);
  return positions_->Error(path, absl::StrCat(path, " ", std::string(text)));
}

absl::Status Setting::Place(std::string_view field, std::string_view text) const {
  return positions_->Error(FieldPath(field), text);
}

absl::StatusOr<Kind> KindOf(const Setting& parent, std::string_view oneof) {
  const pb::Message& message = parent.message();
  const pb::OneofDescriptor* descriptor = message.GetDescriptor()->FindOneofByName(std::string(oneof));
  CHECK(descriptor != nullptr) << message.GetTypeName() << " has no oneof " << oneof;
  const pb::FieldDescriptor* field = message.GetReflection()->GetOneofFieldDescriptor(message, descriptor);
  if (field == nullptr) {
    std::vector<std::string> members;
    members.reserve(static_cast<size_t>(descriptor->field_count()));
    for (int i = 0; i < descriptor->field_count(); ++i) members.push_back(descriptor->field(i)->name());
    return parent.Error("", absl::StrCat("needs one of ", absl::StrJoin(members, ", ")));
  }
  if (field->message_type()->full_name() == "google.protobuf.Any") return CustomKind(parent, field->name());
  const std::string path = parent.path().empty() ? field->name() : absl::StrCat(parent.path(), ".", field->name());
  Setting setting = parent.Member(&message.GetReflection()->GetMessage(message, field), path);
  return Kind{.key = field->name(), .setting = std::move(setting)};
}

absl::StatusOr<Kind> CustomKind(const Setting& parent, std::string_view any_field) {
  const pb::Message& message = parent.message();
  const pb::FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(std::string(any_field));
  CHECK(field != nullptr) << message.GetTypeName() << " has no field " << any_field;
  pb::Any any;
  any.CopyFrom(message.GetReflection()->GetMessage(message, field));
  const size_t slash = any.type_url().rfind('/');
  const std::string type = slash == std::string::npos ? any.type_url() : any.type_url().substr(slash + 1);
  const pb::Descriptor* descriptor = pb::DescriptorPool::generated_pool()->FindMessageTypeByName(type);
  if (descriptor == nullptr) {
    return parent.Error(any_field,
                        absl::StrCat("holds a '", type, "', a message that is not linked into this program"));
  }
  std::shared_ptr<pb::Message> unpacked(pb::MessageFactory::generated_factory()->GetPrototype(descriptor)->New());
  if (!unpacked->ParseFromString(any.value())) {
    return parent.Error(any_field, absl::StrCat("holds bytes that are no '", type, "'"));
  }
  const std::string path =
      parent.path().empty() ? std::string(any_field) : absl::StrCat(parent.path(), ".", std::string(any_field));
  return Kind{.key = type, .setting = parent.Member(std::move(unpacked), path)};
}

}  // namespace weir
