// Builds the row update of a distributed table from the ops of its optimize block, in their order, so that an edited
// program takes effect:
//
//   [drop_bad_rows]  { clip, decay, update }...  [bound]
//
// A single update covers the whole row; without other ops the result is the update's own row rule. Each of several
// updates has its own columns [begin, end), which together cover the row from left to right (the segments of
// docs/tables.md): their states follow each other, named "0.<state>", "1.<state>", ... An update with `after` is
// inactive until its id has been in that many steps, which the last state, "steps", counts; its columns are zeros until
// then.
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
  // Initial values of new rows.
  RowInitializer initializer;
};

// Builds the update. `ops`: in the order above, at least the update. `table`: the variable [rows, width], whose
// initializer applies to columns without one of their own. `find`: returns the variables with learning rates, which
// must outlive the rule. With one update the rule uses the rate passed to RowRule::Update and `find` may be null;
// without `find` a rule of several updates can only report its states. drop_bad_rows sees the gradients that
// RowRule::Update gets; all other ops see them divided by its divisor. NotFound if an op has no row form.
// InvalidArgument for ops in another order, or columns that do not fit.
absl::StatusOr<TableUpdate> MakeTableUpdate(const v1::VarDesc& table, uint64_t seed,
                                            absl::Span<const v1::OpDesc* const> ops,
                                            const std::function<const Variable*(const std::string&)>& find);

// Returns true if the op may be one of MakeTableUpdate's `ops`.
bool HasRowForm(const v1::OpDesc& op);

// Columns [begin, end) of a row. ColumnsOf reads them from an op's attribute `columns`, and returns the whole row
// without it; InvalidArgument unless 0 <= begin < end <= width.
struct Columns {
  int begin = 0;
  int end = 0;
  bool operator==(const Columns& other) const { return begin == other.begin && end == other.end; }
};
absl::StatusOr<Columns> ColumnsOf(const v1::OpDesc& op, int width);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_TABLE_UPDATE_H_
