#include "formats/line_parser.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "google/protobuf/any.pb.h"

namespace weir {
namespace {

// By full name of the configuration message. Written by static initializers only, before main.
std::map<std::string, LineParserFactory>& Registry() {
  static auto* const registry = new std::map<std::string, LineParserFactory>();
  return *registry;
}

absl::StatusOr<std::unique_ptr<LineParser>> Make(const google::protobuf::Message& config) {
  const auto found = Registry().find(config.GetDescriptor()->full_name());
  if (found == Registry().end()) {
    std::vector<std::string> known;
    for (const auto& [type, factory] : Registry()) known.push_back(type);
    return absl::InvalidArgumentError(absl::StrCat("data: no reader is registered for ",
                                                   config.GetDescriptor()->full_name(), "; there are ",
                                                   absl::StrJoin(known, ", ")));
  }
  return found->second(config);
}

absl::StatusOr<std::unique_ptr<LineParser>> MakeCustom(const google::protobuf::Any& any) {
  const std::string url = any.type_url();
  const std::string type = url.substr(url.rfind('/') + 1);
  const google::protobuf::Descriptor* descriptor =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(type);
  if (descriptor == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("data.custom: this program knows no message ",
                                                   type.empty() ? "without a name" : type,
                                                   "; link the library that registers its reader"));
  }
  const std::unique_ptr<google::protobuf::Message> config(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor)->New());
  if (!any.UnpackTo(config.get())) {
    return absl::InvalidArgumentError(absl::StrCat("data.custom: the bytes are no message ", type));
  }
  return Make(*config);
}

}  // namespace

LineParser::LineParser(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (const Column& column : columns_) {
    CHECK_GT(column.width, 0) << column.name;
    if (column.kind == v1::IDS) {
      CHECK_EQ(column.width, static_cast<int64_t>(column.slot_names.size())) << column.name;
      slots_ += column.width;
    } else {
      CHECK_EQ(column.kind, v1::DENSE) << column.name;
      floats_ += column.width;
    }
  }
}

absl::StatusOr<std::unique_ptr<LineParser>> LineParser::ForHeader(std::string_view, const std::vector<int64_t>&) const {
  return absl::InternalError("the format has no header");
}

void RegisterLineParser(const std::string& type, LineParserFactory factory) {
  CHECK(Registry().emplace(type, std::move(factory)).second) << "two readers for " << type;
}

absl::StatusOr<std::unique_ptr<LineParser>> MakeLineParser(const v1::Data& data) {
  switch (data.reader_case()) {
    case v1::Data::kCriteo:
      return Make(data.criteo());
    case v1::Data::kMultiSlot:
      return Make(data.multi_slot());
    case v1::Data::kCsv:
      return Make(data.csv());
    case v1::Data::kLibSvm:
      return Make(data.lib_svm());
    case v1::Data::kIdx:
      return Make(data.idx());
    case v1::Data::kCustom:
      return MakeCustom(data.custom());
    case v1::Data::READER_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "data: no reader; write criteo {}, multi_slot { ... }, csv { ... }, lib_svm { ... }, idx { ... } or custom { ... "
      "}");
}

}  // namespace weir
