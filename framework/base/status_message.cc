#include "framework/base/status_message.h"

#include <string>

#include "framework/base/printable.h"

namespace weir {

v1::Status StatusMessage(const absl::Status& status, size_t most) {
  v1::Status message;
  if (status.ok()) return message;
  message.set_code(static_cast<int>(status.code()));
  message.set_message(std::string(status.message().substr(0, most)));
  return message;
}

absl::Status StatusOf(const v1::Status& message, std::optional<size_t> most) {
  if (message.code() == 0 && message.message().empty()) return absl::OkStatus();
  const bool known = message.code() > 0 && message.code() <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(message.code()) : absl::StatusCode::kUnknown,
                      most.has_value() ? Printable(message.message(), *most) : message.message());
}

}  // namespace weir
