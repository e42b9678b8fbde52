// Attribute `columns` of ops that work on part of each row of a table (framework/runtime/table_update.h): [begin, end),
// empty for all. Used only by the row forms.
#ifndef WEIR_OPS_COLUMNS_H_
#define WEIR_OPS_COLUMNS_H_

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/op_registry.h"

namespace weir {

inline AttrDef ColumnsAttr() { return IntsAttr("columns"); }

// `rows_of_table`: true if the op may have the attribute here. `width`: floats per row.
inline absl::Status CheckColumns(InferContext& ctx, bool rows_of_table, int64_t width) {
  const std::vector<int64_t> columns = ctx.attrs().Ints("columns");
  if (columns.empty()) return absl::OkStatus();
  if (!rows_of_table) return ctx.Error("columns are for rows of tables");
  if (columns.size() == 2 && 0 <= columns[0] && columns[0] < columns[1] && columns[1] <= width) return absl::OkStatus();
  return ctx.Error(std::string(absl::StrCat("columns must be [begin, end) of the ", width, " of a row, none for all")));
}

// Returns the fraction of the elements of `shape` that the op works on.
inline double ColumnsShare(InferContext& ctx, const Shape& shape) {
  const std::vector<int64_t> columns = ctx.attrs().Ints("columns");
  if (columns.size() != 2 || shape.empty()) return 1;
  return static_cast<double>(columns[1] - columns[0]) / static_cast<double>(std::max<int64_t>(shape.back(), 1));
}

}  // namespace weir

#endif  // WEIR_OPS_COLUMNS_H_
