// Explanation of a job for its page, by the program transpile.
#ifndef WEIR_TOOLS_LAUNCHING_EXPLAIN_JOB_H_
#define WEIR_TOOLS_LAUNCHING_EXPLAIN_JOB_H_

#include <string>

#include "tools/launching/launch_options.h"

namespace weir {

// Returns what `transpile --print=explain` prints of the job as launch runs it, errors included; "" if the program is
// not there, or cannot be started. It is ended after two leases, but not before 10 s and not after 60: one that hangs
// outlives a launch that is killed by no more than that.
std::string ExplainJob(const LaunchOptions& options);

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_EXPLAIN_JOB_H_
