// Variables that a job's data gives to its program.
#ifndef WEIR_TRANSPILER_JOB_DATA_SCHEMA_H_
#define WEIR_TRANSPILER_JOB_DATA_SCHEMA_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/formats/schema.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"
#include "transpiler/base/setting.h"

namespace weir {

// Returns the variables in the order of the reader's columns. DENSE: [-1, columns] float32. IDS: [-1, slots] int64. All
// stop_gradient. criteo: "label", "dense", "cat". multi_slot: one per output, in order of its first slot. Those of
// data.partition and of data.derived follow. InvalidArgument as in other checks of a job; `data` is a v1::Data.
absl::StatusOr<std::vector<v1::VarDesc>> DataSchema(const Setting& data);

// Returns the float variables whose values are learned from the data: classes of a column, frequencies. `data` has
// passed DataSchema.
absl::StatusOr<std::set<std::string>> LearnedFloats(const v1::Data& data);

// Returns the ids variables that have the id space of another one, and that one: drawn negatives, and what they are no
// values of. `data` has passed DataSchema.
absl::StatusOr<std::map<std::string, std::string>> SharedIdSpaces(const v1::Data& data);

// Checks data.train.where and data.eval.where.
absl::Status CheckRowRules(const Setting& data);
// Checks data.may_be_absent: names of inputs that the reader looks for by name.
absl::Status CheckMayBeAbsent(const Setting& data);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_DATA_SCHEMA_H_
