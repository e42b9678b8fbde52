// Threads of this process that wait for its sockets, with epoll.
#ifndef WEIR_PSERVER_NETWORK_SOCKET_EVENTS_H_
#define WEIR_PSERVER_NETWORK_SOCKET_EVENTS_H_

#include <sys/epoll.h>

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "framework/base/mutex.h"

namespace weir {

// What a socket is watched for.
class SocketWatcher {
 public:
  virtual ~SocketWatcher() = default;
  // The socket is ready: `events` are of EPOLLIN, EPOLLOUT, EPOLLHUP and EPOLLERR. Runs on a thread of SocketEvents, of
  // which there are few: what takes long keeps others waiting.
  virtual void OnEvents(uint32_t events) = 0;
};

// Thread-safe. As many threads as gRPC has: half as many as cores, from 2 to 16. They sleep while no socket is ready.
class SocketEvents {
 public:
  // Starts the threads at the first call; they end with the process.
  static SocketEvents* Get();

  // Watches a socket, which does not block, until Remove. Nothing is reported before Arm. Returns a number for Arm and
  // Remove.
  uint64_t Add(int fd, std::shared_ptr<SocketWatcher> watcher);
  // Reports the next of `events` (EPOLLIN, EPOLLOUT), once: at once, if the socket is ready now. Replaces what was
  // armed before; a report that is under way may still come.
  void Arm(uint64_t number, int fd, uint32_t events);
  // Drops the watcher; OnEvents may still run. To be called before `fd` is closed.
  void Remove(uint64_t number, int fd);

 private:
  SocketEvents();
  void Serve();

  const int epoll_;
  Mutex mu_;
  std::map<uint64_t, std::shared_ptr<SocketWatcher>> watchers_ ABSL_GUARDED_BY(mu_);
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_SOCKET_EVENTS_H_
