// A gateway between clients and a server, such as a firewall that knows HTTP/2 alone.
#ifndef WEIR_TESTS_PSERVER_NETWORK_GATEWAY_H_
#define WEIR_TESTS_PSERVER_NETWORK_GATEWAY_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "framework/base/mutex.h"
#include "gtest/gtest.h"
#include "pserver/sockets/socket_input.h"

namespace weir {

// Passes connections on, and counts them: those that begin as plain sockets for tensors apart from all others.
class Gateway {
 public:
  // What becomes of plain sockets.
  enum class Plain { kPasses, kIsClosed, kIsKeptSilent };

  // `port`: of the server, at 127.0.0.1.
  Gateway(int port, Plain plain) : port_(port), plain_(plain), listening_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at = Address(0);
    socklen_t bytes = sizeof(at);
    EXPECT_EQ(::bind(listening_, reinterpret_cast<const sockaddr*>(&at), bytes), 0) << std::strerror(errno);
    EXPECT_EQ(::listen(listening_, 16), 0) << std::strerror(errno);
    EXPECT_EQ(::getsockname(listening_, reinterpret_cast<sockaddr*>(&at), &bytes), 0) << std::strerror(errno);
    endpoint_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    Start([this] { Accept(); });
  }
  ~Gateway() {
    std::vector<std::thread> threads;
    {
      MutexLock lock(&mu_);
      ends_ = true;
      ::shutdown(listening_, SHUT_RDWR);
      for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) thread.join();
    ::close(listening_);
    for (const int socket : sockets_) ::close(socket);
  }

  const std::string& endpoint() const { return endpoint_; }
  // Connections that there have been.
  int plain() const {
    MutexLock lock(&mu_);
    return plain_connections_;
  }
  int others() const {
    MutexLock lock(&mu_);
    return other_connections_;
  }
  // Cuts the plain sockets that there are.
  void CutPlain() {
    MutexLock lock(&mu_);
    for (const int socket : plain_sockets_) ::shutdown(socket, SHUT_RDWR);
  }

 private:
  static sockaddr_in Address(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }

  template <typename Run>
  void Start(Run run) {
    MutexLock lock(&mu_);
    if (!ends_) threads_.emplace_back(std::move(run));
  }
  // Closes the socket in the end.
  void Keep(int socket) {
    MutexLock lock(&mu_);
    sockets_.insert(socket);
    if (ends_) ::shutdown(socket, SHUT_RDWR);
  }

  void Accept() {
    for (int client = 0; (client = ::accept(listening_, nullptr, nullptr)) >= 0;) {
      Keep(client);
      Start([this, client] { Serve(client); });
    }
  }

  void Serve(int client) {
    std::array<char, kGreeting.size()> first = {};
    const ssize_t read = ::recv(client, first.data(), first.size(), MSG_PEEK | MSG_WAITALL);
    const bool plain = std::string_view(first.data(), first.size()) == kGreeting;
    const int server = ::socket(AF_INET, SOCK_STREAM, 0);
    Keep(server);
    {
      MutexLock lock(&mu_);
      if (read == static_cast<ssize_t>(first.size())) ++(plain ? plain_connections_ : other_connections_);
      if (plain) plain_sockets_.insert({client, server});
    }
    if (plain && plain_ == Plain::kIsKeptSilent) return;
    const sockaddr_in address = Address(port_);
    if ((plain && plain_ == Plain::kIsClosed) ||
        ::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      ::shutdown(client, SHUT_RDWR);
      return;
    }
    Start([this, client, server] { Pass(server, client); });
    Pass(client, server);
  }

  static void Pass(int from, int to) {
    std::array<char, size_t{64} << 10> bytes;
    ssize_t read = 0;
    while ((read = ::recv(from, bytes.data(), bytes.size(), 0)) > 0) {
      for (ssize_t sent = 0; sent < read;) {
        const ssize_t more = ::send(to, bytes.data() + sent, static_cast<size_t>(read - sent), MSG_NOSIGNAL);
        if (more < 0) {
          ::shutdown(from, SHUT_RDWR);
          return;
        }
        sent += more;
      }
    }
    ::shutdown(to, SHUT_WR);
  }

  const int port_;
  const Plain plain_;
  const int listening_;
  std::string endpoint_;
  mutable Mutex mu_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  std::set<int> sockets_ ABSL_GUARDED_BY(mu_), plain_sockets_ ABSL_GUARDED_BY(mu_);
  int plain_connections_ ABSL_GUARDED_BY(mu_) = 0, other_connections_ ABSL_GUARDED_BY(mu_) = 0;
  bool ends_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace weir

#endif  // WEIR_TESTS_PSERVER_NETWORK_GATEWAY_H_
