// Predictions on their way to a file: of one trainer or of all, with the places in the input where their lines stand.
#ifndef WEIR_TRAINER_SCORES_H_
#define WEIR_TRAINER_SCORES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "trainer/data/example.h"

namespace weir {

struct Scores {
  // Values of one prediction; 0 while there is none.
  int64_t width = 0;
  std::vector<InputPosition> positions;
  std::vector<float> values;  // positions.size() * width
  // Lines that did not parse.
  std::vector<InputPosition> skipped;

  // width and number of skipped lines (int64 each), then file and offset (int64 each) of every skipped line, then file,
  // offset and `width` values (float32 each) of every example.
  std::string Serialize() const;
  // Adds what another trainer has serialized. Internal when the bytes make no sense; then nothing is added.
  absl::Status Append(std::string_view bytes);
  // A line each, in input order: values separated by blanks, nine significant digits; nan for each of a skipped line.
  std::string Text() const;
};

}  // namespace weir

#endif  // WEIR_TRAINER_SCORES_H_
