// Whole steps of a job, all lanes in one process, for `transpile --sample` and `transpile --verify`.
#ifndef WEIR_TRAINER_VERIFY_JOB_STEPS_H_
#define WEIR_TRAINER_VERIFY_JOB_STEPS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/formats/example.h"
#include "proto/program.pb.h"
#include "trainer/data/lane_reader.h"
#include "transpiler/explain/traffic.h"

namespace weir {

struct Job;

// Not thread-safe.
class JobSteps {
 public:
  // Returns the steps of data.train from its beginning, with the very batches that the trainers of the job are given.
  // `main`: a program of the job, for its losses. `pool` is borrowed for the call, to compute statistics if the job
  // needs them. Errors are those of readers; NotFound when there are no files.
  static absl::StatusOr<std::unique_ptr<JobSteps>> OfData(const Job& job, const v1::ProgramDesc& main,
                                                          ThreadPool* pool);

  // Returns made-up steps, identical each time, for each variable that the program reads and nothing writes: floats in
  // [-1, 1), labels that fit their loss, and one id per slot; ids are few enough that some repeat, and in range where
  // they index a matrix of known height. Never ends. `main`: a program of a single machine or a trainer.
  static absl::StatusOr<std::unique_ptr<JobSteps>> MadeUp(const Job& job, const v1::ProgramDesc& main);

  virtual ~JobSteps() = default;

  // Reads one batch per lane of the job (per trainer if lanes are off) and recycles what `batches` held. All batches
  // are marked as ended when the data has ended.
  virtual absl::Status Next(std::vector<LaneBatch>* batches) = 0;
  virtual const std::vector<Column>& columns() const = 0;
  // Returns what to say of inputs that no example has had so far; "" if there are none.
  virtual std::string NoteOnData() const { return ""; }
};

// Returns the ids of one batch of a step, for transpiler/explain. Borrows the batches.
BatchInput BatchInputOf(const std::vector<LaneBatch>& batches, const std::vector<Column>& columns);

}  // namespace weir

#endif  // WEIR_TRAINER_VERIFY_JOB_STEPS_H_
