// --profile of a program: reads the flags, records, writes the file, prints the table. Links the flags; for main files.
#ifndef WEIR_FRAMEWORK_RUNTIME_PROFILE_RUN_H_
#define WEIR_FRAMEWORK_RUNTIME_PROFILE_RUN_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

// "20:40" of --profile_steps: begin and end. InvalidArgument says what is wanted.
absl::StatusOr<std::pair<int64_t, int64_t>> ParseProfileSteps(std::string_view text);

struct ProfileFlags {
  std::string file;  // absolute; "" without --profile
  int64_t begin = 0, end = 0;
};
// InvalidArgument when --profile_steps is wrong, or --profile names no file in a directory that can be written.
absl::StatusOr<ProfileFlags> ReadProfileFlags();

// Profile of this process. Without --profile nothing happens. Used by one thread at a time.
class ProfileRun {
 public:
  // `process`: "trainer 0". Errors as ReadProfileFlags.
  static absl::StatusOr<ProfileRun> Start(std::string process);

  // Behind each step of a trainer. With the last of the window it writes the file: a run may go on for days, or be
  // killed.
  void AfterStep(int64_t steps_done);
  // Stops recording and writes, unless that is done; a file that cannot be written is a warning. The table, "" without
  // --profile and with --noprofile_table.
  std::string Finish();

 private:
  absl::Status Write();

  std::string process_, file_;
  int64_t end_ = -1;
  bool written_ = false;
};

// What a process of a job writes.
struct ProfilePart {
  std::string process;  // "trainer 0", for messages
  std::string file;
};
// Puts the parts of a job together: the trace goes to `file`, the table is returned (without --noprofile_table).
// Processes whose part is not there or cannot be read are named in it: they were killed.
absl::StatusOr<std::string> MergeProfiles(const std::vector<ProfilePart>& parts, const std::string& file);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_PROFILE_RUN_H_
