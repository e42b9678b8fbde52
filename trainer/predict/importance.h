// Importance of the parts of examples: how much worse a trained model's figures are when values of a part are shuffled
// among the examples, or taken away.
//
// The parts are slots and values of the columns that the predictions read, as the program sees them, so a derived
// variable is a part apart from the variables that it is made of. All parts are evaluated beside each other in one pass
// over the data where their metrics fit into memory. The figures have the same bits on any cluster.
#ifndef WEIR_TRAINER_PREDICT_IMPORTANCE_H_
#define WEIR_TRAINER_PREDICT_IMPORTANCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/importance.pb.h"
#include "trainer/predict/scoring.h"

namespace weir {

struct ImportanceOptions {
  Scoring scoring;
  v1::Importance::Alteration alteration = v1::Importance::SHUFFLE;
  // How often each part is altered, with values drawn anew. BLANK: 1.
  int repeats = 5;
  // As MakeParts has them (trainer/predict/parts.h).
  std::vector<std::string> parts = {};
  std::vector<std::string> together = {};
  // File for the JSON of a v1::Importance, written by the chief; "": none.
  std::string output;
  // Memory of the metrics that are filled at a time, in bytes. With more, the data are read in several passes.
  int64_t memory = int64_t{2} << 30;
};

// Every trainer of the job must call it; the result is complete at the chief, and has only `examples` elsewhere.
// InvalidArgument: settings; an example without a label, by which no model is judged. FailedPrecondition, Unavailable,
// Cancelled: as RunPredict.
absl::StatusOr<v1::Importance> RunImportance(const ImportanceOptions& options);

// Returns a table for people, of several lines.
std::string ImportanceText(const v1::Importance& importance);

}  // namespace weir

#endif  // WEIR_TRAINER_PREDICT_IMPORTANCE_H_
