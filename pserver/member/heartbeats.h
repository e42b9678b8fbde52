// Heart-beats of one trainer: tells every server that it lives, what it waits for and whether the job has failed, and
// notices servers that have fallen silent.
//
// Thread-safe, except that one thread at a time calls Round: that of Start, "weir-heartbeat", which the destructor
// stops.
#ifndef WEIR_PSERVER_MEMBER_HEARTBEATS_H_
#define WEIR_PSERVER_MEMBER_HEARTBEATS_H_

#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/parameter_server.pb.h"
#include "pserver/member/call_counters.h"
#include "pserver/member/call_settings.h"
#include "pserver/member/job_view.h"
#include "pserver/member/sessions.h"
#include "pserver/member/waits.h"

namespace weir {

class Heartbeats {
 public:
  // `settings` is borrowed. The rest is shared with callbacks of the transport, which may run after the destructor.
  Heartbeats(const CallSettings* settings, std::shared_ptr<Sessions> sessions, std::shared_ptr<JobView> job,
             std::shared_ptr<Waits> waits, std::shared_ptr<CallCounters> counters);
  ~Heartbeats();

  // Starts the thread. Requires: called at most once; nobody else calls Round afterwards.
  void Start();
  // Declares the job failed if a server has been silent for longer than the lease, then sends one heart-beat to every
  // server that has let this trainer in. Does nothing once this trainer is done.
  void Round();
  // Sends one heart-beat, unless the server has not let this trainer in or another has expelled it.
  void Send(int server);
  void SendToAll();

  // Sends a last heart-beat to every server that has let this trainer in and has not said that the job has failed.
  // Returns when all servers that still must be alive have heard it, or after 2 s. True: one of them says that this
  // trainer has lost its lease.
  bool SendLast(const v1::HeartbeatRequest& last);

 private:
  void Loop();

  const CallSettings& settings_;
  const std::shared_ptr<Sessions> sessions_;
  const std::shared_ptr<JobView> job_;
  const std::shared_ptr<Waits> waits_;
  const std::shared_ptr<CallCounters> counters_;
  absl::Time last_round_ = absl::InfinitePast();  // used only by the thread that calls Round
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_HEARTBEATS_H_
