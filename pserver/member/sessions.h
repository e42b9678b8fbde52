// Sessions of one trainer with its servers, and the signs of life of each server. Thread-safe.
#ifndef WEIR_PSERVER_MEMBER_SESSIONS_H_
#define WEIR_PSERVER_MEMBER_SESSIONS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "proto/parameter_server.pb.h"

namespace weir {

class Sessions {
 public:
  struct Server {
    uint64_t session = 0;  // 0: the server has not let this trainer in
    std::string process;   // "host:pid"
    absl::Time last_heard = absl::InfinitePast();
    // True if the server has said that the job has failed; it exits when it has told every trainer.
    bool knows_failure = false;
    // True if the server has acknowledged that this trainer is done; it exits when all trainers are.
    bool released = false;
  };

  Sessions(std::string job_name, int trainer, int servers);

  // Returns what a request to the server says of its caller.
  v1::Caller CallerFor(int server) const;
  // Returns the present state of all servers, by index.
  std::vector<Server> All() const;

  void Open(int server, uint64_t session, std::string process, absl::Time now);
  // Gives the session up: later requests come from nobody.
  void Close(int server);
  void Heard(int server, absl::Time now);
  // Counts every server with a session as heard of at `now`.
  void ExcuseAll(absl::Time now);
  void KnowsFailure(int server);
  void Release(int server);

 private:
  const std::string job_name_;
  const int trainer_;
  mutable Mutex mu_;
  std::vector<Server> servers_ ABSL_GUARDED_BY(mu_);  // by index
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_SESSIONS_H_
