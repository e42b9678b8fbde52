#include "pserver/client/ahead_rows.h"

#include "framework/base/counters.h"
#include "glog/logging.h"

namespace weir {

AheadRows::AheadRows(const Options& options)
    : puller_(options.placement, options.calls, options.in_turn, Waits::kAhead),
      exact_(options.placement, options.calls, &puller_.orders(), &Counters::Process()),
      member_(*options.member),
      received_(options.received) {}

absl::Status AheadRows::BeginStep(int64_t step, bool read_only) {
  CHECK(!read_only) << "evaluation and prediction pull their own rows";
  step_ = step;
  puller_.BeginStep(step, read_only);
  return member_.JobStatus();
}

absl::Status AheadRows::PullRows(absl::Span<const TableRows> tables) {
  // The step's own version may be there already.
  const bool early = received_ != nullptr && ahead_of_version_ && step_ > *received_;
  return early ? exact_.Pull(step_, tables) : puller_.PullRows(tables);
}

}  // namespace weir
