// Norms of whole parameters and of groups of them in a single-machine program: sum_of_squares of each part, one
// whole_norm over all that goes by one name, then what reads the norm. On servers each optimize block keeps its own
// part of the whole_norm and stops there (pserver/protocol/norm_cuts.h).
#ifndef WEIR_TRANSPILER_ARRANGE_NORMS_H_
#define WEIR_TRANSPILER_ARRANGE_NORMS_H_

#include <vector>

#include "absl/status/status.h"
#include "proto/program.pb.h"
#include "transpiler/job.h"

namespace weir {

// Before: update ops of one parameter after another, each with a whole_norm of its own. After: of the whole_norms of
// one name one, behind the last sum that it reads, with the parameters and gradients of all; and everything of these
// parameters that stood behind theirs, behind it. The order of the first ops of parameters stays. Changes nothing when
// no two have one name.
void ArrangeNorms(std::vector<v1::OpDesc>* ops);

// Norms over several servers need a step that is complete: InvalidArgument at the setting of the job that contradicts.
absl::Status CheckNormsFit(const Job& job, const std::vector<v1::OpDesc>& ops);

}  // namespace weir

#endif  // WEIR_TRANSPILER_ARRANGE_NORMS_H_
