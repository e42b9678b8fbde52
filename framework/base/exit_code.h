// Exit codes of every binary, so that a script can decide without reading the text. See docs/errors.md.
#ifndef WEIR_FRAMEWORK_BASE_EXIT_CODE_H_
#define WEIR_FRAMEWORK_BASE_EXIT_CODE_H_

#include "absl/status/status.h"

namespace weir {

enum ExitCode : int {
  // The work is complete.
  kExitOk = 0,
  // Any failure not listed below.
  kExitFailure = 1,
  // The user's input is wrong: job, flags, data, a join that was refused. Running again changes nothing.
  kExitBadInput = 2,
  // A peer is lost. Running again with --resume continues the job. (A job that failed elsewhere ends every process with
  // the code of the cause.)
  kExitPeerLost = 3,
  // Bytes on disk are damaged.
  kExitDataLoss = 4,
  // A signal asked the job to end, and it has ended in good order before it was complete. Running again with --resume
  // continues it.
  kExitStopped = 5,
};

inline ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return kExitBadInput;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitPeerLost;
    case absl::StatusCode::kDataLoss:
      return kExitDataLoss;
    case absl::StatusCode::kCancelled:
      return kExitStopped;
    default:
      return kExitFailure;
  }
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_EXIT_CODE_H_
