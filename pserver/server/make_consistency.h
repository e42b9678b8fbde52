// Choice of a job's consistency mode.
#ifndef WEIR_PSERVER_SERVER_MAKE_CONSISTENCY_H_
#define WEIR_PSERVER_SERVER_MAKE_CONSISTENCY_H_

#include <memory>

#include "proto/program.pb.h"
#include "pserver/server/consistency.h"

namespace weir {

// Returns the mode: `sync` is that of the job, the rest stands in the plan and in the program.
std::unique_ptr<Consistency> MakeConsistency(bool sync, const v1::ProgramDesc& main, Consistency::Options options,
                                             StepBook* book);

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_MAKE_CONSISTENCY_H_
