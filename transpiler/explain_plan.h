// The plan for people: who owns what, bytes at rest, messages and bytes of a step.
#ifndef WEIR_TRANSPILER_EXPLAIN_PLAN_H_
#define WEIR_TRANSPILER_EXPLAIN_PLAN_H_

#include <string>

#include "proto/plan.pb.h"
#include "transpiler/job.h"

namespace weir {

std::string ExplainPlan(const Job& job, const v1::Plan& plan);

}  // namespace weir

#endif  // WEIR_TRANSPILER_EXPLAIN_PLAN_H_
