// Warning of batches of one example, in programs with operators that compute across the examples of a lane's batch.
//
// These are batch_norm and dice, which take mean and variance of the lane's own examples in training, and losses whose
// negatives are the other examples (LossFacts::across_examples). A job of which every batch has one example is refused
// (ModelContext::NeedSeveralExamples); here it is the data that gives too few.
#ifndef WEIR_TRAINER_LOOP_LONE_EXAMPLES_H_
#define WEIR_TRAINER_LOOP_LONE_EXAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/program.pb.h"
#include "trainer/data/lane_reader.h"

namespace weir {

// Returns the variables that such operators of a program make, with their types: "'norm' (batch_norm)". Variables of
// which one example has many values in the average, such as pictures, are left out.
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
