#include "pserver/network/shared_client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "framework/base/status_message.h"
#include "framework/profile/profiler.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "pserver/protocol/call_hints.h"
#include "pserver/sockets/unix_socket.h"

namespace weir {
namespace {

// Threads that read answers: rows of several answers are stored at once.
constexpr int kReceivers = 2;
// Watch looks for late calls, and for answers that wake nobody, as rarely as this while there are calls: so most calls
// need not wake it.
constexpr absl::Duration kLook = absl::Milliseconds(250);

}  // namespace

absl::StatusOr<std::shared_ptr<SharedClient>> SharedClient::Connect(const std::string& path) {
  ASSIGN_OR_RETURN(const int socket, ConnectTo(path, SOCK_SEQPACKET));
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const auto offered = [&]() -> absl::StatusOr<std::shared_ptr<SharedChannel>> {
    if (wake < 0) return absl::UnavailableError(std::string("eventfd: ") + std::strerror(errno));
    ASSIGN_OR_RETURN(std::shared_ptr<SharedChannel> channel, SharedChannel::Create());
    RETURN_IF_ERROR(OfferChannel(socket, *channel));
    channel->CloseDescriptor();
    return channel;
  }();
  if (!offered.ok()) {
    ::close(socket);
    if (wake >= 0) ::close(wake);
    return offered.status();
  }
  return std::shared_ptr<SharedClient>(new SharedClient(*offered, socket, wake));
}

SharedClient::SharedClient(std::shared_ptr<SharedChannel> channel, int socket, int wake)
    : channel_(std::move(channel)), socket_(socket), wake_(wake) {
  receiving_ = kReceivers;
  for (int i = 0; i < kReceivers; ++i) threads_.push_back(StartThread("weir-answers", [this] { Receive(); }));
  threads_.push_back(StartThread("weir-near", [this] { Watch(); }));
}

SharedClient::~SharedClient() {
  Close();
  Join();
  ::close(socket_);
  ::close(wake_);
}

void SharedClient::Join() {
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

bool SharedClient::Call(Method method, const Slices& request, absl::Duration timeout, Done done, bool patient,
                        int server) {
  const absl::Time deadline = Clock::Real()->Now() + timeout;
  SharedHead head{.kind = static_cast<uint32_t>(method),
                  .server = static_cast<uint32_t>(server),
                  .wanted = patient                     ? SharedHead::kSomeTime
                            : AnswersMayWait::current() ? SharedHead::kWithNext
                                                        : SharedHead::kAtOnce};
  const ProfiledCall profiled = ProfiledCallScope::current();
  head.profiled_id = profiled.id;
  head.profiled_step = profiled.step;
  bool wake = false;
  {
    MutexLock lock(&mu_);
    // Each answer has a slot in the ring. Calls that were given up count: they may still be answered.
    if (closed_ || calls_.size() >= SharedChannel::kSlots) return false;
    head.call = ++last_call_;
    calls_[head.call] = {std::move(done), deadline};
    if (deadline < looks_at_) {
      wake = true;
      looks_at_ = std::min(deadline, Clock::Real()->Now() + kLook);
    }
  }
  if (wake) WakeWatch();
  CallsTogether* const together = CallsTogether::current();
  if (channel_->Send(head, request, together == nullptr ? SharedChannel::Wakes::kNow : SharedChannel::Wakes::kLater)) {
    if (together != nullptr) together->AtEnd(this, [channel = channel_] { channel->WakeOther(); });
    return true;
  }
  MutexLock lock(&mu_);
  // If the entry is gone, another thread has ended the call.
  return calls_.erase(head.call) == 0;
}

void SharedClient::Receive() {
  while (true) {
    absl::StatusOr<std::optional<SharedChannel::Message>> received = channel_->Receive();
    if (!received.ok()) {
      LOG(WARNING) << "shared memory of a server: " << received.status().message();
      Close();
      return;
    }
    if (!received->has_value()) {
      // After the last answer of a server that is gone.
      if (--receiving_ == 0) Close();
      return;
    }
    SharedChannel::Message& message = **received;
    Done done;
    {
      MutexLock lock(&mu_);
      const auto call = calls_.find(message.head.call);
      if (call == calls_.end()) continue;
      done = std::move(call->second.done);
      calls_.erase(call);
    }
    if (done == nullptr) continue;
    if (message.head.kind == SharedHead::kNoRoom) {
      done(std::nullopt);
    } else if (message.head.kind == SharedHead::kReply) {
      done(absl::StatusOr<Slices>(std::move(message.bytes)));
    } else {
      v1::Status error;
      if (!error.ParseFromString(Flatten(message.bytes)) || error.code() == 0)
        error.set_code(static_cast<int>(absl::StatusCode::kUnknown));
      done(absl::StatusOr<Slices>(StatusOf(error, SIZE_MAX)));
    }
  }
}

std::vector<SharedClient::Done> SharedClient::TakeLate() {
  const absl::Time now = Clock::Real()->Now();
  std::vector<Done> late;
  MutexLock lock(&mu_);
  looks_at_ = absl::InfiniteFuture();
  for (auto& [number, call] : calls_) {
    if (call.done == nullptr) continue;
    if (call.deadline <= now) {
      late.push_back(std::exchange(call.done, nullptr));
    } else {
      looks_at_ = std::min({looks_at_, call.deadline, now + kLook});
    }
  }
  return late;
}

void SharedClient::End(std::vector<Done> calls, const absl::Status& why) {
  for (const Done& done : calls) done(absl::StatusOr<Slices>(why));
}

void SharedClient::Watch() {
  while (true) {
    absl::Time until;
    {
      MutexLock lock(&mu_);
      if (closed_) return;
      until = looks_at_;
    }
    const absl::Duration wait = std::max(until - Clock::Real()->Now(), absl::ZeroDuration());
    const int timeout = until == absl::InfiniteFuture() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1;
    pollfd watched[] = {{socket_, POLLIN, 0}, {wake_, POLLIN, 0}};
    const int ready = ::poll(watched, 2, timeout);
    // A server says nothing more after its consent: what can be read is its end. It may have answered before.
    if (ready > 0 && watched[0].revents != 0) return channel_->Finish();
    if (ready > 0 && watched[1].revents != 0) {
      uint64_t rings = 0;
      if (::read(wake_, &rings, sizeof(rings)) < 0) continue;
    }
    channel_->Collect();
    End(TakeLate(), absl::DeadlineExceededError("no answer in time"));
  }
}

void SharedClient::WakeWatch() {
  const uint64_t one = 1;
  // Full only if Watch has not woken yet.
  if (::write(wake_, &one, sizeof(one)) < 0) return;
}

void SharedClient::Close() {
  std::vector<Done> calls;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    ended_ = true;
    for (auto& [number, call] : calls_) {
      if (call.done != nullptr) calls.push_back(std::move(call.done));
    }
    calls_.clear();
  }
  channel_->Close();
  ::shutdown(socket_, SHUT_RDWR);
  WakeWatch();
  End(std::move(calls), absl::UnavailableError("the connection through shared memory has ended"));
}

}  // namespace weir
