// Clusters with short leases, and trainers that join and train, for tests of Client: by threads and the real clock,
// through a transport that loses, repeats and kills at named moments.
#ifndef WEIR_TESTS_PSERVER_CLIENT_CLIENT_CLUSTER_H_
#define WEIR_TESTS_PSERVER_CLIENT_CLIENT_CLUSTER_H_

#include <vector>

#include "absl/status/status.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/param_channel.h"
#include "pserver/client/client.h"
#include "tests/testing/hand_made_cluster.h"
#include "tests/testing/hand_made_job.h"
#include "tests/testing/in_process_cluster.h"

namespace weir {

// Sets a lease of a second; a call is given up after 0.4 s.
inline ClusterOptions ShortLeases(const HandMadeJob& job) {
  ClusterOptions options = OptionsFor(job);
  options.deadlines.set_heartbeat_s(0.1);
  options.deadlines.set_lease_s(1);
  options.deadlines.set_rpc_s(0.4);
  return options;
}

// Receives the parameters of a trainer that has joined, and steps from `first` until `steps` or the end that somebody
// asks for.
inline absl::Status TrainSteps(InProcessCluster& cluster, const HandMadeJob& job, int trainer, int first, int steps,
                               std::vector<StepOutcome>* outcomes = nullptr) {
  Client& client = cluster.client(trainer);
  HandMadeParams params;
  RETURN_IF_ERROR(ReceiveHandMade(job, &client.steps(), &params));
  for (int step = first; step < steps; ++step) {
    ASSIGN_OR_RETURN(const StepOutcome outcome,
                     RunHandMadeStep(job, trainer, {.step = step}, &client.steps(), &params));
    if (outcomes != nullptr) outcomes->push_back(outcome);
    if (outcome.stop) break;
  }
  return absl::OkStatus();
}

inline absl::Status JoinAndTrain(InProcessCluster& cluster, const HandMadeJob& job, int trainer, int steps) {
  RETURN_IF_ERROR(cluster.client(trainer).Join());
  return TrainSteps(cluster, job, trainer, 0, steps);
}

}  // namespace weir

#endif  // WEIR_TESTS_PSERVER_CLIENT_CLIENT_CLUSTER_H_
