// Serves pages of this process over HTTP on a port of its own: metrics, figures of the run.
//
// There is no authentication and no TLS: everybody who reaches the port reads the pages. It is bound to this machine
// unless told otherwise.
#ifndef WEIR_FRAMEWORK_WATCH_WATCH_SERVER_H_
#define WEIR_FRAMEWORK_WATCH_WATCH_SERVER_H_

#include <poll.h>

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/watch/http_answers.h"

namespace weir {

// Accepts connections itself: httplib::Server holds a thread for each client that is silent, limits the time of a read
// but not that of a request, and queues connections without a limit.
//
// Thread-safe. Threads are named "weir-watch" and inherit the blocked signals of the thread that calls Start.
class WatchServer {
 public:
  struct Options {
    // A name or an address of this machine: "127.0.0.1", "::1", "0.0.0.0" for every interface. An address of loopback
    // implies HttpAnswers' local_only.
    std::string address = "127.0.0.1";
    // 0: any that is free.
    int port = 0;
    // Number of threads that make pages and send them. One more thread accepts connections and reads requests.
    int threads = 2;
    // Most connections at a time; further ones wait in the system until one ends.
    size_t max_connections = 32;
    // Limit for the time from the connection to the end of the request, and for the time from there to the end of the
    // answer.
    absl::Duration time_limit = absl::Seconds(5);
  };

  // Listens and serves `pages` until Stop. InvalidArgument if `address` is not one of this machine or `port` is none,
  // FailedPrecondition if the port is in use, PermissionDenied if the process may not have it.
  static absl::StatusOr<std::unique_ptr<WatchServer>> Start(std::vector<WatchPage> pages, Options options);
  // Stops.
  ~WatchServer();
  WatchServer(const WatchServer&) = delete;
  WatchServer& operator=(const WatchServer&) = delete;

  // Ends all connections and threads. Waits for pages that are being made, and for nothing else. The destructor calls
  // it. A second call does nothing. Requires: not called by a thread that makes a page.
  void Stop();

  int port() const { return port_; }
  // Returns "http://127.0.0.1:9100".
  std::string url() const;

 private:
  struct Connection {
    int fd;
    absl::Time until;
    std::string request = {};
    bool answered = false;  // waits for the client to close
  };
  enum class Next { kKeep, kAnswer, kClose };

  WatchServer(std::vector<WatchPage> pages, Options options, int listener, int port, int stopping, int wake,
              bool local_only);

  // The thread that accepts and reads.
  void Run();
  // Takes over the connections that have been answered. Returns whether there is room for one more.
  bool TakeAnswered(std::vector<Connection>* connections);
  // Reads from those that poll found ready, closes those whose time is over, and gives requests to the pool.
  void ReadReady(absl::Span<const pollfd> polled, std::vector<Connection>* connections);
  void CountAnswering();
  void Accept(std::vector<Connection>* connections);
  // Reads what has come. Never waits.
  Next Read(Connection* connection) const;
  // Makes and sends the answer, on a thread of the pool.
  void Answer(Connection connection);
  // Returns whether the client took the whole answer in time.
  bool Send(int fd, const std::string& answer) const;

  const Options options_;
  const int listener_;
  const int port_;
  const int stopping_;  // an eventfd, readable from Stop on
  const int wake_;      // an eventfd: `answered_` has grown
  HttpAnswers answers_;

  Mutex mu_;
  std::vector<Connection> answered_ ABSL_GUARDED_BY(mu_);
  size_t answering_ ABSL_GUARDED_BY(mu_) = 0;  // connections in the pool
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  absl::Time accept_again_ = absl::InfinitePast();  // owned by the thread in Run
  std::unique_ptr<ThreadPool> pool_;
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WATCH_WATCH_SERVER_H_
