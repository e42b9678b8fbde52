#include "transpiler/job/data_schema.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/formats/derived.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/partitions.h"
#include "framework/formats/row_filter.h"
#include "proto/job.pb.h"

namespace weir {
namespace {

class ErrorsOf : public SettingErrors {
 public:
  // `setting` is borrowed.
  explicit ErrorsOf(const Setting& setting) : setting_(setting) {}
  absl::Status Error(std::string_view field, std::string_view text) const override {
    return setting_.Error(field, text);
  }

 private:
  const Setting& setting_;
};

}  // namespace

absl::StatusOr<std::vector<v1::VarDesc>> DataSchema(const Setting& data) {
  ASSIGN_OR_RETURN(const Kind kind, KindOf(data, "reader"));
  const SchemaRule* const rule = FindDataSchema(kind.key);
  if (rule == nullptr) {
    return kind.setting.Error("", absl::StrCat("is no reader that is linked into this program; there are ",
                                               absl::StrJoin(DataFormatNames(), ", ")));
  }
  ASSIGN_OR_RETURN(std::vector<v1::VarDesc> schema, (*rule)(kind.setting.message(), ErrorsOf(kind.setting)));
  const auto& config = static_cast<const v1::Data&>(data.message());
  if (config.derived_size() == 0 && config.partition_size() == 0) return schema;
  std::vector<std::string> names;
  for (const v1::VarDesc& var : schema) names.push_back(var.name());
  RETURN_IF_ERROR(CheckPartitions(config.partition(), names, ErrorsOf(data)));
  ASSIGN_OR_RETURN(std::unique_ptr<LineParser> parser, MakeReaderParser(config));
  if (config.derived_size() > 0) {
    ASSIGN_OR_RETURN(parser, Derive(std::move(parser), config.derived(), /*learned=*/nullptr, ErrorsOf(data)));
  }
  for (size_t c = schema.size(); c < parser->columns().size(); ++c) {
    const Column& column = parser->columns()[c];
    schema.push_back(DataVariable(column.name, column.kind, column.width));
  }
  return schema;
}

absl::StatusOr<std::set<std::string>> LearnedFloats(const v1::Data& data) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeLineParser(data));
  std::set<std::string> learned;
  for (const Column& column : parser->columns()) {
    if (column.learned && column.kind == v1::DENSE) learned.insert(column.name);
  }
  return learned;
}

absl::StatusOr<std::map<std::string, std::string>> SharedIdSpaces(const v1::Data& data) {
  std::map<std::string, std::string> spaces;
  if (data.derived_size() == 0) return spaces;
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeLineParser(data));
  for (const Column& column : parser->columns()) {
    if (!column.ids_of.empty()) spaces.emplace(column.name, column.ids_of);
  }
  return spaces;
}

absl::Status CheckMayBeAbsent(const Setting& data) {
  const auto& config = static_cast<const v1::Data&>(data.message());
  if (config.may_be_absent_size() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeReaderParser(config));
  const std::vector<NamedInput> inputs = parser->named_inputs();
  for (int i = 0; i < config.may_be_absent_size(); ++i) {
    const std::string& name = config.may_be_absent(i);
    if (std::any_of(inputs.begin(), inputs.end(), [&](const NamedInput& input) { return input.name == name; }))
      continue;
    return data.Error(absl::StrCat("may_be_absent[", i, "]"),
                      absl::StrCat("'", name,
                                   inputs.empty() ? "': the reader looks for nothing by name in the data's records"
                                                  : "' is nothing that the reader looks for by name"));
  }
  return absl::OkStatus();
}

absl::Status CheckRowRules(const Setting& data) {
  const auto& config = static_cast<const v1::Data&>(data.message());
  for (const auto& [source, path] :
       {std::pair{&config.train(), "train.where"}, std::pair{&config.eval(), "eval.where"}}) {
    if (source->where_size() == 0) continue;
    ASSIGN_OR_RETURN(const std::unique_ptr<LineParser> parser, MakeLineParser(config));
    RETURN_IF_ERROR(RowFilter::Create(parser->columns(), source->where(), path, ErrorsOf(data)).status());
  }
  return absl::OkStatus();
}

}  // namespace weir
