// Helpers for messages of calls without a payload.
#ifndef WEIR_PSERVER_MEMBER_MESSAGES_H_
#define WEIR_PSERVER_MEMBER_MESSAGES_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "framework/wire/frame.h"
#include "framework/wire/slices.h"
#include "google/protobuf/message.h"

namespace weir {

// Returns the serialized message.
inline Slices MessageBytes(const google::protobuf::Message& message) {
  Slices bytes;
  bytes.push_back(Slice::Own(message.SerializeAsString()));
  return bytes;
}

// Parses an answer. DataLoss: the bytes are no such message.
template <typename Message>
absl::StatusOr<Message> ParseMessage(const Slices& answer) {
  Message message;
  if (message.ParseFromString(Flatten(answer))) return message;
  return absl::DataLossError(absl::StrCat("no ", Message::descriptor()->name()));
}

// Returns true for errors that ask the caller to repeat the call.
inline bool IsRetryable(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kDeadlineExceeded;
}

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_MESSAGES_H_
