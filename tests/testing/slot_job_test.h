// The slot job trained in this process: its data in a directory of the test suite, and what each such test asks of a
// run.
#ifndef WEIR_TESTS_TESTING_SLOT_JOB_TEST_H_
#define WEIR_TESTS_TESTING_SLOT_JOB_TEST_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tests/testing/train_in_process.h"

namespace weir {

// One suite at a time has the directory. A suite that writes more into it does so in a SetUpTestSuite of its own,
// behind this one's.
class SlotJobTest : public ::testing::Test {
 protected:
  // Makes dir_, named like the suite, with WriteSlotData.
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  static std::string Path(const std::string& name) { return dir_ + "/" + name; }
  // An override: checkpoints in Path(name).
  static std::string CheckpointIn(const std::string& name) { return "checkpoint.dir=\"" + Path(name) + "\""; }

  // Trains in dir_; without a job text kSlotJob.
  static absl::StatusOr<InProcessResult> TryRun(InProcessRun run);
  // The same, which must succeed: else a failure of the test and an empty result.
  static InProcessResult Run(InProcessRun run);
  // Sum of the servers' counters of this name, which each of them must have.
  static int64_t Count(const InProcessResult& result, const std::string& name);

  static inline std::string dir_;
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_SLOT_JOB_TEST_H_
