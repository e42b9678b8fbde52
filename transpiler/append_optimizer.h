// One update op per parameter.
#ifndef WEIR_TRANSPILER_APPEND_OPTIMIZER_H_
#define WEIR_TRANSPILER_APPEND_OPTIMIZER_H_

#include "absl/status/statusor.h"
#include "transpiler/job.h"
#include "transpiler/programs.h"

namespace weir {

// Before: forward and backward. After: for every trainable parameter, in order of names, the update op of its optimizer (the
// table's own, else the job's), its state variables "<parameter>.<state>" and the learning rates "learning_rate" and
// "<table>.learning_rate", all with initializers. A distributed table has no state variables: its rows hold them. Errors: no
// optimizer, a brought program with backward ops that lack a parameter, an optimizer without a row form for a distributed
// table. false when the program has update ops already.
absl::StatusOr<bool> AppendOptimizer(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_APPEND_OPTIMIZER_H_
