#include "tools/reporting/table_facts.h"

#include <cstddef>

#include "absl/strings/numbers.h"
#include "framework/base/string_views.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace weir {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string TextOf(const Message& message, const char* name) {
  const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) return "";
  return message.GetReflection()->GetString(message, field);
}

// Returns the message of data's oneof `reader` ("csv", "multi_slot"); null without one.
const Message* ReaderOf(const v1::Data& data) {
  const auto* const oneof = data.GetDescriptor()->FindOneofByName("reader");
  if (oneof == nullptr || !data.GetReflection()->HasOneof(data, oneof)) return nullptr;
  const FieldDescriptor* const field = data.GetReflection()->GetOneofFieldDescriptor(data, oneof);
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return nullptr;
  return &data.GetReflection()->GetMessage(data, field);
}

// Appends the names of the reader's slots, columns or features whose output is the variable: in every format they are
// messages with a `name` and an `output`, whose default is the name.
void AddSlots(const Message& reader, const std::string& variable, v1::TableReader* to) {
  const auto* const reflection = reader.GetReflection();
  for (int f = 0; f < reader.GetDescriptor()->field_count(); ++f) {
    const FieldDescriptor* const field = reader.GetDescriptor()->field(f);
    if (!field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (field->message_type()->FindFieldByName("output") == nullptr) continue;
    for (int i = 0; i < reflection->FieldSize(reader, field); ++i) {
      const Message& slot = reflection->GetRepeatedMessage(reader, field, i);
      const std::string name = TextOf(slot, "name"), output = TextOf(slot, "output");
      if ((output.empty() ? name : output) == variable) to->add_slot(name);
    }
  }
}

}  // namespace

TableFacts::TableFacts(const absl::StatusOr<v1::JobConfig>& job, std::string_view table) {
  if (!job.ok()) return;
  optimizer_ = job->optimizer();
  if (job->train().epochs() > 0 && !job->data().has_follow()) epochs_ = job->train().epochs();
  for (const v1::Table& each : job->table()) {
    if (each.name() == table) table_ = each;
  }
  const Message* const reader = ReaderOf(job->data());
  for (const v1::Layer& layer : job->model().layer()) {
    if (!layer.has_embedding() || layer.embedding().table() != table) continue;
    for (const std::string& ids : layer.embedding().ids()) {
      v1::TableReader& of = readers_.emplace_back();
      of.set_layer(layer.name());
      of.set_ids(ids);
      if (reader != nullptr) AddSlots(*reader, ids, &of);
    }
  }
}

std::optional<float> TableFacts::InitialState(std::string_view state) const {
  if (!known()) return std::nullopt;
  const v1::Optimizer* optimizer = table_->has_optimizer() ? &table_->optimizer() : &optimizer_;
  int segment = 0;
  if (const size_t dot = state.find('.');
      dot != std::string_view::npos && absl::SimpleAtoi(Av(state.substr(0, dot)), &segment)) {
    state.remove_prefix(dot + 1);
    if (segment < 0 || segment >= table_->segment_size()) return std::nullopt;
    if (table_->segment(segment).has_optimizer()) optimizer = &table_->segment(segment).optimizer();
  } else if (table_->segment_size() == 1 && table_->segment(0).has_optimizer()) {
    optimizer = &table_->segment(0).optimizer();
  }
  switch (optimizer->kind_case()) {
    case v1::Optimizer::kCustom:
    case v1::Optimizer::KIND_NOT_SET:
      return std::nullopt;
    case v1::Optimizer::kAdagrad:
      return state == "moment" ? static_cast<float>(optimizer->adagrad().initial_accumulator()) : 0.0f;
    case v1::Optimizer::kFtrl:
      return state == "squared_accumulator" ? static_cast<float>(optimizer->ftrl().initial_accumulator()) : 0.0f;
    default:
      return 0.0f;  // of every other rule (ops/*.cc: StateDef without an initial value)
  }
}

}  // namespace weir
