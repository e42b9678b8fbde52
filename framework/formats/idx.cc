// Examples of IDX files: unsigned bytes, which become value / 255, and behind them a label where the files have labels.

#include <array>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/schema.h"

namespace weir {
namespace {

std::array<float, 256> Fractions() {
  std::array<float, 256> fractions;
  for (size_t i = 0; i < fractions.size(); ++i) fractions[i] = static_cast<float>(i) / 255.0f;
  return fractions;
}

class IdxParser : public LineParser {
 public:
  IdxParser(std::vector<Column> columns, int64_t values)
      : LineParser(std::move(columns)), values_(static_cast<size_t>(values)), fractions_(Fractions()) {}

  absl::Status Parse(std::string_view record, Example* example) const override {
    if (record.size() != values_ && record.size() != values_ + 1) {
      return absl::InternalError(
          absl::StrCat("an example of ", record.size(), " bytes where ", values_, " are values"));
    }
    example->ids.clear();
    example->weights.clear();
    example->floats[0] = record.size() == values_ ? std::numeric_limits<float>::quiet_NaN() : Byte(record[values_]);
    for (size_t i = 0; i < values_; ++i) example->floats[i + 1] = fractions_[Byte(record[i])];
    return absl::OkStatus();
  }

 private:
  static uint8_t Byte(char c) { return static_cast<uint8_t>(c); }

  const size_t values_;
  const std::array<float, 256> fractions_;
};

absl::StatusOr<std::unique_ptr<LineParser>> MakeIdxParser(const v1::Idx& config) {
  if (config.values() < 1)
    return absl::InvalidArgumentError(absl::StrCat("data.idx.values must be at least 1, got ", config.values()));
  if (config.output().empty() || config.output() == "label") {
    return absl::InvalidArgumentError(
        absl::StrCat("data.idx.output must be a name other than 'label', got '", config.output(), "'"));
  }
  std::vector<Column> columns = {{.name = "label"}, {.name = config.output(), .width = config.values()}};
  return std::make_unique<IdxParser>(std::move(columns), config.values());
}

absl::StatusOr<std::vector<v1::VarDesc>> IdxSchema(const v1::Idx& m, const SettingErrors& at) {
  // With the label beside them.
  if (m.values() < 1 || m.values() >= kMaxColumns) {
    return at.Error("values", absl::StrCat("must be at least 1 and below ", kMaxColumns, ", got ", m.values()));
  }
  if (m.output().empty() || m.output() == "label") {
    return at.Error("output", absl::StrCat("must be a name, and not 'label', which the format itself gives; got '",
                                           m.output(), "'"));
  }
  return std::vector<v1::VarDesc>{DataVariable("label", v1::DENSE, 1), DataVariable(m.output(), v1::DENSE, m.values())};
}

WEIR_REGISTER_DATA_SCHEMA(v1::Idx, IdxSchema);
WEIR_REGISTER_LINE_PARSER(v1::Idx, MakeIdxParser);

}  // namespace
}  // namespace weir
