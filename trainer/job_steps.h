// Whole steps of a job, all lanes in one process: what `transpile --sample` counts and `transpile --verify` computes
// with.
#ifndef WEIR_TRAINER_JOB_STEPS_H_
#define WEIR_TRAINER_JOB_STEPS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "proto/program.pb.h"
#include "trainer/data/example.h"
#include "trainer/data/lane_reader.h"
#include "transpiler/explain/traffic.h"
#include "transpiler/job.h"

namespace weir {

// Not thread-safe.
class JobSteps {
 public:
  // Of data.train, from its beginning: the very batches that the trainers of the job are given. `main`: a program of
  // the job, for its losses. `pool`, borrowed for the call, learns statistics where the job needs them. Errors as those
  // of readers; NotFound when there are no files.
  static absl::StatusOr<std::unique_ptr<JobSteps>> OfData(const Job& job, const v1::ProgramDesc& main,
                                                          ThreadPool* pool);

  // Made up, the same ones every time: for each variable that the program reads and nothing writes, floats in [-1, 1),
  // labels that fit their loss, one id per slot, few enough that some come again, and in range where a matrix of known
  // height is read by them. Never ends. `main`: of a single machine or a trainer.
  static absl::StatusOr<std::unique_ptr<JobSteps>> MadeUp(const Job& job, const v1::ProgramDesc& main);

  virtual ~JobSteps() = default;

  // One batch per lane of the job (per trainer where lanes are off). What `batches` held is recycled. All have ended
  // when the data has.
  virtual absl::Status Next(std::vector<LaneBatch>* batches) = 0;
  virtual const std::vector<Column>& columns() const = 0;
};

// The ids of one batch of a step, for transpiler/explain. Borrows the batches.
BatchInput BatchInputOf(const std::vector<LaneBatch>& batches, const std::vector<Column>& columns);

}  // namespace weir

#endif  // WEIR_TRAINER_JOB_STEPS_H_
