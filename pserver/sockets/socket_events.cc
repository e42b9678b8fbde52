#include "pserver/sockets/socket_events.h"

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "framework/base/exhausted.h"
#include "glog/logging.h"

namespace weir {

SocketEvents* SocketEvents::Get() {
  static SocketEvents* const events =
      new SocketEvents("weir-sockets", std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 2, 16));
  return events;
}

SocketEvents* SocketEvents::ForListeners() {
  static SocketEvents* const events = new SocketEvents("weir-accept", 1);
  return events;
}

SocketEvents::SocketEvents(const char* name, int threads) : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_ < 0) ExitExhausted("cannot watch sockets (epoll): no file descriptor is free");
  for (int i = 0; i < threads; ++i) StartThread(name, [this] { Serve(); }).detach();
}

uint64_t SocketEvents::Add(int fd, std::shared_ptr<SocketWatcher> watcher) {
  uint64_t number = 0;
  {
    MutexLock lock(&mu_);
    number = ++last_;
    watchers_[number] = std::move(watcher);
  }
  epoll_event event = {.events = EPOLLONESHOT, .data = {.u64 = number}};
  PCHECK(::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0) << "descriptor " << fd;
  return number;
}

void SocketEvents::Arm(uint64_t number, int fd, uint32_t events) {
  epoll_event event = {.events = events | EPOLLONESHOT, .data = {.u64 = number}};
  PCHECK(::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) == 0) << "descriptor " << fd;
}

void SocketEvents::Remove(uint64_t number, int fd) {
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  std::shared_ptr<SocketWatcher> dropped;  // destroyed without the lock
  MutexLock lock(&mu_);
  const auto found = watchers_.find(number);
  if (found == watchers_.end()) return;
  dropped = std::move(found->second);
  watchers_.erase(found);
}

void SocketEvents::Serve() {
  while (true) {
    // One at a time: others that are ready are for other threads.
    epoll_event event = {};
    const int ready = ::epoll_wait(epoll_, &event, 1, -1);
    if (ready < 0) PCHECK(errno == EINTR);
    if (ready <= 0) continue;
    std::shared_ptr<SocketWatcher> watcher;
    {
      MutexLock lock(&mu_);
      const auto found = watchers_.find(event.data.u64);
      if (found != watchers_.end()) watcher = found->second;
    }
    if (watcher != nullptr) watcher->OnEvents(event.events);
  }
}

}  // namespace weir
