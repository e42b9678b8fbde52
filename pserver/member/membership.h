// A trainer's membership in its job: joins every server, leaves, reports failures, ends. Thread-safe; one thread joins.
#ifndef WEIR_PSERVER_MEMBER_MEMBERSHIP_H_
#define WEIR_PSERVER_MEMBER_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "proto/parameter_server.pb.h"
#include "pserver/member/call_settings.h"
#include "pserver/member/calls.h"
#include "pserver/member/heartbeats.h"
#include "pserver/member/job_view.h"
#include "pserver/member/sessions.h"

namespace weir {

class Membership {
 public:
  // Called with the reply of each server that lets this trainer in, from the thread that joins. An error ends Join.
  using Welcome = std::function<absl::Status(int server, const v1::JoinReply& reply)>;

  // `settings`, `heartbeats` and `calls` are borrowed.
  Membership(const CallSettings* settings, std::shared_ptr<Sessions> sessions, std::shared_ptr<JobView> job,
             Heartbeats* heartbeats, Calls* calls);

  // Joins every server. Requires: called once, before any other call to a server. `introduction`: what to tell each of
  // them, beside who is calling. Waits for missing servers up to connect_deadline; a refusal fails at once. On failure
  // the servers already joined are told: after a refusal they get this trainer's place back; a missing server ends the
  // job.
  absl::Status Join(const v1::JoinRequest& introduction, const Welcome& welcome);

  // Asks for the end of the job at the next common step border.
  void RequestStop();
  // Tells every server that this trainer ends with an error. If the job has failed elsewhere, reports that failure
  // instead. Returns when every living server has heard, or after 2 s.
  void ReportFailure(const absl::Status& status);
  // Does what Member::Done says. Requires: Join has returned OK.
  absl::Status Done(bool stopped);

 private:
  absl::Status JoinServers(const v1::JoinRequest& introduction, const Welcome& welcome);
  // Takes one server's reply.
  absl::Status TakeReply(int server, const v1::JoinReply& reply, const Welcome& welcome);

  const CallSettings& settings_;
  const std::shared_ptr<Sessions> sessions_;
  const std::shared_ptr<JobView> job_;
  Heartbeats& heartbeats_;
  Calls& calls_;
  // Drawn at random, so that another process with this host and pid counts as another claimant of the id.
  const uint64_t incarnation_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_MEMBERSHIP_H_
