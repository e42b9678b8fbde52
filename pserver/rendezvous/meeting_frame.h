// Messages of a rendezvous as bytes of a connection or a file: eight bytes that say whose they are, the length of the
// message (4 bytes, little-endian), the message.
#ifndef WEIR_PSERVER_RENDEZVOUS_MEETING_FRAME_H_
#define WEIR_PSERVER_RENDEZVOUS_MEETING_FRAME_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "google/protobuf/message_lite.h"
#include "proto/rendezvous.pb.h"

namespace weir {

// Largest greeting, which trainer 0 reads from anybody, and largest answer: addresses of some ten thousand processes.
inline constexpr size_t kLargestGreeting = 8 << 10;
inline constexpr size_t kLargestAnswer = 4 << 20;

std::string EncodeMeetingFrame(const google::protobuf::MessageLite& message);

// Cuts bytes into messages as they come. Not thread-safe.
class MeetingFrames {
 public:
  explicit MeetingFrames(size_t largest) : largest_(largest) {}

  void Append(std::string_view bytes) { bytes_.append(bytes); }
  // Returns the next message; nothing if it is not whole yet. InvalidArgument, at the first wrong byte, if the bytes
  // are something else, or the message is too large.
  absl::StatusOr<std::optional<std::string>> Next();

 private:
  const size_t largest_;
  std::string bytes_;
};

// Returns the greeting that is all of `bytes`. InvalidArgument if they are something else.
absl::StatusOr<v1::RendezvousGreeting> DecodeGreeting(std::string_view bytes);
// Returns the answer that is all of `bytes`. InvalidArgument if they are something else.
absl::StatusOr<v1::RendezvousAnswer> DecodeAnswer(std::string_view bytes);

}  // namespace weir

#endif  // WEIR_PSERVER_RENDEZVOUS_MEETING_FRAME_H_
