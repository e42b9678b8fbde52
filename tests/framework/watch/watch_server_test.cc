#include "framework/watch/watch_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "framework/base/atomic_file.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kRequest[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

// A TCP connection to this machine.
class Client {
 public:
  explicit Client(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // A test that waits for longer has failed.
    const timeval limit = {.tv_sec = 30};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Send(std::string_view data) {
    EXPECT_EQ(::send(fd_, data.data(), data.size(), MSG_NOSIGNAL), static_cast<ssize_t>(data.size()));
  }
  void End() { ::shutdown(fd_, SHUT_WR); }
  // Returns what comes until the server closes.
  std::string Receive() {
    std::string all;
    std::array<char, 65536> some;
    for (ssize_t n = 0; (n = ::recv(fd_, some.data(), some.size(), 0)) > 0;) all.append(some.data(), n);
    return all;
  }
  std::string Ask(std::string_view request) {
    Send(request);
    return Receive();
  }

 private:
  const int fd_;
};

std::vector<WatchPage> Pages(std::string content = "weir_steps_total 1\n") {
  return {{.path = "/metrics",
           .content_type = "text/plain",
           .content = [content](std::string_view) -> absl::StatusOr<std::string> { return content; }}};
}

std::unique_ptr<WatchServer> Start(WatchServer::Options options = {}) {
  return WatchServer::Start(Pages(), std::move(options)).value();
}

TEST(WatchServerTest, APageIsServed) {
  const auto server = Start();
  EXPECT_GT(server->port(), 0);
  EXPECT_EQ(server->url(), absl::StrCat("http://127.0.0.1:", server->port()));
  EXPECT_THAT(Client(server->port()).Ask(kRequest), EndsWith("\r\n\r\nweir_steps_total 1\n"));
}

TEST(WatchServerTest, ARequestMayComeInPieces) {
  const auto server = Start();
  Client client(server->port());
  for (const char c : std::string_view(kRequest)) client.Send(std::string_view(&c, 1));
  EXPECT_THAT(client.Receive(), StartsWith("HTTP/1.1 200 "));
}

TEST(WatchServerTest, DamagedRequestsAreAnsweredAndTheServerGoesOn) {
  const auto server = Start();
  for (const std::string& request :
       {std::string("\r\n\r\n"), std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 13),
        std::string("GET /\r\n\r\n"), std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}) {
    EXPECT_THAT(Client(server->port()).Ask(request), StartsWith("HTTP/1.1 400 "));
  }
  EXPECT_THAT(Client(server->port()).Ask("GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Client(server->port()).Ask(kRequest), StartsWith("HTTP/1.1 200 "));
}

TEST(WatchServerTest, HalfARequestIsNotAnswered) {
  const auto server = Start();
  Client client(server->port());
  client.Send("GET /metrics HTT");
  client.End();
  EXPECT_EQ(client.Receive(), "");
}

TEST(WatchServerTest, AHeadTooLargeIsRefused) {
  const auto server = Start();
  Client client(server->port());
  const std::string large = absl::StrCat("GET / HTTP/1.1\r\nCookie: ", std::string(HttpAnswers::kMaxHead, 'x'));
  EXPECT_THAT(client.Ask(large), StartsWith("HTTP/1.1 431 "));
}

// The system resets a connection that is closed with bytes unread, and the answer may be lost with it.
TEST(WatchServerTest, AnAnswerIsReceivedThoughTheClientStillSends) {
  const auto server = Start();
  Client client(server->port());
  client.Send(absl::StrCat("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n\r\n",
                           std::string(300'000, 'x')));
  client.End();
  EXPECT_THAT(client.Receive(), StartsWith("HTTP/1.1 405 "));
}

TEST(WatchServerTest, AClientThatSaysNothingIsClosed) {
  const auto server = Start({.time_limit = absl::Milliseconds(50)});
  Client silent(server->port()), slow(server->port());
  slow.Send("GET /metrics");
  EXPECT_EQ(silent.Receive(), "");
  EXPECT_EQ(slow.Receive(), "");
}

TEST(WatchServerTest, SilentClientsDoNotHoldOthersUp) {
  const auto server = Start({.threads = 1});
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<Client>(server->port()));
  EXPECT_THAT(Client(server->port()).Ask(kRequest), StartsWith("HTTP/1.1 200 "));
}

TEST(WatchServerTest, ConnectionsBeyondTheLimitWaitForTheirTurn) {
  const auto server = Start({.max_connections = 4});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(std::make_unique<Client>(server->port()));
  // The last ones ask first, and are not served before the first ones have gone.
  for (auto client = clients.rbegin(); client != clients.rend(); ++client) (*client)->Send(kRequest);
  for (const auto& client : clients) EXPECT_THAT(client->Receive(), StartsWith("HTTP/1.1 200 "));
}

TEST(WatchServerTest, ManyAskAtATime) {
  std::atomic<int> calls{0};
  std::vector<WatchPage> pages = {
      {.path = "/calls", .content_type = "text/plain", .content = [&calls](std::string_view) {
         return absl::StatusOr<std::string>(absl::StrCat(calls.fetch_add(1)));
       }}};
  const auto server = WatchServer::Start(std::move(pages), {.threads = 3, .max_connections = 8}).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&server] {
      for (int i = 0; i < 25; ++i) {
        EXPECT_THAT(Client(server->port()).Ask("GET /calls HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                    StartsWith("HTTP/1.1 200 "));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls.load(), 200);
}

TEST(WatchServerTest, StopDoesNotWaitForIdleOrSlowClients) {
  // The page is larger than the system takes without a reader.
  const auto server = WatchServer::Start(Pages(std::string(16 << 20, 'x')), {}).value();
  Client idle(server->port()), half(server->port()), no_reader(server->port());
  half.Send("GET /metrics HTTP/1.1\r\n");
  no_reader.Send(kRequest);
  Client reader(server->port());
  reader.Send(kRequest);
  const absl::Time begin = Clock::Real()->Now();
  server->Stop();
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(1));
  EXPECT_EQ(idle.Receive(), "");
  EXPECT_EQ(half.Receive(), "");
}

TEST(WatchServerTest, AClientThatDoesNotReadIsClosed) {
  const auto server =
      WatchServer::Start(Pages(std::string(16 << 20, 'x')), {.threads = 1, .time_limit = absl::Milliseconds(50)})
          .value();
  Client no_reader(server->port());
  no_reader.Send(kRequest);
  // The only thread is free again.
  EXPECT_THAT(Client(server->port()).Ask("GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              StartsWith("HTTP/1.1 404 "));
}

TEST(WatchServerTest, StopWaitsForAPageThatIsBeingMade) {
  struct {
    Mutex mu;
    CondVar changed;
    bool entered ABSL_GUARDED_BY(mu) = false;
    bool go ABSL_GUARDED_BY(mu) = false;
  } gate;
  std::vector<WatchPage> pages = {
      {.path = "/metrics", .content_type = "text/plain", .content = [&gate](std::string_view) {
         MutexLock lock(&gate.mu);
         gate.entered = true;
         gate.changed.SignalAll();
         while (!gate.go) gate.changed.WaitWithTimeout(&gate.mu, absl::Seconds(10));
         return absl::StatusOr<std::string>("made");
       }}};
  const auto server = WatchServer::Start(std::move(pages), {}).value();
  Client client(server->port());
  client.Send(kRequest);
  {
    MutexLock lock(&gate.mu);
    while (!gate.entered) gate.changed.WaitWithTimeout(&gate.mu, absl::Seconds(10));
  }
  std::atomic<bool> stopped{false};
  std::thread stop([&server, &stopped] {
    server->Stop();
    stopped = true;
  });
  {
    MutexLock lock(&gate.mu);
    EXPECT_FALSE(stopped);
    gate.go = true;
    gate.changed.SignalAll();
  }
  stop.join();
}

TEST(WatchServerTest, APortInUseIsAnErrorWithAWayOut) {
  const auto first = Start();
  const absl::Status second = WatchServer::Start(Pages(), {.port = first->port()}).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(second.message(), absl::StrCat("cannot serve http://127.0.0.1:", first->port(),
                                           ": the port is in use; give another one, or 0 for any that is free"));
}

TEST(WatchServerTest, APortIsFreeAfterStop) {
  const auto first = Start();
  EXPECT_THAT(Client(first->port()).Ask(kRequest), StartsWith("HTTP/1.1 200 "));
  first->Stop();
  const auto second = WatchServer::Start(Pages(), {.port = first->port()});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(Client((*second)->port()).Ask(kRequest), StartsWith("HTTP/1.1 200 "));
}

TEST(WatchServerTest, AddressesThatAreNotOfThisMachineAreErrors) {
  EXPECT_EQ(WatchServer::Start({}, {.port = 65536}).status().code(), absl::StatusCode::kInvalidArgument);
  // 192.0.2.0/24 is for documentation.
  const absl::Status elsewhere = WatchServer::Start({}, {.address = "192.0.2.1"}).status();
  EXPECT_EQ(elsewhere.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("no interface of this machine has this address"));
  EXPECT_EQ(WatchServer::Start({}, {.address = "not an address"}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(WatchServerTest, OnlyAServerOfLoopbackChecksTheNameItIsAskedBy) {
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: trainer-0.example\r\n\r\n";
  EXPECT_THAT(Client(Start()->port()).Ask(request), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Client(Start({.address = "localhost"})->port()).Ask(request), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(Client(Start({.address = "0.0.0.0"})->port()).Ask(request), StartsWith("HTTP/1.1 200 "));
}

TEST(WatchServerTest, ThreadsHaveANameAndKeepSignalsBlocked) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
  const auto server = Start({.threads = 1});
  EXPECT_THAT(Client(server->port()).Ask(kRequest), StartsWith("HTTP/1.1 200 "));
  // Both have run: one read the request, the other answered.
  int threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string status = ReadWholeFile(task.path() / "status").value();
    if (!absl::StrContains(status, "Name:\tweir-watch\n")) continue;
    ++threads;
    const std::vector<std::string> at = absl::StrSplit(status, "SigBlk:\t");
    uint64_t mask = 0;
    ASSERT_TRUE(absl::SimpleHexAtoi(at.at(1).substr(0, 16), &mask));
    EXPECT_NE(mask & (uint64_t{1} << (SIGTERM - 1)), 0u);
  }
  EXPECT_EQ(threads, 2);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
}

}  // namespace
}  // namespace weir
