// Who accepts connections of plain sockets and others, on sockets of this machine.

#include "pserver/sockets/socket_listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/net/resolve.h"
#include "framework/net/socket_address.h"
#include "gtest/gtest.h"
#include "pserver/sockets/socket_events.h"
#include "pserver/sockets/socket_input.h"
#include "pserver/sockets/unix_socket.h"
#include "tests/pserver/sockets/raw_socket.h"
#include "tests/testing/expect_status.h"

namespace weir {
namespace {

constexpr std::string_view kOther = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Sockets that a listener has given away.
class Given {
 public:
  ~Given() {
    MutexLock lock(&mu_);
    for (const int socket : sockets_) ::close(socket);
  }
  TakeSocket Take() {
    return [this](int socket) {
      MutexLock lock(&mu_);
      sockets_.push_back(socket);
      changed_.SignalAll();
    };
  }
  // Returns the descriptor of the `n`th, from 1; it stays here.
  int Wait(size_t n = 1) {
    const absl::Time until = Clock::Real()->Now() + kPatience;
    MutexLock lock(&mu_);
    while (sockets_.size() < n && Clock::Real()->Now() < until) changed_.WaitWithTimeout(&mu_, kPatience);
    EXPECT_GE(sockets_.size(), n);
    return sockets_.size() < n ? -1 : sockets_[n - 1];
  }
  size_t size() {
    MutexLock lock(&mu_);
    return sockets_.size();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<int> sockets_ ABSL_GUARDED_BY(mu_);
};

// Returns a TCP socket that is not connected yet. One of 127.0.0.2 cannot have the port of a listener at 127.0.0.1.
int TcpSocket(int family) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in from = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK + 1)}};
  if (family == AF_INET) {
    EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
  }
  return fd;
}

// Returns an address that is written as such, with a port.
SocketAddress AddressOf(const std::string& host, int port) { return (*Resolve(host, port))[0]; }

bool Connects(int fd, const SocketAddress& at) { return ::connect(fd, at.raw(), at.bytes) == 0; }

RawSocket ClientOf(const SocketAddress& at) {
  const int fd = TcpSocket(at.address.ss_family);
  EXPECT_TRUE(Connects(fd, at)) << at.ToString() << ": " << std::strerror(errno);
  return RawSocket(fd);
}

bool HasIpv6() {
  const SocketAddress at = AddressOf("::1", 0);
  const int fd = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool has = fd >= 0 && ::bind(fd, at.raw(), at.bytes) == 0;
  ::close(fd);
  return has;
}

int LowWaterMark(int socket) {
  int least = 0;
  socklen_t bytes = sizeof(least);
  EXPECT_EQ(::getsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &least, &bytes), 0);
  return least;
}

std::string Unread(int socket) {
  std::string bytes(1000, '\0');
  const ssize_t read = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(read < 0 ? 0 : static_cast<size_t>(read));
  return bytes;
}

class SocketListenerTest : public testing::Test {
 protected:
  void Listen(const std::string& endpoint) {
    auto listener = SocketListener::ListenAt(endpoint);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    listener_->Accept(greets_.Take(), others_.Take());
  }
  RawSocket Connect(const std::string& host = "127.0.0.1") const {
    return ClientOf(AddressOf(host, listener_->port()));
  }
  // Connects to an address as each kind of client, and expects both to be told apart.
  void ExpectServed(const std::string& host) {
    SCOPED_TRACE(host);
    const size_t greets = greets_.size(), others = others_.size();
    const RawSocket ours = Connect(host), other = Connect(host);
    ours.Send(SocketGreeting());
    other.Send(kOther);
    EXPECT_EQ(Unread(greets_.Wait(greets + 1)), SocketGreeting());
    EXPECT_EQ(Unread(others_.Wait(others + 1)), kOther);
  }

  Given greets_, others_;
  std::unique_ptr<SocketListener> listener_;
};

