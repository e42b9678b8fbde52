#include "framework/collective/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"

namespace weir {

namespace {

constexpr int kHeaderPhase = 3;
constexpr int kNumberBits = 30, kPhaseBits = 2;
// Period at which a wait checks whether the job has failed.
constexpr absl::Duration kLook = absl::Milliseconds(100);

const ProfileName kOthersName("another trainer");

std::string ShapeText(const v1::CollectiveHeader& header) {
  return header.shape().empty() ? "" : absl::StrCat("[", absl::StrJoin(header.shape(), ", "), "]");
}

std::string RootText(const v1::CollectiveHeader& header) {
  return header.root() < 0 ? "none" : absl::StrCat(header.root());
}

}  // namespace

std::string DescribeOperation(const v1::CollectiveHeader& header) {
  std::string text = absl::StrCat("operation ", header.sequence(), ", ", header.operation(), " '", header.name(), "'");
  if (!header.type().empty()) absl::StrAppend(&text, " of ", header.type());
  if (!header.shape().empty()) absl::StrAppend(&text, " ", ShapeText(header));
  if (!header.reduction().empty()) absl::StrAppend(&text, ", ", header.reduction());
  if (header.root() >= 0) absl::StrAppend(&text, ", root ", header.root());
  return text;
}

absl::Status CheckSameOperation(const v1::CollectiveHeader& mine, const std::string& self,
                                const v1::CollectiveHeader& theirs, const std::string& other) {
  const struct {
    const char* what;
    std::string mine, theirs;
  } fields[] = {
      {"number", absl::StrCat(mine.sequence()), absl::StrCat(theirs.sequence())},
      {"kind", mine.operation(), theirs.operation()},
      {"name", mine.name(), theirs.name()},
      {"type", mine.type(), theirs.type()},
      {"shape", ShapeText(mine), ShapeText(theirs)},
      {"reduction", mine.reduction(), theirs.reduction()},
      {"root", RootText(mine), RootText(theirs)},
      {"number of lanes", absl::StrCat(mine.lanes()), absl::StrCat(theirs.lanes())},
      {"hash of the borders of slices and segments", absl::StrCat(mine.slices()), absl::StrCat(theirs.slices())},
      {"size of messages", absl::StrCat(mine.message_bytes()), absl::StrCat(theirs.message_bytes())},
  };
  for (const auto& field : fields) {
    if (field.mine == field.theirs) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the ranks are at different operations (", field.what, " ", field.mine, " and ", field.theirs,
                     "): ", self, " at ", DescribeOperation(mine), "; ", other, " at ", DescribeOperation(theirs),
                     ". All ranks must begin the same operations in the same order"));
  }
  return absl::OkStatus();
}

MessageMemory::Block MessageMemory::Take(size_t bytes) {
  for (Block& block : free_) {
    // Blocks of one operation have one size; much larger ones are left to larger messages.
    if (block.bytes < bytes || block.bytes > 2 * bytes) continue;
    Block taken = std::move(block);
    block = std::move(free_.back());
    free_.pop_back();
    free_bytes_ -= taken.bytes;
    return taken;
  }
  return {.data = std::make_unique_for_overwrite<char[]>(bytes), .bytes = bytes};
}

void MessageMemory::Give(Block block) {
  if (block.data == nullptr || block.bytes > kMostBytes) return;
  while (free_bytes_ + block.bytes > kMostBytes) {
    free_bytes_ -= free_.front().bytes;
    free_.erase(free_.begin());
  }
  free_bytes_ += block.bytes;
  free_.push_back(std::move(block));
}

Operation::Operation(Mesh* mesh, const CollectiveWaits* waits, MessageMemory* memory, v1::CollectiveHeader header,
                     std::function<void(const absl::Status&)> failed, const CollectiveCounters* counters)
    : mesh_(*mesh),
      waits_(*waits),
      memory_(*memory),
      header_(std::move(header)),
      failed_(std::move(failed)),
      counters_(counters),
      moved_(Clock::Real()->Now()),
      warned_(moved_) {}

absl::Status Operation::Fail(absl::Status status) {
  if (!status.ok()) failed_(status);
  return status;
}

