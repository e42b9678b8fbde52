#include "pserver/network/grpc_bytes.h"

#include <malloc.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "framework/base/printable.h"
#include "grpcpp/support/slice.h"

namespace weir {
namespace {

// Percent-encoding makes a header at most three times as long as the text; gRPC's limit is 8 KiB.
constexpr size_t kMaxStatusText = 1900;
// Details of a status that a server made. gRPC makes its own without details.
constexpr char kSaidByServer[] = "weir";

}  // namespace

std::string ProfiledCallText(const ProfiledCall& call) { return absl::StrCat(call.id, "-", call.step); }

ProfiledCall ParseProfiledCall(std::string_view text) {
  const size_t dash = text.find('-');
  ProfiledCall call;
  if (dash == std::string_view::npos || !absl::SimpleAtoi(absl::string_view(text.data(), dash), &call.id) ||
      !absl::SimpleAtoi(absl::string_view(text.data() + dash + 1, text.size() - dash - 1), &call.step) ||
      call.step < 0) {
    return {};
  }
  return call;
}

void KeepFreedMemory() {
  static const bool done = [] {
    ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
    // Either setting ends glibc's own adjustment of both. Pieces that gRPC receives into are smaller than this.
    ::mallopt(M_MMAP_THRESHOLD, 8 << 20);
    // Libraries built without NDEBUG look for cycles of locks at every lock that gRPC takes.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    return true;
  }();
  (void)done;
}

grpc::ByteBuffer ToByteBuffer(const Slices& slices) {
  std::vector<grpc::Slice> out;
  out.reserve(slices.size());
  for (const Slice& slice : slices) {
    if (slice.owner == nullptr) {
      out.emplace_back(slice.data, slice.size);
      continue;
    }
    out.emplace_back(
        const_cast<char*>(slice.data), slice.size,
        [](void* owner) { delete static_cast<std::shared_ptr<const void>*>(owner); },
        new std::shared_ptr<const void>(slice.owner));
  }
  return grpc::ByteBuffer(out.data(), out.size());
}

Slices FromByteBuffer(const grpc::ByteBuffer& buffer) {
  auto pieces = std::make_shared<std::vector<grpc::Slice>>();
  Slices out;
  if (!buffer.Dump(pieces.get()).ok()) return out;
  // Small slices hold their bytes inside: pointers are taken when the vector no longer moves.
  for (const grpc::Slice& piece : *pieces) {
    out.push_back({reinterpret_cast<const char*>(piece.begin()), piece.size(), pieces});
  }
  return out;
}

std::string SentText(const absl::Status& error) {
  std::string text(error.message());
  if (text.size() > kMaxStatusText) {
    text.resize(kMaxStatusText);
    // Not in the middle of a character.
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.pop_back();
    if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0) text.pop_back();
    text += " ...";
  }
  return text;
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), SentText(status), kSaidByServer);
}

bool SaidByServer(const grpc::Status& status) { return status.error_details() == kSaidByServer; }

absl::Status FromGrpcStatus(const grpc::Status& status) {
  const absl::StatusCode code = static_cast<absl::StatusCode>(status.error_code());
  const bool broken = code == absl::StatusCode::kCancelled || code == absl::StatusCode::kUnknown ||
                      (code == absl::StatusCode::kInternal && absl::StrContains(status.error_message(), "RST_STREAM"));
  // Anybody may have answered.
  return absl::Status(broken ? absl::StatusCode::kUnavailable : code,
                      Printable(status.error_message(), kMostReceivedText));
}

}  // namespace weir