TEST_F(SocketListenerTest, ConnectionsAreToldApartByTheirFirstBytesWhichStayUnread) {
  Listen("127.0.0.1:0");
  const RawSocket ours = Connect(), other = Connect();
  ours.Send(SocketGreeting());
  other.Send(kOther);
  for (Given* const given : {&greets_, &others_}) {
    const int socket = given->Wait();
    EXPECT_EQ(LowWaterMark(socket), 1);
    EXPECT_NE(::fcntl(socket, F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(::fcntl(socket, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(Unread(socket), given == &greets_ ? SocketGreeting() : kOther);
  }
  EXPECT_EQ(greets_.size() + others_.size(), 2);
}

TEST_F(SocketListenerTest, AGreetingThatComesInPiecesIsOne) {
  Listen("127.0.0.1:0");
  const RawSocket ours = Connect();
  ours.Send(kGreeting.substr(0, 3));
  ExpectServed("127.0.0.1");
  // Connections are accepted in their order: the first one has been looked at.
  ours.Send(kGreeting.substr(3));
  EXPECT_EQ(Unread(greets_.Wait(2)), kGreeting);
  EXPECT_EQ(others_.size(), 1);
}

TEST_F(SocketListenerTest, AConnectionThatEndsEarlyIsForOthersIfItHasSentAnything) {
  Listen("127.0.0.1:0");
  RawSocket empty = Connect();
  empty.EndOutput();
  EXPECT_TRUE(empty.Ends());
  const RawSocket brief = Connect();
  brief.Send("GET");
  brief.EndOutput();
  const int socket = others_.Wait();
  EXPECT_EQ(Unread(socket), "GET");
  EXPECT_EQ(greets_.size() + others_.size(), 1);
}

TEST_F(SocketListenerTest, TheOldestOfTooManySilentConnectionsAreClosedAndOthersAreServed) {
  Listen("127.0.0.1:0");
  constexpr size_t kMore = 10;
  std::vector<RawSocket> silent;
  for (size_t i = 0; i < kMostSilent + kMore; ++i) silent.push_back(Connect());
  const RawSocket honest = Connect();
  honest.Send(SocketGreeting());
  greets_.Wait();
  for (size_t i = 0; i <= kMore; ++i) ASSERT_TRUE(silent[i].Ends()) << i;
  // The youngest may still say what it is.
  silent.back().Send(SocketGreeting());
  EXPECT_EQ(Unread(greets_.Wait(2)), SocketGreeting());
}

TEST_F(SocketListenerTest, SilentConnectionsAreClosedAtTheEnd) {
  Listen("127.0.0.1:0");
  const RawSocket silent = Connect();
  ExpectServed("127.0.0.1");
  listener_->Stop();
  EXPECT_TRUE(silent.Ends());
}

TEST_F(SocketListenerTest, ANameIsListenedAtOnAllItsAddressesWithOnePort) {
  Listen("localhost:0");
  EXPECT_GT(listener_->port(), 0);
  const auto addresses = Resolve("localhost", 0);
  ASSERT_TRUE(addresses.ok()) << addresses.status();
  for (const SocketAddress& at : *addresses) {
    if (at.address.ss_family == AF_INET || HasIpv6()) ExpectServed(IpText(at.raw()));
  }
}

TEST_F(SocketListenerTest, AddressesThatThisMachineLacksArePassedOver) {
  // 192.0.2.1 is of no machine.
  const SocketAddress here = AddressOf("127.0.0.1", 0), nowhere = AddressOf("192.0.2.1", 0);
  for (const auto& addresses : std::vector<std::vector<SocketAddress>>{{nowhere, here}, {here, nowhere}}) {
    auto listener = SocketListener::ListenAtAddresses(addresses, "a name:0");
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    listener_->Accept(greets_.Take(), others_.Take());
    ExpectServed("127.0.0.1");
  }
  EXPECT_STATUS(SocketListener::ListenAtAddresses({nowhere}, "a name:0").status(), kFailedPrecondition,
                "cannot listen on a name:0: Cannot assign requested address");
}

TEST_F(SocketListenerTest, AWildcardIsListenedAtThroughBothProtocols) {
  for (const std::string wildcard : {"0.0.0.0:0", "[::]:0"}) {
    SCOPED_TRACE(wildcard);
    Listen(wildcard);
    ExpectServed("127.0.0.1");
    if (HasIpv6()) ExpectServed("::1");
  }
}

TEST_F(SocketListenerTest, APortThatIsInUseIsSaidToBe) {
  Listen("127.0.0.1:0");
  for (const std::string host : {"127.0.0.1", "0.0.0.0", "[::]"}) {
    const std::string endpoint = absl::StrCat(host, ":", listener_->port());
    const absl::Status status = SocketListener::ListenAt(endpoint).status();
    EXPECT_EQ(status,
              absl::FailedPreconditionError(absl::StrCat("cannot listen on ", endpoint, ": Address already in use")));
  }
}

// Connects until the end, from several threads, as each kind of client; each waits until its connection is closed.
class Clients {
 public:
  explicit Clients(const SocketAddress& at) {
    // One byte is silence, too. (Without any, Linux may leave a client in the dark whose connection was being made when
    // the port was closed.)
    for (const std::string_view first : {kGreeting.substr(0, 1), kGreeting, kOther, kGreeting, kOther}) {
      threads_.emplace_back([this, at, first] {
        while (!ends_) {
          const RawSocket client(TcpSocket(AF_INET));
          if (!Connects(client.fd(), at)) continue;
          ::send(client.fd(), first.data(), first.size(), MSG_NOSIGNAL);
          EXPECT_TRUE(client.Ends());
        }
      });
    }
  }
  ~Clients() {
    ends_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

 private:
  std::atomic<bool> ends_ = false;  // read by the threads
  std::vector<std::thread> threads_;
};

TEST_F(SocketListenerTest, APortIsFreeAtOnceAndNothingIsCalledAfterTheEnd) {
  Listen("127.0.0.1:0");
  const SocketAddress at = AddressOf("127.0.0.1", listener_->port());
  listener_->Stop();
  const Clients clients(at);
  for (int round = 0; round < 100; ++round) {
    auto listener = SocketListener::ListenAt(at.ToString());
    ASSERT_TRUE(listener.ok()) << listener.status();
    Given given;
    std::atomic<bool> stopped = false;  // read by threads of SocketEvents
    const auto take = [&stopped, take = given.Take()](int socket) {
      EXPECT_FALSE(stopped);
      take(socket);
    };
    (*listener)->Accept(take, take);
    // Every other round ends while the first connections come.
    if (round % 2 == 0) given.Wait(3);
    (*listener)->Stop();
    stopped = true;
  }
}

// Counts its events.
class Counter : public SocketWatcher {
 public:
  void OnEvents(uint32_t /*events*/) override {
    MutexLock lock(&mu_);
    ++events_;
    changed_.SignalAll();
  }
  void Wait(int events) {
    MutexLock lock(&mu_);
    while (events_ < events) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int events_ ABSL_GUARDED_BY(mu_) = 0;
};

// A descriptor that is always ready.
class Ready {
 public:
  Ready() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), number_(SocketEvents::Get()->Add(fd_, counter_)) {}
  ~Ready() {
    SocketEvents::Get()->Remove(number_, fd_);
    ::close(fd_);
  }
  Ready(const Ready&) = delete;
  Ready& operator=(const Ready&) = delete;

  // Returns when the threads of SocketEvents have had time to serve what was ready before.
  void PassEvents() {
    for (int i = 0; i < 1000; ++i) {
      SocketEvents::Get()->Arm(number_, fd_, EPOLLOUT);
      counter_->Wait(++passed_);
    }
  }

 private:
  const std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
  const int fd_;
  const uint64_t number_;
  int passed_ = 0;
};

TEST_F(SocketListenerTest, StopWaitsForAFunctionThatRuns) {
  auto listener = SocketListener::ListenAt("127.0.0.1:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::promise<void> runs, may_end;
  std::atomic<bool> ended = false;  // set by a thread of SocketEvents
  (*listener)->Accept(
      [&](int socket) {
        ::close(socket);
        runs.set_value();
        may_end.get_future().wait();
        ended = true;
      },
      others_.Take());
  const RawSocket client = ClientOf(AddressOf("127.0.0.1", (*listener)->port()));
  client.Send(SocketGreeting());
  runs.get_future().wait();
  auto stop = std::async(std::launch::async, [&listener, &ended] {
    (*listener)->Stop();
    EXPECT_TRUE(ended);
  });
  Ready().PassEvents();
  EXPECT_EQ(stop.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  may_end.set_value();
  stop.get();
}

TEST_F(SocketListenerTest, AListenerThatHasNotBegunToAcceptFreesItsPort) {
  auto listener = SocketListener::ListenAt("127.0.0.1:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string endpoint = absl::StrCat("127.0.0.1:", (*listener)->port());
  EXPECT_EQ(SocketListener::ListenAt(endpoint).status().code(), absl::StatusCode::kFailedPrecondition);
  listener->reset();
  EXPECT_TRUE(SocketListener::ListenAt(endpoint).ok());
}

TEST_F(SocketListenerTest, APathIsServedAndRemovedAtTheEnd) {
  const std::string path = TensorPathOf(*NewUnixSocketPath());
  auto listener = SocketListener::ListenAtPath(path);
  ASSERT_TRUE(listener.ok()) << listener.status();
  (*listener)->Accept(greets_.Take(), others_.Take());
  EXPECT_EQ((*listener)->port(), 0);
  for (const std::string& first : {SocketGreeting(), std::string(kOther)}) {
    const auto fd = ConnectTo(path, SOCK_STREAM);
    ASSERT_TRUE(fd.ok()) << fd.status();
    const RawSocket client(*fd);
    client.Send(first);
    const int socket = (first == kOther ? others_ : greets_).Wait();
    EXPECT_EQ(LowWaterMark(socket), 1);
    EXPECT_EQ(Unread(socket), first);
  }
  (*listener)->Stop();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(SocketListener::ListenAtPath(path).ok());
}

// All descriptors of the process that are free, until the destructor.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit few = before_;
    few.rlim_cur = 256;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int fd = 0; (fd = ::dup(STDERR_FILENO)) >= 0;) taken_.push_back(fd);
    EXPECT_EQ(errno, EMFILE);
  }
  ~NoDescriptors() {
    for (const int fd : taken_) ::close(fd);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_ = {};
  std::vector<int> taken_;
};

TEST_F(SocketListenerTest, AProcessThatHasHadNoDescriptorFreeGoesOnAccepting) {
  Listen("127.0.0.1:0");
  const SocketAddress at = AddressOf("127.0.0.1", listener_->port());
  const RawSocket client(TcpSocket(AF_INET));
  Ready ready;
  {
    const NoDescriptors none;
    ASSERT_TRUE(Connects(client.fd(), at));
    client.Send(SocketGreeting());
    ready.PassEvents();
    EXPECT_EQ(greets_.size(), 0);
  }
  EXPECT_EQ(Unread(greets_.Wait()), SocketGreeting());
  ExpectServed("127.0.0.1");
}

}  // namespace
}  // namespace weir