uint64_t Operation::Tag(int phase, int64_t number) const {
  CHECK(number >= 0 && number < int64_t{1} << kNumberBits);
  return (static_cast<uint64_t>(header_.sequence()) << kPhaseBits | static_cast<uint64_t>(phase)) << kNumberBits |
         static_cast<uint64_t>(number);
}

Operation::Message Operation::Send(int peer, int phase, int64_t number, const void* data, size_t bytes) {
  if (bytes == 0) return {peer, nullptr};
  if (counters_ != nullptr) counters_->Sent(bytes);
  return {peer, mesh_.Send(peer, Tag(phase, number), data, bytes)};
}

Operation::Message Operation::Receive(int peer, int phase, int64_t number, void* data, size_t bytes) {
  if (bytes == 0) return {peer, nullptr};
  if (counters_ != nullptr) counters_->Received(bytes);
  return {peer, mesh_.Receive(peer, Tag(phase, number), data, bytes)};
}

absl::Status Operation::Wait(Message* message) { return Fail(WaitFor(message)); }

void Operation::Moved() { moved_ = warned_ = Clock::Real()->Now(); }

absl::Status Operation::StillWaits(int peer, std::string_view why) {
  const absl::Time now = Clock::Real()->Now();
  if (waits_.job) RETURN_IF_ERROR(waits_.job());
  if (waits_.excused && waits_.excused()) Moved();
  const std::string reason = why.empty() ? "" : absl::StrCat(" (", std::string(why), ")");
  if (now - moved_ > waits_.deadline) {
    return absl::DeadlineExceededError(absl::StrCat(DescribeOperation(header_), ": nothing from ", mesh_.Describe(peer),
                                                    " for ", absl::FormatDuration(waits_.deadline), reason));
  }
  if (now - warned_ >= waits_.warning) {
    warned_ = now;
    LOG(WARNING) << mesh_.Describe(rank()) << ": " << DescribeOperation(header_) << " waits for "
                 << mesh_.Describe(peer) << ", for " << absl::ToInt64Seconds(now - moved_) << " s" << reason;
  }
  return absl::OkStatus();
}

absl::Status Operation::WaitFor(Message* message) {
  if (message->transfer == nullptr) return absl::OkStatus();
  ProfileSpan span(ProfiledStep::current(), ProfileKind::kWait, kOthersName);
  if (span.event() != nullptr) span.event()->detail = ProfileName(mesh_.Describe(message->peer));
  while (true) {
    absl::Status status = message->transfer->Wait(kLook);
    if (status.ok()) {
      message->transfer.reset();
      Moved();
      return status;
    }
    if (!absl::IsDeadlineExceeded(status)) {
      return absl::Status(status.code(), absl::StrCat(DescribeOperation(header_), ": ", status.message()));
    }
    RETURN_IF_ERROR(StillWaits(message->peer, std::string(status.message())));
  }
}

absl::Status Operation::WaitAll(std::vector<Message>* messages) {
  for (Message& message : *messages) RETURN_IF_ERROR(Wait(&message));
  messages->clear();
  return absl::OkStatus();
}

