#include "framework/formats/schema.h"

#include <map>
#include <utility>

#include "glog/logging.h"
#include "proto/job.pb.h"

namespace weir {
namespace {

namespace pb = google::protobuf;

// Rules by name. Written by static initializers only, before main.
std::map<std::string, SchemaRule>& Registry() {
  static auto* const registry = new std::map<std::string, SchemaRule>();
  return *registry;
}

std::string NameOf(const pb::Descriptor* format) {
  const pb::OneofDescriptor* const readers = v1::Data::descriptor()->FindOneofByName("reader");
  for (int i = 0; i < readers->field_count(); ++i) {
    if (readers->field(i)->message_type() == format) return readers->field(i)->name();
  }
  return format->full_name();
}

}  // namespace

void RegisterDataSchema(const pb::Descriptor* format, SchemaRule rule) {
  const std::string name = NameOf(format);
  CHECK(Registry().emplace(name, std::move(rule)).second) << "reader " << name << " is registered twice";
}

const SchemaRule* FindDataSchema(const std::string& name) {
  const auto found = Registry().find(name);
  return found == Registry().end() ? nullptr : &found->second;
}

std::vector<std::string> DataFormatNames() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : Registry()) names.push_back(name);
  return names;
}

v1::VarDesc DataVariable(std::string_view name, v1::VarKind kind, int64_t columns) {
  v1::VarDesc var;
  var.set_name(std::string(name));
  var.set_kind(kind);
  var.set_dtype(kind == v1::IDS ? v1::INT64 : v1::FLOAT32);
  var.add_dims(-1);
  var.add_dims(columns);
  var.set_stop_gradient(true);
  return var;
}

}  // namespace weir
