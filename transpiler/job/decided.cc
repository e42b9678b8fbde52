#include "transpiler/job/decided.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/text_format.h"

namespace weir {
namespace {

namespace pb = google::protobuf;

constexpr char kTexts[] = ".";

// Returns the text of a field of an element; of its `name` if the field is not set.
std::string FieldText(const pb::Message& message, const std::string& name) {
  const pb::Descriptor& type = *message.GetDescriptor();
  const pb::FieldDescriptor* field = type.FindFieldByName(name);
  if (!message.GetReflection()->HasField(message, field) && !field->has_default_value() &&
      type.FindFieldByName("name") != nullptr) {
    field = type.FindFieldByName("name");
  }
  if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING)
    return message.GetReflection()->GetString(message, field);
  std::string text;
  pb::TextFormat::PrintFieldValueToString(message, field, -1, &text);
  return text;
}

// A column that is not read belongs to the layout of a file.
bool IsSkipped(const pb::Message& element) {
  if (element.GetDescriptor() == v1::Csv::Column::descriptor()) {
    return static_cast<const v1::Csv::Column&>(element).type() == v1::Csv::Column::SKIP;
  }
  return element.GetDescriptor() == v1::MultiSlot::Slot::descriptor() &&
         static_cast<const v1::MultiSlot::Slot&>(element).skip();
}

}  // namespace

Decided Decided::In(const pb::FieldDescriptor& field) const {
  Decided inside;
  inside.what_ = what_;
  if (std::find(course_.begin(), course_.end(), field.name()) != course_.end()) inside.what_ = v1::COURSE;
  const std::string prefix = field.name() + ".";
  for (const std::string& path : course_) {
    if (path.starts_with(prefix)) inside.course_.push_back(path.substr(prefix.size()));
  }
  const pb::FieldOptions& options = field.options();
  if (options.HasExtension(v1::decides)) inside.what_ = options.GetExtension(v1::decides);
  for (int i = 0; i < options.ExtensionSize(v1::course_member); ++i) {
    inside.course_.push_back(options.GetExtension(v1::course_member, i));
  }
  return inside;
}

std::vector<Element> ElementsOf(const pb::Message& message, const pb::FieldDescriptor& field) {
  const pb::Reflection& reflection = *message.GetReflection();
  const std::string& known_by = field.options().GetExtension(v1::known_by);
  const bool is_message = field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE;
  std::map<std::string, int> numbers;
  std::vector<Element> elements;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    if (is_message && IsSkipped(reflection.GetRepeatedMessage(message, &field, i))) continue;
    Element element = {.index = i};
    if (known_by == kTexts) {
      element.key = reflection.GetRepeatedString(message, &field, i);
    } else if (!known_by.empty()) {
      for (const absl::string_view name : absl::StrSplit(known_by, ' ')) {
        const std::string text = FieldText(reflection.GetRepeatedMessage(message, &field, i), std::string(name));
        absl::StrAppend(&element.key, element.key.empty() ? "" : " ", text);
      }
    }
    element.number = numbers[element.key]++;
    elements.push_back(std::move(element));
  }
  return elements;
}

bool IsAboutVariable(const pb::FieldDescriptor& field, const Element& element, std::string* variable) {
  const std::string& known_by = field.options().GetExtension(v1::known_by);
  const pb::Descriptor* const type = field.containing_type();
  const bool of_data = known_by == "output" || type == v1::DenseTransform::descriptor() ||
                       type == v1::IdTransform::descriptor() ||
                       (type == v1::Data::descriptor() && field.message_type() == v1::Derived::descriptor());
  if (!of_data || element.key.empty()) return false;
  // A column of data.dense is known by its variable and its number.
  const size_t blank = known_by.find(' ') == std::string::npos ? std::string::npos : element.key.rfind(' ');
  *variable = element.key.substr(0, blank);
  return true;
}

}  // namespace weir