absl::Status Operation::WaitForOldest(size_t most, std::deque<std::vector<Message>>* lists) {
  while (lists->size() > most) {
    RETURN_IF_ERROR(WaitAll(&lists->front()));
    lists->pop_front();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Operation::HeaderMessage(const std::vector<std::string_view>& attached) const {
  const std::string text = header_.SerializeAsString();
  const auto length = static_cast<uint32_t>(text.size());
  const size_t room = kOperationHeaderBytes - sizeof(length);
  if (length > room) {
    return absl::InvalidArgumentError(absl::StrCat(DescribeOperation(header_), ": its name, shape and addends take ",
                                                   length, " bytes, at most ", room, " are possible"));
  }
  std::string message;
  size_t bytes = kOperationHeaderBytes;
  for (const std::string_view each : attached) bytes += each.size();
  message.reserve(bytes);
  message.append(reinterpret_cast<const char*>(&length), sizeof(length)).append(text).append(room - length, '\0');
  for (const std::string_view each : attached) message.append(each);
  return message;
}

absl::Status Operation::SendHeaders(const std::vector<int64_t>& counts) {
  sent_headers_.reserve(static_cast<size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) {
    if (!counts.empty()) header_.set_count(counts[static_cast<size_t>(peer)]);
    if (peer == rank()) continue;
    if (sent_headers_.empty() || !counts.empty()) {
      absl::StatusOr<std::string> message = HeaderMessage({});
      if (!message.ok()) return Fail(message.status());
      sent_headers_.push_back(*std::move(message));
    }
    const std::string& bytes = sent_headers_.back();
    header_sends_.push_back(Send(peer, kHeaderPhase, 0, bytes.data(), bytes.size()));
  }
  return absl::OkStatus();
}

absl::Status Operation::SendAttached(const std::vector<std::string_view>& attached) {
  CHECK(attaches());
  absl::StatusOr<std::string> message = HeaderMessage(attached);
  if (!message.ok()) return Fail(message.status());
  sent_headers_ = {*std::move(message)};
  const std::string& bytes = sent_headers_[0];
  // Begin with the next rank, so that not all ranks send to the same one first.
  for (int i = 1; i < size(); ++i) {
    const int peer = (rank() + i) % size();
    if (counters_ != nullptr) counters_->Sent(bytes.size());
    header_sends_.push_back({peer, mesh_.SendPatiently(peer, Tag(kHeaderPhase, 0), bytes.data(), bytes.size())});
  }
  return absl::OkStatus();
}

void Operation::AskForHeaders() {
  if (!received_headers_.empty()) return;
  received_headers_.resize(static_cast<size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    std::string& bytes = received_headers_[static_cast<size_t>(peer)];
    if (attaches()) {
      // The other rank may have begun something else, with any bytes behind its header.
      header_receives_.push_back(
          {peer, mesh_.ReceiveAny(peer, Tag(kHeaderPhase, 0), kOperationHeaderBytes + kMostAttachedBytes, &bytes)});
    } else {
      bytes.resize(kOperationHeaderBytes);
      header_receives_.push_back(Receive(peer, kHeaderPhase, 0, bytes.data(), bytes.size()));
    }
  }
}

absl::Status Operation::ReadHeader(int peer, v1::CollectiveHeader* header) const {
  const std::string& bytes = received_headers_[static_cast<size_t>(peer)];
  uint32_t length = 0;
  if (bytes.size() >= kOperationHeaderBytes) {
    std::memcpy(&length, bytes.data(), sizeof(length));
    const bool fits = length <= kOperationHeaderBytes - sizeof(length);
    if (fits && header->ParseFromArray(bytes.data() + sizeof(length), static_cast<int>(length))) {
      return absl::OkStatus();
    }
  }
  return absl::DataLossError(
      absl::StrCat(DescribeOperation(header_), ": the header of ", mesh_.Describe(peer), " is damaged"));
}

absl::Status Operation::ReceiveHeaders(std::vector<v1::CollectiveHeader>* headers) {
  AskForHeaders();
  headers->assign(static_cast<size_t>(size()), header_);
  for (Message& message : header_receives_) {
    RETURN_IF_ERROR(Wait(&message));
    if (counters_ != nullptr && attaches()) {
      counters_->Received(received_headers_[static_cast<size_t>(message.peer)].size());
    }
    v1::CollectiveHeader& header = (*headers)[static_cast<size_t>(message.peer)];
    RETURN_IF_ERROR(Fail(ReadHeader(message.peer, &header)));
    RETURN_IF_ERROR(Fail(CheckSameOperation(header_, mesh_.Describe(rank()), header, mesh_.Describe(message.peer))));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Operation::HeadersHaveGone() {
  while (!header_sends_.empty()) {
    Message& last = header_sends_.back();
    const absl::Status status = last.transfer == nullptr ? absl::OkStatus() : last.transfer->Wait(absl::ZeroDuration());
    if (absl::IsDeadlineExceeded(status)) return false;
    RETURN_IF_ERROR(status);
    header_sends_.pop_back();
  }
  return true;
}

absl::Status Operation::ExchangeHeaders(std::vector<v1::CollectiveHeader>* headers,
                                        const std::vector<int64_t>& counts) {
  RETURN_IF_ERROR(SendHeaders(counts));
  RETURN_IF_ERROR(ReceiveHeaders(headers));
  return EndHeaders();
}

}  // namespace weir
