// Schema of formats with named slots or columns; the parsers lay theirs out with formats/slot_columns.h.
#ifndef WEIR_FRAMEWORK_FORMATS_SLOT_SCHEMA_H_
#define WEIR_FRAMEWORK_FORMATS_SLOT_SCHEMA_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/formats/schema.h"
#include "proto/program.pb.h"

namespace weir {

// Collects the variables of slots: slots with one output stand side by side in one variable. Paths are those of fields
// in the format's message. Not thread-safe.
class SlotSchema {
 public:
  // `what`: the format's word for a slot ("slot", "column"). `own`: variables that the format gives besides.
  SlotSchema(std::string_view what, const SettingErrors& errors, std::vector<v1::VarDesc> own = {});

  // Checks that the slot at `path` has a name that no earlier one has.
  absl::Status Name(const std::string& name, const std::string& path);
  // Adds a slot to the variable `output`. `columns`: values of a slot of floats, 1 for ids; `field`: where they are
  // set.
  absl::Status Add(const std::string& output, v1::VarKind kind, int64_t columns, const std::string& path,
                   const std::string& field);
  // Returns the variables in order of their first slots. An error if there was no slot; `unless` ends its text.
  absl::StatusOr<std::vector<v1::VarDesc>> Finish(std::string_view unless) &&;

 private:
  const std::string what_;
  const SettingErrors& errors_;
  const size_t own_;  // number of variables that are the format's own, the first in vars_
  std::vector<v1::VarDesc> vars_;
  std::set<std::string> names_;
  int64_t floats_ = 0;
};

// Checks the number of values of the slot at `path`. `for_ids`: text of the error if it is set for a slot of ids.
absl::Status CheckSlotDim(int64_t dim, bool is_float, bool is_set, const std::string& path, std::string_view for_ids,
                          const SettingErrors& errors);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_SLOT_SCHEMA_H_
