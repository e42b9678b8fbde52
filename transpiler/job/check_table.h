// Checks of one table of a job.
#ifndef WEIR_TRANSPILER_JOB_CHECK_TABLE_H_
#define WEIR_TRANSPILER_JOB_CHECK_TABLE_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/program.pb.h"

namespace weir {

struct Job;

// Checks table i of the job, and adds its name to `names`, those of the tables before it. `schema`: variables of the
// data. InvalidArgument with file:line:column.
absl::Status CheckTable(const Job& job, int i, const std::vector<v1::VarDesc>& schema, std::set<std::string>* names);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_CHECK_TABLE_H_
