// Scores files with a trained model: one prediction per example, in input order, on any number of trainers.
#ifndef WEIR_TRAINER_PREDICT_PREDICT_H_
#define WEIR_TRAINER_PREDICT_PREDICT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/predict/scoring.h"

namespace weir {

struct PredictOptions {
  // Labels of its examples may be missing.
  Scoring scoring;
  // Output file, written by the chief, whole or not at all, in the format of its ending
  // (trainer/predict/prediction_file.h). It holds, for each example, the prediction of the first loss: one number, or
  // one per class. An input line that does not parse (data.bad_line: SKIP; else it is an error) has nan for each value,
  // and no carried values.
  std::string output;
  // Columns of the input that the output carries (trainer/predict/carried_input.h). The chief reads the input a second
  // time for them; it holds the scores of all examples in memory, but not what is carried.
  std::vector<std::string> carry = {};
};

// Returns the number of examples scored, over all trainers. Every trainer of the job must call it. FailedPrecondition:
// the checkpoint does not fit this job, or the job would give other scores than the model in it
// (transpiler/job/checkpoint_job.h). Unavailable: a trainer has died; predict again. Cancelled: the end was
// requested; nothing has been written.
absl::StatusOr<int64_t> RunPredict(const PredictOptions& options);

}  // namespace weir

#endif  // WEIR_TRAINER_PREDICT_PREDICT_H_
