#include "pserver/rendezvous/meeting_frame.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

constexpr std::string_view kMagic = "WEIRmeet";
constexpr size_t kHeader = kMagic.size() + 4;

absl::Status NotOurs() { return absl::InvalidArgumentError("these bytes are no message of a Weir rendezvous"); }

// Parses the one message that is all of `bytes`.
template <typename Message>
absl::StatusOr<Message> DecodeOne(std::string_view bytes, size_t largest) {
  MeetingFrames frames(largest);
  frames.Append(bytes);
  ASSIGN_OR_RETURN(const std::optional<std::string> text, frames.Next());
  Message message;
  if (!text.has_value() || bytes.size() != kHeader + text->size() || !message.ParseFromString(*text)) return NotOurs();
  return message;
}

}  // namespace

std::string EncodeMeetingFrame(const google::protobuf::MessageLite& message) {
  const std::string text = message.SerializeAsString();
  std::string bytes(kMagic);
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>((text.size() >> shift) & 0xff));
  return bytes + text;
}

absl::StatusOr<std::optional<std::string>> MeetingFrames::Next() {
  const size_t known = std::min(bytes_.size(), kMagic.size());
  if (std::string_view(bytes_).substr(0, known) != kMagic.substr(0, known)) return NotOurs();
  if (bytes_.size() < kHeader) return std::optional<std::string>();
  size_t length = 0;
  for (size_t i = kHeader; i-- > kMagic.size();) length = length << 8 | static_cast<uint8_t>(bytes_[i]);
  if (length > largest_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of a rendezvous has ", length, " bytes; at most ", largest_, " are read"));
  }
  if (bytes_.size() < kHeader + length) return std::optional<std::string>();
  std::string message = bytes_.substr(kHeader, length);
  bytes_.erase(0, kHeader + length);
  return std::optional<std::string>(std::move(message));
}

absl::StatusOr<v1::RendezvousGreeting> DecodeGreeting(std::string_view bytes) {
  return DecodeOne<v1::RendezvousGreeting>(bytes, kLargestGreeting);
}

absl::StatusOr<v1::RendezvousAnswer> DecodeAnswer(std::string_view bytes) {
  return DecodeOne<v1::RendezvousAnswer>(bytes, kLargestAnswer);
}

}  // namespace weir
