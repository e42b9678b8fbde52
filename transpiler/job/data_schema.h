// Variables that a job's data gives to its program.
#ifndef WEIR_TRANSPILER_JOB_DATA_SCHEMA_H_
#define WEIR_TRANSPILER_JOB_DATA_SCHEMA_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"
#include "transpiler/base/setting.h"

namespace weir {

// Returns the variables in the order of the reader's columns. DENSE: [-1, columns] float32. IDS: [-1, slots] int64. All
// stop_gradient. criteo: "label", "dense", "cat". multi_slot: one per output, in order of its first slot.
// InvalidArgument as in other checks of a job; `data` is a v1::Data.
absl::StatusOr<std::vector<v1::VarDesc>> DataSchema(const Setting& data);

// Maximum number of floats or slots of one variable from data, and of all float variables together: far beyond any use,
// and small enough that no product of sizes comes near the limit of its type.
inline constexpr int64_t kMaxColumns = 1 << 20;

// Returns the description of one variable. columns: floats or slots.
v1::VarDesc DataVariable(std::string_view name, v1::VarKind kind, int64_t columns);

// Rule of a reader, registered by the member of v1::Data.reader or by the type of the message in `custom`.
using SchemaRule =
    std::function<absl::StatusOr<std::vector<v1::VarDesc>>(const google::protobuf::Message&, const Setting&)>;
KindRegistry<SchemaRule>& SchemaRegistry();

template <typename M>
struct SchemaRegistrar {
  using Function = absl::StatusOr<std::vector<v1::VarDesc>> (*)(const M&, const Setting&);
  SchemaRegistrar(const std::string& key, Function rule) {
    SchemaRegistry().Register(key, [rule](const google::protobuf::Message& message, const Setting& at) {
      return rule(static_cast<const M&>(message), at);
    });
  }
};
// Use at namespace scope. `name`: the member of v1::Data.reader.
#define REGISTER_DATA_SCHEMA(name, Message, ...) \
  static const ::weir::SchemaRegistrar<Message> weir_schema_##name(#name, __VA_ARGS__)
#define REGISTER_CUSTOM_DATA_SCHEMA(name, Message, ...) \
  static const ::weir::SchemaRegistrar<Message> weir_schema_##name(Message::descriptor()->full_name(), __VA_ARGS__)

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_DATA_SCHEMA_H_
