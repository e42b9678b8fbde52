// Pass: adds learning rates and update ops behind the gradients.
#ifndef WEIR_TRANSPILER_PASSES_APPEND_OPTIMIZER_H_
#define WEIR_TRANSPILER_PASSES_APPEND_OPTIMIZER_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Op that updates parameters which no optimizer moves (framework/graph/running_averages.h).
inline constexpr char kRunningAverageOp[] = "running_average";

// Before: forward and backward. After, behind them:
//
//   1. role LR_SCHEDULE: for every optimizer with a schedule "<rate>.schedule" (and "<rate>.warm_up") in float64 from
//      the step counter "learning_rate.step", then the learning rates made from it; the counter then goes up by one.
//   2. role OPTIMIZE: for every trainable parameter, in order of names: its clip (transpiler/clips), its decay, and the
//      update op of its optimizer (the table's own, else the job's). Clip and decay change the gradient in place. On
//      servers the average precedes them (transpiler/passes/make_server_program.h): merge, clip, decay, update. A norm
//      of the whole parameter or gradient is "<var>.squares" and "<var>.norm" (of a clip "<gradient>.clip_squares",
//      "<gradient>.clip_norm"); an op that reads the norm of a group follows the sums of the whole group
//      (transpiler/passes/arrange_norms.h). A distributed table may have drop_bad_rows before all of these
//      (bad_gradient), several updates on separate columns (segment), and a bound behind the last one (min_value,
//      max_value): framework/runtime/table_update.h.
//
// A running average has one op, running_average, whose rate is "running_average.x<1 - momentum>"; settings of an
// optimizer do not apply to it.
//
// Variables: state "<parameter>.<state>"; learning rates "learning_rate" and "<table>.learning_rate", of the second
// segment "<table>.1.learning_rate", with a factor of its own "learning_rate.x0.1"; all with initializers. A
// distributed table has no state variables: its rows hold the state. Errors: no optimizer, a brought program with
// backward ops that lack a parameter, an optimizer without a row form for a distributed table, settings for a parameter
// that does not exist. Returns false if the program already has update ops.
absl::StatusOr<bool> AppendOptimizer(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_APPEND_OPTIMIZER_H_
