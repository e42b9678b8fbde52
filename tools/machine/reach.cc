#include "tools/machine/reach.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/net/resolve.h"
#include "pserver/cluster/cluster.h"

namespace weir {

namespace {

// A doctor that has connected and asks for nothing.
constexpr absl::Duration kIdle = absl::Seconds(60);
// Pace of tries at a port that refuses connections.
constexpr absl::Duration kRetry = absl::Milliseconds(100);
constexpr size_t kBlock = size_t{1} << 20;
constexpr uint64_t kMostBytes = uint64_t{1} << 32;
constexpr uint64_t kMostName = 256;
constexpr int kEchoes = 11;

using Hello = std::array<char, 32>;
constexpr Hello kHello = {"weir doctor, reach 1\n"};

// Request of a check.
struct Request {
  enum Kind : uint32_t {
    kEcho = 1,  // give `number` back
    kTake = 2,  // take `number` bytes and give their checksum back
    kGive = 3,  // give `number` bytes
    kBye = 4,   // a name of `number` bytes follows; the check is done
  };
  uint32_t kind = 0;
  uint32_t unused = 0;
  uint64_t number = 0;
};
static_assert(sizeof(Request) == 16);

std::string ErrnoText() { return std::strerror(errno); }

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Waits until a socket can be read or written. DeadlineExceeded: it cannot by `end`.
absl::Status AwaitSocket(int fd, short events, absl::Time end) {
  while (true) {
    const absl::Duration left = std::max(end - Clock::Real()->Now(), absl::ZeroDuration());
    pollfd wait = {.fd = fd, .events = events, .revents = 0};
    // Rounded up: 0 would not wait at all.
    const int ready = ::poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return absl::InternalError(absl::StrCat("poll: ", ErrnoText()));
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer");
  }
}

// Reads or writes exactly `bytes` bytes by a deadline. Unavailable: the connection has ended.
absl::Status ReadAll(int fd, void* data, size_t bytes, absl::Duration deadline) {
  const absl::Time end = Clock::Real()->Now() + deadline;
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got == 0) return absl::UnavailableError("the connection was closed");
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return absl::UnavailableError(ErrnoText());
    if (got < 0) {
      RETURN_IF_ERROR(AwaitSocket(fd, POLLIN, end));
      continue;
    }
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}
absl::Status WriteAll(int fd, const void* data, size_t bytes, absl::Duration deadline) {
  const absl::Time end = Clock::Real()->Now() + deadline;
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return absl::UnavailableError(ErrnoText());
    if (sent < 0) {
      RETURN_IF_ERROR(AwaitSocket(fd, POLLOUT, end));
      continue;
    }
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return absl::OkStatus();
}

// Bytes that both sides know, block by block.
class Content {
 public:
  explicit Content(uint64_t bytes) : left_(bytes), block_(kBlock) {
    std::mt19937_64 random(17);
    for (size_t i = 0; i + sizeof(uint64_t) <= block_.size(); i += sizeof(uint64_t)) {
      const uint64_t word = random();
      std::memcpy(block_.data() + i, &word, sizeof(word));
    }
  }
  // Returns the next block, empty at the end, and adds it to the checksum.
  absl::string_view Next() {
    const size_t bytes = static_cast<size_t>(std::min<uint64_t>(left_, block_.size()));
    std::memcpy(block_.data(), &left_, sizeof(left_));
    left_ -= bytes;
    checksum_.Add(block_.data(), bytes);
    return {block_.data(), bytes};
  }
  uint64_t checksum() const { return checksum_.value; }

  struct Sum {
    uint64_t value = 0;
    void Add(const void* data, size_t bytes) {
      const uint64_t both[] = {value, StableHash(data, bytes)};
      value = StableHash(both, sizeof(both));
    }
  };

