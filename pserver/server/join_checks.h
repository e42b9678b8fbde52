// Checks that a process that joins a server is of the server's job, and what it is told of the job. Thread-safe.
#ifndef WEIR_PSERVER_SERVER_JOIN_CHECKS_H_
#define WEIR_PSERVER_SERVER_JOIN_CHECKS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "proto/parameter_server.pb.h"
#include "pserver/server/server_core.h"

namespace weir {

class JoinChecks {
 public:
  // `options` is borrowed. `self`: the server, for messages.
  JoinChecks(const ServerOptions* options, std::string self);

  // Returns OK if the process may join. A caller that knows the job's name and the build hears what differs; for others
  // it goes to the log alone, since any process that reaches the port may ask.
  absl::Status Check(const v1::JoinRequest& request) ABSL_LOCKS_EXCLUDED(mu_);
  // JoinReply.plan.
  const std::string& plan() const { return plan_; }

 private:
  absl::Status CheckSameJob(const v1::JoinRequest& request, const std::string& who) ABSL_LOCKS_EXCLUDED(mu_);
  void LogRefusal(const std::string& who, const std::string& why) ABSL_LOCKS_EXCLUDED(mu_);

  const ServerOptions& options_;
  const std::string self_;
  const std::string plan_;
  const uint64_t plan_fingerprint_;
  Mutex mu_;
  // Joins refused since the begin of the present window of LogRefusal.
  absl::Time refusals_since_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  int refusals_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_JOIN_CHECKS_H_
