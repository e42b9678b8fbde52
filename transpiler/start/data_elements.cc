#include "transpiler/start/data_elements.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/formats/derived.h"
#include "framework/formats/line_parser.h"
#include "framework/graph/elements.h"

namespace weir {

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
      axis.push_back({.of = name == column.name ? name : absl::StrCat(column.name, ".", name)});
    }
    elements[column.name] = {std::move(axis)};
  }
  return elements;
}

}  // namespace weir
