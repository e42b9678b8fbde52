// Values of an example by the name that a job gives them: inputs of derived variables and of row rules
// (proto/columns.proto).
#ifndef WEIR_FRAMEWORK_FORMATS_EXAMPLE_INPUT_H_
#define WEIR_FRAMEWORK_FORMATS_EXAMPLE_INPUT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/formats/example.h"
#include "framework/formats/schema.h"

namespace weir {

struct ExampleInput {
  std::string name;
  bool ids = false;
  IdKind id_kind = IdKind::kUnknown;
  // Slot, or position in Example.floats.
  size_t place = 0;
  // Its column's.
  bool learned = false;
};

// Finds an input. `field`: where the job names it, for errors. InvalidArgument: there is no such input, or several
// slots have the name.
absl::StatusOr<ExampleInput> FindInput(const std::vector<Column>& columns, const std::string& name,
                                       std::string_view field, const SettingErrors& errors);

// Returns OK if the values are numbers, and not hashes of texts.
absl::Status ExpectNumber(const ExampleInput& input, std::string_view field, const SettingErrors& errors);

// Errors of settings at `path` without a place in a file: "data.derived[0].name <text>".
class PlainSettingErrors : public SettingErrors {
 public:
  explicit PlainSettingErrors(std::string path) : path_(std::move(path)) {}
  absl::Status Error(std::string_view field, std::string_view text) const override;

 private:
  const std::string path_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_EXAMPLE_INPUT_H_
