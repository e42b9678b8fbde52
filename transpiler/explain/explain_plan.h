// Readable text of the plan: owners of blocks and tables, bytes at rest, messages and bytes of a step.
#ifndef WEIR_TRANSPILER_EXPLAIN_EXPLAIN_PLAN_H_
#define WEIR_TRANSPILER_EXPLAIN_EXPLAIN_PLAN_H_

#include <string>

#include "proto/program.pb.h"

namespace weir {

struct Job;

// Returns the text. `main`: a trainer's main program, with its plan.
std::string ExplainPlan(const Job& job, const v1::ProgramDesc& main);

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_EXPLAIN_PLAN_H_
