// The job of group_faults_test.cc and of its processes (group_rank.cc): one server, which keeps leases and passes
// addresses on, and trainers that form a group.
#ifndef WEIR_TESTS_PSERVER_GROUP_JOB_H_
#define WEIR_TESTS_PSERVER_GROUP_JOB_H_

#include "proto/job.pb.h"
#include "tests/testing/hand_made_job.h"

namespace weir {

inline constexpr char kGroupJob[] = "group";
inline constexpr char kGroupArithmetic[] = "avx2";
inline constexpr double kGroupLeaseSeconds = 2;

inline HandMadeJob GroupJob(int trainers) { return {.servers = 1, .trainers = trainers}; }

inline v1::Deadlines GroupDeadlines() {
  v1::Deadlines deadlines;
  deadlines.set_heartbeat_s(0.2);
  deadlines.set_lease_s(kGroupLeaseSeconds);
  deadlines.set_slow_warning_s(1);
  deadlines.set_progress_deadline_s(60);
  deadlines.set_connect_deadline_s(30);
  deadlines.set_rpc_s(2);
  return deadlines;
}

}  // namespace weir

#endif  // WEIR_TESTS_PSERVER_GROUP_JOB_H_
