// Limits that the members of a job and the keepers of its roster agree on.
#ifndef WEIR_FRAMEWORK_MEMBERSHIP_LIMITS_H_
#define WEIR_FRAMEWORK_MEMBERSHIP_LIMITS_H_

#include <algorithm>
#include <cstddef>

#include "absl/time/time.h"

namespace weir {

// Maximum number of chunks in one contribution to an exchange: 64 GiB in chunks of 64 MiB. A larger number is a
// mistake.
inline constexpr int kMaxExchangeChunks = 1024;
// Limits of a stream: bytes of a chunk, and number of chunks that have not been taken (ExchangeRequest.stream_to).
inline constexpr size_t kStreamChunk = size_t{4} << 20;
inline constexpr int kStreamWindow = 2;
// Maximum length of an exchange key, in bytes.
inline constexpr size_t kMaxExchangeKey = 1024;

// Suffix of the message to a caller whose lease has run out or has passed to another process. It ends that caller, not
// the job.
inline constexpr char kCannotGoOn[] = "cannot go on";

// Longest wait of one call, whatever the caller asks for; the caller then asks again.
inline constexpr absl::Duration kMaxWait = absl::Seconds(60);

// Returns the time at which a call that asks to wait `wait_s` seconds is answered in any case.
inline absl::Time WaitUntil(absl::Time now, double wait_s) {
  return now + std::min(kMaxWait, absl::Seconds(std::max(0.0, wait_s)));
}

// Caller.trainer of a reader, and the number of readers that a server has at most.
inline constexpr int kReader = -1;
inline constexpr size_t kMaxReaders = 64;

// Maximum number of waiting calls of one trainer and method. Our client has the pulls of a step, and repeats of one
// other call.
inline constexpr size_t kMaxWaitingCalls = 1024;

// Longest text of a caller's own words that messages and the log repeat, in bytes.
inline constexpr size_t kMaxText = 500;
// Longest text of a job's failure, or other text of a server, that its clients repeat.
inline constexpr size_t kMaxFailureText = 2000;

}  // namespace weir

#endif  // WEIR_FRAMEWORK_MEMBERSHIP_LIMITS_H_
