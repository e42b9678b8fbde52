// Measures the tables of a checkpoint: `checkpoint report`. One pass over the rows, on all cores; memory is 8 MiB of
// rows and 2 MiB for each column of a row per thread, and 64 MiB for each column whose quantiles are exact.
#ifndef WEIR_TOOLS_REPORTING_REPORT_H_
#define WEIR_TOOLS_REPORTING_REPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/directory.h"
#include "tools/reporting/column.h"
#include "tools/reporting/slot_uses.h"
#include "tools/reporting/table_report.pb.h"

namespace weir {

struct ReportOptions {
  // This table alone; "": all.
  std::string table = {};
  // Numbers of a column that are kept for exact quantiles; longer ones come from a histogram. For tests.
  int64_t exact_column = kExactColumn;
  // Compares the checksums of all files with those of the manifest, beside the pass over the rows. false:
  // OpenCheckpoint has done so.
  bool check_sums = false;
  // Ids by table and slot, for figures of each slot, which take a second pass. Borrowed; null: none.
  const SlotUsesByTable* slots = nullptr;
  // Rows are read on its workers and on the calling thread. Borrowed.
  ThreadPool* pool = nullptr;
};

// Reports on a checkpoint whose files have the sizes that its manifest says. Digests are computed again (of all
// variables, unless `table` is set), and must be those of the manifest. Figures do not depend on the number of threads.
//
// NotFound if there is no such table (lists the tables). DataLoss if digests differ or a file is damaged, as
// `checkpoint verify` says it.
absl::StatusOr<v1::CheckpointReport> ReportOn(const NewestCheckpoint& opened, const ReportOptions& options);

// Returns the report as lines for people.
std::string ReportText(const v1::CheckpointReport& report);

}  // namespace weir

#endif  // WEIR_TOOLS_REPORTING_REPORT_H_
