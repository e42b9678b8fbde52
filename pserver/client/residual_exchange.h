// Error feedback in checkpoints: brings the residuals of all trainers together to be saved, and deals saved ones out.
#ifndef WEIR_PSERVER_CLIENT_RESIDUAL_EXCHANGE_H_
#define WEIR_PSERVER_CLIENT_RESIDUAL_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/runtime/lane_tree.h"
#include "proto/plan.pb.h"
#include "pserver/client/residuals.h"
#include "pserver/member/exchanged.h"

namespace weir {

// Returns true if gradients are pushed in a format that loses bits: trainers then keep residuals.
bool PushesAreLossy(const v1::Plan& plan);

// Saves and restores residuals: the parts of gradients that were lost in lossy formats and have not been sent yet
// (residuals.h). The saved form is a weir.v1.Residuals of any size, handed over in pieces; the pieces of several
// trainers, concatenated, are one such message. Not thread-safe; no gradient may be sent meanwhile.
class ResidualExchange {
 public:
  // All pointers are borrowed. `nodes`: those of this trainer's lanes. whole: the trainer also has residuals of the sum
  // of all its lanes, which may be no node (ClientOptions::compresses).
  ResidualExchange(const v1::Plan* plan, int trainer, absl::Span<const LaneRange> nodes, Residuals* residuals,
                   Board* board, bool whole = false);

  // Returns the residual of a parameter in the sum of all lanes of this trainer, `count` floats, zeros at first.
  // The channel that adds gradients among the trainers keeps it there. Valid as long as the client. Requires: Deal.
  absl::Span<float> OfDense(const std::string& parameter, int64_t count);
  // Sets the nodes that trainers have residuals of, by trainer, where those of their lanes are not all: a trainer that
  // pushes for its host has them of all lanes there. The sum of all lanes of a trainer stays its own. Requires: called
  // by every trainer, before Deal.
  void SetNodes(std::vector<std::vector<LaneRange>> nodes);
  // Returns true if this trainer keeps residuals.
  bool Keeps() const;
  // Sync; every trainer calls it at the same step border. Calls `take` on trainer `to` with the residuals of every
  // trainer. `step`: number of steps pushed so far.
  absl::Status Gather(int64_t step, int to, const TakeBytes& take);
  // Async: Post posts this trainer's residuals at a step border. Take calls `take` with the newest post of every other
  // trainer and with this trainer's present residuals.
  absl::Status Post(int64_t step);
  absl::Status Take(int64_t step, const TakeBytes& take);
  // Called by every trainer before the first step. Trainer `from` calls `read`, which passes the saved residuals to its
  // TakeBytes; every trainer restores its part of them. `step`: the step this trainer goes on at. DataLoss: the bytes
  // are not saved residuals.
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
  std::vector<std::vector<LaneRange>> all_nodes_;  // by trainer; empty: as their lanes say
  std::vector<LaneRange> nodes_;                   // of this trainer; NodesOf reads the member above
  Residuals& residuals_;
  Board& board_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_RESIDUAL_EXCHANGE_H_
