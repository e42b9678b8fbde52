// Fixture that trains the slot job in this process: its data in a directory of the test suite, and common checks of a
// run.
#ifndef WEIR_TESTS_TESTING_JOBS_SLOT_JOB_TEST_H_
#define WEIR_TESTS_TESTING_JOBS_SLOT_JOB_TEST_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tests/testing/train_in_process.h"

namespace weir {

// One suite at a time uses the directory. A suite that writes more files into it does so in its own SetUpTestSuite,
// after calling this one.
class SlotJobTest : public ::testing::Test {
 protected:
  // Makes dir_, named like the suite, with WriteSlotData.
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  static std::string Path(const std::string& name) { return dir_ + "/" + name; }
  // Returns an override that keeps checkpoints in Path(name).
  static std::string CheckpointIn(const std::string& name) { return "checkpoint.dir=\"" + Path(name) + "\""; }

  // Trains in dir_; uses kSlotJob if there is no job text.
  static absl::StatusOr<InProcessResult> TryRun(InProcessRun run);
  // Trains likewise; a run that fails is a test failure and gives an empty result.
  static InProcessResult Run(InProcessRun run);
  // Returns the sum of the servers' counters of this name; each server must have it.
  static int64_t Count(const InProcessResult& result, const std::string& name);
  // Returns the lines of the chief's evaluations.
  static std::vector<std::string> EvalLines(const InProcessResult& result);
  // Returns the words `name=number` of a line.
  static std::map<std::string, double> Figures(const std::string& line);

  static inline std::string dir_;
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_JOBS_SLOT_JOB_TEST_H_
