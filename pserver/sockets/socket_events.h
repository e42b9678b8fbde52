// Threads of this process that wait for its sockets, with epoll.
#ifndef WEIR_PSERVER_SOCKETS_SOCKET_EVENTS_H_
#define WEIR_PSERVER_SOCKETS_SOCKET_EVENTS_H_

#include <sys/epoll.h>

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "framework/base/mutex.h"

namespace weir {

// Is told when a socket is ready.
class SocketWatcher {
 public:
  virtual ~SocketWatcher() = default;
  // The socket is ready: `events` are of EPOLLIN, EPOLLOUT, EPOLLHUP and EPOLLERR. Runs on a thread of SocketEvents, of
  // which there are few: what takes long keeps others waiting.
  virtual void OnEvents(uint32_t events) = 0;
};

// Thread-safe. The threads are started when they are first asked for, sleep while no socket is ready, and end with the
// process.
class SocketEvents {
 public:
  // Returns those of connections: as many as gRPC has, half as many as cores, from 2 to 16.
  static SocketEvents* Get();
  // Returns the one of listeners. New connections, among them those of gRPC with heart-beats, are not to wait for
  // updates that keep all other threads busy.
  static SocketEvents* ForListeners();

  // Watches a socket, which does not block, until Remove. Nothing is reported before Arm. Returns a number for Arm and
  // Remove.
  uint64_t Add(int fd, std::shared_ptr<SocketWatcher> watcher);
  // Reports the next of `events` (EPOLLIN, EPOLLOUT), once: at once, if the socket is ready now. Replaces what was
  // armed before; a report that is under way may still come.
  void Arm(uint64_t number, int fd, uint32_t events);
  // Drops the watcher; OnEvents may still run. To be called before `fd` is closed.
  void Remove(uint64_t number, int fd);

 private:
  SocketEvents(const char* name, int threads);
  void Serve();

  const int epoll_;
  Mutex mu_;
  std::map<uint64_t, std::shared_ptr<SocketWatcher>> watchers_ ABSL_GUARDED_BY(mu_);
  uint64_t last_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SOCKETS_SOCKET_EVENTS_H_
