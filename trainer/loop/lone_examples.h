// Warning of batches of one example, in programs with operators that compute across the examples of a lane's batch.
//
// These are batch_norm and dice, which take mean and variance of the lane's own examples in training, and losses whose
// negatives are the other examples (LossFacts::across_examples). A job whose settings give some lane one example is
// refused (ModelContext::NeedSeveralExamples); here the data give too few.
#ifndef WEIR_TRAINER_LOOP_LONE_EXAMPLES_H_
#define WEIR_TRAINER_LOOP_LONE_EXAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/program.pb.h"
#include "trainer/data/lane_reader.h"

namespace weir {

// Returns the outputs of such operators, with the type of each: "'norm' (batch_norm)". Leaves out operators that
// average many values of one example, as those of a picture.
std::vector<std::string> AcrossExamples(const v1::ProgramDesc& main);

// Not thread-safe.
class LoneExamples {
 public:
  explicit LoneExamples(const v1::ProgramDesc& main) : across_(AcrossExamples(main)) {}

  // Looks at the batches of a round, by worker and lane. Returns the warning for the first round in which lanes have a
  // single example, "" for all others.
  std::string Look(int64_t step, const std::vector<std::vector<LaneBatch>>& batches);

 private:
  std::vector<std::string> across_;  // empty: nothing to look for any more
};

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_LONE_EXAMPLES_H_
