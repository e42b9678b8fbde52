// The network with a core that echoes, fails or does not answer.
#ifndef WEIR_TESTS_PSERVER_NETWORK_NETWORK_H_
#define WEIR_TESTS_PSERVER_NETWORK_NETWORK_H_

#include <fstream>
#include <future>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "framework/base/mutex.h"
#include "framework/profile/profiler.h"
#include "framework/wire/frame.h"
#include "gtest/gtest.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/grpc_server.h"
#include "pserver/network/grpc_transport.h"
#include "tests/testing/handling_core.h"

namespace weir {

inline v1::Cluster ClusterOf(bool shared_memory) {
  v1::Cluster network;
  network.set_shared_memory(shared_memory);
  return network;
}

// Core that does what the request says: "echo:..." comes back with the method's name, "fail:<code>:<text>" is an error,
// "hold" is kept unanswered, "block" keeps its thread until LetGo.
class ScriptedCore : public HandlingCore {
 public:
  void Handle(Method method, const Slices& request, ReplyCallback reply) override {
    if (TotalSize(request) > 1000) {
      reply(request);
      return;
    }
    const std::string text = Flatten(request);
    if (text.rfind("fail:", 0) == 0) {
      const size_t colon = text.find(':', 5);
      reply(absl::Status(static_cast<absl::StatusCode>(std::stoi(text.substr(5, colon - 5))), text.substr(colon + 1)));
    } else if (text == "long") {
      reply(absl::FailedPreconditionError(std::string(100'000, 'x')));
    } else if (text == "profiled") {
      reply(Slices{Slice::Own(ProfiledCallText(ProfiledCallScope::current()))});
    } else if (text == "hold") {
      MutexLock lock(&mu_);
      held_.push_back(std::move(reply));
      arrived_.SignalAll();
    } else if (text == "block") {
      MutexLock lock(&mu_);
      ++blocked_;
      arrived_.SignalAll();
      while (!let_go_) arrived_.Wait(&mu_);
      reply(Slices{Slice::Own("let go")});
    } else {
      reply(Slices{Slice::Own(std::string(MethodName(method)) + " "), Slice::Own(text)});
    }
  }
  std::vector<ReplyCallback> WaitForHeld(size_t n) {
    MutexLock lock(&mu_);
    while (held_.size() < n) arrived_.Wait(&mu_);
    return held_;
  }
  void WaitForBlocked(int n) {
    MutexLock lock(&mu_);
    while (blocked_ < n) arrived_.Wait(&mu_);
  }
  void LetGo() {
    MutexLock lock(&mu_);
    let_go_ = true;
    arrived_.SignalAll();
  }

 private:
  Mutex mu_;
  CondVar arrived_;
  std::vector<ReplyCallback> held_ ABSL_GUARDED_BY(mu_);
  int blocked_ ABSL_GUARDED_BY(mu_) = 0;
  bool let_go_ ABSL_GUARDED_BY(mu_) = false;
};

// How tensors travel; other calls go over TCP.
enum class Network { kGrpcTcp, kGrpcUnixSocket, kPlainTcp, kPlainUnixSocket, kSharedMemory };
inline void PrintTo(Network network, std::ostream* out) {
  static constexpr const char* kNames[] = {"GrpcTcp", "GrpcUnixSocket", "PlainTcp", "PlainUnixSocket", "SharedMemory"};
  *out << kNames[static_cast<int>(network)];
}
inline bool IsPlain(Network network) { return network == Network::kPlainTcp || network == Network::kPlainUnixSocket; }

// A server and a transport to it.
class NetworkTest : public testing::Test {
 protected:
  // Starts them. Tensors go over TCP, by gRPC, until a Join.
  void Open(Network network) {
    const bool shared = network == Network::kSharedMemory, plain = shared || IsPlain(network);
    const bool tcp = network == Network::kGrpcTcp || network == Network::kPlainTcp;
    auto server = GrpcServer::Start(
        {.endpoint = "127.0.0.1:0", .core = &core_, .plain_sockets = plain, .network = ClusterOf(shared)});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    transport_ = *MakeGrpcTransport({.endpoints = {server_->endpoint()},
                                     .unix_sockets = !tcp,
                                     .plain_sockets = plain,
                                     .network = ClusterOf(shared)});
  }
  void Connect(Network network) {
    Open(network);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  }

  std::future<absl::StatusOr<std::string>> Start(Method method, Slices request, absl::Duration timeout = kPatience) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<std::string>>>();
    transport_->Call(0, method, std::move(request), timeout, [promise](absl::StatusOr<Slices> reply) {
      if (reply.ok()) {
        promise->set_value(Flatten(*reply));
      } else {
        promise->set_value(reply.status());
      }
    });
    return promise->get_future();
  }
  absl::StatusOr<std::string> Ask(std::string text, Method method = Method::kControl) {
    return Start(method, {Slice::Own(std::move(text))}).get();
  }
  // Ends the server, starts another one at its port, and joins that.
  void RestartServer() {
    const std::string endpoint = server_->endpoint();
    server_ = nullptr;
    EXPECT_TRUE(absl::IsUnavailable(Ask("echo", Method::kPush).status()));
    auto again = GrpcServer::Start({.endpoint = endpoint, .core = &core_});
    ASSERT_TRUE(again.ok()) << again.status();
    server_ = *std::move(again);
    const absl::StatusOr<std::string> joined = AskPatiently("echo", Method::kJoin);
    ASSERT_TRUE(joined.ok()) << joined.status();
  }
  // Asks until the server answers.
  absl::StatusOr<std::string> AskPatiently(const std::string& text, Method method) {
    const absl::Time patience = absl::Now() + kPatience;
    absl::StatusOr<std::string> reply = Ask(text, method);
    while (absl::IsUnavailable(reply.status()) && absl::Now() < patience) reply = Ask(text, method);
    return reply;
  }

  static constexpr absl::Duration kPatience = absl::Seconds(30);
  ScriptedCore core_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<ClosableTransport> transport_;
};

// Counts connections that processes of this machine have accepted on the socket.
inline int AcceptedOn(const std::string& path) {
  std::ifstream sockets("/proc/net/unix");
  int accepted = 0;
  for (std::string line; std::getline(sockets, line);) {
    // Num RefCount Protocol Flags Type St Inode Path; a listening one has the flag 00010000.
    accepted += line.size() > path.size() && line.compare(line.size() - path.size(), path.size(), path) == 0 &&
                line.find(" 00010000 ") == std::string::npos;
  }
  return accepted;
}

// Expects `connections` of them. Others, that ask whether somebody listens, end at once.
inline void ExpectAccepted(const std::string& path, int connections) {
  const absl::Time patience = absl::Now() + absl::Seconds(30);
  while (AcceptedOn(path) != connections && absl::Now() < patience) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(AcceptedOn(path), connections) << path;
}

}  // namespace weir

#endif  // WEIR_TESTS_PSERVER_NETWORK_NETWORK_H_
