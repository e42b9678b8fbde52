// Collective operations that differ on one rank, one for each thing that ranks compare. For tests of meshes: each must
// be refused on all ranks.
#ifndef WEIR_TESTS_TESTING_COLLECTIVE_MISMATCHES_H_
#define WEIR_TESTS_TESTING_COLLECTIVE_MISMATCHES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/collective/collective.h"

namespace weir {

struct CollectiveMismatch {
  const char* name;
  // Begins operation 'x' in a group of three ranks; `odd`: as the rank does that is not like the others. `values` has
  // 4000 elements, and lives until the operation has ended.
  std::function<Collective::PendingPtr(Collective*, bool odd, std::vector<float>* values)> begin;
  // Word for the difference in the error, which also names 'x' and the odd rank.
  const char* expected;
};

std::vector<CollectiveMismatch> CollectiveMismatches();

// Returns the arguments of a sum of `count` of the rank's values.
Collective::Values SumOf(Collective* collective, const std::string& name, int64_t count, std::vector<float>* values);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_COLLECTIVE_MISMATCHES_H_
