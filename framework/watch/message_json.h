// Messages as JSON, with the names of their fields.
#ifndef WEIR_FRAMEWORK_WATCH_MESSAGE_JSON_H_
#define WEIR_FRAMEWORK_WATCH_MESSAGE_JSON_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

namespace weir {

// Returns the JSON of a message, in which numbers that are not finite are texts: leave them out.
absl::StatusOr<std::string> MessageAsJson(const google::protobuf::Message& message);
// Reads it back; unknown fields are ignored. InvalidArgument: it is no JSON of such a message.
absl::Status MessageFromJson(std::string_view json, google::protobuf::Message* message);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WATCH_MESSAGE_JSON_H_
