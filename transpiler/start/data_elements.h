// Names of the values and slots of a job's data (framework/graph/elements.h): "cat.C7", "dense.I3"; "age" of a variable
// of one column with its name.
#ifndef WEIR_TRANSPILER_START_DATA_ELEMENTS_H_
#define WEIR_TRANSPILER_START_DATA_ELEMENTS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "framework/graph/op_registry.h"
#include "proto/job.pb.h"

namespace weir {

// Returns the names by variable. `data` has passed DataSchema.
absl::StatusOr<std::map<std::string, ElementAxes>> DataElements(const v1::Data& data);

// Returns what decides the meaning of each value and slot: how a column is read, transformed or derived, as text. Two
// jobs mean the same by a name if the texts are equal.
absl::StatusOr<std::map<std::string, std::string>> DataMeanings(const v1::Data& data);

}  // namespace weir

#endif  // WEIR_TRANSPILER_START_DATA_ELEMENTS_H_
