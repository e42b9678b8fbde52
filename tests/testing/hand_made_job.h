// A small job without transpiler or model: a plan and the programs of its servers, written by hand, and gradients that
// are a function of the job alone. For tests of servers and clients.
//
//   w  [40, 16]  cut into one block per server, adam        b  [5]       momentum, on the last server
//   e  [30, 3]   gradient as rows, adagrad, on server 0      t  width 4   distributed, adagrad
//                                                            u  width 1   distributed, ftrl
#ifndef WEIR_TESTS_TESTING_HAND_MADE_JOB_H_
#define WEIR_TESTS_TESTING_HAND_MADE_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/runtime/param_channel.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "proto/program.pb.h"

namespace weir {

struct HandMadeJob {
  int servers = 1;
  int trainers = 1;
  int lanes = 8;
  bool sync = true;
  bool eager = false;
  bool average_by_trainers = false;
  int64_t table_capacity = 0;
  // Bounded staleness, and delay compensation of w and b, if not negative.
  int64_t staleness = -1;
  double lambda = -1;
  bool async_tables = false;
  // True if t counts shows and clicks.
  bool shows = false;
  // Wire formats of all tensors.
  v1::WireFormat pull = v1::WIRE_FLOAT32;
  v1::WireFormat push = v1::WIRE_FLOAT32;
  // Server of b; -1: the last.
  int bias_server = -1;

  v1::Plan Plan() const;
  v1::ProgramDesc Main(int server) const;
  v1::ProgramDesc Startup(int server) const;
  std::string PlanText() const;
};

// Values that one trainer has after a step.
struct HandMadeParams {
  std::vector<float> w, b, e;
};

// One step of a trainer. skip: its verdict is SKIP. empty: it has no samples.
struct HandMadeStep {
  int64_t step = 0;
  bool skip = false;
  bool empty = false;
};
// Runs one step of a trainer: pulls rows, makes gradients from them, from the parameters and from (lane, step), sends,
// receives. Some lanes have no samples in some steps, and some gradients are absent.
absl::StatusOr<StepOutcome> RunHandMadeStep(const HandMadeJob& job, int trainer, const HandMadeStep& step,
                                            ParamChannel* channel, HandMadeParams* params);
// Receives the parameters as the startup program of a trainer does.
absl::Status ReceiveHandMade(const HandMadeJob& job, ParamChannel* channel, HandMadeParams* params);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_HAND_MADE_JOB_H_
