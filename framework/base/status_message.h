// Conversions between absl::Status and the message in which processes tell each other of it.
#ifndef WEIR_FRAMEWORK_BASE_STATUS_MESSAGE_H_
#define WEIR_FRAMEWORK_BASE_STATUS_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "proto/status.pb.h"

namespace weir {

// Returns the message of a status, with at most `most` bytes of its text. That of OK is empty.
v1::Status StatusMessage(const absl::Status& status, size_t most = SIZE_MAX);

// Returns the status of a message. OK only if the message has neither a code nor a text: an unknown code, or 0 with a
// text, becomes Unknown. `most`: the text is from a stranger, and becomes Printable(text, *most); by default it stays
// as it is.
absl::Status StatusOf(const v1::Status& message, std::optional<size_t> most = std::nullopt);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_STATUS_MESSAGE_H_
