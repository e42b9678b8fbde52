// Predicts the time of a step of a cluster from what explain counts and what a calibration has measured on one machine.
//
// A sync step is a row of phases: rows are pulled, lanes computed, gradients pushed, values updated, dense parameters
// pulled. Inside a phase work flows through stages (a trainer's processors, its link, a server's link, its processors)
// in as many pieces as there are messages between a pair of processes: with n pieces a phase takes the longest stage
// and an n-th of the others, and its round trips. On one machine all processes share the cores: a phase takes their
// work together divided by the cores, and a part of its longest chain. In async a trainer's step takes its own phases,
// but no less than what the busiest resource needs for one step of every trainer. Where the trainers of a host merge
// (Explanation.merged_hosts), their messages pass through shared memory, one of them adds and copies, and only what the
// host exchanges with servers is on its link.
//
// docs/scale.md compares predictions with runs and says where they fail.
#ifndef WEIR_TRANSPILER_EXPLAIN_SPEED_MODEL_H_
#define WEIR_TRANSPILER_EXPLAIN_SPEED_MODEL_H_

#include <optional>

#include "proto/calibration.pb.h"
#include "proto/explain.pb.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "transpiler/explain/all_reduce_traffic.h"

namespace weir {

// Machines on which the processes of a cluster run.
struct Machines {
  // True: all processes share the cores of one machine. False: each has a machine; a server inside a trainer shares
  // that of the trainer.
  bool one_machine = false;
  // Without one_machine: trainers that share a machine, its cores and its link. Each server has one of its own.
  int trainers_per_host = 1;
  // Link of each process to all others. nullopt: Unix sockets, with the costs that the calibration measured and no
  // limit of their rate.
  std::optional<Link> link;
};

// Returns the prediction for a cluster. `explained` describes its servers, trainers, norms and exchanges, and counts
// servers inside trainers as servers apart, with the calls of a trainer to its own one. `refusal` is set instead for a
// job of a mode that the model does not know.
v1::SpeedPrediction PredictSpeed(const v1::Calibration& calibration, const Machines& machines, const v1::JobConfig& job,
                                 const v1::Plan& plan, const v1::Explanation& explained);

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_SPEED_MODEL_H_
