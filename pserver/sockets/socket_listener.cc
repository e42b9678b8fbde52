#include "pserver/sockets/socket_listener.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/net/resolve.h"
#include "glog/logging.h"
#include "pserver/cluster/cluster.h"
#include "pserver/sockets/socket_events.h"
#include "pserver/sockets/socket_link.h"
#include "pserver/sockets/unix_socket.h"

namespace weir {
namespace {

// Connections that the system takes before they are accepted.
constexpr int kBacklog = 4096;
// Connections that are accepted before the thread looks at what others have sent: an honest one has sent something by
// then. Far fewer than kMostSilent.
constexpr int kMostAccepted = 16;
// Ports that the system may choose for several addresses.
constexpr int kMostTries = 16;
// The wait after an accept that failed: the process has no descriptor free.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(50);

void SetOption(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof(value));
}

// What a listener and the connections that are still silent share.
class Accepting : public std::enable_shared_from_this<Accepting> {
 public:
  Accepting(TakeSocket greets, TakeSocket others) : greets_(std::move(greets)), others_(std::move(others)) {}

  // A connection that may not have sent anything.
  void Add(int socket);
  // Closes the oldest silent connections until there are at most so many and none from before a time.
  void CloseSilent(size_t most, absl::Time before);
  // Closes silent connections, waits for the functions that run, and calls them no more.
  void Stop();
  // Counts a thread that uses the functions. False: they are not called any more.
  bool Enter();
  void Leave();

 private:
  class Silent;

  // Takes a connection off the silent ones; false: it is none any more.
  bool Take(const std::shared_ptr<Silent>& silent) {
    MutexLock lock(&mu_);
    return silent_.erase(silent) > 0;
  }
  // The connection has sent something, or ended.
  void Sort(const std::shared_ptr<Silent>& silent);

  const TakeSocket greets_, others_;
  Mutex mu_;
  CondVar fewer_;
  std::map<std::shared_ptr<Silent>, absl::Time> silent_ ABSL_GUARDED_BY(mu_);
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

class Accepting::Silent : public SocketWatcher, public std::enable_shared_from_this<Silent> {
 public:
  Silent(int socket, std::shared_ptr<Accepting> accepting) : socket_(socket), accepting_(std::move(accepting)) {}

  int socket() const { return socket_; }
  void Watch() {
    number_ = SocketEvents::ForListeners()->Add(socket_, shared_from_this());
    SocketEvents::ForListeners()->Arm(number_, socket_, EPOLLIN);
  }
  // To be called by whoever has taken it off the list.
  void Forget() { SocketEvents::ForListeners()->Remove(number_, socket_); }
  void OnEvents(uint32_t /*events*/) override { accepting_->Sort(shared_from_this()); }

 private:
  const int socket_;
  const std::shared_ptr<Accepting> accepting_;
  uint64_t number_ = 0;
};

bool Accepting::Enter() {
  MutexLock lock(&mu_);
  if (stopped_) return false;
  ++running_;
  return true;
}

void Accepting::Leave() {
  MutexLock lock(&mu_);
  --running_;
  fewer_.SignalAll();
}

void Accepting::Add(int socket) {
  const absl::Time now = Clock::Real()->Now();
  CloseSilent(kMostSilent - 1, now - kMostSilence);
  // Nothing less is looked at.
  SetOption(socket, SOL_SOCKET, SO_RCVLOWAT, static_cast<int>(kGreeting.size()));
  auto silent = std::make_shared<Silent>(socket, shared_from_this());
  MutexLock lock(&mu_);
  silent_[silent] = now;
  // Under the lock: it may be taken off, and forgotten, at once.
  silent->Watch();
}

void Accepting::CloseSilent(size_t most, absl::Time before) {
  while (true) {
    std::shared_ptr<Silent> oldest;
    {
      MutexLock lock(&mu_);
      absl::Time since = absl::InfiniteFuture();
      for (const auto& [silent, from] : silent_) {
        if (from < since) {
          since = from;
          oldest = silent;
        }
      }
      if (oldest == nullptr || (silent_.size() <= most && since >= before)) return;
      silent_.erase(oldest);
    }
    oldest->Forget();
    ::close(oldest->socket());
  }
}

void Accepting::Sort(const std::shared_ptr<Silent>& silent) {
  if (!Take(silent)) return;
  silent->Forget();
  const int socket = silent->socket();
  std::array<char, kGreeting.size()> first = {};
  const ssize_t read = ::recv(socket, first.data(), first.size(), MSG_PEEK | MSG_DONTWAIT);
  if (read <= 0 || !Enter()) {
    ::close(socket);
    return;
  }
  SetOption(socket, SOL_SOCKET, SO_RCVLOWAT, 1);
  (std::string_view(first.data(), static_cast<size_t>(read)) == kGreeting ? greets_ : others_)(socket);
  Leave();
}

void Accepting::Stop() {
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    while (running_ > 0) fewer_.Wait(&mu_);
  }
  CloseSilent(0, absl::InfiniteFuture());
}

// A socket that listens.
class Listening : public SocketWatcher, public std::enable_shared_from_this<Listening> {
 public:
  Listening(int socket, bool tcp) : socket_(socket), tcp_(tcp) {}

  void Start(std::shared_ptr<Accepting> accepting) {
    accepting_ = std::move(accepting);
    MutexLock lock(&mu_);
    number_ = SocketEvents::ForListeners()->Add(socket_, shared_from_this());
    SocketEvents::ForListeners()->Arm(number_, socket_, EPOLLIN);
  }
  void Stop() {
    MutexLock lock(&mu_);
    if (number_ != 0) SocketEvents::ForListeners()->Remove(std::exchange(number_, 0), socket_);
  }
  // The last call, when OnEvents does nothing any more: the port is free when it returns.
  void Close() { ::close(socket_); }

