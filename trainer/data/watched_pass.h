// A pass over data, watched from outside: a read of a disk that does not answer never returns.
#ifndef WEIR_TRAINER_DATA_WATCHED_PASS_H_
#define WEIR_TRAINER_DATA_WATCHED_PASS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weir {

struct PassWatch {
  // For messages: "the data statistics of streams 0 to 3".
  std::string what;
  // Without a sign of life for so long the log says so, and again each time it has passed.
  absl::Duration slow_warning = absl::Seconds(10);
  // Without one for so long the wait ends.
  absl::Duration progress_deadline = absl::Minutes(30);
  // Asked a few times a second; not OK ends the wait with it.
  std::function<absl::Status()> keep_waiting;
};

// The pass. It asks `cancelled` now and then: each question is a sign of life, and true says that nobody waits any
// more.
using DataPass = std::function<absl::StatusOr<std::string>(const std::function<bool()>& cancelled)>;

// Runs `pass` in a thread of its own and returns what it returns. DeadlineExceeded: no sign of life for
// progress_deadline. In that case, and when keep_waiting ends it, the thread is left to itself after a moment: `pass`
// owns everything that it uses.
absl::StatusOr<std::string> RunWatched(const PassWatch& watch, DataPass pass);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_WATCHED_PASS_H_
