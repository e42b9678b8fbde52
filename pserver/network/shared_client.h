// Client's end of a shared memory channel to a server on this machine (pserver/network/shared_channel.h).
#ifndef WEIR_PSERVER_NETWORK_SHARED_CLIENT_H_
#define WEIR_PSERVER_NETWORK_SHARED_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "framework/wire/slices.h"
#include "pserver/network/shared_channel.h"
#include "pserver/protocol/transport.h"

namespace weir {

// Thread-safe. Not to be destroyed by a thread that runs a `done`.
class SharedClient {
 public:
  // The answer, or nothing: the answer found no room in the channel, and the call has to be made another way.
  using Done = std::function<void(std::optional<absl::StatusOr<Slices>>)>;

  // Connects to a server that listens at `path` (SharedServer). Waits at most two seconds for each of the connection,
  // the offer and the consent. Unavailable: nobody listens, or one of the two cannot share memory.
  static absl::StatusOr<std::shared_ptr<SharedClient>> Connect(const std::string& path);
  ~SharedClient();
  SharedClient(const SharedClient&) = delete;
  SharedClient& operator=(const SharedClient&) = delete;

  // Starts a call; copies the request before it returns. False: the request finds no room, or the channel is closed;
  // `done` is not called. Else `done` runs once, on a thread of this client or in Close: with Unavailable when the
  // other process ends, with DeadlineExceeded after `timeout`. patient: as Transport::CallPatiently. server: that
  // which a relay is to ask (pserver/host).
  bool Call(Method method, const Slices& request, absl::Duration timeout, Done done, bool patient = false,
            int server = 0);

  // True before any call is ended because the connection has: the next call has to go another way.
  bool closed() const { return ended_; }

  // Ends all calls with Unavailable; their `done` may run before Close returns.
  void Close();
  // Waits until no `done` runs any more on a thread of this client. Requires: Close has been called.
  void Join();

 private:
  struct Pending {
    Done done;  // null: the call was given up, and may still be answered
    absl::Time deadline;
  };

  SharedClient(std::shared_ptr<SharedChannel> channel, int socket, int wake);
  void Receive();
  void Watch();
  void WakeWatch();
  static void End(std::vector<Done> calls, const absl::Status& why);
  // Gives up calls whose deadline has passed, and sets the time of the next look.
  std::vector<Done> TakeLate();

  const std::shared_ptr<SharedChannel> channel_;
  const int socket_;
  const int wake_;  // eventfd
  Mutex mu_;
  std::map<uint64_t, Pending> calls_ ABSL_GUARDED_BY(mu_);
  uint64_t last_call_ ABSL_GUARDED_BY(mu_) = 0;
  // Time at which Watch wakes by itself.
  absl::Time looks_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<bool> ended_{false};  // closed_, for those without the lock
  std::atomic<int> receiving_{0};
  std::vector<std::thread> threads_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_SHARED_CLIENT_H_
