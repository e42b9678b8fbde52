// Whether hosts reach each other: what is measured, and how each way of not reaching a host is named.

#include "tools/machine/reach.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string At(int port) { return absl::StrCat("127.0.0.1:", port); }

std::unique_ptr<ReachListener> Listen() {
  absl::StatusOr<std::unique_ptr<ReachListener>> listener = ReachListener::Start(0);
  EXPECT_TRUE(listener.ok()) << listener.status();
  return *std::move(listener);
}

v1::ReachReport CheckHosts(const std::vector<std::string>& hosts, ReachOptions options = {}) {
  options.hosts = hosts;
  options.bytes = int64_t{3} << 20;
  if (options.name.empty()) options.name = "the test";
  const absl::StatusOr<v1::ReachReport> report = CheckReach(options);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *report : v1::ReachReport();
}

// A socket of a port that the system chooses; listens if `backlog` > 0.
class OwnSocket {
 public:
  explicit OwnSocket(int backlog) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&any), sizeof(any)), 0);
    if (backlog > 0) {
      EXPECT_EQ(::listen(fd_, backlog), 0);
    }
    socklen_t size = sizeof(any);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&any), &size), 0);
    port_ = ntohs(any.sin_port);
  }
  ~OwnSocket() { ::close(fd_); }
  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

// Takes one connection and lets `serve` have it.
class OtherService {
 public:
  explicit OtherService(std::function<void(int fd)> serve) : socket_(4) {
    thread_ = std::thread([this, serve = std::move(serve)] {
      const int fd = ::accept(socket_.fd(), nullptr, nullptr);
      if (fd < 0) return;
      serve(fd);
      ::close(fd);
    });
  }
  ~OtherService() {
    ::shutdown(socket_.fd(), SHUT_RDWR);
    thread_.join();
  }
  int port() const { return socket_.port(); }

 private:
  OwnSocket socket_;
  std::thread thread_;
};

// Reads until the other side is done.
void Drain(int fd) {
  char bytes[4096];
  while (::recv(fd, bytes, sizeof(bytes), 0) > 0) {
  }
}

