// Rows of a table from row files (framework/checkpoint/row_file.h): a table that was trained elsewhere, or earlier.
#ifndef WEIR_PSERVER_SERVER_LOAD_ROWS_H_
#define WEIR_PSERVER_SERVER_LOAD_ROWS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "pserver/tables/sparse_table.h"

namespace weir {

// Puts the rows whose logical shards `table` holds into it, whatever number of shards the files come from. A later file
// goes over an earlier one: its rows replace, and ids that it says are removed have no row. State is that of the files,
// or that of a new row where they have none.
//
// FailedPrecondition: another width, or state that the present optimizer does not have; the text names file, expected
// and got. DataLoss: a damaged file.
absl::Status LoadRowFiles(const std::vector<std::string>& files, SparseTable* table);

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_LOAD_ROWS_H_
