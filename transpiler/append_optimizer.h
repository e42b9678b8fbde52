// From gradients to updates.
#ifndef WEIR_TRANSPILER_APPEND_OPTIMIZER_H_
#define WEIR_TRANSPILER_APPEND_OPTIMIZER_H_

#include "absl/status/statusor.h"
#include "transpiler/job.h"
#include "transpiler/programs.h"

namespace weir {

// The update of parameters that no optimizer moves (framework/graph/running_averages.h).
inline constexpr char kRunningAverageOp[] = "running_average";

// Before: forward and backward. After, behind them:
//
//   1. role LR_SCHEDULE: for every optimizer with a schedule "<rate>.schedule" (and "<rate>.warm_up") in float64 from
//   the step
//      counter "learning_rate.step", then the learning rates made from it; at the end the counter goes on by one.
//   2. role OPTIMIZE: for every trainable parameter, in order of names: its clip (transpiler/clips), its decay, and the
//   update
//      op of its optimizer (the table's own, else the job's). Clip and decay change the gradient in place. On servers
//      the average stands in front of them (transpiler/make_server_program.h): merge, clip, decay, update. A norm of
//      the whole parameter or gradient is "<var>.squares" and "<var>.norm" (of a clip "<gradient>.clip_squares",
//      "<gradient>.clip_norm"); what reads the norm of a group stands behind the sums of all of it
//      (transpiler/arrange_norms.h). A distributed table may have drop_bad_rows in front of all that (bad_gradient),
//      several updates on columns of its own each (segment), and a bound behind the last (min_value, max_value):
//      framework/runtime/table_update.h.
//
// A running average has one op, running_average, whose rate is "running_average.x<1 - momentum>"; an optimizer's
// settings do not concern it.
//
// Variables: state "<parameter>.<state>"; learning rates "learning_rate" and "<table>.learning_rate", of the second
// segment
// "<table>.1.learning_rate", with a factor of its own "learning_rate.x0.1"; all with initializers. A distributed table
// has no state variables: its rows hold them. Errors: no optimizer, a brought program with backward ops that lack a
// parameter, an optimizer without a row form for a distributed table, settings for a parameter that there is none of.
// false when the program has update ops already.
absl::StatusOr<bool> AppendOptimizer(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_APPEND_OPTIMIZER_H_
