// Pulls of dense blocks at the end of a step.
#ifndef WEIR_PSERVER_CLIENT_BLOCK_PULLER_H_
#define WEIR_PSERVER_CLIENT_BLOCK_PULLER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/tensor.h"
#include "framework/wire/pull_plan.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/pull_calls.h"
#include "pserver/member/calls.h"

namespace weir {

// Not thread-safe.
class BlockPuller {
 public:
  // `placement` and `calls` are borrowed. in_turn: every server has to say that the version is there, one without
  // blocks too. one_version: all calls return one version; else all of a block is of one moment if a call has room for
  // it.
  BlockPuller(const BlockPlacement* placement, PullCalls* calls, bool in_turn, bool one_version)
      : placement_(*placement), calls_(*calls), in_turn_(in_turn), one_version_(one_version) {}

  // Forgets what has been asked for.
  void Clear() { wanted_.clear(); }
  // Asks for a block (StepChannel::Receive). Requires: `out` lives until Finish has returned.
  absl::Status Receive(const BlockRef& block, Tensor* out);
  // Pulls the blocks asked for, in turn at `version`, and returns what server 0 says of that version. `what`: the
  // blocks, in messages. `also`: calls under way that are waited for, too. `first`: new calls, each of which goes to
  // its server together with the pull from there.
  absl::StatusOr<StepOutcome> Finish(int64_t version, const std::string& what, std::vector<CallPtr> also = {},
                                     const std::vector<CallPtr>& first = {});

 private:
  struct Wanted {
    BlockRef block;
    Tensor* out;
  };
  // Issues the calls for one server, of several at once. `outcome`: set by the first answer, null if it does not count.
  void PullFrom(int server, int64_t version, StepOutcome* outcome, std::vector<CallPtr>* calls);
  // Makes one call. `wanted`: the blocks of the plan.
  CallPtr NewCall(int server, int64_t version, PlannedPull* planned, const std::vector<Wanted>& wanted,
                  StepOutcome* outcome);

  const BlockPlacement& placement_;
  PullCalls& calls_;
  const bool in_turn_, one_version_;
  std::vector<Wanted> wanted_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_BLOCK_PULLER_H_
