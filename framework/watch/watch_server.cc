#include "framework/watch/watch_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/status_macros.h"
#include "framework/net/resolve.h"
#include "glog/logging.h"

namespace weir {
namespace {

// Connections that the system keeps while `max_connections` are served.
constexpr int kBacklog = 64;
// Time for a client to close after the answer. If this side closed first, with bytes of the client unread, the client
// could lose the answer.
constexpr absl::Duration kClosingTime = absl::Seconds(1);
// Pause before another try when the process has no descriptor left.
constexpr absl::Duration kNoDescriptorTime = absl::Milliseconds(100);

void Raise(int event) {
  const uint64_t one = 1;
  // It fails only if the event is raised already.
  const ssize_t written = ::write(event, &one, sizeof one);
  (void)written;
}

std::string HostAndPort(const std::string& address, int port) {
  return address.find(':') == std::string::npos ? absl::StrCat(address, ":", port)
                                                : absl::StrCat("[", address, "]:", port);
}

int PortOf(int socket) {
  SocketAddress own = {.bytes = sizeof own.address};
  const bool known = ::getsockname(socket, reinterpret_cast<sockaddr*>(&own.address), &own.bytes) == 0;
  return known ? own.port() : 0;
}

absl::Status ListenError(int error, const std::string& where) {
  const std::string cannot = absl::StrCat("cannot serve http://", where);
  switch (error) {
    case EADDRINUSE:
      return absl::FailedPreconditionError(
          absl::StrCat(cannot, ": the port is in use; give another one, or 0 for any that is free"));
    case EADDRNOTAVAIL:
      return absl::InvalidArgumentError(absl::StrCat(
          cannot, ": no interface of this machine has this address; give one that has, or 0.0.0.0 for all"));
    default:
      return absl::ErrnoToStatus(error, cannot);
  }
}

struct Listener {
  int fd;
  int port;
  bool loopback;
};

absl::StatusOr<Listener> Listen(const std::string& address, int port) {
  const std::string where = HostAndPort(address, port);
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("the port is ", port, "; expected 0 to 65535, 0 for any that is free"));
  }
  const absl::StatusOr<std::vector<SocketAddress>> found = Resolve(address, port);
  if (!found.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot serve http://", where, ": the address is unknown: ", found.status().message()));
  }
  // "localhost" may have two addresses, of which the first serves.
  const SocketAddress& at = (*found)[0];
  const int fd = ::socket(at.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  // Connections of an earlier server on the port may linger. Two servers at a time may not share it.
  const bool listens = fd >= 0 && ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                       ::bind(fd, at.raw(), at.bytes) == 0 && ::listen(fd, kBacklog) == 0;
  const int error = errno;
  if (!listens) {
    if (fd >= 0) ::close(fd);
    return ListenError(error, where);
  }
  return Listener{.fd = fd, .port = PortOf(fd), .loopback = IsLoopback(at.raw())};
}

// Milliseconds for poll, which rounds down: one more, so that the time has come when it returns.
int PollTimeout(absl::Time until) {
  const absl::Duration left = until - Clock::Real()->Now();
  if (left <= absl::ZeroDuration()) return 0;
  return static_cast<int>(absl::ToInt64Milliseconds(std::min(left, absl::Minutes(1)))) + 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WatchServer>> WatchServer::Start(std::vector<WatchPage> pages, Options options) {
  ASSIGN_OR_RETURN(const Listener listener, Listen(options.address, options.port));
  const int stopping = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stopping < 0 || wake < 0) {
    const absl::Status error = absl::ErrnoToStatus(errno, "cannot serve HTTP");
    for (const int fd : {stopping, wake, listener.fd}) {
      if (fd >= 0) ::close(fd);
    }
    return error;
  }
  return std::unique_ptr<WatchServer>(new WatchServer(std::move(pages), std::move(options), listener.fd, listener.port,
                                                      stopping, wake, listener.loopback));
}

WatchServer::WatchServer(std::vector<WatchPage> pages, Options options, int listener, int port, int stopping, int wake,
                         bool local_only)
    : options_(std::move(options)),
      listener_(listener),
      port_(port),
      stopping_(stopping),
      wake_(wake),
      answers_(std::move(pages), options_.address, local_only),
      pool_(std::make_unique<ThreadPool>("weir-watch", std::max(1, options_.threads))),
      thread_(StartThread("weir-watch", [this] { Run(); })) {}

WatchServer::~WatchServer() {
  Stop();
  ::close(stopping_);
  ::close(wake_);
}

void WatchServer::Stop() {
  {
    MutexLock lock(&mu_);
    if (std::exchange(stopped_, true)) return;
  }
  Raise(stopping_);
  thread_.join();
  // Runs what is queued: each connection is closed.
  pool_.reset();
  MutexLock lock(&mu_);
  for (const Connection& connection : answered_) ::close(connection.fd);
  answered_.clear();
}

std::string WatchServer::url() const { return absl::StrCat("http://", HostAndPort(options_.address, port_)); }

void WatchServer::Run() {
  std::vector<Connection> connections;  // without those in the pool
  std::vector<pollfd> polled;
  while (true) {
    const bool room = TakeAnswered(&connections);
    const bool accepts = room && Clock::Real()->Now() >= accept_again_;
    absl::Time until = room && !accepts ? accept_again_ : absl::InfiniteFuture();
    polled.assign({{.fd = stopping_, .events = POLLIN},
                   {.fd = wake_, .events = POLLIN},
                   // poll skips a negative descriptor.
                   {.fd = accepts ? listener_ : -1, .events = POLLIN}});
    for (const Connection& connection : connections) {
      polled.push_back({.fd = connection.fd, .events = POLLIN});
      until = std::min(until, connection.until);
    }
    // Clears what poll leaves untouched if it fails.
    if (::poll(polled.data(), polled.size(), PollTimeout(until)) < 0) {
      for (pollfd& each : polled) each.revents = 0;
    }
    if (polled[0].revents != 0) break;
    if (polled[1].revents != 0) {
      uint64_t raised = 0;
      const ssize_t taken = ::read(wake_, &raised, sizeof raised);
      (void)taken;
    }
    ReadReady(absl::MakeConstSpan(polled).subspan(3), &connections);
    if (polled[2].revents != 0) Accept(&connections);
  }
  for (const Connection& connection : connections) ::close(connection.fd);
  ::close(listener_);
}

bool WatchServer::TakeAnswered(std::vector<Connection>* connections) {
  size_t count = 0;
  {
    MutexLock lock(&mu_);
    for (Connection& connection : answered_) connections->push_back(std::move(connection));
    answered_.clear();
    count = connections->size() + answering_;
  }
  if (count < options_.max_connections) return true;
  // One that only waits for its client to close makes room for another.
  const auto idle =
      std::find_if(connections->begin(), connections->end(), [](const Connection& c) { return c.answered; });
  if (idle == connections->end()) return false;
  ::close(idle->fd);
  connections->erase(idle);
  return count - 1 < options_.max_connections;
}

void WatchServer::ReadReady(absl::Span<const pollfd> polled, std::vector<Connection>* connections) {
  std::vector<Connection> kept;
  const absl::Time now = Clock::Real()->Now();
  for (size_t i = 0; i < connections->size(); ++i) {
    Connection& connection = (*connections)[i];
    Next next = polled[i].revents != 0 ? Read(&connection) : Next::kKeep;
    if (next == Next::kKeep && now >= connection.until) next = Next::kClose;
    switch (next) {
      case Next::kKeep:
        kept.push_back(std::move(connection));
        break;
      case Next::kClose:
        ::close(connection.fd);
        break;
      case Next::kAnswer:
        CountAnswering();
        // A std::function must be copyable: the descriptor is closed by Answer, not by the lambda's end.
        pool_->Schedule([this, taken = std::move(connection)] { Answer(taken); });
        break;
    }
  }
  *connections = std::move(kept);
}

void WatchServer::CountAnswering() {
  MutexLock lock(&mu_);
  ++answering_;
}

void WatchServer::Accept(std::vector<Connection>* connections) {
  // One by one: the loop in Run counts them.
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  const absl::Time now = Clock::Real()->Now();
  if (fd >= 0) {
    connections->push_back({.fd = fd, .until = now + options_.time_limit});
    return;
  }
  // All other errors concern the connection, not the listener.
  if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
  LOG_FIRST_N(WARNING, 1) << "no connection can be accepted at " << url() << ": "
                          << absl::ErrnoToStatus(errno, "accept4").message() << "; " << DescriptorLimitText();
  accept_again_ = now + kNoDescriptorTime;
}

WatchServer::Next WatchServer::Read(Connection* connection) const {
  std::array<char, 4096> bytes;
  while (true) {
    const ssize_t n = ::recv(connection->fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Next::kKeep;
    if (n <= 0) return Next::kClose;
    // Bytes after the request are ignored; reading goes on with the next poll.
    if (connection->answered) return Next::kKeep;
    std::string& request = connection->request;
    // The end may have come in two pieces.
    const size_t from = request.size() < 3 ? 0 : request.size() - 3;
    request.append(bytes.data(), static_cast<size_t>(n));
    if (const size_t end = request.find("\r\n\r\n", from); end != std::string::npos) {
      request.resize(end + 4);
      return Next::kAnswer;
    }
    if (request.size() > HttpAnswers::kMaxHead) return Next::kAnswer;
  }
}

void WatchServer::Answer(Connection connection) {
  pollfd stopping = {.fd = stopping_, .events = POLLIN};
  bool sent = false;
  if (::poll(&stopping, 1, 0) == 0) sent = Send(connection.fd, answers_.Answer(connection.request));
  if (!sent || ::shutdown(connection.fd, SHUT_WR) != 0) {
    ::close(connection.fd);
    connection.fd = -1;
  }
  MutexLock lock(&mu_);
  --answering_;
  if (connection.fd >= 0) {
    answered_.push_back({.fd = connection.fd, .until = Clock::Real()->Now() + kClosingTime, .answered = true});
  }
  Raise(wake_);
}

bool WatchServer::Send(int fd, const std::string& answer) const {
  const absl::Time until = Clock::Real()->Now() + options_.time_limit;
  for (size_t sent = 0; sent < answer.size();) {
    const ssize_t n = ::send(fd, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
    std::array<pollfd, 2> polled = {pollfd{.fd = stopping_, .events = POLLIN}, pollfd{.fd = fd, .events = POLLOUT}};
    if (::poll(polled.data(), polled.size(), PollTimeout(until)) <= 0 && Clock::Real()->Now() >= until) return false;
    if (polled[0].revents != 0) return false;
  }
  return true;
}

}  // namespace weir
