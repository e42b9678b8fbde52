// Variables that a data format gives to a program, as its settings say. A format registers a rule beside its parser
// (framework/formats/line_parser.h), in the same file. The transpiler applies it (transpiler/job/data_schema.h).
#ifndef WEIR_FRAMEWORK_FORMATS_SCHEMA_H_
#define WEIR_FRAMEWORK_FORMATS_SCHEMA_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "proto/program.pb.h"

namespace weir {

// Makes the errors of a format's settings.
class SettingErrors {
 public:
  virtual ~SettingErrors() = default;
  // Returns InvalidArgument with the place and the path of a field: for "column[0].dim" of data.csv
  // "job.textproto:5:3: data.csv.column[0].dim <text>".
  virtual absl::Status Error(std::string_view field, std::string_view text) const = 0;
};

// Maximum number of floats or slots of one variable from data, and of all float variables together: far beyond any use,
// and small enough that no product of sizes comes near the limit of its type.
inline constexpr int64_t kMaxColumns = 1 << 20;

// Returns the description of one variable: DENSE [-1, columns] float32, IDS [-1, columns] int64, where columns are
// slots. stop_gradient is set.
v1::VarDesc DataVariable(std::string_view name, v1::VarKind kind, int64_t columns);

// Returns the variables of a format with these settings, in the order of its parser's columns.
using SchemaRule =
    std::function<absl::StatusOr<std::vector<v1::VarDesc>>(const google::protobuf::Message&, const SettingErrors&)>;

// Adds a rule. CHECK-fails if the format has one. For static initializers.
void RegisterDataSchema(const google::protobuf::Descriptor* format, SchemaRule rule);

// Returns the rule of a format by its name: the member of v1::Data.reader ("csv"), for a message in data.custom the
// full name ("my.package.Reader"). Null: there is no such format in this program.
const SchemaRule* FindDataSchema(const std::string& name);
// Returns the names of all formats, sorted.
std::vector<std::string> DataFormatNames();

namespace internal {
template <typename Config>
struct DataSchemaRegistration {
  using Rule = absl::StatusOr<std::vector<v1::VarDesc>> (*)(const Config&, const SettingErrors&);
  explicit DataSchemaRegistration(Rule rule) {
    RegisterDataSchema(Config::descriptor(),
                       [rule](const google::protobuf::Message& config, const SettingErrors& errors) {
                         return rule(static_cast<const Config&>(config), errors);
                       });
  }
};
}  // namespace internal

// Registers a rule: WEIR_REGISTER_DATA_SCHEMA(v1::Criteo, CriteoSchema), where CriteoSchema(const v1::Criteo&, const
// SettingErrors&) returns absl::StatusOr<std::vector<v1::VarDesc>>. One per file.
#define WEIR_REGISTER_DATA_SCHEMA(Config, rule) \
  static const ::weir::internal::DataSchemaRegistration<Config> weir_data_schema_registration(rule)

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_SCHEMA_H_
