// Supervised pass over data: a read of a disk that does not answer never returns, so another thread watches it.
#ifndef WEIR_TRAINER_DATA_WATCHED_PASS_H_
#define WEIR_TRAINER_DATA_WATCHED_PASS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weir {

struct PassWatch {
  // Name in messages: "the data statistics of streams 0 to 3".
  std::string what;
  // Time without a sign of life after which the log says so, each time it passes.
  absl::Duration slow_warning = absl::Seconds(10);
  // Time without a sign of life after which the wait ends.
  absl::Duration progress_deadline = absl::Minutes(30);
  // Called at the beginning and a few times a second; an error ends the wait with that error.
  std::function<absl::Status()> keep_waiting;
};

// The pass. It calls `cancelled` now and then: each call is a sign of life, and true means that nobody waits any more.
using DataPass = std::function<absl::StatusOr<std::string>(const std::function<bool()>& cancelled)>;

// Runs `pass` in a thread of its own and returns its result. DeadlineExceeded: no sign of life for progress_deadline.
// In that case, and when keep_waiting ends the wait, the thread is abandoned after a moment: `pass` must own everything
// that it uses.
absl::StatusOr<std::string> RunWatched(const PassWatch& watch, DataPass pass);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_WATCHED_PASS_H_
