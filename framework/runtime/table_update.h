// What the optimize block of a distributed table does to its rows, made of the block's ops in their order, so that the
// program stays what runs:
//
//   [drop_bad_rows]  { clip, decay, update }...  [bound]
//
// With one update its columns are the whole row, and with nothing around it it is the update's own row rule. With
// several each has columns [begin, end) of its own, which together are the row from left to right (the segments of
// docs/tables.md): their states lie one after the other, named "0.<state>", "1.<state>", ... An update with `after`
// rests until its id has been in so many steps; its columns are zeros until then, and "steps", the last state, counts.
#ifndef WEIR_FRAMEWORK_RUNTIME_TABLE_UPDATE_H_
#define WEIR_FRAMEWORK_RUNTIME_TABLE_UPDATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/runtime/initial_value.h"
#include "framework/runtime/row_rule.h"
#include "framework/runtime/scope.h"
#include "proto/program.pb.h"

namespace weir {

struct TableUpdate {
  std::unique_ptr<RowRule> rule;
  // Of new rows.
  RowInitializer initializer;
};

// `ops`: as above, at least the update. `table`: the variable, whose initializer holds for columns that have none of
// their own. `find`: variables with learning rates, which outlive the rule. With one update RowRule::Update's own rate
// is used and `find` may be null; without `find` a rule of several updates only tells its states. The division by
// RowRule::Update's divisor comes first. NotFound: an op has no row form. InvalidArgument: ops in another order,
// columns that do not fit.
absl::StatusOr<TableUpdate> MakeTableUpdate(const v1::VarDesc& table, uint64_t seed,
                                            absl::Span<const v1::OpDesc* const> ops,
                                            const std::function<const Variable*(const std::string&)>& find);

// Whether an op can be among them.
bool HasRowForm(const v1::OpDesc& op);

// [begin, end) of an op's `columns`, of a row of `width`. InvalidArgument unless 0 <= begin < end <= width.
struct Columns {
  int begin = 0;
  int end = 0;
  bool operator==(const Columns& other) const { return begin == other.begin && end == other.end; }
};
absl::StatusOr<Columns> ColumnsOf(const v1::OpDesc& op, int width);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_TABLE_UPDATE_H_
