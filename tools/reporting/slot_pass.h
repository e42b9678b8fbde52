// Figures of a table's rows by the slots of a data set that use them.
#ifndef WEIR_TOOLS_REPORTING_SLOT_PASS_H_
#define WEIR_TOOLS_REPORTING_SLOT_PASS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/shard.h"
#include "tools/reporting/slot_uses.h"
#include "tools/reporting/table_pass.h"
#include "tools/reporting/table_report.pb.h"

namespace weir {

// Runs a second pass over the rows. `totals`, `options`: of the first (PassOver). `row_bytes`: of a row in the memory
// of a server. Returns one report for each slot of `uses`, and one without a name for the rows that no slot uses. A row
// that several slots use counts for each.
absl::StatusOr<std::vector<v1::SlotReport>> PassBySlot(const TableLayout& layout, absl::Span<const TableChunk> chunks,
                                                       const TableTotals& totals, const TablePassOptions& options,
                                                       int64_t row_bytes, const SlotUses& uses, ThreadPool* pool);

}  // namespace weir

#endif  // WEIR_TOOLS_REPORTING_SLOT_PASS_H_
