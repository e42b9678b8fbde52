#include "pserver/sockets/socket_input.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little);

// Layout of a greeting.
struct Greeting {
  char name[8];
  uint32_t version, unused;
  uint64_t run, epoch;
  char proof[32];
};
static_assert(sizeof(Greeting) == kGreetingBytes);

using Length = uint64_t;

// Memory of a batch, aligned as payloads in it are.
std::shared_ptr<char> NewBatch(size_t bytes) {
  return {static_cast<char*>(::operator new(std::max(bytes, size_t{1}), std::align_val_t(kAlignment))),
          [](char* memory) { ::operator delete(memory, std::align_val_t(kAlignment)); }};
}

}  // namespace

std::string SocketGreeting() {
  Greeting greeting = {.version = kSocketVersion};
  std::memcpy(greeting.name, kGreeting.data(), sizeof(greeting.name));
  return std::string(reinterpret_cast<const char*>(&greeting), sizeof(greeting));
}

std::string BatchLength(uint64_t bytes) {
  const Length length = bytes;
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length));
}

absl::StatusOr<std::optional<Slices>> SocketInput::Next() {
  if (!greeted_) {
    if (end_ - begin_ < kGreetingBytes) return std::nullopt;
    Greeting greeting;
    Take(sizeof(greeting), reinterpret_cast<char*>(&greeting));
    if (std::string_view(greeting.name, sizeof(greeting.name)) != kGreeting) {
      return absl::InvalidArgumentError("the other end does not send batches of records");
    }
    if (greeting.version != kSocketVersion) {
      return absl::FailedPreconditionError(absl::StrCat("the other end speaks version ", greeting.version,
                                                        " of the connection for tensors, this one ", kSocketVersion,
                                                        ": run the same version of Weir on all hosts"));
    }
    greeted_ = true;
  }
  if (batch_ == nullptr) {
    if (end_ - begin_ < sizeof(Length)) return std::nullopt;
    Length bytes = 0;
    Take(sizeof(bytes), reinterpret_cast<char*>(&bytes));
    if (bytes > kMostBatchBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a batch of ", bytes, " bytes; at most ", kMostBatchBytes, " are allowed"));
    }
    batch_ = NewBatch(bytes);
    bytes_ = bytes;
    have_ = std::min<size_t>(bytes, end_ - begin_);
    Take(have_, batch_.get());
  }
  if (have_ < bytes_) return std::nullopt;
  have_ = 0;
  return Slices{Slice{batch_.get(), bytes_, std::exchange(batch_, nullptr)}};
}

ssize_t SocketInput::Read(int socket) {
  if (begin_ == end_) begin_ = end_ = 0;
  if (begin_ > 0) {
    std::memmove(ahead_.data(), ahead_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  const size_t rest = batch_ == nullptr ? 0 : bytes_ - have_;
  std::array<iovec, 2> to = {iovec{batch_.get() + have_, rest}, iovec{ahead_.data() + end_, ahead_.size() - end_}};
  msghdr message = {};
  message.msg_iov = rest > 0 ? to.data() : &to[1];
  message.msg_iovlen = rest > 0 ? 2 : 1;
  const ssize_t read = ::recvmsg(socket, &message, 0);
  if (read <= 0) return read;
  const size_t to_batch = std::min(static_cast<size_t>(read), rest);
  have_ += to_batch;
  end_ += static_cast<size_t>(read) - to_batch;
  return read;
}

bool SocketInput::HasWhole() const {
  Length bytes = 0;
  if (!greeted_ || batch_ != nullptr || end_ - begin_ < sizeof(bytes)) return false;
  std::memcpy(&bytes, ahead_.data() + begin_, sizeof(bytes));
  return bytes <= end_ - begin_ - sizeof(bytes);
}

void SocketInput::Take(size_t bytes, char* to) {
  std::memcpy(to, ahead_.data() + begin_, bytes);
  begin_ += bytes;
}

}  // namespace weir