 private:
  uint64_t left_;
  std::vector<char> block_;
  Sum checksum_;
};

absl::Status SendContent(int fd, uint64_t bytes, absl::Duration deadline, uint64_t* checksum) {
  Content content(bytes);
  for (uint64_t sent = 0; sent < bytes;) {
    const absl::string_view block = content.Next();
    RETURN_IF_ERROR(WriteAll(fd, block.data(), block.size(), deadline));
    sent += block.size();
  }
  *checksum = content.checksum();
  return absl::OkStatus();
}

// Returns the checksum of what comes.
absl::StatusOr<uint64_t> ReceiveContent(int fd, uint64_t bytes, absl::Duration deadline) {
  std::vector<char> block(kBlock);
  Content::Sum checksum;
  while (bytes > 0) {
    const size_t next = static_cast<size_t>(std::min<uint64_t>(bytes, block.size()));
    RETURN_IF_ERROR(ReadAll(fd, block.data(), next, deadline));
    checksum.Add(block.data(), next);
    bytes -= next;
  }
  return checksum.value;
}

// Answers requests until the other side says that it is done; returns its name.
absl::StatusOr<std::string> AnswerRequests(int fd, uint64_t id) {
  Hello hello;
  RETURN_IF_ERROR(ReadAll(fd, hello.data(), hello.size(), kIdle));
  if (hello != kHello) return absl::InvalidArgumentError("no doctor");
  RETURN_IF_ERROR(WriteAll(fd, kHello.data(), kHello.size(), kIdle));
  RETURN_IF_ERROR(WriteAll(fd, &id, sizeof(id), kIdle));
  while (true) {
    Request request;
    RETURN_IF_ERROR(ReadAll(fd, &request, sizeof(request), kIdle));
    uint64_t answer = request.number;
    if (request.kind == Request::kBye && request.number <= kMostName) {
      std::string name(request.number, '\0');
      RETURN_IF_ERROR(ReadAll(fd, name.data(), name.size(), kIdle));
      RETURN_IF_ERROR(WriteAll(fd, &answer, sizeof(answer), kIdle));
      return name;
    }
    if (request.number > kMostBytes && request.kind != Request::kEcho) {
      return absl::InvalidArgumentError("too many bytes");
    }
    switch (request.kind) {
      case Request::kEcho:
        break;
      case Request::kTake: {
        ASSIGN_OR_RETURN(answer, ReceiveContent(fd, request.number, kIdle));
        break;
      }
      case Request::kGive: {
        RETURN_IF_ERROR(SendContent(fd, request.number, kIdle, &answer));
        continue;
      }
      default:
        return absl::InvalidArgumentError("no request");
    }
    RETURN_IF_ERROR(WriteAll(fd, &answer, sizeof(answer), kIdle));
  }
}

// ------------------------------------------------------------------------------------------------------------- a check

// Connects a socket that does not block. Returns the errno of the failure, 0 for none, ETIMEDOUT at the deadline.
int Connect(const SocketAddress& to, absl::Duration deadline, Descriptor* socket) {
  *socket = Descriptor(::socket(to.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket->get() < 0) return errno;
  const int on = 1;
  (void)::setsockopt(socket->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (::connect(socket->get(), to.raw(), to.bytes) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!AwaitSocket(socket->get(), POLLOUT, Clock::Real()->Now() + deadline).ok()) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  (void)::getsockopt(socket->get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

double Milliseconds(absl::Duration time) { return absl::ToDoubleMilliseconds(time); }

double MbPerSecond(int64_t bytes, absl::Duration time) {
  return static_cast<double>(bytes) / 1e6 / std::max(absl::ToDoubleSeconds(time), 1e-9);
}

// One check of one host.
class Check {
 public:
  Check(const ReachOptions& options, absl::Time wait_end, v1::ReachReport::Host* host)
      : options_(options), wait_end_(wait_end), host_(*host) {}

  void Run(const std::vector<SocketAddress>& addresses) {
    if (!Reach(addresses) || !Greet() || host_.self() || !TimeEchoes() || !Send() || !Receive()) return;
    Request bye = {.kind = Request::kBye, .number = std::min<uint64_t>(options_.name.size(), kMostName)};
    uint64_t answer = 0;
    absl::Status status = WriteAll(socket_.get(), &bye, sizeof(bye), options_.deadline);
    if (status.ok()) status = WriteAll(socket_.get(), options_.name.data(), bye.number, options_.deadline);
    if (status.ok()) status = ReadAll(socket_.get(), &answer, sizeof(answer), options_.deadline);
    if (!status.ok()) Broken("at the end", status);
  }
  bool Fail(const char* failure, const std::string& why) {
    host_.set_failure(failure);
    host_.set_why(why);
    return false;
  }

 private:
  bool Broken(const char* when, const absl::Status& status) {
    return Fail("broken", absl::StrCat("the connection broke ", when, ": ", status.message(),
                                       absl::IsDeadlineExceeded(status)
                                           ? absl::StrCat(" for ", absl::FormatDuration(options_.deadline))
                                           : ""));
  }

  bool Reach(const std::vector<SocketAddress>& addresses) {
    int error = 0;
    while (true) {
      for (const SocketAddress& address : addresses) {
        const absl::Time begin = Clock::Real()->Now();
        error = Connect(address, options_.deadline, &socket_);
        host_.set_address(IpText(address.raw()));
        host_.set_connect_ms(Milliseconds(Clock::Real()->Now() - begin));
        if (error == 0) return true;
      }
      if (error != ECONNREFUSED || Clock::Real()->Now() >= wait_end_) break;
      absl::SleepFor(kRetry);
    }
    host_.clear_connect_ms();
    const std::string reason = std::strerror(error);
    switch (error) {
      case ECONNREFUSED:
        return Fail("refused", absl::StrCat(host_.address(),
                                            " is reached, and nobody listens at the port: start "
                                            "`doctor --listen=PORT` there"));
      case ETIMEDOUT:
        return Fail("timeout", absl::StrCat("nothing answers at ", host_.address(), " within ",
                                            absl::FormatDuration(options_.deadline),
                                            ": the machine is off, or a firewall drops the connection"));
      case EHOSTUNREACH:
      case ENETUNREACH:
        return Fail("no route", absl::StrCat(host_.address(), ": ", reason));
      default:
        return Fail("broken", absl::StrCat("connecting to ", host_.address(), ": ", reason));
    }
  }

  bool Greet() {
    Hello hello = {};
    absl::Status status = WriteAll(socket_.get(), kHello.data(), kHello.size(), options_.deadline);
    // Another service may say less than a doctor.
    size_t got = 0;
    while (status.ok() && got < hello.size() && std::equal(hello.begin(), hello.begin() + got, kHello.begin())) {
      status = ReadAll(socket_.get(), &hello[got], 1, options_.deadline);
      if (status.ok()) ++got;
    }
    if (got > 0 && !std::equal(hello.begin(), hello.begin() + got, kHello.begin())) {
      std::string said(hello.data(), got);
      std::array<char, 64> more;
      const ssize_t rest = ::recv(socket_.get(), more.data(), more.size(), 0);
      if (rest > 0) said.append(more.data(), static_cast<size_t>(rest));
      return Fail("wrong service", absl::StrCat("another service than a doctor listens there; it says \"",
                                                absl::CHexEscape(said), "\""));
    }
    if (absl::IsDeadlineExceeded(status)) {
      return Fail("silent", absl::StrCat("the connection is taken, and nothing is said for ",
                                         absl::FormatDuration(options_.deadline),
                                         ": another service listens there, or its process is stopped"));
    }
    if (!status.ok()) {
      return Fail("wrong service", absl::StrCat("the connection is closed at a doctor's greeting (", status.message(),
                                                "): another service listens there"));
    }
    uint64_t id = 0;
    status = ReadAll(socket_.get(), &id, sizeof(id), options_.deadline);
    if (!status.ok()) return Broken("at the greeting", status);
    host_.set_self(options_.own_id != 0 && id == options_.own_id);
    return true;
  }

  bool TimeEchoes() {
    std::vector<absl::Duration> times;
    for (int i = 0; i < kEchoes; ++i) {
      const Request request = {.kind = Request::kEcho, .number = static_cast<uint64_t>(i) + 1};
      uint64_t answer = 0;
      const absl::Time begin = Clock::Real()->Now();
      absl::Status status = WriteAll(socket_.get(), &request, sizeof(request), options_.deadline);
      if (status.ok()) status = ReadAll(socket_.get(), &answer, sizeof(answer), options_.deadline);
      if (!status.ok()) return Broken("at a small message", status);
      times.push_back(Clock::Real()->Now() - begin);
      if (answer != request.number) return Fail("damaged", "a small message has come back changed");
    }
    std::sort(times.begin(), times.end());
    host_.set_round_trip_ms(Milliseconds(times[times.size() / 2]));
    return true;
  }

  bool Send() {
    const Request request = {.kind = Request::kTake, .number = static_cast<uint64_t>(options_.bytes)};
    uint64_t checksum = 0, answer = 0;
    const absl::Time begin = Clock::Real()->Now();
    absl::Status status = WriteAll(socket_.get(), &request, sizeof(request), options_.deadline);
    if (status.ok()) status = SendContent(socket_.get(), request.number, options_.deadline, &checksum);
    if (status.ok()) status = ReadAll(socket_.get(), &answer, sizeof(answer), options_.deadline);
    if (!status.ok()) return Broken("while bytes were sent", status);
    host_.set_send_mb_per_s(MbPerSecond(options_.bytes, Clock::Real()->Now() - begin));
    if (answer == checksum) return true;
    return Fail("damaged", absl::StrCat("of ", options_.bytes, " bytes sent there some have arrived changed"));
  }

  bool Receive() {
    const Request request = {.kind = Request::kGive, .number = static_cast<uint64_t>(options_.bytes)};
    const absl::Time begin = Clock::Real()->Now();
    absl::Status status = WriteAll(socket_.get(), &request, sizeof(request), options_.deadline);
    uint64_t checksum = 0;
    if (status.ok()) {
      const absl::StatusOr<uint64_t> got = ReceiveContent(socket_.get(), request.number, options_.deadline);
      status = got.status();
      if (got.ok()) checksum = *got;
    }
    if (!status.ok()) return Broken("while bytes came back", status);
    host_.set_receive_mb_per_s(MbPerSecond(options_.bytes, Clock::Real()->Now() - begin));
    Content content(request.number);
    for (uint64_t bytes = 0; bytes < request.number;) bytes += content.Next().size();
    if (checksum == content.checksum()) return true;
    return Fail("damaged", absl::StrCat("of ", options_.bytes, " bytes that came back some have arrived changed"));
  }

  const ReachOptions& options_;
  const absl::Time wait_end_;
  v1::ReachReport::Host& host_;
  Descriptor socket_;
};

absl::Status CheckLoopback(const std::vector<std::string>& hosts,
                           const std::vector<absl::StatusOr<std::vector<SocketAddress>>>& addresses) {
  std::optional<size_t> own, other;
  for (size_t h = 0; h < hosts.size(); ++h) {
    if (!addresses[h].ok()) continue;
    (IsLoopback(addresses[h]->front().raw()) ? own : other) = h;
  }
  if (!own || !other) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      hosts[*own], " is an address of its own machine alone (", IpText(addresses[*own]->front().raw()), "), and ",
      hosts[*other], " is not (", IpText(addresses[*other]->front().raw()),
      "): on every machine another process is there. Name all hosts by addresses that all machines reach"));
}

}  // namespace

absl::StatusOr<v1::ReachReport> CheckReach(const ReachOptions& options) {
  const absl::Time wait_end = Clock::Real()->Now() + options.wait;
  v1::ReachReport report;
  std::vector<absl::StatusOr<std::vector<SocketAddress>>> addresses;
  for (const std::string& text : options.hosts) {
    ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(text));
    if (endpoint.port == 0 || endpoint.IsWildcard()) {
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no address of a host: give HOST:PORT"));
    }
    addresses.push_back(Resolve(endpoint.host, endpoint.port, options.deadline));
  }
  RETURN_IF_ERROR(CheckLoopback(options.hosts, addresses));
  for (size_t h = 0; h < options.hosts.size(); ++h) {
    v1::ReachReport::Host* const host = report.add_host();
    host->set_endpoint(options.hosts[h]);
    Check check(options, wait_end, host);
    if (addresses[h].ok()) {
      check.Run(*addresses[h]);
    } else {
      check.Fail("unknown host", std::string(addresses[h].status().message()));
    }
  }
  return report;
}

absl::Status ReachStatus(const v1::ReachReport& report) {
  for (const v1::ReachReport::Host& host : report.host()) {
    if (!host.has_failure()) continue;
    const std::string text = absl::StrCat(host.endpoint(), ": ", host.failure(), ": ", host.why());
    if (host.failure() == "wrong service") return absl::FailedPreconditionError(text);
    if (host.failure() == "damaged") return absl::DataLossError(text);
    return absl::UnavailableError(text);
  }
  return absl::OkStatus();
}

std::string ReachText(const v1::ReachReport& report) {
  std::string text;
  for (const v1::ReachReport::Host& host : report.host()) {
    absl::StrAppend(&text, host.endpoint(), "  ");
    if (host.has_failure()) {
      absl::StrAppend(&text, "FAILED, ", host.failure(), ": ", host.why(), "\n");
    } else if (host.self()) {
      absl::StrAppend(&text, "this doctor\n");
    } else {
      absl::StrAppend(&text, absl::StrFormat("%s  connected in %.2f ms, round trip %.3f ms, %.0f MB/s there, %.0f MB/s "
                                             "back\n",
                                             host.address(), host.connect_ms(), host.round_trip_ms(),
                                             host.send_mb_per_s(), host.receive_mb_per_s()));
    }
  }
  if (!report.checked_by().empty())
    absl::StrAppend(&text, "checked by ", absl::StrJoin(report.checked_by(), ", "), "\n");
  return text;
}

// ------------------------------------------------------------------------------------------------------------ listener

absl::StatusOr<std::unique_ptr<ReachListener>> ReachListener::Start(int port) {
  if (port < 0 || port > 65535) return absl::InvalidArgumentError(absl::StrCat(port, " is no port: 0 to 65535"));
  std::unique_ptr<ReachListener> listener(new ReachListener());
  std::random_device random;
  listener->id_ = (uint64_t{random()} << 32 | random()) | 1;
  // One socket for both versions of the protocol, or IPv4 alone where the kernel has no other.
  SocketAddress any{.bytes = sizeof(sockaddr_in6)};
  any.address.ss_family = AF_INET6;
  listener->fd_ = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener->fd_ < 0) {
    any.address.ss_family = AF_INET;
    any.bytes = sizeof(sockaddr_in);
    listener->fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  }
  any.set_port(port);
  const int on = 1, off = 0;
  (void)::setsockopt(listener->fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  (void)::setsockopt(listener->fd_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (listener->fd_ < 0 || ::bind(listener->fd_, any.raw(), any.bytes) != 0 || ::listen(listener->fd_, 128) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen at port ", port, ": ", ErrnoText(), "; choose another one with --listen"));
  }
  SocketAddress own{.bytes = sizeof(sockaddr_storage)};
  (void)::getsockname(listener->fd_, reinterpret_cast<sockaddr*>(&own.address), &own.bytes);
  listener->port_ = own.port();
  if (::pipe2(listener->stop_, O_CLOEXEC) != 0) return absl::ResourceExhaustedError(ErrnoText());
  listener->accepts_ = StartThread("weir-reach", [l = listener.get()] { l->Accept(); });
  return listener;
}

ReachListener::~ReachListener() {
  if (stop_[1] >= 0) ::close(stop_[1]);
  if (accepts_.joinable()) accepts_.join();
  std::vector<std::unique_ptr<Connection>> left;
  {
    MutexLock lock(&mu_);
    for (const std::unique_ptr<Connection>& connection : connections_) {
      if (!connection->ended) ::shutdown(connection->fd, SHUT_RDWR);
    }
    left.swap(connections_);
  }
  for (const std::unique_ptr<Connection>& connection : left) connection->thread.join();
  if (stop_[0] >= 0) ::close(stop_[0]);
  if (fd_ >= 0) ::close(fd_);
}

void ReachListener::Accept() {
  while (true) {
    pollfd waits[] = {{.fd = fd_, .events = POLLIN, .revents = 0}, {.fd = stop_[0], .events = POLLIN, .revents = 0}};
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) return;
    if (waits[1].revents != 0) return;
    Reap();
    Descriptor accepted(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (accepted.get() < 0) {
      // Out of descriptors, perhaps: the connection stays there, and would be asked for again at once.
      if (errno != EAGAIN && errno != EWOULDBLOCK) (void)::poll(waits + 1, 1, 100);
      continue;
    }
    MutexLock lock(&mu_);
    if (connections_.size() >= kMostConnections) continue;
    connections_.push_back(std::make_unique<Connection>());
    Connection* const connection = connections_.back().get();
    connection->fd = accepted.Release();
    connection->thread = StartThread("weir-reach-peer", [this, connection] { Answer(connection); });
  }
}

void ReachListener::Answer(Connection* connection) {
  int fd = -1;
  {
    MutexLock lock(&mu_);
    fd = connection->fd;
  }
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const absl::StatusOr<std::string> name = AnswerRequests(fd, id_);
  MutexLock lock(&mu_);
  if (name.ok()) {
    const auto at = std::lower_bound(checked_by_.begin(), checked_by_.end(), *name);
    if (at == checked_by_.end() || *at != *name) checked_by_.insert(at, *name);
  }
  ::close(fd);
  connection->ended = true;
}

void ReachListener::Reap() {
  std::vector<std::unique_ptr<Connection>> ended;
  {
    MutexLock lock(&mu_);
    const auto first = std::partition(connections_.begin(), connections_.end(),
                                      [](const std::unique_ptr<Connection>& each) { return !each->ended; });
    std::move(first, connections_.end(), std::back_inserter(ended));
    connections_.erase(first, connections_.end());
  }
  for (const std::unique_ptr<Connection>& connection : ended) connection->thread.join();
}

std::vector<std::string> ReachListener::CheckedBy() const {
  MutexLock lock(&mu_);
  return checked_by_;
}

}  // namespace weir
