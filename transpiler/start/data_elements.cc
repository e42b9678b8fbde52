#include "transpiler/start/data_elements.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "framework/formats/derived.h"
#include "framework/formats/line_parser.h"
#include "framework/graph/elements.h"

namespace weir {
namespace {

namespace pb = google::protobuf;

// Returns the settings of the reader's columns by name, without the names.
std::map<std::string, std::string> ReaderSettings(const v1::Data& data) {
  std::map<std::string, std::string> settings;
  for (const v1::Partition& partition : data.partition()) {
    v1::Partition rest = partition;
    rest.clear_name();
    settings[partition.name()] = SingleLineText(rest);
  }
  const pb::Reflection& reflection = *data.GetReflection();
  const pb::FieldDescriptor* const kind =
      reflection.GetOneofFieldDescriptor(data, v1::Data::descriptor()->FindOneofByName("reader"));
  if (kind == nullptr || kind->cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE) return settings;
  const pb::Message& reader = reflection.GetMessage(data, kind);
  for (int f = 0; f < reader.GetDescriptor()->field_count(); ++f) {
    const pb::FieldDescriptor& field = *reader.GetDescriptor()->field(f);
    if (!field.is_repeated() || field.cpp_type() != pb::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const pb::FieldDescriptor* const name = field.message_type()->FindFieldByName("name");
    if (name == nullptr || name->cpp_type() != pb::FieldDescriptor::CPPTYPE_STRING) continue;
    const pb::FieldDescriptor* const output = field.message_type()->FindFieldByName("output");
    for (int i = 0; i < reader.GetReflection()->FieldSize(reader, &field); ++i) {
      const pb::Message& column = reader.GetReflection()->GetRepeatedMessage(reader, &field, i);
      const std::unique_ptr<pb::Message> rest(column.New());
      rest->CopyFrom(column);
      rest->GetReflection()->ClearField(rest.get(), name);
      if (output != nullptr) rest->GetReflection()->ClearField(rest.get(), output);
      settings[column.GetReflection()->GetString(column, name)] = SingleLineText(*rest);
    }
  }
  return settings;
}

std::string TransformText(const v1::Data& data, const std::string& variable, int64_t index) {
  const v1::DenseTransform& dense = data.dense();
  for (const v1::DenseTransform::Column& column : dense.column()) {
    if (column.variable() != variable || column.index() != index) continue;
    v1::DenseTransform::Column rest = column;
    rest.clear_variable();
    rest.clear_index();
    return SingleLineText(rest);
  }
  const bool except = std::find(dense.except().begin(), dense.except().end(), variable) != dense.except().end();
  return except || dense.transform() == v1::DenseTransform::NONE
             ? ""
             : absl::StrCat("transform: ", v1::DenseTransform::Transform_Name(dense.transform()));
}

std::string IdText(const v1::Data& data, const Column& column) {
  const std::string& of = column.ids_of.empty() ? column.name : column.ids_of;
  const auto& shared = data.ids().shared();
  std::string text = absl::StrCat("ids of ", of);
  if (std::find(shared.begin(), shared.end(), of) != shared.end()) text += ", shared";
  if (data.ids().min_count() > 1) absl::StrAppend(&text, ", min_count: ", data.ids().min_count());
  if (data.ids().empty() == v1::IdTransform::ZERO) text += ", empty: ZERO";
  return text;
}

// Returns the name of a value or slot of a column.
std::string InputName(const Column& column, const std::string& name) {
  return name == column.name ? name : absl::StrCat(column.name, ".", name);
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> DataMeanings(const v1::Data& data) {
  std::map<std::string, std::string> meanings;
  const std::map<std::string, std::string> settings = ReaderSettings(data);
  std::map<std::string, std::string> derived;
  for (const v1::Derived& each : data.derived()) derived[each.name()] = SingleLineText(each);
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeLineParser(data));
  for (const Column& column : parser->columns()) {
    const bool ids = column.kind == v1::IDS;
    const std::vector<std::string>& names = ids ? column.slot_names : column.value_names;
    for (int64_t i = 0; i < column.width; ++i) {
      const bool named = static_cast<int64_t>(names.size()) == column.width;
      const std::string& name = named ? names[static_cast<size_t>(i)] : column.name;
      // "history[3]" is of the column "history".
      const auto read = settings.find(name.substr(0, name.find('[')));
      const auto made = derived.find(column.name);
      meanings[InputName(column, name)] =
          absl::StrCat(made != derived.end()    ? made->second
                       : read != settings.end() ? read->second
                                                : "",
                       "; ", ids ? IdText(data, column) : TransformText(data, column.name, i));
    }
  }
  return meanings;
}

absl::StatusOr<std::map<std::string, ElementAxes>> DataElements(const v1::Data& data) {
  std::map<std::string, ElementAxes> elements;
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeLineParser(data));
  for (const Column& column : parser->columns()) {
    const std::vector<std::string>& names = column.kind == v1::IDS ? column.slot_names : column.value_names;
    if (static_cast<int64_t>(names.size()) != column.width) {
      elements[column.name] = {AxisOf(column.name, column.width)};
      continue;
    }
    ElementAxis axis;
    for (const std::string& name : names) {
      axis.push_back({.of = InputName(column, name)});
    }
    elements[column.name] = {std::move(axis)};
  }
  return elements;
}

}  // namespace weir
