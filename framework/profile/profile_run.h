// Implements --profile of a program: reads the flags, records, writes the file, prints the table. Defines the flags;
// for main files.
#ifndef WEIR_FRAMEWORK_PROFILE_PROFILE_RUN_H_
#define WEIR_FRAMEWORK_PROFILE_PROFILE_RUN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// Parses "20:40" of --profile_steps into begin and end. InvalidArgument names the expected form.
absl::StatusOr<std::pair<int64_t, int64_t>> ParseProfileSteps(std::string_view text);

struct ProfileFlags {
  std::string file;  // absolute; "" without --profile
  int64_t begin = 0, end = 0;
};
// Reads the flags. InvalidArgument if --profile_steps is wrong, or if the file of --profile is not in a writable
// directory.
absl::StatusOr<ProfileFlags> ReadProfileFlags();

// Profile of this process. Does nothing without --profile. Used by one thread at a time.
class ProfileRun {
 public:
  // Starts recording. `process`: "trainer 0". Errors as in ReadProfileFlags.
  static absl::StatusOr<ProfileRun> Start(std::string process);

  // Call it after each step of a trainer. Writes the file after the last step of the window, because a run may go on
  // for days, or be killed.
  void AfterStep(int64_t steps_done);
  // Stops recording and writes the file, unless that has been done; logs a warning if it cannot be written. Returns the
  // table; "" without --profile and with --noprofile_table.
  std::string Finish();

 private:
  absl::Status Write();

  std::string process_, file_;
  int64_t end_ = -1;
  bool written_ = false;
};

// File written by one process of a job.
struct ProfilePart {
  std::string process;  // "trainer 0", for messages
  std::string file;
};
// Merges the parts of a job: writes the trace to `file` and returns the table ("" with --noprofile_table). The table
// names processes whose part is missing or cannot be read: they were killed.
absl::StatusOr<std::string> MergeProfiles(const std::vector<ProfilePart>& parts, const std::string& file);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_PROFILE_PROFILE_RUN_H_
