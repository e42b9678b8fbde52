// Servers and clients in this process, for a HandMadeJob.
#ifndef WEIR_TESTS_TESTING_HAND_MADE_CLUSTER_H_
#define WEIR_TESTS_TESTING_HAND_MADE_CLUSTER_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_made_job.h"
#include "tests/testing/in_process_cluster.h"

namespace weir {

// Sets long leases, because sanitizers are slow and no process may be declared dead unless a test wants it.
inline ClusterOptions OptionsFor(const HandMadeJob& job) {
  ClusterOptions options;
  options.plan = job.Plan();
  options.main = [job](int s) { return job.Main(s); };
  options.startup = [job](int s) { return job.Startup(s); };
  options.plan_text = job.PlanText();
  options.deadlines.set_lease_s(60);
  return options;
}

// Creates a cluster; fails the test if that fails.
inline std::unique_ptr<InProcessCluster> MakeCluster(ClusterOptions options) {
  absl::StatusOr<std::unique_ptr<InProcessCluster>> cluster = InProcessCluster::Create(std::move(options));
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  return *std::move(cluster);
}

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_HAND_MADE_CLUSTER_H_
