#include "framework/formats/line_parser.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/formats/example_input.h"
#include "framework/formats/example_record.h"
#include "glog/logging.h"
#include "google/protobuf/any.pb.h"

namespace weir {
namespace {

// Factories by full name of the configuration message. Written by static initializers only, before main.
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
  const std::string& url = any.type_url();
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

// Returns the error of data without a reader, with the possible ones as they are written in a job: "{}" for a format
// that needs no settings.
absl::Status NoReader(const google::protobuf::OneofDescriptor& readers) {
  std::vector<std::string> forms;
  for (int i = 0; i < readers.field_count(); ++i) {
    const google::protobuf::Message* const defaults =
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(readers.field(i)->message_type());
    forms.push_back(absl::StrCat(readers.field(i)->name(), Make(*defaults).ok() ? " {}" : " { ... }"));
  }
  const std::string last = std::move(forms.back());
  forms.pop_back();
  return absl::InvalidArgumentError(absl::StrCat("data: no reader; write ", absl::StrJoin(forms, ", "), " or ", last));
}

}  // namespace

LineParser::LineParser(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (const Column& column : columns_) {
    CHECK_GT(column.width, 0) << column.name;
    if (column.kind == v1::IDS) {
      CHECK_EQ(column.width, static_cast<int64_t>(column.slot_names.size())) << column.name;
      if (!column.id_kinds.empty()) CHECK_EQ(column.id_kinds.size(), column.slot_names.size()) << column.name;
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

absl::StatusOr<std::unique_ptr<LineParser>> LineParser::ForFile(std::string_view) const {
  return absl::InternalError("no value of the format stands in the names of files");
}

namespace {

const char* KindName(IdKind kind) {
  switch (kind) {
    case IdKind::kUnknown:
      return "ids of an unknown kind";
    case IdKind::kInteger:
      return "integers";
    case IdKind::kHex:
      return "hexadecimal numbers";
    case IdKind::kText:
      return "hashes of texts";
  }
  return "";
}

IdKind KindOf(const Column& column, size_t slot) {
  return column.id_kinds.empty() ? IdKind::kUnknown : column.id_kinds[slot];
}

// Returns whether ids of one kind can be read as those of the other: numbers are the same in whatever digits they were
// written, and those of a reader that does not say may be of any kind.
bool MayBeOneKind(IdKind a, IdKind b) {
  return a == IdKind::kUnknown || b == IdKind::kUnknown || (a == IdKind::kText) == (b == IdKind::kText);
}

// Parser of the bytes of an example that CheckExampleRecord has accepted.
class ExampleRecordParser : public LineParser {
 public:
  explicit ExampleRecordParser(std::vector<Column> columns) : LineParser(std::move(columns)) {}
  absl::Status Parse(std::string_view record, Example* example) const override {
    ReadExampleRecord(record.data(), example);
    return absl::OkStatus();
  }
};

std::string Described(const Column& column) {
  const bool one = column.width == 1;
  return absl::StrCat("'", column.name, "' of ", column.width,
                      column.kind == v1::IDS ? (one ? " slot" : " slots") : (one ? " float" : " floats"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineParser>> LineParser::ForExampleRecords(const std::vector<Column>& columns) const {
  for (size_t i = 0; i < std::max(columns.size(), columns_.size()); ++i) {
    const std::string theirs = i < columns.size() ? Described(columns[i]) : "no more";
    const std::string ours = i < columns_.size() ? Described(columns_[i]) : "no more";
    if (theirs != ours) {
      return absl::InvalidArgumentError(absl::StrCat("its variable ", i, " is ", theirs, ", the job's reader gives ",
                                                     ours, "; convert the data again with the job's reader"));
    }
    for (size_t s = 0; s < columns[i].slot_names.size(); ++s) {
      const std::string &name = columns[i].slot_names[s], &our_name = columns_[i].slot_names[s];
      const IdKind kind = KindOf(columns[i], s), our_kind = KindOf(columns_[i], s);
      if (name == our_name && MayBeOneKind(kind, our_kind)) continue;
      const bool renamed = name != our_name;
      return absl::InvalidArgumentError(absl::StrCat("its slot ", s, " of '", columns[i].name, "' is '", name,
                                                     renamed ? "'" : absl::StrCat("' of ", KindName(kind)),
                                                     ", the job's reader gives ",
                                                     renamed ? absl::StrCat("'", our_name, "'") : KindName(our_kind),
                                                     "; convert the data again with the job's reader"));
    }
  }
  return std::make_unique<ExampleRecordParser>(columns_);
}

void RegisterLineParser(const std::string& type, LineParserFactory factory) {
  CHECK(Registry().emplace(type, std::move(factory)).second) << "two readers for " << type;
}

absl::StatusOr<std::unique_ptr<LineParser>> MakeFormatParser(const v1::Data& data) {
  if (data.has_custom()) return MakeCustom(data.custom());
  const google::protobuf::OneofDescriptor* const readers = v1::Data::descriptor()->FindOneofByName("reader");
  const google::protobuf::FieldDescriptor* const reader = data.GetReflection()->GetOneofFieldDescriptor(data, readers);
  return reader == nullptr ? NoReader(*readers) : Make(data.GetReflection()->GetMessage(data, reader));
}

}  // namespace weir