  void OnEvents(uint32_t /*events*/) override {
    if (!accepting_->Enter()) return;
    bool failed = false;
    for (int i = 0; i < kMostAccepted; ++i) {
      const int socket = ::accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (socket < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
      if (socket < 0) {
        failed = errno != EAGAIN && errno != EWOULDBLOCK;
        break;
      }
      SetLinkOptions(socket, tcp_);
      accepting_->Add(socket);
    }
    if (failed) {
      accepting_->CloseSilent(0, absl::InfinitePast());
      absl::SleepFor(kAcceptPause);
    }
    {
      MutexLock lock(&mu_);
      if (number_ != 0) SocketEvents::ForListeners()->Arm(number_, socket_, EPOLLIN);
    }
    accepting_->Leave();
  }

 private:
  const int socket_;
  const bool tcp_;
  std::shared_ptr<Accepting> accepting_;
  Mutex mu_;
  uint64_t number_ ABSL_GUARDED_BY(mu_) = 0;
};

class Listener : public SocketListener {
 public:
  Listener(const std::vector<int>& sockets, int port, std::string path) : port_(port), path_(std::move(path)) {
    for (const int socket : sockets) listening_.push_back(std::make_shared<Listening>(socket, path_.empty()));
  }
  ~Listener() override { Stop(); }

  void Stop() override {
    for (const std::shared_ptr<Listening>& socket : listening_) socket->Stop();
    if (accepting_ != nullptr) accepting_->Stop();
    for (const std::shared_ptr<Listening>& socket : listening_) socket->Close();
    if (!listening_.empty() && !path_.empty()) ::unlink(path_.c_str());
    listening_.clear();
  }

  void CloseSilent() override {
    if (accepting_ != nullptr) accepting_->CloseSilent(0, absl::InfinitePast());
  }
  void Accept(TakeSocket greets, TakeSocket others) override {
    accepting_ = std::make_shared<Accepting>(std::move(greets), std::move(others));
    for (const std::shared_ptr<Listening>& socket : listening_) socket->Start(accepting_);
  }
  int port() const override { return port_; }

 private:
  const int port_;
  const std::string path_;
  std::vector<std::shared_ptr<Listening>> listening_;
  std::shared_ptr<Accepting> accepting_;
};

bool IsWildcard(const SocketAddress& at) {
  if (at.address.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(at.address).sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(at.address).sin6_addr);
}

// Returns a socket that listens, or -1 and errno. `both`: an IPv6 one takes IPv4, too.
int ListenTcp(const SocketAddress& at, bool both) {
  const int socket = ::socket(at.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return -1;
  SetOption(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (at.address.ss_family == AF_INET6) SetOption(socket, IPPROTO_IPV6, IPV6_V6ONLY, both ? 0 : 1);
  if (::bind(socket, at.raw(), at.bytes) == 0 && ::listen(socket, kBacklog) == 0) return socket;
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

absl::Status CannotListen(const std::string& endpoint, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", endpoint, ": ", why));
}

int PortOf(int socket) {
  SocketAddress at;
  at.bytes = sizeof(at.address);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&at.address), &at.bytes) != 0) return 0;
  return at.port();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SocketListener>> SocketListener::ListenAt(const std::string& text) {
  ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(text));
  const absl::StatusOr<std::vector<SocketAddress>> found = Resolve(endpoint.host, endpoint.port);
  if (!found.ok()) return CannotListen(text, found.status().message());
  if (IsWildcard((*found)[0])) {
    SocketAddress all;
    auto* const any = reinterpret_cast<sockaddr_in6*>(&all.address);
    any->sin6_family = AF_INET6;
    all.bytes = sizeof(*any);
    all.set_port(endpoint.port);
    if (const int socket = ListenTcp(all, /*both=*/true); socket >= 0) {
      return std::make_unique<Listener>(std::vector<int>{socket}, PortOf(socket), "");
    }
    // Without IPv6 the address as it is written.
    if (errno == EADDRINUSE || errno == EACCES) return CannotListen(text, std::strerror(errno));
  }
  auto listener = ListenAtAddresses(*found, text);
  // The port that the system chooses at one address may be taken at another.
  for (int tries = 1; !listener.ok() && endpoint.port == 0 && found->size() > 1 && tries < kMostTries; ++tries) {
    listener = ListenAtAddresses(*found, text);
  }
  return listener;
}

absl::StatusOr<std::unique_ptr<SocketListener>> SocketListener::ListenAtAddresses(
    const std::vector<SocketAddress>& addresses, const std::string& endpoint) {
  std::vector<int> sockets;
  std::set<std::string> tried;
  int port = 0, error = EADDRNOTAVAIL;
  for (SocketAddress at : addresses) {
    if (!tried.insert(IpText(at.raw())).second) continue;
    if (port != 0) at.set_port(port);
    if (const int socket = ListenTcp(at, /*both=*/false); socket >= 0) {
      sockets.push_back(socket);
      port = PortOf(socket);
      continue;
    }
    error = errno;
    // A name may have addresses of a protocol that this machine does not speak.
    if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) continue;
    for (const int socket : sockets) ::close(socket);
    return CannotListen(endpoint, std::strerror(error));
  }
  if (sockets.empty()) return CannotListen(endpoint, std::strerror(error));
  return std::make_unique<Listener>(sockets, port, "");
}

absl::StatusOr<std::unique_ptr<SocketListener>> SocketListener::ListenAtPath(const std::string& path) {
  ASSIGN_OR_RETURN(const int socket, ListenOn(path, SOCK_STREAM | SOCK_NONBLOCK));
  return std::make_unique<Listener>(std::vector<int>{socket}, 0, path);
}

}  // namespace weir
