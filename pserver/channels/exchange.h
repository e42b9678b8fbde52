// Gradients that travel together in a step, and the ways in which trainers add them. A way is chosen once, when an
// exchange is made:
//
//   rows           merged by id in each aligned node of the lane tree that a trainer has; every trainer gets those of
//                  all others
//   in the tree    dense gradients: each such node is summed over its lanes, and the sums are added in the tree
//                  (framework/collective)
//   adasums        the same of the lanes' means (framework/collective/adasum.h)
//   in any order   of one sum for each trainer
//   in 16 bits     the same, rounded on the way (pserver/replica/compressed_sum.h)
//
// Measurements for running averages are added in the tree, or in any order. If trainers share the updates out, each
// gets the rows, and the sums, of its share alone.
#ifndef WEIR_PSERVER_CHANNELS_EXCHANGE_H_
#define WEIR_PSERVER_CHANNELS_EXCHANGE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/collective/collective.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/param_channel.h"
#include "proto/program.pb.h"
#include "pserver/channels/replica_channel.h"
#include "pserver/params/gradient.h"
#include "pserver/replica/compressed_sum.h"

namespace weir {

// Trainers of a channel, as its exchanges need to know them.
struct Trainers {
  Collective& collective;                          // its ranks are the trainers
  int lanes = 0;                                   // leaves of the lane tree
  std::vector<std::vector<LaneRange>> nodes = {};  // of each trainer
  LaneRange own = {};                              // lanes of this one
  ResidualMemory residuals = nullptr;
};

// Threads: the gradients of different parts may be given at the same time; all other calls come one at a time.
class Exchange {
 public:
  virtual ~Exchange() = default;

  const std::string& name() const { return name_; }
  const std::vector<const GradientPart*>& parts() const { return parts_; }

  // Forgets the gradients and the results of the step before.
  virtual void Clear() { pending_ = nullptr; }
  // Take the gradient of parts()[i], and borrow it until Wait has returned. The first is for dense gradients, the
  // second for rows as PackNodeRows makes them.
  virtual absl::Status GiveDense(size_t i, absl::Span<const StepChannel::LaneTensor> lanes);
  virtual void GiveRows(size_t i, std::string rows);
  // Begins the exchange. Every trainer begins the same ones in the same order; parts that are not given are absent.
  virtual void Begin() = 0;
  // Waits for the end of an exchange that has begun.
  absl::Status Wait() const { return pending_ == nullptr ? absl::OkStatus() : pending_->Wait(); }

  // Makes the result readable. Returns false if it is not finite, as 16 bits can make it. Requires: Wait has returned
  // OK; so do the following.
  virtual bool Unpack() { return true; }
  // Appends the sum of parts()[i], which this trainer updates. Borrows it until Clear. DataLoss: another trainer has
  // sent rows that are none of the part.
  virtual absl::Status Take(size_t i, std::vector<Gradient>* gradients) const = 0;
  // Ends a step that has taken effect.
  virtual void Keep() {}

 protected:
  Exchange(std::string name, std::vector<const GradientPart*> parts)
      : name_(std::move(name)), parts_(std::move(parts)) {}

  Collective::PendingPtr pending_;  // null: not begun

 private:
  const std::string name_;
  const std::vector<const GradientPart*> parts_;
};

// Makes an exchange of dense parts, or of rows of one parameter: all of them or none are measurements where the mode
// does not concern these. `trainers` and the parts, ascending by owner, are borrowed for the life of the exchange.
std::unique_ptr<Exchange> MakeExchange(const v1::AllReduceMode& mode, const Trainers& trainers, std::string name,
                                       std::vector<const GradientPart*> parts);

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_EXCHANGE_H_
