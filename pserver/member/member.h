// One trainer as a member of its job: its calls to servers, its heart-beats, its membership, its exchanges with other
// trainers. Knows no parameters. Threads as its parts.
#ifndef WEIR_PSERVER_MEMBER_MEMBER_H_
#define WEIR_PSERVER_MEMBER_MEMBER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/parameter_server.pb.h"
#include "pserver/member/call_counters.h"
#include "pserver/member/call_settings.h"
#include "pserver/member/calls.h"
#include "pserver/member/exchanges.h"
#include "pserver/member/heartbeats.h"
#include "pserver/member/job_view.h"
#include "pserver/member/join_replies.h"
#include "pserver/member/membership.h"
#include "pserver/member/sessions.h"
#include "pserver/member/waits.h"

namespace weir {

class Member {
 public:
  // `checkpoint_dir`: directory that the servers must share with this trainer, "" for none.
  explicit Member(CallSettings settings, std::string checkpoint_dir = "");

  // Joins every server, as Membership::Join.
  absl::Status Join(const v1::JoinRequest& introduction);
  // Returns a token that all trainers of one run of the job share and that no other run has: server 0 draws it at
  // random. "" without checkpoints. Requires: Join.
  std::string RunId() const { return joined_.RunId(); }
  // Async: returns the step to begin with when this trainer has taken the place of a dead one, else nullopt. It is the
  // step that the dead trainer would have begun next; where servers differ, the smallest of their steps, and with norms
  // over servers the largest. The other trainers have long begun, so there is nothing to load or to set aside.
  // Requires: Join.
  std::optional<int64_t> TakesOver() const { return joined_.TakesOver(); }

  // Returns the trainer that has the duties of the chief, as server 0 last said: it writes checkpoints, collects
  // evaluations and logs their lines. It is trainer 0 until that one is dead or done; then (in async) it is the lowest
  // living trainer, which keeps the duties in its turn. Requires: Join.
  int Chief() const { return job_->chief(); }
  // Sends the request to every server; answers by server index. Requires: this trainer is the chief, at a step border.
  // `until_stop`: as in Board::Exchange; servers then finish the request by themselves.
  absl::StatusOr<std::vector<v1::ControlReply>> Control(const v1::ControlRequest& request, bool until_stop = false);

  // Sets whether this trainer waits for data that does not exist yet (data.follow): heart-beats tell the servers, and
  // no deadline for progress runs while a trainer does. Callable from any thread.
  void SetAwaitsFiles(bool awaits) { job_->SetAwaitsFiles(awaits); }
  // Returns whether some trainer does, as the servers last said. Callable from any thread.
  bool AnyAwaitsFiles() const { return job_->any_awaits_files(); }

  // Asks for the end of the job at the next common step border.
  void RequestStop() { membership_.RequestStop(); }
  // Returns true if some process has asked for the end of the job. Async jobs check this at their own step borders.
  bool StopRequested() const { return job_->stop_requested(); }
  // Tells every server that this trainer ends with an error, so that the other processes end too. When the job has
  // failed elsewhere, reports that failure instead (JobStatus). Returns when every living server has heard, or after 2
  // s. Callable from any thread.
  void ReportFailure(const absl::Status& status) { membership_.ReportFailure(status); }
  // Tells every server that this trainer is done and waits for the acknowledgement. Requires: Join; no step follows.
  // `stopped`: the job ends before it is complete, because its end was requested.
  absl::Status Done(bool stopped = false) { return membership_.Done(stopped); }
  // Returns an error when the job has failed elsewhere or a server is dead.
  absl::Status JobStatus() const { return job_->failure(); }

  const CallSettings& settings() const { return settings_; }
  JobView& job() { return *job_; }
  Waits& waits() { return *waits_; }
  Heartbeats& heartbeats() { return heartbeats_; }
  Calls& calls() { return calls_; }
  Membership& membership() { return membership_; }
  Exchanges& exchanges() { return exchanges_; }
  Exchanges& exchanges_beside() { return exchanges_beside_; }
  const CallCounters& counters() const { return *counters_; }
  // Return what may be used after this object is gone: counters, and what a request to a server says of its caller.
  std::shared_ptr<CallCounters> shared_counters() const { return counters_; }
  std::function<v1::Caller(int server)> Caller() const {
    return [sessions = sessions_](int server) { return sessions->CallerFor(server); };
  }
  const JoinReplies& joined() const { return joined_; }

 private:
  const CallSettings settings_;
  const std::shared_ptr<Waits> waits_;
  const std::shared_ptr<Sessions> sessions_;
  const std::shared_ptr<CallCounters> counters_;
  const std::shared_ptr<JobView> job_;
  Heartbeats heartbeats_;
  Calls calls_;
  Membership membership_;
  Exchanges exchanges_, exchanges_beside_;
  JoinReplies joined_;
  std::atomic<uint64_t> next_request_{1};
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_MEMBER_H_
