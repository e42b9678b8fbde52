// One trainer as a member of its job: its calls to servers, its heart-beats, its membership, its exchanges with other
// trainers. Knows no parameters. Threads as its parts.
#ifndef WEIR_PSERVER_MEMBER_MEMBER_H_
#define WEIR_PSERVER_MEMBER_MEMBER_H_

#include <memory>

#include "pserver/member/call_counters.h"
#include "pserver/member/call_settings.h"
#include "pserver/member/calls.h"
#include "pserver/member/exchanges.h"
#include "pserver/member/heartbeats.h"
#include "pserver/member/job_view.h"
#include "pserver/member/membership.h"
#include "pserver/member/sessions.h"
#include "pserver/member/waits.h"

namespace weir {

class Member {
 public:
  explicit Member(CallSettings settings);

  const CallSettings& settings() const { return settings_; }
  JobView& job() { return *job_; }
  Waits& waits() { return *waits_; }
  Heartbeats& heartbeats() { return heartbeats_; }
  Calls& calls() { return calls_; }
  Membership& membership() { return membership_; }
  Exchanges& exchanges() { return exchanges_; }
  Exchanges& exchanges_beside() { return exchanges_beside_; }
  const CallCounters& counters() const { return *counters_; }

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
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_MEMBER_H_
