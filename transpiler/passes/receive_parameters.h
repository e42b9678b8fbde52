// Pass: makes trainers receive the new values of parameters from their servers.
#ifndef WEIR_TRANSPILER_PASSES_RECEIVE_PARAMETERS_H_
#define WEIR_TRANSPILER_PASSES_RECEIVE_PARAMETERS_H_

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"

namespace weir {

// Before: a trainer's main program up to send_barrier, and the startup program of the single machine. After: both end
// with a recv per dense parameter in placement order (none for plan.fetched_rows), a fetch_barrier, and a concat per
// parameter that is cut; the startup program keeps the initialisers of variables that no server holds. Variables that
// nothing names any more are removed. Returns false if main has a fetch_barrier.
absl::StatusOr<bool> ReceiveParameters(const Job& job, Programs* programs);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_RECEIVE_PARAMETERS_H_
