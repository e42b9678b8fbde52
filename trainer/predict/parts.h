// Parts of examples whose importance is measured: values of float columns, and slots of ids.
#ifndef WEIR_TRAINER_PREDICT_PARTS_H_
#define WEIR_TRAINER_PREDICT_PARTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/formats/example.h"
#include "proto/job.pb.h"

namespace weir {

// A value of a float column, or a slot of a column of ids.
struct InputPlace {
  size_t column = 0;  // of the reader
  int64_t at = 0;     // in the column
  // Of a slot: the id that an example without one has (framework/base/feature_id.h).
  int64_t missing_id = 0;
};

struct Part {
  std::string name;
  std::vector<InputPlace> places;  // altered together, at least one
};

// Returns the name of a place: that of a column of width 1; else "cat.C7", or "dense[3]" of a value without a name.
std::string PlaceName(const Column& column, int64_t at);

// Returns the parts of the columns at these indexes, in their order. `wanted`: patterns (RE2) of the names of places
// that are measured; empty: all. `together`: names of places or columns with + between them ("item+category"), which
// are one part. InvalidArgument: a pattern or name that matches nothing, lists the names; a place that two of
// `together` name.
absl::StatusOr<std::vector<Part>> MakeParts(const v1::Data& data, const std::vector<Column>& columns,
                                            const std::vector<size_t>& read, const std::vector<std::string>& wanted,
                                            const std::vector<std::string>& together);

}  // namespace weir

#endif  // WEIR_TRAINER_PREDICT_PARTS_H_
