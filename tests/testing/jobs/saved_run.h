// A run in this process together with the newest checkpoint that it has left.
#ifndef WEIR_TESTS_TESTING_JOBS_SAVED_RUN_H_
#define WEIR_TESTS_TESTING_JOBS_SAVED_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "framework/checkpoint/directory.h"
#include "tests/testing/train_in_process.h"

namespace weir {

struct SavedRun {
  InProcessResult result;
  NewestCheckpoint checkpoint;
  // Digests of all variables and of all state in the checkpoint.
  uint64_t values = 0, state = 0;

  // Returns a dense variable of the checkpoint. It is a test failure, and empty, if the checkpoint does not have it.
  std::vector<float> Whole(const std::string& variable) const;
};

// Opens the newest checkpoint in directory `checkpoints`. It is a test failure if there is none, or one that is
// damaged.
SavedRun OpenSaved(InProcessResult result, const std::string& checkpoints);

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_JOBS_SAVED_RUN_H_
