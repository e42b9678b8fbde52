// Answers of a server: messages as bytes, and callers that repeat a call.
#ifndef WEIR_PSERVER_CONSISTENCY_REPLIES_H_
#define WEIR_PSERVER_CONSISTENCY_REPLIES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "framework/membership/waiting_calls.h"
#include "framework/wire/frame.h"
#include "framework/wire/slices.h"
#include "google/protobuf/message_lite.h"
#include "pserver/protocol/transport.h"

namespace weir {

// Parses a message of at most `most` bytes. InvalidArgument names it `what`.
template <typename Message>
absl::StatusOr<Message> Parse(const Slices& bytes, std::string_view what, size_t most = kMaxMessageBytes) {
  const absl::string_view name(what.data(), what.size());
  if (TotalSize(bytes) > most) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", TotalSize(bytes), " bytes; it has at most ", most));
  }
  Message message;
  const std::string flat = Flatten(bytes);
  if (!message.ParseFromString(flat)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", flat.size(), " bytes that are no such message"));
  }
  return message;
}

inline Slices Serialize(const google::protobuf::MessageLite& message) {
  Slices slices;
  slices.push_back(Slice::Own(message.SerializeAsString()));
  return slices;
}

// Answers with a message, or with the error that stands in its place.
template <typename Message>
void Answer(const ReplyCallback& reply, const absl::StatusOr<Message>& message) {
  if (!message.ok()) return reply(message.status());
  reply(Serialize(*message));
}

// Adds a repeat of a call to those that wait for its answer. Beyond `most` the oldest one, which its caller gave up
// long ago, is answered with Unavailable.
inline void WaitAsNewest(const ReplyCallback& reply, size_t most, std::vector<ReplyCallback>* waiting,
                         Actions* actions) {
  if (waiting->size() >= most) {
    actions->push_back([oldest = std::move(waiting->front())] {
      oldest(absl::UnavailableError("the call has been repeated too often; the last repeats will be answered"));
    });
    waiting->erase(waiting->begin());
  }
  waiting->push_back(reply);
}

}  // namespace weir

#endif  // WEIR_PSERVER_CONSISTENCY_REPLIES_H_
