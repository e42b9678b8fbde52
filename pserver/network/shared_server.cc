#include "pserver/network/shared_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/base/status_message.h"
#include "framework/profile/profiler.h"
#include "glog/logging.h"
#include "pserver/network/shared_channel.h"
#include "pserver/sockets/unix_socket.h"

namespace weir {
namespace {

// Threads that handle a client's requests: as many as gRPC has for all on a machine of few cores.
constexpr int kReceivers = 2;
// Clients at a time. A machine has fewer trainers of one job.
constexpr size_t kMostClients = 256;
// A process that connects and offers nothing for so long is not one of ours.
constexpr absl::Duration kOfferDeadline = absl::Seconds(10);
// Period of Watch while a client has not offered, a handler of a client that is gone still runs, or no client can be
// accepted.
constexpr absl::Duration kLook = absl::Seconds(1);

// Calls that have not been answered, of all clients.
class Open {
 public:
  // Counts a call of a client. False: new calls are refused.
  bool Add(const SharedChannel* client) {
    MutexLock lock(&mu_);
    if (refused_) return false;
    ++calls_[client];
    return true;
  }
  void Remove(const SharedChannel* client) {
    MutexLock lock(&mu_);
    const auto calls = calls_.find(client);
    if (calls == calls_.end()) return;
    if (--calls->second == 0) calls_.erase(calls);
    if (calls_.empty()) none_.SignalAll();
  }
  // Nobody waits for answers to a client that is gone.
  void Forget(const SharedChannel* client) {
    MutexLock lock(&mu_);
    calls_.erase(client);
    if (calls_.empty()) none_.SignalAll();
  }
  void Refuse() {
    MutexLock lock(&mu_);
    refused_ = true;
  }
  // Returns when there are none, at the latest after `grace`.
  void WaitForNone(absl::Duration grace) {
    const absl::Time until = Clock::Real()->Now() + grace;
    MutexLock lock(&mu_);
    while (!calls_.empty()) {
      const absl::Duration left = until - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) return;
      none_.WaitWithTimeout(&mu_, left);
    }
  }

 private:
  Mutex mu_;
  CondVar none_;
  std::map<const SharedChannel*, int64_t> calls_ ABSL_GUARDED_BY(mu_);
  bool refused_ ABSL_GUARDED_BY(mu_) = false;
};

// Calls of a client whose answers it awaits.
struct Awaited {
  Mutex mu;
  int64_t calls ABSL_GUARDED_BY(mu) = 0;
};

void Answer(SharedChannel* channel, const SharedHead& request, const absl::StatusOr<Slices>& reply, bool later) {
  SharedHead head{.call = request.call, .kind = reply.ok() ? SharedHead::kReply : SharedHead::kError};
  if (channel->Send(head, reply.ok() ? *reply : Slices{Slice::Own(StatusMessage(reply.status()).SerializeAsString())},
                    later ? SharedChannel::Wakes::kLater : SharedChannel::Wakes::kNow)) {
    return;
  }
  head.kind = SharedHead::kNoRoom;
  // Fails only in a channel that is closed, or whose client reads no answers: it gives the call up at its deadline.
  channel->Send(head, {});
}

void AnswerAtOnce(SharedChannel* channel, const SharedHead& request, const absl::StatusOr<Slices>& reply) {
  Answer(channel, request, reply, /*later=*/false);
}

// Answers a call that was counted among those that are awaited if it is.
void Answer(SharedChannel* channel, const SharedHead& request, const absl::StatusOr<Slices>& reply, Awaited* awaited) {
  if (request.wanted == SharedHead::kSomeTime) return Answer(channel, request, reply, /*later=*/reply.ok());
  {
    MutexLock lock(&awaited->mu);
    // Under the lock: the answer that it comes with is sent after it.
    if (request.wanted == SharedHead::kWithNext) {
      // The caller may have to act on an error before there can be another answer.
      return Answer(channel, request, reply, /*later=*/reply.ok() && awaited->calls > 0);
    }
    --awaited->calls;
  }
  AnswerAtOnce(channel, request, reply);
}

// A client: its socket, its channel once it has offered one, and the threads that handle its requests.
class Link {
 public:
  Link(int socket, std::shared_ptr<Open> open)
      : socket_(socket), open_(std::move(open)), since_(Clock::Real()->Now()) {}
  ~Link() {
    if (channel_ != nullptr) channel_->Close();
    for (std::thread& thread : threads_) thread.join();
    ::close(socket_);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int socket() const { return socket_; }
  absl::Time since() const { return since_; }
  bool offered() const { return channel_ != nullptr; }
  // True when destruction does not have to wait for a handler.
  bool ended() const { return running_ == 0; }

  absl::Status Begin(const SharedServer::Handler& handler) {
    ASSIGN_OR_RETURN(channel_, AcceptChannel(socket_));
    running_ = kReceivers;
    for (int i = 0; i < kReceivers; ++i) {
      threads_.push_back(StartThread("weir-requests", [this, &handler] {
        Serve(handler);
        --running_;
      }));
    }
    return absl::OkStatus();
  }
  void Close() {
    ::shutdown(socket_, SHUT_RDWR);
    if (channel_ == nullptr) return;
    channel_->Close();
    open_->Forget(channel_.get());
  }

 private:
  void Serve(const SharedServer::Handler& handler) {
    while (true) {
      const absl::StatusOr<std::optional<SharedChannel::Message>> received = channel_->Receive();
      if (!received.ok()) {
        LOG(WARNING) << "shared memory of a client: " << received.status().message();
        return Close();
      }
      if (!received->has_value()) return;
      const SharedHead head = (*received)->head;
      const Method method = static_cast<Method>(head.kind);
      if (method != Method::kPush && method != Method::kPull && method != Method::kNorms &&
          method != Method::kDeliver) {
        AnswerAtOnce(
            channel_.get(), head,
            absl::UnimplementedError(absl::StrCat("method ", head.kind, " is not served through shared memory")));
        continue;
      }
      if (!open_->Add(channel_.get())) {
        AnswerAtOnce(channel_.get(), head, absl::UnavailableError("the server is shutting down"));
        continue;
      }
      if (head.wanted == SharedHead::kAtOnce) {
        MutexLock lock(&awaited_->mu);
        ++awaited_->calls;
      }
      const ProfiledCallScope scope({.id = head.profiled_id, .step = head.profiled_step});
      handler(method, static_cast<int>(head.server), (*received)->bytes,
              [channel = channel_, head, open = open_, awaited = awaited_](absl::StatusOr<Slices> reply) {
                Answer(channel.get(), head, reply, awaited.get());
                open->Remove(channel.get());
              });
    }
  }

  const int socket_;
  const std::shared_ptr<Open> open_;
  const std::shared_ptr<Awaited> awaited_ = std::make_shared<Awaited>();
  const absl::Time since_;
  std::shared_ptr<SharedChannel> channel_;
  std::atomic<int> running_{0};
  std::vector<std::thread> threads_;
};

class Server : public SharedServer {
 public:
  Server(int listener, int wake, std::string path, Handler handler)
      : listener_(listener),
        path_(std::move(path)),
        handler_(std::move(handler)),
        open_(std::make_shared<Open>()),
        wake_(wake) {
    thread_ = StartThread("weir-near", [this] { Watch(); });
  }
  ~Server() override { Shutdown(absl::ZeroDuration()); }

