// Channel for tests that need only rows from servers: discards everything sent, and answers every wait at once.
#ifndef WEIR_TESTS_TESTING_ROWS_CHANNEL_H_
#define WEIR_TESTS_TESTING_ROWS_CHANNEL_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/runtime/param_channel.h"

namespace weir {

// PullRows is left to the test.
class RowsChannel : public ParamChannel {
 public:
  absl::Status BeginStep(int64_t, bool) override { return absl::OkStatus(); }
  absl::Status SendDense(const BlockRef&, absl::Span<const LaneTensor>) override { return absl::OkStatus(); }
  absl::Status SendRows(const BlockRef&, int, absl::Span<const LaneRows>) override { return absl::OkStatus(); }
  absl::Status FinishSends(int64_t, v1::Verdict) override { return absl::OkStatus(); }
  absl::Status Receive(const BlockRef&, Tensor*) override { return absl::OkStatus(); }
  absl::Status FinishReceives(StepOutcome*) override { return absl::OkStatus(); }
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_ROWS_CHANNEL_H_
