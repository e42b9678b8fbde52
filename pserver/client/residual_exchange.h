// Error feedback in checkpoints: brings the residuals of all trainers together to be saved, and deals saved ones out.
#ifndef WEIR_PSERVER_CLIENT_RESIDUAL_EXCHANGE_H_
#define WEIR_PSERVER_CLIENT_RESIDUAL_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/runtime/lane_tree.h"
#include "proto/plan.pb.h"
#include "pserver/client/residuals.h"
#include "pserver/member/exchanges.h"

namespace weir {

// Implements the functions of Client (pserver/client/client.h) that save and restore residuals: Keeps is
// Client::KeepsResiduals, Gather is GatherResiduals, and so on. Not thread-safe. Requires: no gradient is sent
// meanwhile.
class ResidualExchange {
 public:
  // Borrows all pointers. `nodes`: those of this trainer's lanes. whole: the trainer also has residuals of the sum of
  // all its lanes, which may be no node (ClientOptions::compresses).
  ResidualExchange(const v1::Plan* plan, int trainer, absl::Span<const LaneRange> nodes, Residuals* residuals,
                   Exchanges* exchanges, bool whole = false);

  bool Keeps() const;
  absl::Status Gather(int64_t step, int to, const TakeBytes& take);
  absl::Status Post(int64_t step);
  absl::Status Take(int64_t step, const TakeBytes& take);
  absl::Status Deal(int from, const std::function<absl::Status(const TakeBytes&)>& read, int64_t step);

 private:
  // Passes this trainer's residuals to `take` in the form that a file has.
  absl::Status Save(int64_t step, const TakeBytes& take) const;
  // Returns what a trainer has residuals of.
  std::vector<LaneRange> NodesOf(int trainer) const;
  // Restores this trainer's part of what trainer `from` reads.
  absl::Status Receive(int from, int64_t step);
  absl::Status Restore(const v1::Residual& residual, int64_t step) {
    return residuals_.Restore(residual, nodes_, step);
  }

  const v1::Plan& plan_;
  const int trainer_;
  const bool whole_;
  const std::vector<LaneRange> nodes_;
  Residuals& residuals_;
  Exchanges& exchanges_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_RESIDUAL_EXCHANGE_H_
