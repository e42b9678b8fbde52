// State that every trainer of a job begins with.
#ifndef WEIR_TRAINER_BEGINNING_H_
#define WEIR_TRAINER_BEGINNING_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/checkpointing.h"

namespace weir {

// Decided by the chief and sent to all trainers before the first step.
struct Beginning {
  // True if the servers hold the state of a checkpoint.
  bool resumed = false;
  // Contents of that checkpoint that trainers need; step 0 and nothing else in a fresh run. `residuals` names a file of
  // the chief and is not sent.
  ResumePoint point;

  // Returns a v1::Beginning.
  std::string Serialize() const;
  // Internal if the bytes are no v1::Beginning.
  static absl::StatusOr<Beginning> Parse(std::string_view bytes);
};

}  // namespace weir

#endif  // WEIR_TRAINER_BEGINNING_H_
