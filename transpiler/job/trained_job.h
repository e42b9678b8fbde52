// The job inside a checkpoint: read, and put in the place of another one's model.
#ifndef WEIR_TRANSPILER_JOB_TRAINED_JOB_H_
#define WEIR_TRANSPILER_JOB_TRAINED_JOB_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir {

// Reads the job text of a checkpoint's manifest. InvalidArgument: another build has written it, with messages that this
// one does not know. Unknown fields are left out.
absl::StatusOr<v1::JobConfig> ReadTrainedJob(std::string_view job_text);

// Returns `job` with the model of `trained`: the name, and every field that does not decide COURSE
// (proto/agreement.proto), are those of `trained`, also where it does not set them; so are the number and the order of
// elements. Fields that decide COURSE (files, batches, the cluster) are those of `job`: inside an element, those of the
// element that `job` has of the same key (a table of the same name), else those of `trained`. The file `program` of
// `job`, if it has one, replaces that of `trained`, if that has one.
v1::JobConfig WithModelOf(const v1::JobConfig& trained, const v1::JobConfig& job);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_TRAINED_JOB_H_
