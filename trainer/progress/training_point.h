// Figures of one progress line, for event files and metrics.
#ifndef WEIR_TRAINER_PROGRESS_TRAINING_POINT_H_
#define WEIR_TRAINER_PROGRESS_TRAINING_POINT_H_

#include <cstdint>
#include <vector>

#include "transpiler/metrics/figure.h"

namespace weir {

// Figures since the last point, as a progress line has them.
struct TrainingPoint {
  int64_t step = 0;
  int64_t examples = 0;  // since the start
  double examples_per_s = 0;
  double loss = 0;
  double fraction = 0;  // of the run; 0 if unknown
  std::vector<Figure> figures;
};

}  // namespace weir

#endif  // WEIR_TRAINER_PROGRESS_TRAINING_POINT_H_
