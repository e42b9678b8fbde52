// Describes in words what becomes of the columns of a job's data.
#ifndef WEIR_TRANSPILER_EXPLAIN_COLUMNS_H_
#define WEIR_TRANSPILER_EXPLAIN_COLUMNS_H_

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace weir {

// Returns a line for each variable of the data, in order: "dense [B, 5]: floats; STANDARDIZE, [2] LOG1P". None for data
// without a known reader.
std::vector<std::string> ColumnTexts(const v1::JobConfig& job);

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_COLUMNS_H_
