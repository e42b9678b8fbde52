// Predictions to be written to a file, of one trainer or of all, with the input positions of their lines.
#ifndef WEIR_TRAINER_PREDICT_SCORES_H_
#define WEIR_TRAINER_PREDICT_SCORES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "framework/formats/example.h"

namespace weir {

struct Scores {
  // Number of values per prediction; 0 while there is none.
  int64_t width = 0;
  std::vector<InputPosition> positions;
  std::vector<float> values;  // positions.size() * width
  // Positions of the lines that did not parse.
  std::vector<InputPosition> skipped;

  // Returns the width and the number of skipped lines (int64 each), then file and offset (int64 each) of every skipped
  // line, then file, offset and `width` values (float32 each) of every example.
  std::string Serialize() const;
  // Adds the serialized scores of another trainer. Internal if the bytes are malformed; then nothing is added.
  absl::Status Append(std::string_view bytes);
  // A line of the input, with the index of its prediction; -1 for a skipped one.
  struct Line {
    InputPosition position;
    int64_t index = -1;
  };
  // Returns the lines in input order.
  std::vector<Line> InOrder() const;
};

}  // namespace weir

#endif  // WEIR_TRAINER_PREDICT_SCORES_H_