  void Refuse() override {
    ::unlink(path_.c_str());
    refuses_ = true;
    open_->Refuse();
  }

  void Shutdown(absl::Duration grace) override {
    if (!thread_.joinable()) return;
    Refuse();
    open_->WaitForNone(grace);
    stopping_ = true;
    const uint64_t one = 1;
    PCHECK(::write(wake_, &one, sizeof(one)) == sizeof(one));
    thread_.join();
    ::close(listener_);
    ::close(wake_);
  }

 private:
  // Accepts clients, and lets those go that have ended.
  void Watch() {
    while (!stopping_) {
      // A process without free descriptors would be told again and again that a client waits.
      const bool accepts = Clock::Real()->Now() >= accepts_from_;
      std::vector<pollfd> watched = {{accepts ? listener_ : -1, POLLIN, 0}, {wake_, POLLIN, 0}};
      bool pending = !accepts;
      for (const std::unique_ptr<Link>& link : links_) {
        watched.push_back({link->socket(), POLLIN, 0});
        pending = pending || !link->offered();
      }
      const int timeout = pending || !closed_.empty() ? static_cast<int>(absl::ToInt64Milliseconds(kLook)) : -1;
      if (::poll(watched.data(), watched.size(), timeout) < 0) continue;
      std::vector<std::unique_ptr<Link>> links;
      const absl::Time now = Clock::Real()->Now();
      for (size_t i = 0; i < links_.size(); ++i) {
        std::unique_ptr<Link>& link = links_[i];
        if (Stays(link.get(), watched[i + 2].revents != 0, now)) {
          links.push_back(std::move(link));
        } else {
          link->Close();
          closed_.push_back(std::move(link));
        }
      }
      links_ = std::move(links);
      closed_.erase(std::remove_if(closed_.begin(), closed_.end(), [](const auto& link) { return link->ended(); }),
                    closed_.end());
      if (watched[0].revents != 0) Accept();
    }
    for (const std::unique_ptr<Link>& link : links_) link->Close();
    links_.clear();
    closed_.clear();
  }

  bool Stays(Link* link, bool readable, absl::Time now) {
    if (!readable) return link->offered() || now - link->since() < kOfferDeadline;
    // A client says nothing more after its offer: what can be read is its end.
    if (link->offered()) return false;
    const absl::Status begun = link->Begin(handler_);
    if (!begun.ok()) LOG(INFO) << "a process on this machine cannot share memory with this one: " << begun.message();
    return begun.ok();
  }

  void Accept() {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) {
      accepts_from_ = Clock::Real()->Now() + kLook;
      return;
    }
    ucred peer = {};
    socklen_t size = sizeof(peer);
    if (refuses_ || links_.size() + closed_.size() >= kMostClients ||
        ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != ::geteuid()) {
      ::close(socket);
      return;
    }
    links_.push_back(std::make_unique<Link>(socket, open_));
  }

  const int listener_;
  const std::string path_;
  const Handler handler_;
  const std::shared_ptr<Open> open_;
  const int wake_;
  std::atomic<bool> refuses_{false}, stopping_{false};
  // Used by thread_.
  std::vector<std::unique_ptr<Link>> links_, closed_;
  absl::Time accepts_from_ = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace

std::string SharedPathOf(const std::string& unix_socket) {
  return absl::StrCat(absl::StripSuffix(unix_socket, ".sock"), "-m.sock");
}

absl::StatusOr<std::unique_ptr<SharedServer>> SharedServer::Start(const std::string& path, Handler handler) {
  ASSIGN_OR_RETURN(const int listener, ListenOn(path, SOCK_SEQPACKET));
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) {
    const std::string why = std::strerror(errno);
    ::close(listener);
    ::unlink(path.c_str());
    return absl::FailedPreconditionError(absl::StrCat("eventfd: ", why));
  }
  return std::make_unique<Server>(listener, wake, path, std::move(handler));
}

}  // namespace weir
