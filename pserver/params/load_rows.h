// Loads rows of a table from row files (framework/checkpoint/row_file.h): of a table trained elsewhere, or earlier.
#ifndef WEIR_PSERVER_PARAMS_LOAD_ROWS_H_
#define WEIR_PSERVER_PARAMS_LOAD_ROWS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weir {

class SparseTable;

// Loads the rows whose logical shards `table` holds, from files written with any number of shards. A later file
// overrides an earlier one: its rows replace, and ids that it lists as removed have no row. State comes from the files;
// where they have none, a row gets the state of a new row.
//
// FailedPrecondition: another width, or state that the present optimizer does not have; the text names file, expected
// and got. DataLoss: a damaged file.
absl::Status LoadRowFiles(const std::vector<std::string>& files, SparseTable* table);

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_LOAD_ROWS_H_
