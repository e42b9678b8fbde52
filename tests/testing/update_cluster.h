// Servers made by the transpiler from a job, and trainers that push gradients which are a function of (step, lane,
// element) alone. So the servers' updates can be checked against arithmetic written in a test.
#ifndef WEIR_TESTS_TESTING_UPDATE_CLUSTER_H_
#define WEIR_TESTS_TESTING_UPDATE_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/testing/in_process_cluster.h"
#include "transpiler/split/transpile.h"

namespace weir {

inline constexpr int kUpdateLanes = 2;

// Returns a job with the given optimizer ("sgd { ... } schedule { ... }"), lanes 2. Its parameters:
//
//   deep.w [16, 1100], cut over two servers   deep.b [1100]   out.w [1100, 1]   out.w1, out.w2 [4, 1]   out.b [1]
//   t  width 4, distributed                   s [12, 4], gradient as rows
//
// table_t: more fields of the table t.
std::string UpdateJobText(const std::string& optimizer, const std::string& table_t = "");

// Returns the number of samples; 0 in lanes without samples.
int64_t LaneSamples(int64_t step, int lane);
// Returns true if a lane with samples has a gradient of the parameter (for tables and sparse parameters: of the row).
bool HasGradient(const std::string& parameter, int64_t row, int64_t step, int lane);
// Returns the sum over the lane's samples.
float LaneGradient(const std::string& parameter, int64_t element, int64_t step, int lane);
// Returns the ids of the rows of t that gradients name.
const std::vector<int64_t>& UpdateTableIds();

struct UpdateRun {
  // Whole dense parameters, and the rows of "t" concatenated, as trainer 0 has them.
  std::map<std::string, std::vector<float>> initial, final;
  InProcessCluster::Digest digest;
  // Sums over all servers, by name.
  std::map<std::string, int64_t> counters;
  v1::Plan plan;
};

// Runs steps [0, steps), every trainer on its own thread. `bad`: returns true if a lane's gradient of a row of t is
// NaN.
absl::StatusOr<UpdateRun> RunUpdates(const Job& job, int64_t steps,
                                     const std::function<bool(int64_t step, int lane, int64_t row)>& bad = nullptr);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_UPDATE_CLUSTER_H_
