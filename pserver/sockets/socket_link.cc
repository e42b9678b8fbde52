#include "pserver/sockets/socket_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little);

// A larger batch is sent by a thread of SocketEvents, and not by its maker, who may have more to make: copying so much
// takes the system 30 us, three times what it takes to wake a thread.
constexpr size_t kMostAtOnce = size_t{128} << 10;
// A machine that answers nothing for so long has vanished. As long as gRPC's keep-alive (grpc_transport.cc).
constexpr int kSilentSeconds = 20;
// Bytes that wait in a Unix-domain socket. By default 208 KiB, after which writer and reader take turns (GiveSendRoom).
constexpr int kUnixRoom = 4 << 20;
// Pieces of one call of the system; a batch of pushes has some tens.
constexpr size_t kMostPieces = 64;

absl::Status NetworkError(int error) { return absl::UnavailableError(std::strerror(error)); }

}  // namespace

void SetLinkOptions(int socket, bool tcp) {
  const auto set = [socket](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof(value));
  };
  if (!tcp) return set(SOL_SOCKET, SO_SNDBUF, kUnixRoom);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // The connection ends when sent bytes have waited for so long, and when nothing has come for so long and the question
  // that is then asked, and asked again, is not answered.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kSilentSeconds * 1000);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kSilentSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kSilentSeconds / 4);
}

SocketLink::SocketLink(int fd) : fd_(fd), input_(std::make_unique<SocketInput>()) {}

SocketLink::~SocketLink() {
  // Never started.
  if (number_ == 0) ::close(fd_);
}

void SocketLink::Start(Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  MutexLock lock(&mu_);
  number_ = SocketEvents::Get()->Add(fd_, shared_from_this());
  // At once, if the socket is connected: whether anybody is there is not to wait for a thread of SocketEvents.
  const std::string greeting = SocketGreeting();
  const ssize_t sent = ::send(fd_, greeting.data(), greeting.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) why_ = NetworkError(errno);
  if (sent < static_cast<ssize_t>(greeting.size())) {
    out_.push_back(Slice::Own(greeting.substr(static_cast<size_t>(std::max<ssize_t>(sent, 0)))));
    sends_ = wants_out_ = true;
  }
  wants_in_ = true;
  Arm();
}

void SocketLink::Arm() {
  // A socket that has room tells at once of input that has been read.
  const uint32_t events = (wants_in_ ? EPOLLIN : 0U) | (wants_out_ || (wants_in_ && has_input_) ? EPOLLOUT : 0U);
  if (events != 0 && !ended_) SocketEvents::Get()->Arm(number_, fd_, events);
}

bool SocketLink::Enter() {
  MutexLock lock(&mu_);
  if (ended_ || number_ == 0) return false;
  ++calls_;
  return true;
}

void SocketLink::Leave() {
  MutexLock lock(&mu_);
  if (--calls_ == 0) no_calls_.SignalAll();
}

void SocketLink::EndEvents() {
  absl::Status why;
  Slices unsent;
  {
    MutexLock lock(&mu_);
    if (--events_ > 0 || !ended_) return;
    why = why_;
    unsent.swap(out_);
  }
  ::close(fd_);
  // This object may be kept, and need not keep memory and what the callbacks hold.
  const Callbacks callbacks = std::move(callbacks_);
  sending_.clear();
  unsent.clear();
  input_ = nullptr;
  callbacks.ended(why);
}

void SocketLink::Fail(absl::Status why) {
  MutexLock lock(&mu_);
  // An end that sends what is no batch, or another version, and closes, cannot be sent to either.
  if (why_.ok() || !absl::IsUnavailable(why)) why_ = std::move(why);
}

bool SocketLink::greeted() const {
  MutexLock lock(&mu_);
  return greeted_;
}

void SocketLink::OnEvents(uint32_t events) {
  bool reads = false, sends = false;
  {
    MutexLock lock(&mu_);
    if (ended_) return;
    const bool failed = (events & (EPOLLHUP | EPOLLERR)) != 0;
    sends = wants_out_ && (failed || (events & EPOLLOUT) != 0);
    reads = wants_in_ && (failed || (events & EPOLLIN) != 0 || has_input_);
    if (!sends && !reads) return Arm();
    wants_out_ = wants_out_ && !sends;
    wants_in_ = wants_in_ && !reads;
    Arm();
    ++events_;
  }
  if (sends && Send()) callbacks_.written();
  if (reads) Read();
  EndEvents();
}

