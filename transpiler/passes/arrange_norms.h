// Norms of whole parameters and of groups of them in a single-machine program: a sum_of_squares of each part, one
// whole_norm over all parts that share a name, then the ops that read the norm. On servers each optimize block keeps
// its own part of the whole_norm and stops there (pserver/protocol/norm_cuts.h).
#ifndef WEIR_TRANSPILER_PASSES_ARRANGE_NORMS_H_
#define WEIR_TRANSPILER_PASSES_ARRANGE_NORMS_H_

#include <vector>

#include "absl/status/status.h"
#include "proto/program.pb.h"

namespace weir {

struct Job;

// Before: update ops of one parameter after another, each with a whole_norm of its own. After: one whole_norm for each
// name, behind the last sum that it reads, with the parameters and gradients of all; the ops of these parameters that
// followed their own whole_norm follow the common one. The order of the first ops of parameters stays. Changes nothing
// if no two whole_norms share a name.
void ArrangeNorms(std::vector<v1::OpDesc>* ops);

// Checks that norms over several servers fit the job: they need complete steps. InvalidArgument at the setting of the
// job that contradicts.
absl::Status CheckNormsFit(const Job& job, const std::vector<v1::OpDesc>& ops);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PASSES_ARRANGE_NORMS_H_