// Carries bytes between a check and a listener; changes one in each direction after so many bytes (-1: none).
class DamagingProxy {
 public:
  DamagingProxy(int to, int64_t there, int64_t back)
      : service_([=](int client) {
          const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
          sockaddr_in address{};
          address.sin_family = AF_INET;
          address.sin_port = htons(static_cast<uint16_t>(to));
          address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
          ASSERT_EQ(::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
          int64_t left[2] = {there, back};
          const int from[2] = {client, server};
          bool open = true;
          while (open) {
            pollfd waits[2] = {{.fd = client, .events = POLLIN, .revents = 0},
                               {.fd = server, .events = POLLIN, .revents = 0}};
            if (::poll(waits, 2, 20000) <= 0) break;
            for (int way = 0; way < 2 && open; ++way) {
              if (waits[way].revents == 0) continue;
              std::vector<char> bytes(1 << 16);
              const ssize_t got = ::recv(from[way], bytes.data(), bytes.size(), 0);
              open = got > 0;
              if (left[way] >= 0 && left[way] < got) bytes[static_cast<size_t>(left[way])] ^= 1;
              left[way] = left[way] < got ? -1 : left[way] - got;
              for (ssize_t sent = 0; open && sent < got;) {
                const ssize_t now =
                    ::send(from[1 - way], bytes.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
                open = now > 0;
                sent += now;
              }
            }
          }
          ::close(server);
        }) {}
  int port() const { return service_.port(); }

 private:
  OtherService service_;
};

// Returns who has checked the listener, once there are so many: it learns that a check has ended after the checker.
std::vector<std::string> CheckersOf(const ReachListener& listener, size_t count) {
  const absl::Time end = Clock::Real()->Now() + absl::Seconds(20);
  while (listener.CheckedBy().size() < count && Clock::Real()->Now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return listener.CheckedBy();
}

TEST(ReachTest, AHostThatIsReachedIsMeasured) {
  const auto listener = Listen();
  const v1::ReachReport report = CheckHosts({At(listener->port())});
  ASSERT_EQ(report.host_size(), 1);
  const auto& host = report.host(0);
  EXPECT_FALSE(host.has_failure()) << host.ShortDebugString();
  EXPECT_FALSE(host.self());
  EXPECT_EQ(host.address(), "127.0.0.1");
  EXPECT_GT(host.connect_ms(), 0);
  EXPECT_GT(host.round_trip_ms(), 0);
  EXPECT_GT(host.send_mb_per_s(), 1);
  EXPECT_GT(host.receive_mb_per_s(), 1);
  EXPECT_TRUE(ReachStatus(report).ok());
  EXPECT_THAT(ReachText(report), HasSubstr("127.0.0.1  connected in "));
  EXPECT_THAT(CheckersOf(*listener, 1), ElementsAre("the test"));
}

TEST(ReachTest, ADoctorKnowsItself) {
  const auto listener = Listen(), other = Listen();
  const v1::ReachReport report = CheckHosts({At(listener->port()), At(other->port())}, {.own_id = listener->id()});
  EXPECT_TRUE(report.host(0).self());
  EXPECT_FALSE(report.host(1).self());
  EXPECT_THAT(ReachText(report), HasSubstr("this doctor\n"));
}

TEST(ReachTest, NamesAndIpv6AreReached) {
  const auto listener = Listen();
  const v1::ReachReport report = CheckHosts({absl::StrCat("localhost:", listener->port())});
  EXPECT_TRUE(ReachStatus(report).ok()) << ReachStatus(report);
  const v1::ReachReport ipv6 = CheckHosts({absl::StrCat("[::1]:", listener->port())});
  if (ipv6.host(0).failure() == "no route" || ipv6.host(0).failure() == "broken") GTEST_SKIP() << "no IPv6 here";
  EXPECT_TRUE(ReachStatus(ipv6).ok()) << ReachStatus(ipv6);
  EXPECT_EQ(ipv6.host(0).address(), "::1");
}

TEST(ReachTest, ManyDoctorsAreAnsweredAtOnce) {
  const auto listener = Listen();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const v1::ReachReport report =
          CheckHosts({At(listener->port())}, {.name = absl::StrCat("doctor ", i), .deadline = absl::Seconds(30)});
      EXPECT_TRUE(ReachStatus(report).ok()) << ReachStatus(report);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> checkers = CheckersOf(*listener, 8);
  ASSERT_EQ(checkers.size(), 8u);
  EXPECT_EQ(checkers[3], "doctor 3");
}

TEST(ReachTest, APortThatNobodyListensAtRefuses) {
  const OwnSocket bound(0);
  const v1::ReachReport report = CheckHosts({At(bound.port())});
  EXPECT_EQ(report.host(0).failure(), "refused");
  EXPECT_THAT(report.host(0).why(), HasSubstr("127.0.0.1 is reached, and nobody listens at the port"));
  EXPECT_EQ(ReachStatus(report).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(ReachText(report), HasSubstr("FAILED, refused: "));
}

TEST(ReachTest, ADoctorThatStartsLaterIsWaitedFor) {
  int port = 0;
  {
    const OwnSocket bound(0);
    port = bound.port();
  }
  std::thread later;
  std::unique_ptr<ReachListener> listener;
  std::atomic<bool> checked{false};
  later = std::thread([&] {
    // When the check has begun, as far as can be told from here: it must not matter.
    listener = *ReachListener::Start(port);
    while (!checked) std::this_thread::yield();
  });
  const v1::ReachReport report = CheckHosts({At(port)}, {.wait = absl::Seconds(20)});
  checked = true;
  later.join();
  EXPECT_TRUE(ReachStatus(report).ok()) << ReachStatus(report);
}

TEST(ReachTest, AHostThatDoesNotAnswerIsATimeout) {
  // A full queue of connections drops the next ones, as a firewall does.
  const OwnSocket full(1);
  std::vector<int> fillers;
  for (int i = 0; i < 4; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(full.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    fillers.push_back(fd);
  }
  const absl::Time begin = Clock::Real()->Now();
  const v1::ReachReport report = CheckHosts({At(full.port())}, {.deadline = absl::Milliseconds(300)});
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(10));
  EXPECT_EQ(report.host(0).failure(), "timeout") << report.host(0).why();
  EXPECT_THAT(report.host(0).why(), HasSubstr("nothing answers at 127.0.0.1 within 300ms"));
  for (const int fd : fillers) ::close(fd);
}

TEST(ReachTest, AnotherServiceIsNamedWithWhatItSays) {
  const OtherService service([](int fd) {
    const std::string answer = "HTTP/1.1 400 Bad Request\r\n";
    (void)::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
    Drain(fd);
  });
  const v1::ReachReport report = CheckHosts({At(service.port())});
  EXPECT_EQ(report.host(0).failure(), "wrong service");
  EXPECT_THAT(report.host(0).why(), HasSubstr("another service than a doctor listens there; it says \"H"));
  EXPECT_EQ(ReachStatus(report).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ReachTest, AServiceThatHangsUpIsNoDoctor) {
  const OtherService service([](int fd) {
    char byte;
    (void)::recv(fd, &byte, 1, 0);
  });
  const v1::ReachReport report = CheckHosts({At(service.port())});
  EXPECT_EQ(report.host(0).failure(), "wrong service");
  EXPECT_THAT(report.host(0).why(), HasSubstr("is closed at a doctor's greeting"));
}

TEST(ReachTest, AServiceThatSaysNothingIsGivenUp) {
  const OtherService service(Drain);
  const v1::ReachReport report = CheckHosts({At(service.port())}, {.deadline = absl::Milliseconds(100)});
  EXPECT_EQ(report.host(0).failure(), "silent");
  EXPECT_THAT(report.host(0).why(), HasSubstr("nothing is said for 100ms"));
}

TEST(ReachTest, DamagedBytesAreSeenInEachDirection) {
  const auto listener = Listen();
  // Behind the greeting and the small messages.
  for (const bool there : {true, false}) {
    const DamagingProxy proxy(listener->port(), there ? 2000000 : -1, there ? -1 : 2000000);
    const v1::ReachReport report = CheckHosts({At(proxy.port())});
    EXPECT_EQ(report.host(0).failure(), "damaged") << report.host(0).why();
    EXPECT_THAT(report.host(0).why(),
                HasSubstr(there ? "of 3145728 bytes sent there some have arrived changed" : "that came back some"));
    EXPECT_EQ(ReachStatus(report).code(), absl::StatusCode::kDataLoss);
  }
  const DamagingProxy proxy(listener->port(), -1, -1);
  EXPECT_TRUE(ReachStatus(CheckHosts({At(proxy.port())})).ok()) << "the proxy itself does no harm";
}

TEST(ReachTest, AConnectionThatBreaksIsNamedWithItsMoment) {
  const auto listener = Listen();
  const OtherService service([&](int fd) {
    // A doctor's greeting, and then the end.
    std::string greeting(32, '\0');
    ASSERT_EQ(::recv(fd, greeting.data(), greeting.size(), MSG_WAITALL), 32);
    greeting += std::string(8, 'i');
    ASSERT_EQ(::send(fd, greeting.data(), greeting.size(), MSG_NOSIGNAL), 40);
    char request[16];
    (void)::recv(fd, request, sizeof(request), MSG_WAITALL);
  });
  const v1::ReachReport report = CheckHosts({At(service.port())});
  EXPECT_EQ(report.host(0).failure(), "broken");
  EXPECT_THAT(report.host(0).why(), HasSubstr("the connection broke at a small message"));
}

TEST(ReachTest, AnUnknownNameIsNamed) {
  const v1::ReachReport report = CheckHosts({"no-such-host.invalid:6170"}, {.deadline = absl::Seconds(2)});
  EXPECT_EQ(report.host(0).failure(), "unknown host");
  EXPECT_FALSE(report.host(0).why().empty());
}

TEST(ReachTest, ALoopbackAddressBesideOthersIsRefused) {
  const absl::Status status = CheckReach({.hosts = {"192.0.2.7:1", "127.0.0.1:2"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("127.0.0.1:2 is an address of its own machine alone (127.0.0.1), and 192.0.2.7:1 is not"));
}

TEST(ReachTest, WhatIsNoEndpointIsRefused) {
  for (const char* host : {"host", "", "host:0", "host:99999", "0.0.0.0:5", "[::1:5"}) {
    EXPECT_EQ(CheckReach({.hosts = {host}}).status().code(), absl::StatusCode::kInvalidArgument) << host;
  }
}

TEST(ReachTest, APortThatIsTakenIsNamed) {
  const auto listener = Listen();
  const absl::Status status = ReachListener::Start(listener->port()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("cannot listen at port ", listener->port())));
  EXPECT_EQ(ReachListener::Start(70000).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReachTest, WhatIsNoDoctorIsClosedAndNotCounted) {
  const auto listener = Listen();
  const auto answer_to = [&](std::string bytes) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(listener->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    (void)::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ssize_t got = 0, all = 0;
    char answer[256];
    while ((got = ::recv(fd, answer, sizeof(answer), 0)) > 0) all += got;
    ::close(fd);
    return all;
  };
  EXPECT_EQ(answer_to("GET / HTTP/1.1\r\nHost: x\r\n\r\n          "), 0);
  std::string hello = "weir doctor, reach 1\n";
  hello.resize(32);
  // An unknown request, more bytes than are given, and a name that is too long.
  for (const auto& [kind, number] : {std::pair<uint32_t, uint64_t>{9, 1}, {3, ~uint64_t{0}}, {4, 257}}) {
    std::string request(16, '\0');
    std::memcpy(request.data(), &kind, sizeof(kind));
    std::memcpy(request.data() + 8, &number, sizeof(number));
    EXPECT_EQ(answer_to(hello + request), 40) << kind;
  }
  EXPECT_TRUE(listener->CheckedBy().empty());
}

TEST(ReachTest, AListenerEndsWhileConnectionsAreOpen) {
  auto listener = Listen();
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(listener->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const absl::Time begin = Clock::Real()->Now();
  listener = nullptr;
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(5));
  ::close(fd);
}

}  // namespace
}  // namespace weir