void SocketLink::ReadOn() {
  MutexLock lock(&mu_);
  has_input_ = input_->HasWhole();
  wants_in_ = true;
  Arm();
}

bool SocketLink::TakeInput() {
  MutexLock lock(&mu_);
  if (!wants_in_ || !has_input_) return false;
  wants_in_ = false;
  return true;
}

void SocketLink::Read() {
  while (true) {
    absl::StatusOr<std::optional<Slices>> batch = input_->Next();
    if (!batch.ok()) {
      Fail(batch.status());
      break;
    }
    if (input_->greeted()) {
      MutexLock lock(&mu_);
      greeted_ = true;
    }
    if (batch->has_value()) {
      const absl::Status good = callbacks_.batch(**std::move(batch), [this] { ReadOn(); });
      if (!good.ok()) {
        Fail(good);
        break;
      }
      if (!TakeInput()) return;
      continue;
    }
    const ssize_t read = input_->Read(fd_);
    if (read > 0 || (read < 0 && errno == EINTR)) continue;
    if (read < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return ReadOn();
    Fail(read == 0 ? absl::UnavailableError("the other end has closed the connection") : NetworkError(errno));
    break;
  }
  MutexLock lock(&mu_);
  ended_ = true;
  SocketEvents::Get()->Remove(number_, fd_);
  ::shutdown(fd_, SHUT_RDWR);
  // Calls do not block. Whoever calls may hold what `ended` waits for, and so is not the one to call that.
  while (calls_ > 0) no_calls_.Wait(&mu_);
}

bool SocketLink::Queue(Slices batch) {
  out_.push_back(Slice::Own(BatchLength(TotalSize(batch))));
  for (Slice& slice : batch) {
    if (slice.size > 0) out_.push_back(std::move(slice));
  }
  return !std::exchange(sends_, true);
}

bool SocketLink::Write(Slices batch) {
  if (!Enter()) return false;
  const size_t bytes = TotalSize(batch);
  bool now = false;
  {
    MutexLock lock(&mu_);
    CHECK(!std::exchange(has_batch_, true)) << "two batches at a time";
    now = Queue(std::move(batch));
    if (now && bytes > kMostAtOnce) {
      now = false;
      wants_out_ = true;
      Arm();
    }
  }
  const bool written = now && Send();
  Leave();
  return written;
}

void SocketLink::Finish(Slices last) {
  if (!Enter()) return;
  {
    MutexLock lock(&mu_);
    finishes_ = true;
    if (Queue(std::move(last))) {
      wants_out_ = true;
      Arm();
    }
  }
  Leave();
}

void SocketLink::Close() {
  if (!Enter()) return;
  // Whoever reads sees the end.
  ::shutdown(fd_, SHUT_RDWR);
  Leave();
}

bool SocketLink::Send() {
  while (true) {
    if (at_ == sending_.size()) {
      // Whoever has given memory wants to know when it is free.
      sending_.clear();
      at_ = sent_ = 0;
      MutexLock lock(&mu_);
      if (out_.empty()) {
        sends_ = false;
        if (finishes_) ::shutdown(fd_, SHUT_WR);
        return std::exchange(has_batch_, false);
      }
      sending_.swap(out_);
    }
    std::array<iovec, kMostPieces> pieces;
    size_t count = 0;
    for (size_t i = at_; i < sending_.size() && count < kMostPieces; ++i, ++count) {
      const size_t skipped = i == at_ ? sent_ : 0;
      pieces[count] = {const_cast<char*>(sending_[i].data) + skipped, sending_[i].size - skipped};
    }
    msghdr message = {};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      const int error = errno;
      MutexLock lock(&mu_);
      if (error == EAGAIN || error == EWOULDBLOCK) {
        wants_out_ = true;
        Arm();
        return false;
      }
      if (why_.ok()) why_ = NetworkError(error);
      // Nothing is sent any more. Whoever reads sees the end.
      ::shutdown(fd_, SHUT_RDWR);
      return false;
    }
    for (size_t left = static_cast<size_t>(sent); left > 0;) {
      const size_t rest = sending_[at_].size - sent_;
      if (left < rest) {
        sent_ += left;
        break;
      }
      left -= rest;
      sent_ = 0;
      // Free as soon as it is sent: a credit may wait for it.
      sending_[at_++].owner = nullptr;
    }
  }
}

}  // namespace weir
