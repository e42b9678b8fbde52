// Inputs that a job names and its data lack, as trainers tell each other of them.
#ifndef WEIR_TRAINER_STATISTICS_ABSENT_INPUTS_H_
#define WEIR_TRAINER_STATISTICS_ABSENT_INPUTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weir {

// Inputs that the streams of one trainer, or of all, have not seen.
struct AbsentInputs {
  // True if the streams have been read as a whole.
  bool whole = false;
  std::vector<uint32_t> places;  // ascending

  // Keeps what `other` has not seen either.
  void Meet(const AbsentInputs& other);
  // Returns "1,<place>,<place>", 0 in front if not whole.
  std::string Serialize() const;
  static std::optional<AbsentInputs> Parse(absl::string_view text);
};

}  // namespace weir

#endif  // WEIR_TRAINER_STATISTICS_ABSENT_INPUTS_H_
